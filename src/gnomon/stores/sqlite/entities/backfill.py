"""Backfills: all entities of a shard."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from gnomon.contracts.store import HeldShard
from gnomon.contracts.store.queues import BackfillPage, Routing
from gnomon.stores.sqlite.entities.owner import fed_of, load, store_enqueues
from gnomon.stores.sqlite.entities.rows import Connection, Parameters, held_shards
from gnomon.stores.sqlite.entities.verbs import EntityVerbs
from gnomon.stores.sqlite.queries import SQL
from gnomon.stores.sqlite.rows import micros, moment


class SqliteBackfill(EntityVerbs):
    """The part of the `QueueStore` that backfills."""

    async def backfill_page(
        self, holding: HeldShard, stage: str, *, limit: int, backlog_max: int
    ) -> BackfillPage | None:
        wanted: Parameters = {
            "shard": holding.shard,
            "stage": stage,
            "limit": limit,
            "backlog_max": backlog_max,
        }

        def call(connection: Connection) -> BackfillPage | None:
            return _page(connection, wanted) if held_shards(connection, [holding]) else None

        return await self._runner.read(call)

    async def advance_backfill(
        self,
        holding: HeldShard,
        stage: str,
        *,
        started_at: datetime,
        cursor: str | None,
        routings: Sequence[Routing],
    ) -> bool:
        place: Parameters = {
            "shard": holding.shard,
            "stage": stage,
            "started_at": micros(started_at),
            "cursor": cursor,
        }

        def call(connection: Connection) -> bool:
            if not held_shards(connection, [holding]):
                return False
            if not connection.execute(SQL["advance_backfill"], place).rowcount:
                return False
            store_enqueues(connection, routings, now_us=self._now_us(), seq=self._new_seq())
            return True

        return await self._runner.write(call)


def _page(connection: Connection, wanted: Parameters) -> BackfillPage | None:
    backfill = connection.execute(SQL["backfill_page"], wanted).fetchone()
    (backlog,) = connection.execute(SQL["backfill_page_backlog"], wanted).fetchone()
    if backfill is None or backlog > wanted["backlog_max"]:
        return None
    started_at, after, below, reason = backfill
    here = wanted | {"after": after, "below": below}
    keys = [entity_key for (entity_key,) in connection.execute(SQL["backfill_page_keys"], here)]
    loaded = load(connection, keys)
    is_all = loaded.looked_at == len(keys) < wanted["limit"]
    keys = keys[: loaded.looked_at]
    return BackfillPage(
        entities=[fed_of(loaded, entity_key) for entity_key in keys],
        cursor=None if is_all else keys[-1],
        reason=reason,
        started_at=moment(started_at),
    )
