"""Beginning attempts: the only way to obtain the right to execute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from operator import itemgetter
from typing import NamedTuple
from uuid import UUID

from gnomon.contracts.store import BeginResult, Begun, Demand, Lane
from gnomon.stores.postgres.connection import Database, Row
from gnomon.stores.postgres.rows import Decoder


class Terms(NamedTuple):
    """What all attempts of one `begin` share, in the order of the parameters."""

    batch: UUID
    owner: str
    grace: timedelta
    window: timedelta
    silent: timedelta


async def begin(
    database: Database, decoder: Decoder, demands: Sequence[Demand], terms: Terms
) -> BeginResult:
    # They come in this order by themselves, unless a planner without our settings is at work.
    rows = sorted(await _begin_rows(database, demands, terms), key=itemgetter(5))
    begun = [decoder.begun_of(row) for row in rows]
    next_due, looked_at = await _next_due(database, demands, rows)
    now = rows[0][6] if rows else looked_at or (await database.fetch("now"))[0][0]
    return BeginResult(begun=begun, next_due=next_due, now=now)


async def _begin_rows(database: Database, demands: Sequence[Demand], terms: Terms) -> Sequence[Row]:
    if len(demands) > 1 and database.many_shards:
        return await database.fetch(
            "begin",
            *_lane_columns(demands),
            [demand.lease_guid for demand in demands],
            [demand.limit for demand in demands],
            [demand.since for demand in demands],
            *terms,
        )
    found: list[Row] = []
    for demand in demands:
        found += await database.fetch(
            "begin_lane", *demand.lane, demand.lease_guid, demand.limit, demand.since, *terms
        )
    return found


async def _next_due(
    database: Database, demands: Sequence[Demand], rows: Sequence[Row]
) -> tuple[dict[Lane, datetime | None], datetime | None]:
    """When each lane has its next row. A lane that gave all that was asked may have more at once:
    for it the time of the last row begun is good enough, and spares a look."""
    given = Counter((row[0], row[20], row[21]) for row in rows)
    last = {(row[0], row[20], row[21]): row[5] for row in rows}
    known: dict[Lane, datetime | None] = {}
    asked: list[Demand] = []
    for demand in demands:
        if given[demand.lane] >= demand.limit > 0:
            known[demand.lane] = last[demand.lane]
        else:
            asked.append(demand)
    if not asked:
        return known, None
    found = await _look_next(database, asked)
    for demand, row in zip(asked, found, strict=True):
        known[demand.lane] = row[0]
    return known, found[0][1]


async def _look_next(database: Database, demands: Sequence[Demand]) -> Sequence[Row]:
    if len(demands) > 1 and database.many_shards:
        sinces = [demand.since for demand in demands]
        return await database.fetch("next_due", *_lane_columns(demands), sinces)
    found: list[Row] = []
    for demand in demands:
        found += await database.fetch("next_due_lane", *demand.lane, demand.since)
    return found


def _lane_columns(demands: Sequence[Demand]) -> tuple[list[object], ...]:
    return (
        [demand.lane.shard for demand in demands],
        [demand.lane.queue for demand in demands],
        [demand.lane.priority for demand in demands],
    )


async def recall(
    database: Database, decoder: Decoder, demands: Sequence[Demand], batch: UUID
) -> Sequence[Begun]:
    unique = list({demand.lane: demand for demand in demands}.values())
    found: list[Begun] = []
    for group in database.groups(demand.lane.shard for demand in unique):
        chosen = [unique[place] for place in group.places]
        rows = await database.fetch("recall", *_lane_columns(chosen), batch, *group.shards)
        found += [decoder.begun_of(row) for row in rows]
    return found


async def extend(
    database: Database, attempts: Sequence[Begun], reserve: timedelta
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
