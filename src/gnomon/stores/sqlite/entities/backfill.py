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
from gnomon.stores.sqlite.verbs import read, write


class SqliteBackfill(EntityVerbs):
    """The part of the `QueueStore` that backfills."""

    @read
    def backfill_page(
        self,
        connection: Connection,
        holding: HeldShard,
        stage: str,
        *,
        limit: int,
        backlog_max: int,
    ) -> BackfillPage | None:
        if not held_shards(connection, [holding]):
            return None
        place: Parameters = {"shard": holding.shard, "stage": stage}
        return _page(connection, place | {"limit": limit, "backlog_max": backlog_max})

    @write
    def advance_backfill(
        self,
        connection: Connection,
        holding: HeldShard,
        stage: str,
        *,
        started_at: datetime,
        cursor: str | None,
        routings: Sequence[Routing],
    ) -> bool:
        if not held_shards(connection, [holding]):
            return False
        place: Parameters = {"shard": holding.shard, "stage": stage}
        place |= {"started_at": micros(started_at), "cursor": cursor}
        if not connection.execute(SQL["advance_backfill"], place).rowcount:
            return False
        store_enqueues(connection, routings, now_us=self._now_us(), seq=self._new_seq())
        return True


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
