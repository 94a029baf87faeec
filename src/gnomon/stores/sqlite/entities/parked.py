"""Queue rows as people see and free them."""

from __future__ import annotations

from collections.abc import Sequence

from gnomon.contracts.store import LOCAL
from gnomon.contracts.store.queues import QueueRow, StageLane
from gnomon.stores.entity_pages import end_of, parked_page
from gnomon.stores.sqlite.entities.enqueues import freeing, merged, replace_row
from gnomon.stores.sqlite.entities.rows import Connection, Parameters, read_rows
from gnomon.stores.sqlite.entities.verbs import EntityVerbs
from gnomon.stores.sqlite.queries import SQL
from gnomon.stores.sqlite.verbs import browse, read, write

BY_HAND = "by hand"
PARKED = ("quarantined", "looping")


class SqliteParked(EntityVerbs):
    """The part of the `QueueStore` that people use."""

    @read
    def rows(self, connection: Connection, entity_key: str, *, shard: int) -> Sequence[QueueRow]:
        wanted = {"shard": shard, "entity_key": entity_key}
        return [
            row.queue_row()
            for query in ("rows", "rows_undelivered")
            for row in read_rows(connection, query, wanted)
        ]

    @browse
    def parked(
        self,
        connection: Connection,
        *,
        prefix: str,
        stage: str | None,
        after: tuple[str, str] | None,
        limit: int,
    ) -> Sequence[QueueRow]:
        after_entity, after_stage = max(after or ("", ""), (prefix, ""))
        wanted: Parameters = {
            "stage": stage,
            "after_entity": after_entity,
            "after_stage": after_stage,
            "below": end_of(prefix),
            "limit": limit,
        }
        queued = read_rows(connection, "parked", wanted)
        undelivered = read_rows(connection, "parked_undelivered", wanted)
        return parked_page([row.queue_row() for row in [*queued, *undelivered]], limit)

    @write
    def release(
        self,
        connection: Connection,
        entity_key: str,
        stage: str | None,
        *,
        shard: int,
        actor: str = LOCAL,
    ) -> int:
        parked = [
            row
            for row in read_rows(connection, "rows", {"shard": shard, "entity_key": entity_key})
            if row.status in PARKED and stage in (None, row.stage)
        ]
        now_us = self._now_us()
        for row in parked:
            enqueue = freeing(row.stage, BY_HAND, self._entropy.token(), StageLane.MAIN)
            replace_row(connection, row, merged(row, enqueue, now_us))
        freed = len(parked) + _free_saves(connection, entity_key, stage, now_us)
        if freed:
            self._audit(connection, "release_entity", actor, entity_key)
        return freed


def _free_saves(connection: Connection, entity_key: str, stage: str | None, now_us: int) -> int:
    """Let undelivered saves of one stage or of all go out; of how many stages."""
    undelivered = read_rows(connection, "rows_undelivered", {"entity_key": entity_key})
    stages = [row.stage for row in undelivered if stage in (None, row.stage)]
    for name in stages:
        connection.execute(
            SQL["release_saves"],
            {"entity_key": entity_key, "stage": name, "now": now_us},
        )
    return len(stages)
