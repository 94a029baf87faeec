"""What will be due, in PostgreSQL: steps from lane to lane, and counts with an end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from gnomon.contracts.store import DueLoad, Lane, RecurringAction
from gnomon.stores._figures import arrivals_looked_at
from gnomon.stores._load import (
    LOAD_ARRIVALS,
    LOOK_ROWS,
    LanesAhead,
    LoadTally,
    Look,
    recurring_actions,
)
from gnomon.stores.postgres.connection import Database, PoolSession, read_now
from gnomon.stores.postgres.lanes import lane_of
from gnomon.stores.postgres.parts import Only


class PostgresLoad:
    """The part of the `ReportStore` that looks ahead."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self, times: Sequence[datetime], *, lanes: int) -> DueLoad:
        tally = LoadTally(times)
        shards = range(await self._database.shard_count())
        arrivals = arrivals_looked_at(LOAD_ARRIVALS, len(shards))
        async with self._database.transaction("load") as session:
            for some, only in self._database.split(shards, lambda shard: shard):
                await _add_lanes(session, tally, some, only, lanes)
                for row in await session.fetch("load_arrived", some, arrivals, *only):
                    tally.is_estimated |= row["most"] >= arrivals
                    tally.add_second(row["at"], row["count"])
            return tally.total(await read_now(session))

    async def herd(
        self, since: datetime, until: datetime, *, lanes: int, limit: int
    ) -> Sequence[str]:
        shards = range(await self._database.shard_count())
        ids: list[str] = []
        for some, only in self._database.split(shards, lambda shard: shard):
            rows = await self._database.fetch(
                "herd_ids", some, lanes, since, until, limit - len(ids), *only
            )
            ids += [row["id"] for row in rows]
            if len(ids) >= limit:
                break
        return ids

    async def list_recurring(self, *, limit: int) -> Sequence[RecurringAction]:
        rows = await self._database.fetch("list_recurring", limit)
        return recurring_actions(rows, [row["occurrence_at"] for row in rows])


async def _add_lanes(
    session: PoolSession,
    tally: LoadTally,
    shards: Sequence[int],
    only: Only,
    lanes: int,
) -> None:
    """All of what lanes hold that hold little; of the others a part is looked at."""
    times = tally.times
    rows = await session.fetch("load_lanes", shards, lanes, *only)
    tally.is_estimated |= len(rows) >= lanes
    ahead = LanesAhead([lane_of(row) for row in rows])
    await _add_few(session, tally, ahead, ahead.first, only)
    await _add_few(session, tally, ahead, ahead.others(), only)
    sample, scale = tally.sample(ahead.full())
    if not sample:
        return
    looks = await session.fetch(
        "load_due", *_columns(sample), times[:-1], times[1:], LOOK_ROWS, *only
    )
    for look in looks:
        seen = Look(
            seen=look["seen"], last_at=look["last_at"], herd_at=look["herd_at"], herd=look["herd"]
        )
        tally.add_look(look["place"] - 1, seen, scale)


async def _add_few(
    session: PoolSession,
    tally: LoadTally,
    ahead: LanesAhead,
    lanes: Sequence[Lane],
    only: Only,
) -> None:
    """Look into some lanes: what is little is added, and which are full is noted."""
    if not lanes:
        return
    bounds = (tally.times[0], tally.times[-1], LOOK_ROWS)
    rows = await session.fetch("load_few", *_columns(lanes), *bounds, *only)
    for lane, row in zip(lanes, rows, strict=True):
        ahead.add(lane, is_full=row["times"] is None)
        for at in row["times"] or ():
            tally.add_second(at.replace(microsecond=0), 1)


def _columns(lanes: Sequence[Lane]) -> Iterator[list[object]]:
    """Shards, queues, priorities and needs as arrays."""
    return map(list, zip(*lanes, strict=True))
