"""Walks over all entities of a shard."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from gnomon.contracts.store import HeldShard
from gnomon.contracts.store.entities import BackfillPage, Routing
from gnomon.stores.sqlite.entities.owner import fed_of, load, store_offers
from gnomon.stores.sqlite.entities.rows import Connection, Parameters, held_shards
from gnomon.stores.sqlite.entities.verbs import EntityVerbs
from gnomon.stores.sqlite.queries import SQL
from gnomon.stores.sqlite.rows import duration_us, micros, moment


class SqliteBackfill(EntityVerbs):
    """The part of the `EntityStore` that walks."""

    async def begin_backfill(
        self,
        stage: str,
        *,
        reason: str,
        unless_within: timedelta | None = None,
        actor: str | None = None,
    ) -> bool:
        def call(connection: Connection) -> bool:
            now_us = self._now_us()
            if unless_within is not None:
                (began,) = connection.execute(SQL["last_backfill"], {"stage": stage}).fetchone()
                if began is not None and began > now_us - duration_us(unless_within):
                    return False
            start_backfill(connection, stage, reason, now_us)
            if actor is not None:
                self._audit(connection, "backfill_stage", actor, stage)
            return True

        return await self._runner.write(call)

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
        answers: Sequence[Routing],
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
            if not connection.execute(SQL["move_backfill"], place).rowcount:
                return False
            store_offers(connection, answers, now_us=self._now_us(), seq=self._new_seq())
            return True

        return await self._runner.write(call)


def start_backfill(connection: Connection, stage: str, reason: str, now_us: int) -> None:
    connection.execute(SQL["begin_backfill"], {"stage": stage, "reason": reason, "now": now_us})


def _page(connection: Connection, wanted: Parameters) -> BackfillPage | None:
    found = connection.execute(SQL["get_backfill"], wanted).fetchone()
    (backlog,) = connection.execute(SQL["background_count"], wanted).fetchone()
    if found is None or backlog > wanted["backlog_max"]:
        return None
    started_at, cursor, reason = found
    here = wanted | {"cursor": cursor}
    ids = [entity_id for (entity_id,) in connection.execute(SQL["backfill_page"], here)]
    loaded = load(connection, ids)
    is_all = loaded.looked_at == len(ids) < wanted["limit"]
    ids = ids[: loaded.looked_at]
    return BackfillPage(
        entities=[fed_of(loaded, entity_id) for entity_id in ids],
        cursor=None if is_all else ids[-1],
        reason=reason,
        started_at=moment(started_at),
    )
