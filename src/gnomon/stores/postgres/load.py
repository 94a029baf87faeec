"""What will be due, in PostgreSQL: steps from lane to lane, and counts with an end."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from gnomon.contracts.store import DueLoad, RecurringAction
from gnomon.stores._figures import arrivals_looked_at
from gnomon.stores._load import LoadTally, recurring_actions
from gnomon.stores.postgres.connection import Database, read_now


class PostgresLoad:
    """The part of the `ReportStore` that looks ahead."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self, times: Sequence[datetime], *, lanes: int, limit: int) -> DueLoad:
        tally = LoadTally(times, limit=limit)
        shards = range(await self._database.shard_count())
        looked_at = arrivals_looked_at(limit, len(shards))
        seen = 0
        async with self._database.transaction("load") as session:
            for some, only in self._database.split(shards, lambda shard: shard):
                rows = await session.fetch(
                    "load_due", some, lanes, times[:-1], times[1:], limit, *only
                )
                seen += rows[0]["lanes"]
                for row in rows:
                    if row["count"]:
                        place = row["place"] - 1
                        tally.add(place, row["count"], row["herd_at"], row["herd_count"])
                for row in await session.fetch("load_arrived", some, looked_at, *only):
                    tally.partial |= row["most"] >= looked_at
                    tally.add_second(row["at"], row["count"])
            tally.partial |= seen >= lanes
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
