"""Work in PostgreSQL: what the owner of a shard does with its queues.

A mark says that no unmoved row is older, except those of transactions that took long to commit. It
lags half a second behind, and a poll tells which transactions may yet bring older ones, so that no
row is lost by it: it only spares the walk over rows that are dead but not yet vacuumed. While
somebody holds a snapshot none is: every look goes over all that was moved since the mark, so it is
not far behind. No mark counts beyond the present less half a second: the clock may have been set
back, and by more than that a poll sees it. On Citus no poll can tell; there it is two seconds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from gnomon.contracts.store import (
    NO_PLACES,
    ArrivalResult,
    BeginRequest,
    BeginResult,
    BegunAttempt,
    ConfirmResult,
    DecideResume,
    FinishRequest,
    HeldShard,
    Lane,
    LapsedRow,
    MoveResult,
    OpenTransactions,
    PauseEnds,
    PausePlace,
    PollResult,
    Recorded,
    ReservedAttempt,
    SettleRequest,
)
from gnomon.stores._attempts import first_half
from gnomon.stores._pauses import PauseEnding
from gnomon.stores.postgres.arrivals import PartArrival, PartMover, shares_of
from gnomon.stores.postgres.begin import LaneBeginner
from gnomon.stores.postgres.cancellations import list_cancelling
from gnomon.stores.postgres.connection import Database, Row, read_now
from gnomon.stores.postgres.finish import finish_all
from gnomon.stores.postgres.in_place import FOREVER, move_begun, move_begun_in
from gnomon.stores.postgres.lanes import (
    LONG_AGO,
    BeginParameters,
    MoveTally,
    lane_of,
    mark_of,
)
from gnomon.stores.postgres.needs import count_due, list_need_lanes, list_needs
from gnomon.stores.postgres.parts import Only
from gnomon.stores.postgres.pauses import end_pauses
from gnomon.stores.postgres.rows import Decoder
from gnomon.stores.postgres.settle import settle_rows
from gnomon.stores.postgres.several import every, those_at_hand
from gnomon.stores.postgres.texts import ROOMY

NOBODY = UUID(int=0)
ROOM_TO_SHARE = 8  # free slots for each part; where there are fewer, none must be left out
LAPSED_LOOKED_AT = 2_000  # rows of a shard, to find those that nobody holds
STALE_LOOKED_AT = 200  # rows at the head of a lane; a backlog behind them is looked at later


class PostgresWork:
    """The `WorkStore` of this engine."""

    def __init__(self, database: Database, decoder: Decoder) -> None:
        self._database = database
        self._decoder = decoder
        self._beginner = LaneBeginner(database, decoder)

    # -- move -------------------------------------------------------------------------------------

    async def poll(self, holdings: Sequence[HeldShard]) -> PollResult:
        marks = [mark_of(holding) for holding in holdings]
        shards = [holding.shard for holding in holdings]
        if self._database.many_shards:
            (row,) = await self._database.fetch("poll", shards, marks, self._database.mark_slack)
            start = row["next_known"]
            stop = start + (row["next_32"] - start) % 2**32
            open_ones = OpenTransactions(ids=row["open_ids"], start=start, stop=stop)
            return PollResult(shards=row["shards"], now=row["now"], open=open_ones)
        answers = await those_at_hand(
            self._database.groups(shards),
            lambda group: self._database.fetch(
                "poll_part",
                [shards[place] for place in group.places],
                [marks[place] for place in group.places],
                self._database.mark_slack,
                *group.shards,
            ),
        )
        filled = [row["shard_id"] for rows in answers for row in rows]
        return PollResult(shards=filled, now=await read_now(self._database), open=None)

    async def move(self, holdings: Sequence[HeldShard], *, limit: int) -> MoveResult:
        if not self._database.many_shards or not holdings:
            tally = await self._move_parts(holdings, limit)
            return tally.moved(tally.now)
        rows = await self._database.fetch(
            "move",
            [holding.shard for holding in holdings],
            [holding.lease_guid for holding in holdings],
            [mark_of(holding) for holding in holdings],
            limit,
            self._database.mark_slack,
            None,
        )
        return await self._moved(rows, MoveTally(holdings, limit, self._database.mark_slack))

    async def _move_parts(
        self,
        holdings: Sequence[HeldShard],
        limit: int,
        *,
        silent: timedelta | None = None,
    ) -> MoveTally:
        tally = MoveTally(holdings, limit, self._database.mark_slack)
        mover = PartMover(self._database, tally, limit, silent=silent)
        parts = self._database.split(holdings, lambda holding: holding.shard)
        await every(parts, mover.move)
        if tally.now == LONG_AGO:  # none of the shards is held any more
            tally.now = await read_now(self._database)
        return tally

    async def move_silent(
        self, shards: Sequence[int], *, limit: int, silent: timedelta
    ) -> MoveResult:
        holdings = [HeldShard(shard=shard, lease_guid=NOBODY) for shard in shards]
        if self._database.many_shards and shards:
            nothing = [None] * len(shards)
            rows = await self._database.fetch(
                "move", shards, nothing, nothing, limit, self._database.mark_slack, silent
            )
            moved = await self._moved(rows, MoveTally(holdings, limit, self._database.mark_slack))
        else:
            tally = await self._move_parts(holdings, limit, silent=silent)
            moved = tally.moved(tally.now)
        return msgspec.structs.replace(moved, marks={})

    async def _moved(self, rows: Sequence[Row], tally: MoveTally) -> MoveResult:
        tally.add_totals(rows)
        # Without a row, none of the shards is held any more.
        return tally.moved(rows[0]["now"] if rows else await read_now(self._database))

    async def move_and_begin(
        self,
        holdings: Sequence[HeldShard],
        *,
        limit: int,
        room: Mapping[str, int],
        batch: UUID,
        owner: str,
        grace: timedelta,
        window: timedelta,
        newest: bool = False,
    ) -> ArrivalResult:
        terms = BeginParameters(first_half(batch), owner, grace, window, timedelta(0))
        if not self._database.many_shards or not holdings:
            arrived = await self._arrive_in_parts(holdings, limit, room, terms, newest=newest)
        else:
            arrived = await self._begin_in_place(holdings, limit, room, terms, newest=newest)
        return _without_marks(arrived) if newest else arrived

    async def _begin_in_place(
        self,
        holdings: Sequence[HeldShard],
        limit: int,
        room: Mapping[str, int],
        terms: BeginParameters,
        *,
        newest: bool,
    ) -> ArrivalResult:
        # A queue that has no room is left out: nobody counts where there is room for all.
        room = {queue: free for queue, free in room.items() if free > 0}
        is_roomy = not newest and len(holdings) * limit <= min(room.values(), default=0)
        rows = await self._database.fetch(
            ROOMY.format("move_and_begin") if is_roomy else "move_and_begin",
            [holding.shard for holding in holdings],
            [holding.lease_guid for holding in holdings],
            [mark_of(holding) for holding in holdings],
            limit,
            list(room),
            list(room.values()),
            *terms[:4],
            self._database.mark_slack,
            newest,
        )
        tally = MoveTally(holdings, limit, self._database.mark_slack)
        begun = [row for row in rows if row["id"] is not None]
        told = [row for row in rows if row["id"] is None]
        now = told[0]["now"] if told else await read_now(self._database)
        tally.count += len(begun)
        tally.add_totals(told)
        return ArrivalResult(moved=tally.moved(now), begun=self._decoder.first_attempts(begun, now))

    async def is_mixed(self, holdings: Sequence[HeldShard], *, limit: int) -> bool:
        answers = await every(
            self._database.split(holdings, lambda holding: holding.shard),
            lambda part: self._database.fetch(
                "is_mixed",
                [holding.shard for holding in part[0]],
                [mark_of(holding) for holding in part[0]],
                limit,
                self._database.mark_slack,
                *part[1],
            ),
        )
        return len({(row["queue"], row["priority"]) for rows in answers for row in rows}) > 1

    async def _arrive_in_parts(
        self,
        holdings: Sequence[HeldShard],
        limit: int,
        room: Mapping[str, int],
        terms: BeginParameters,
        *,
        newest: bool,
    ) -> ArrivalResult:
        """All parts at once if each can have its share of the room; else one after the other."""
        tally = MoveTally(holdings, limit, self._database.mark_slack)
        arrival = PartArrival(self._database, self._decoder, tally, limit, terms, newest=newest)
        parts = list(self._database.split(holdings, lambda holding: holding.shard))
        begun: list[BegunAttempt] = []
        if min(room.values(), default=0) >= len(parts) * ROOM_TO_SHARE:
            shared = zip(parts, shares_of(room, len(parts)), strict=True)
            answers = await every(shared, lambda part: arrival.arrive(*part[0], part[1]))
            begun = [attempt for answer in answers for attempt in answer]
        else:
            left = dict(room)
            for part in parts:
                attempts = await arrival.arrive(*part, left)
                for attempt in attempts:
                    left[attempt.spec.queue] -= 1
                begun += attempts
        if tally.now == LONG_AGO:  # none of the shards is held any more, or has rows
            tally.now = await read_now(self._database)
        return ArrivalResult(moved=tally.moved(tally.now), begun=begun)

    # -- begin ------------------------------------------------------------------------------------

    async def begin(
        self,
        demands: Sequence[BeginRequest],
        *,
        batch: UUID,
        owner: str,
        grace: timedelta,
        window: timedelta,
        silent: timedelta,
        until: datetime | None = None,
    ) -> BeginResult:
        terms = BeginParameters(first_half(batch), owner, grace, window, silent)
        return await self._beginner.begin(demands, terms, until)

    async def confirm(self, attempts: Sequence[BegunAttempt]) -> ConfirmResult:
        return await self._beginner.confirm(attempts)

    async def find_begun(self, shards: Collection[int], *, batch: UUID) -> Sequence[BegunAttempt]:
        answers = await those_at_hand(
            self._database.split(sorted(shards), lambda shard: shard),
            lambda part: self._database.fetch("find_begun", part[0], first_half(batch), *part[1]),
        )
        return [self._decoder.begun_of(row) for rows in answers for row in rows]

    async def extend(
        self, attempts: Sequence[ReservedAttempt], *, window: timedelta, grace: timedelta
    ) -> Collection[UUID]:
        unique = {attempt.guid: attempt for attempt in attempts}
        ordered = [unique[guid] for guid in sorted(unique)]
        kept: set[UUID] = set()
        for chosen, only in self._database.split(ordered, lambda attempt: attempt.shard):
            guids = [attempt.guid for attempt in chosen]
            attempt_ids = [attempt.attempt_id for attempt in chosen]
            async with self._database.transaction("extend") as session:
                await move_begun(session, guids, only)
                rows = await session.fetch("extend", guids, attempt_ids, window + grace, *only)
            kept.update(row["attempt_id"] for row in rows)
        return kept

    async def list_lanes(self, holdings: Sequence[HeldShard]) -> Mapping[Lane, datetime]:
        answers = await every(
            self._split_shards(holdings),
            lambda part: self._database.fetch("list_lanes", part[0], *part[1]),
        )
        return {lane_of(row): row["scheduled_at"] for rows in answers for row in rows}

    async def list_needs(self, *, limit: int) -> Sequence[str]:
        return await list_needs(self._database, limit)

    async def list_cancelling(
        self, shards: Collection[int], *, owner: str, since: datetime
    ) -> Collection[UUID]:
        return await list_cancelling(self._database, shards, owner, since)

    async def list_need_lanes(self, needs: Sequence[str]) -> Mapping[Lane, datetime]:
        return await list_need_lanes(self._database, needs)

    async def count_due(
        self, lanes: Sequence[Lane], *, limit: int, until: datetime | None = None
    ) -> int:
        return await count_due(self._database, lanes, limit, until)

    def _split_shards(self, holdings: Sequence[HeldShard]) -> list[tuple[list[int], Only]]:
        shards = [holding.shard for holding in holdings]
        return list(self._database.split(shards, lambda shard: shard))

    # -- record -----------------------------------------------------------------------------------

    async def finish(self, finishes: Sequence[FinishRequest], *, owner: str) -> Sequence[Recorded]:
        return await finish_all(self._database, finishes, owner)

    async def list_lapsed(
        self, holdings: Sequence[HeldShard], *, limit: int
    ) -> Sequence[LapsedRow]:
        async def lapsed_in(part: tuple[Sequence[int], Only]) -> list[LapsedRow]:
            shards, only = part
            lapsed: list[LapsedRow] = []
            async with self._database.transaction("list_lapsed") as session:
                await move_begun_in(session, shards, only, look=LAPSED_LOOKED_AT)
                for query in ("list_lapsed_running", "list_lapsed_expired"):
                    left = limit - len(lapsed)
                    if left > 0:
                        rows = await session.fetch(query, shards, left, LAPSED_LOOKED_AT, *only)
                        lapsed += map(self._decoder.lapsed_of, rows)
            return lapsed

        answers = await every(self._split_shards(holdings), lapsed_in)
        return [row for lapsed in answers for row in lapsed][:limit]

    async def end_pauses(
        self,
        holdings: Sequence[HeldShard],
        *,
        batch: UUID,
        decide: DecideResume,
        limit: int,
        places: Mapping[int, PausePlace] = NO_PLACES,
        silent: timedelta | None = None,
    ) -> PauseEnds:
        ending = PauseEnding(batch, decide, limit, places, silent)
        return await end_pauses(self._database, self._decoder, holdings, ending)

    async def delete_stale(self, holdings: Sequence[HeldShard], *, limit: int) -> int:
        answers = await every(
            self._split_shards(holdings),
            lambda part: self._database.fetch(
                "delete_stale", part[0], limit, STALE_LOOKED_AT, *part[1]
            ),
        )
        return sum(map(len, answers))

    async def list_orphans(
        self, owners: Collection[str], *, shards: Sequence[int], after: UUID | None, limit: int
    ) -> Sequence[LapsedRow]:
        orphans: list[LapsedRow] = []
        for chosen, only in self._database.split(shards, lambda shard: shard):
            async with self._database.transaction("list_orphans") as session:
                await move_begun_in(session, chosen, only, owners=owners, until=FOREVER)
                rows = await session.fetch(
                    "list_orphans", chosen, list(owners), after, limit, *only
                )
            orphans += map(self._decoder.lapsed_of, rows)
        return sorted(orphans, key=lambda orphan: orphan.guid)[:limit]

    async def settle(self, settlements: Sequence[SettleRequest]) -> int:
        unique = {row.lapsed.guid: row for row in settlements}
        ordered = [unique[guid] for guid in sorted(unique)]
        count = 0
        for chosen, only in self._database.split(ordered, lambda row: row.lapsed.shard):
            async with self._database.transaction("settle") as session:
                count += await settle_rows(session, chosen, only)
        return count


def _without_marks(arrived: ArrivalResult) -> ArrivalResult:
    """Older rows were passed by: where live rows begin is not known from this."""
    moved = msgspec.structs.replace(arrived.moved, marks={}, more=False)
    return msgspec.structs.replace(arrived, moved=moved)
