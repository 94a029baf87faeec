"""Beginning attempts: the only way to obtain the right to execute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from operator import itemgetter
from typing import NamedTuple
from uuid import UUID

import msgspec

from gnomon.contracts.store import BeginRequest, BeginResult, BegunAttempt, Lane, ReservedAttempt
from gnomon.stores.postgres.connection import Database, Row
from gnomon.stores.postgres.rows import Decoder

MOMENT = timedelta(milliseconds=20)  # what came due within it may have done so after the begin
LOOKED_AT = 50  # rows of a lane that may be looked at in vain, each time it is asked in haste
CLOSELY_LOOKED_AT = 250  # the same for a look at what was passed over before
TICK = timedelta(microseconds=1)


class BeginParameters(NamedTuple):
    """What all attempts of one `begin` share, in the order of the parameters."""

    batch: UUID
    owner: str
    grace: timedelta
    window: timedelta
    silent: timedelta


class LaneLeft(NamedTuple):
    """What lanes have left after a begin."""

    next_due: dict[Lane, datetime | None]
    refused: dict[Lane, datetime]
    looked_at: datetime | None  # None: there was no need to


async def begin(
    database: Database, decoder: Decoder, demands: Sequence[BeginRequest], terms: BeginParameters
) -> BeginResult:
    rows = list(await _begin_rows(database, demands, terms, newest=False))
    left = await _left(database, demands, rows)
    reached: dict[Lane, datetime] = {}
    if left.refused:
        blocked = [demand for demand in demands if demand.lane in left.refused]
        rows += await _begin_behind(database, blocked, terms, rows, left)
        reached = await _reached(database, blocked, left)
    # They come in this order by themselves, unless a planner without our settings is at work.
    rows.sort(key=itemgetter(5))
    begun = [decoder.begun_of(row) for row in rows]
    now = rows[0][6] if rows else left.looked_at or (await database.fetch("now"))[0][0]
    return BeginResult(
        begun=begun, next_due=left.next_due, now=now, refused=left.refused, reached=reached
    )


async def _begin_behind(
    database: Database,
    demands: Sequence[BeginRequest],
    terms: BeginParameters,
    rows: Sequence[Row],
    left: LaneLeft,
) -> Sequence[Row]:
    """What stands at the head of these lanes cannot be begun; what has just come due behind it must
    not wait for that. A lane that gives all that was asked may have more at once."""
    given = Counter((row[0], row[20], row[21]) for row in rows)
    blocked = [
        msgspec.structs.replace(demand, limit=demand.limit - given[demand.lane])
        for demand in demands
    ]
    found = await _begin_rows(database, blocked, terms, newest=True)
    counted = Counter((row[0], row[20], row[21]) for row in found)
    for demand in blocked:
        if counted[demand.lane] >= demand.limit:
            left.next_due[demand.lane] = left.refused[demand.lane]
    return found


async def _begin_rows(
    database: Database, demands: Sequence[BeginRequest], terms: BeginParameters, *, newest: bool
) -> Sequence[Row]:
    if len(demands) > 1 and database.many_shards:
        return await database.fetch(
            "begin",
            *_lane_columns(demands),
            [demand.lease_guid for demand in demands],
            [demand.limit for demand in demands],
            [demand.since for demand in demands],
            *terms,
            newest,
            [_looked_at(demand) for demand in demands],
        )
    found: list[Row] = []
    for demand in demands:
        found += await database.fetch(
            "begin_lane", *demand.lane, demand.lease_guid, demand.limit, demand.since, *terms,
            newest, _looked_at(demand),
        )  # fmt: skip
    return found


def _looked_at(demand: BeginRequest) -> int:
    return LOOKED_AT if demand.hasty else CLOSELY_LOOKED_AT


async def _reached(
    database: Database, blocked: Sequence[BeginRequest], left: LaneLeft
) -> dict[Lane, datetime]:
    """Where the next look goes on; behind rows of one moment, if they are all it looked at."""
    sinces = [demand.since for demand in blocked]
    counts = [demand.limit + _looked_at(demand) for demand in blocked]
    if len(blocked) > 1 and database.many_shards:
        rows = await database.fetch("begin_reached", *_lane_columns(blocked), sinces, counts)
    else:
        rows = [
            (await database.fetch("begin_reached_lane", *demand.lane, demand.since, count))[0]
            for demand, count in zip(blocked, counts, strict=True)
        ]
    return {
        demand.lane: max(row[0], (demand.since or left.refused[demand.lane]) + TICK)
        for demand, row in zip(blocked, rows, strict=True)
        if row[0] is not None
    }


async def _left(
    database: Database, demands: Sequence[BeginRequest], rows: Sequence[Row]
) -> LaneLeft:
    """When each lane has its next row. A hasty one that gave all that was asked may have more at
    once: for it the time of the last row begun is good enough, and spares a look."""
    given = Counter((row[0], row[20], row[21]) for row in rows)
    last = {(row[0], row[20], row[21]): row[5] for row in rows}
    left = LaneLeft({}, {}, None)
    asked: list[BeginRequest] = []
    for demand in demands:
        if demand.hasty and given[demand.lane] >= demand.limit > 0:
            left.next_due[demand.lane] = last[demand.lane]
        else:
            asked.append(demand)
    if not asked:
        return left
    found = await _look_next(database, asked)
    for demand, (first, behind, looked_at) in zip(asked, found, strict=True):
        is_refused = first is not None and first <= looked_at - MOMENT
        if is_refused and given[demand.lane] < demand.limit:
            left.refused[demand.lane] = first
            left.next_due[demand.lane] = behind
        else:
            left.next_due[demand.lane] = first
    return left._replace(looked_at=found[0][2])


async def _look_next(database: Database, demands: Sequence[BeginRequest]) -> Sequence[Row]:
    if len(demands) > 1 and database.many_shards:
        sinces = [demand.since for demand in demands]
        return await database.fetch("begin_next_due", *_lane_columns(demands), sinces, MOMENT)
    found: list[Row] = []
    for demand in demands:
        found += await database.fetch("begin_next_due_lane", *demand.lane, demand.since, MOMENT)
    return found


def _lane_columns(demands: Sequence[BeginRequest]) -> tuple[list[object], ...]:
    return (
        [demand.lane.shard for demand in demands],
        [demand.lane.queue for demand in demands],
        [demand.lane.priority for demand in demands],
    )


async def recall(
    database: Database, decoder: Decoder, demands: Sequence[BeginRequest], batch: UUID
) -> Sequence[BegunAttempt]:
    unique = list({demand.lane: demand for demand in demands}.values())
    found: list[BegunAttempt] = []
    for group in database.groups(demand.lane.shard for demand in unique):
        chosen = [unique[place] for place in group.places]
        rows = await database.fetch("find_begun", *_lane_columns(chosen), batch, *group.shards)
        found += [decoder.begun_of(row) for row in rows]
    return found


async def extend(
    database: Database, attempts: Sequence[ReservedAttempt], reserve: timedelta
) -> Collection[UUID]:
    kept: set[UUID] = set()
    for group in database.groups(attempt.shard for attempt in attempts):
        unique = {attempts[place].guid: attempts[place] for place in group.places}
        chosen = [unique[guid] for guid in sorted(unique)]
        rows = await database.fetch(
            "extend",
            [attempt.guid for attempt in chosen],
            [attempt.attempt_id for attempt in chosen],
            reserve,
            *group.shards,
        )
        kept.update(row[0] for row in rows)
    return kept
