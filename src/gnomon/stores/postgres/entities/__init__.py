"""Entities and stages in PostgreSQL. Each group of verbs has a module of its own."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

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
from gnomon.contracts.store.queues import (
    BackfillPage,
    ChangedEntity,
    ClaimedEntity,
    Commit,
    CommitResult,
    Enqueue,
    LaneHead,
    NewRow,
    NextWork,
    QueueRow,
    ReturnedClaim,
    Routing,
    StageLane,
)
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

    async def next_work(self, holdings: Sequence[HeldShard]) -> NextWork:
        return await views.next_work(self._work, holdings)

    async def fire_timers(self, holdings: Sequence[HeldShard], *, limit: int) -> int:
        seed = self._entropy.token()
        return await views.fire_timers(self._work, holdings, limit=limit, seed=seed)

    async def changed_entities(
        self, holdings: Sequence[HeldShard], *, limit: int, skip: Collection[str]
    ) -> Sequence[ChangedEntity]:
        return await changed.changed_entities(self._work, holdings, limit=limit, skip=skip)

    async def route(self, routings: Sequence[Routing]) -> Sequence[tuple[NewRow, ...] | None]:
        return await changed.route(self._work, routings)

    async def lane_head(
        self,
        holdings: Sequence[HeldShard],
        stage: str,
        lane: StageLane,
        *,
        limit: int,
        skip: Collection[str],
    ) -> LaneHead:
        return await views.lane_head(self._work, holdings, stage, lane, limit=limit, skip=skip)

    async def claim(self, holding: HeldShard, entity_key: str, stage: str) -> ClaimedEntity | None:
        return await views.claim(self._work, holding, entity_key, stage)

    async def commit(self, commits: Sequence[Commit]) -> Sequence[CommitResult]:
        return await commit.commit(self._work, commits)

    async def give_back(self, claims: Sequence[ReturnedClaim]) -> Sequence[bool]:
        return await claimed.give_back(self._work, claims)

    async def backfill_page(
        self, holding: HeldShard, stage: str, *, limit: int, backlog_max: int
    ) -> BackfillPage | None:
        return await changed.backfill_page(
            self._work, holding, stage, limit=limit, backlog_max=backlog_max
        )

    async def advance_backfill(
        self,
        holding: HeldShard,
        stage: str,
        *,
        started_at: datetime,
        cursor: str | None,
        routings: Sequence[Routing],
    ) -> bool:
        return await changed.advance_backfill(
            self._work,
            holding,
            stage,
            started_at=started_at,
            cursor=cursor,
            answers=routings,
        )
