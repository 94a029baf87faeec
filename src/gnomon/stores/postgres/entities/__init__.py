"""Entities and stages in PostgreSQL. Each group of verbs has a module of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from gnomon.contracts.clock import Entropy
from gnomon.contracts.store import LOCAL, HeldShard
from gnomon.contracts.store.entities import (
    ChangeNote,
    Entity,
    EntityBatch,
    EntityWrite,
    StageState,
    StateWrite,
)
from gnomon.contracts.store.queues import Enqueue, QueueRow
from gnomon.stores.entity_pages import end_of, parked_page
from gnomon.stores.postgres.connection import Database
from gnomon.stores.postgres.entities import (
    changed,
    claimed,
    commit,
    upkeep,
    views,
    write,
)
from gnomon.stores.postgres.entities.rows import entity_of, note_of, queue_row_of, state_of
from gnomon.stores.postgres.entities.versions import AuditRow, ShardedKey

P = ParamSpec("P")
T = TypeVar("T")


class PostgresEntities:
    """The `EntityStore` of this engine."""

    def __init__(self, database: Database, *, entropy: Entropy) -> None:
        self._database = database
        self._entropy = entropy

    async def write(self, writes: Sequence[EntityWrite]) -> Sequence[Entity | None]:
        return await write.write(self._database, writes)

    async def get(self, entity_key: str, *, shard: int) -> Entity | None:
        rows = await self._database.fetch("get_entity", shard, entity_key)
        return entity_of(rows[0]) if rows else None

    async def get_many(self, entity_keys: Mapping[str, int]) -> EntityBatch:
        return await views.get_many(self._database, entity_keys)

    async def list(self, *, after: str | None, prefix: str, limit: int) -> Sequence[Entity]:
        query = "list_entities" if self._database.many_shards else "list_entities_citus"
        wanted = (after or "", prefix, end_of(prefix), limit)
        rows = await self._database.fetch_wide(query, *wanted)
        return [entity_of(row) for row in rows]

    async def state(
        self, entity_key: str, stage: str, *, shard: int
    ) -> tuple[Entity | None, StageState | None]:
        rows = await self._database.fetch("state", shard, entity_key, stage)
        return (entity_of(rows[0]), state_of(rows[0])) if rows else (None, None)

    async def swap_state(
        self,
        entity_key: str,
        stage: str,
        *,
        shard: int,
        epoch: int,
        version: int,
        state: StateWrite,
        enqueue: Enqueue | None,
        actor: str = LOCAL,
    ) -> StageState | None:
        return await write.swap_state(
            self._database,
            ShardedKey(shard, entity_key),
            stage,
            epoch=epoch,
            version=version,
            state=state,
            enqueue=enqueue,
            entry=AuditRow("swap_state", actor, entity_key, self._entropy.guid()),
        )

    async def changes(self, entity_key: str, *, shard: int, limit: int) -> Sequence[ChangeNote]:
        rows = await self._database.fetch("changes", shard, entity_key, limit)
        return [note_of(row) for row in rows]

    async def purge(self, *, limit: int) -> int:
        return await upkeep.purge(self._database, limit=limit)


def _by_owner(
    verb: Callable[Concatenate[Database, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[PostgresQueues, P], Coroutine[Any, Any, T]]:
    """A verb that the owner of a shard calls: performed on the connections for that."""

    @functools.wraps(verb)
    async def performed(self: PostgresQueues, /, *args: P.args, **named: P.kwargs) -> T:
        return await verb(self._work, *args, **named)

    return performed


class PostgresQueues:
    """The `QueueStore` of this engine."""

    def __init__(self, database: Database, work: Database, *, entropy: Entropy) -> None:
        self._database = database
        self._work = work  # for what the owner of a shard does
        self._entropy = entropy

    async def rows(self, entity_key: str, *, shard: int) -> Sequence[QueueRow]:
        rows = await self._database.fetch("rows", shard, entity_key)
        undelivered = await self._database.fetch("rows_undelivered", shard, entity_key)
        return [queue_row_of(row) for row in [*rows, *undelivered]]

    async def parked(
        self, *, prefix: str, stage: str | None, after: tuple[str, str] | None, limit: int
    ) -> Sequence[QueueRow]:
        wanted = (*max(after or ("", ""), (prefix, "")), end_of(prefix), stage, limit)
        rows = await self._database.fetch_wide("parked", *wanted)
        undelivered = await self._database.fetch_wide("parked_undelivered", *wanted)
        return parked_page(map(queue_row_of, [*rows, *undelivered]), limit)

    async def release(
        self, entity_key: str, stage: str | None, *, shard: int, actor: str = LOCAL
    ) -> int:
        entry = AuditRow("release_entity", actor, entity_key, self._entropy.guid())
        key, root = ShardedKey(shard, entity_key), self._entropy.token()
        return await write.release(self._database, key, stage, root=root, entry=entry)

    next_work = _by_owner(views.next_work)

    async def fire_timers(self, holdings: Sequence[HeldShard], *, limit: int) -> int:
        seed = self._entropy.token()
        return await views.fire_timers(self._work, holdings, limit=limit, seed=seed)

    changed_entities = _by_owner(changed.changed_entities)
    route = _by_owner(changed.route)
    lane_head = _by_owner(views.lane_head)
    claim = _by_owner(views.claim)
    commit = _by_owner(commit.commit)
    give_back = _by_owner(claimed.give_back)
    backfill_page = _by_owner(changed.backfill_page)
    advance_backfill = _by_owner(changed.advance_backfill)
