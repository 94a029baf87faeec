"""Beginning what is due in lanes, and confirming what was begun ahead."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from operator import itemgetter
from uuid import UUID

import msgspec

from gnomon.contracts.store import (
    BeginRequest,
    BeginResult,
    BegunAttempt,
    ConfirmResult,
    Lane,
)
from gnomon.stores._attempts import confirmed
from gnomon.stores.postgres.connection import Database, Group, Row, read_now
from gnomon.stores.postgres.lanes import (
    MOMENT,
    BeginParameters,
    LaneLeft,
    lane_columns,
    last_due,
    rows_per_lane,
)
from gnomon.stores.postgres.parts import Only
from gnomon.stores.postgres.rows import Decoder
from gnomon.stores.postgres.several import every

LOOKED_AT = 50  # rows of a lane that may be looked at in vain, each time it is asked in haste
CLOSELY_LOOKED_AT = 250  # the same for a look at what was passed over before
TICK = timedelta(microseconds=1)


class LaneBeginner:
    """`begin` and `confirm` of this engine."""

    def __init__(self, database: Database, decoder: Decoder) -> None:
        self._database = database
        self._decoder = decoder

    async def begin(
        self,
        demands: Sequence[BeginRequest],
        terms: BeginParameters,
        until: datetime | None = None,
    ) -> BeginResult:
        """Begin the first due rows of the lanes. Where rows at the head cannot be begun, look
        behind them too; what came due there must not wait for them."""
        rows: list[Row] = []
        left = LaneLeft({}, {}, None)
        answers = await every(
            self._database.split(demands, lambda demand: demand.lane.shard),
            lambda part: self._begin_and_look(*part, terms, until),
        )
        for part_rows, part_left in answers:
            rows += part_rows
            left = left.joined(part_left)
        reached: dict[Lane, datetime] = {}
        if left.refused:
            blocked = [demand for demand in demands if demand.lane in left.refused]
            rows += await self._begin_behind(blocked, terms, rows, left)
            reached = await self._reached(blocked, left)
        # They come in this order by themselves, unless a planner without our settings is at work.
        rows.sort(key=itemgetter("due_at"))
        begun = [self._decoder.begun_of(row) for row in rows]
        now = await self._time_of(rows if until is None else [], left)
        return BeginResult(
            begun=begun, next_due=left.next_due, now=now, refused=left.refused, reached=reached
        )

    async def _begin_and_look(
        self,
        demands: Sequence[BeginRequest],
        only: Only,
        terms: BeginParameters,
        until: datetime | None,
    ) -> tuple[Sequence[Row], LaneLeft]:
        """In one part, and what its lanes have left; no part waits for another."""
        clock = asyncio.get_running_loop().time
        asked_at = clock()
        rows = await self._begin_part(demands, only, terms, newest=False, until=until)
        return rows, await self._left(demands, rows, self._moment(clock() - asked_at))

    def _moment(self, took_s: float) -> timedelta:
        """What came due within it may have done so after the begin, and was not refused. On Citus
        the look that follows comes as much later as the begin has taken, and longer."""
        return MOMENT if self._database.many_shards else MOMENT + 2 * timedelta(seconds=took_s)

    async def _time_of(self, rows: Sequence[Row], left: LaneLeft) -> datetime:
        """The present, from what is at hand: rows that were not begun ahead tell it."""
        now: datetime | None = rows[0]["began_at"] if rows else left.looked_at
        return now or await read_now(self._database)

    async def _begin_behind(
        self,
        demands: Sequence[BeginRequest],
        terms: BeginParameters,
        rows: Sequence[Row],
        left: LaneLeft,
    ) -> Sequence[Row]:
        """What stands at the head of these lanes cannot be begun; what has just come due behind it
        must not wait for that. A lane that gives all that was asked may have more at once."""
        given = rows_per_lane(rows)
        blocked = [
            msgspec.structs.replace(demand, limit=demand.limit - given[demand.lane])
            for demand in demands
        ]
        answers = await every(
            self._database.split(blocked, lambda demand: demand.lane.shard),
            lambda part: self._begin_part(*part, terms, newest=True),
        )
        newest = [row for rows in answers for row in rows]
        given = rows_per_lane(newest)
        for demand in blocked:
            if given[demand.lane] >= demand.limit:
                left.next_due[demand.lane] = left.refused[demand.lane]
        return newest

    async def _begin_part(
        self,
        demands: Sequence[BeginRequest],
        only: Only,
        terms: BeginParameters,
        *,
        newest: bool,
        until: datetime | None = None,
    ) -> Sequence[Row]:
        if len(demands) == 1:
            (demand,) = demands
            return await self._database.fetch(
                self._database.about("begin_lane", newest=newest),
                *demand.lane, demand.lease_guid, demand.limit, demand.since, *terms,
                newest, _looked_at(demand), demand.is_guest, until,
            )  # fmt: skip
        return await self._database.fetch(
            self._database.about("begin", newest=newest),
            *lane_columns(demands),
            [demand.lease_guid for demand in demands],
            [demand.limit for demand in demands],
            [demand.since for demand in demands],
            *terms,
            newest,
            [_looked_at(demand) for demand in demands],
            [demand.is_guest for demand in demands],
            until,
            *only,
        )

    async def _reached(
        self, blocked: Sequence[BeginRequest], left: LaneLeft
    ) -> dict[Lane, datetime]:
        """Where the next look goes on; behind rows of one moment, if they are all it looked at."""
        counts = [demand.limit + _looked_at(demand) for demand in blocked]
        rows = await self._per_lane("begin_reached", blocked, counts)
        return {
            demand.lane: max(row["reached_at"], (demand.since or left.refused[demand.lane]) + TICK)
            for demand, row in zip(blocked, rows, strict=True)
            if row["reached_at"] is not None
        }

    async def _left(
        self, demands: Sequence[BeginRequest], rows: Sequence[Row], moment: timedelta
    ) -> LaneLeft:
        """When each lane has its next row. A hasty one that gave all that was asked may have more
        at once: for it the time of the last row begun is good enough, and spares a look."""
        given = rows_per_lane(rows)
        last = last_due(rows)
        left = LaneLeft({}, {}, None)
        asked: list[BeginRequest] = []
        for demand in demands:
            if demand.hasty and given[demand.lane] >= demand.limit > 0:
                left.next_due[demand.lane] = last[demand.lane]
            else:
                asked.append(demand)
        if not asked:
            return left
        next_rows = await self._per_lane("begin_next_due", asked, moment)
        for demand, row in zip(asked, next_rows, strict=True):
            is_short = given[demand.lane] < demand.limit
            left.add(demand.lane, row, is_short=is_short, moment=moment)
        return left._replace(looked_at=next_rows[0]["now"])

    async def _per_lane(
        self, query: str, demands: Sequence[BeginRequest], last: object
    ) -> Sequence[Row]:
        """One row for each lane, about what lies in it from `since` on. The last parameter is the
        same for all lanes, or a list with one for each."""
        groups = list(self._database.groups(demand.lane.shard for demand in demands))
        rows: list[Row | None] = [None] * len(demands)
        answers = await every(groups, lambda group: self._of_part(query, demands, last, group))
        for group, answer in zip(groups, answers, strict=True):
            for place, row in zip(group.places, answer, strict=True):
                rows[place] = row
        return [row for row in rows if row is not None]

    async def _of_part(
        self, query: str, demands: Sequence[BeginRequest], last: object, group: Group
    ) -> Sequence[Row]:
        chosen = [demands[place] for place in group.places]
        lasts = [last[place] for place in group.places] if isinstance(last, list) else last
        if len(chosen) == 1:
            (demand,) = chosen
            one = lasts[0] if isinstance(lasts, list) else lasts
            return await self._database.fetch(f"{query}_lane", *demand.lane, demand.since, one)
        sinces = [demand.since for demand in chosen]
        columns = lane_columns(chosen)
        return await self._database.fetch(query, *columns, sinces, lasts, *group.shards)

    async def confirm(self, attempts: Sequence[BegunAttempt]) -> ConfirmResult:
        """The time is that of the first look: what had come by then has come for all of them."""
        gone, expired = set[UUID](), set[UUID]()
        times: list[datetime] = []
        for rows in await every(
            self._database.split(attempts, lambda attempt: attempt.shard), self._confirm_part
        ):
            for row in rows:
                if row["attempt_id"] is None:
                    times.append(row["now"])
                else:
                    (gone if row["is_gone"] else expired).add(row["attempt_id"])
        now = min(times) if times else await read_now(self._database)
        return confirmed(attempts, now, gone=gone, expired=expired)

    async def _confirm_part(self, part: tuple[Sequence[BegunAttempt], Only]) -> Sequence[Row]:
        chosen, only = part
        guids = [attempt.guid for attempt in chosen]
        attempt_ids = [attempt.attempt_id for attempt in chosen]
        return await self._database.fetch("confirm", guids, attempt_ids, *only)


def _looked_at(demand: BeginRequest) -> int:
    return LOOKED_AT if demand.hasty else CLOSELY_LOOKED_AT
