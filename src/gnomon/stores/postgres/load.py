"""What will be due, in PostgreSQL: steps from lane to lane, and counts with an end."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from gnomon.contracts.store import DueLoad, RecurringAction
from gnomon.stores._figures import arrivals_looked_at
from gnomon.stores._load import LOAD_ARRIVALS, LOOK_ROWS, LoadTally, Look, recurring_actions
from gnomon.stores.postgres.connection import Database, PoolSession, Row, read_now
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
    rows = await session.fetch("load_lanes", shards, lanes, times[0], times[-1], LOOK_ROWS, *only)
    tally.is_estimated |= bool(rows) and rows[0]["looked_at"] >= lanes
    full = []
    for row in rows:
        if row["times"] is None:
            full.append(row)
        else:
            for at in row["times"]:
                tally.add_second(at.replace(microsecond=0), 1)
    sample, scale = tally.sample(sorted(full, key=_by_queue))
    if not sample:
        return
    columns = [[row[name] for row in sample] for name in ("shard_id", "queue", "priority", "need")]
    looks = await session.fetch("load_due", *columns, times[:-1], times[1:], LOOK_ROWS, *only)
    for look in looks:
        seen = Look(
            seen=look["seen"], last_at=look["last_at"], herd_at=look["herd_at"], herd=look["herd"]
        )
        tally.add_look(look["place"] - 1, seen, scale)


def _by_queue(row: Row) -> tuple[object, ...]:
    """So that a sample has a part of every queue."""
    return row["queue"], row["priority"], row["need"], row["shard_id"]
