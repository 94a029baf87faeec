"""Saves on their way out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta

from gnomon.contracts.store import HeldShard
from gnomon.contracts.store.batches import BATCH_BYTES_MAX
from gnomon.contracts.store.outbox import OutboxRow, SinkBacklog, SinkQueue
from gnomon.stores.postgres.connection import Database, Row
from gnomon.stores.postgres.entities.rows import outgoing_of
from gnomon.stores.postgres.entities.versions import ShardedKey, touch_free
from gnomon.stores.postgres.entities.views import fence, first_rows
from gnomon.stores.postgres.parts import Only
from gnomon.stores.postgres.several import every


class PostgresOutbox:
    """The `OutboxStore` of this engine."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def waiting_sinks(self, holdings: Sequence[HeldShard]) -> Sequence[SinkQueue]:
        queues: dict[str, SinkQueue] = {}
        answers = await every(
            self._database.split(holdings, lambda holding: holding.shard),
            lambda part: self._database.fetch("waiting_sinks", *fence(part[0]), *part[1]),
        )
        for rows in answers:
            for sink, age, due_in in rows:
                other = queues.get(sink, SinkQueue(sink, age, due_in))
                queues[sink] = SinkQueue(sink, max(age, other.age), min(due_in, other.due_in))
        return [queues[sink] for sink in sorted(queues)]

    async def due_saves(
        self,
        holdings: Sequence[HeldShard],
        sink: str,
        *,
        limit: int,
        skip: Collection[str] = (),
    ) -> Sequence[OutboxRow]:
        skipped = list(skip)

        async def look(
            chosen: Sequence[HeldShard], most: int, share: int, only: Only
        ) -> Sequence[Row]:
            room = BATCH_BYTES_MAX * len(chosen) // len(holdings)
            wanted = (*fence(chosen), most, share, sink, room, skipped)
            return await self._database.fetch("due_saves", *wanted, *only)

        rows = await first_rows(self._database, holdings, limit, look, by="ready_at")
        return [outgoing_of(row) for row in rows]

    async def remove(self, rows: Sequence[OutboxRow]) -> None:
        for group in self._database.groups(row.shard for row in rows):
            chosen = [rows[place] for place in group.places]
            await self._database.fetch("remove_saves", *_keys(chosen), *group.shards)

    async def put_off(
        self, rows: Sequence[OutboxRow], *, delay: timedelta, error: str, counts: bool
    ) -> frozenset[str]:
        held: set[str] = set()
        for group in self._database.groups(row.shard for row in rows):
            chosen = [rows[place] for place in group.places]
            entities = sorted({ShardedKey(row.shard, row.entity_key) for row in chosen})
            async with self._database.transaction("unsent") as session:
                held |= {
                    key.entity_key for key in await touch_free(session, entities, group.shards)
                }
                free = [row for row in chosen if row.entity_key not in held]
                await session.fetch(
                    "put_off", *_keys(free), delay, error, int(counts), *group.shards
                )
        return frozenset(held)

    async def quarantine(self, row: OutboxRow, *, error: str) -> bool:
        key = ShardedKey(row.shard, row.entity_key)
        async with self._database.transaction("quarantine") as session:
            if await touch_free(session, [key], self._database.only(key.shard)):
                return False
            await session.fetch("quarantine", *key, row.sink, row.n, error)
        return True

    async def backlog(self) -> Sequence[SinkBacklog]:
        rows = await self._database.fetch_wide("backlog")
        return [
            SinkBacklog(sink=sink, count=count, oldest_at=at, error=error, quarantined=quarantined)
            for sink, count, at, error, quarantined in rows
        ]


def _keys(rows: Sequence[OutboxRow]) -> tuple[list[object], ...]:
    return (
        [row.shard for row in rows],
        [row.entity_key for row in rows],
        [row.sink for row in rows],
        [row.n for row in rows],
    )
