"""The register of stages."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from gnomon.contracts.store import LOCAL, HeldShard
from gnomon.contracts.store.queues import StageLane
from gnomon.contracts.store.register import (
    StageAttendance,
    StageDeclaration,
    StageRecord,
    UnservedShard,
)
from gnomon.model.stage.graph import Reach
from gnomon.stores._texts import read_texts, write_texts
from gnomon.stores.sqlite.entities.enqueues import freeing, merged, replace_row
from gnomon.stores.sqlite.entities.rows import (
    Connection,
    GoodLeases,
    Parameters,
    encode_ids,
    read_rows,
)
from gnomon.stores.sqlite.entities.verbs import EntityVerbs
from gnomon.stores.sqlite.queries import SQL
from gnomon.stores.sqlite.rows import duration_us, moment
from gnomon.stores.sqlite.verbs import browse, read, write

SERVERS_KEPT_FOR = timedelta(minutes=10)
RENAMED = ("stage", "queue", "states", "backfill", "outbox")


class SqliteRegister(EntityVerbs):
    """The `StageRegister` of this engine."""

    @write
    def declare(
        self, connection: Connection, stages: Sequence[StageDeclaration]
    ) -> Mapping[str, int | None]:
        now_us = self._now_us()
        known = {stage.name: _known(connection, stage) for stage in stages}
        for stage in stages:
            self._declare(connection, stage, known[stage.name], now_us)
        return known

    def _declare(
        self, connection: Connection, stage: StageDeclaration, before: int | None, now_us: int
    ) -> None:
        row: Parameters = {
            "stage": stage.name,
            "kind": stage.reach.kind,
            "revision": stage.revision,
            "now": now_us,
            "debounce": duration_us(stage.debounce),
            "watch": write_texts(stage.reach.watch),
            "writes": write_texts(stage.reach.writes),
        }
        connection.execute(SQL["declare"], row)
        reason = f"backfill r{stage.revision}"
        if before is None and stage.backfill:
            start_backfill(connection, stage.name, reason, now_us)
        elif before is not None and before < stage.revision:
            start_backfill(connection, stage.name, reason, now_us)
            self._free(connection, stage.name, reason, now_us)

    def _free(self, connection: Connection, stage: str, reason: str, now_us: int) -> None:
        """What failed or looped did so under other code."""
        for row in read_rows(connection, "declare_parked", {"stage": stage}):
            enqueue = freeing(stage, reason, self._entropy.token(), StageLane.BACKGROUND)
            replace_row(connection, row, merged(row, enqueue, now_us))
        connection.execute(SQL["declare_free_saves"], {"stage": stage, "now": now_us})

    @browse
    def stages(self, connection: Connection) -> Sequence[StageRecord]:
        return _records(connection, "stages")

    @read
    def registered(self, connection: Connection) -> Sequence[StageRecord]:
        return _records(connection, "registered")

    async def attend(
        self,
        worker: UUID,
        *,
        serves: Collection[str],
        holdings: Sequence[HeldShard],
        alive_for: timedelta,
    ) -> StageAttendance:
        register = await self.registered()
        if not register and not serves:  # there are no stages at all
            return StageAttendance(now=self._clock.now(), register=(), servers={}, openings=())
        return await self._attend(worker, serves, holdings, alive_for)

    @write
    def _attend(
        self,
        connection: Connection,
        worker: UUID,
        serves: Collection[str],
        holdings: Sequence[HeldShard],
        alive_for: timedelta,
    ) -> StageAttendance:
        now_us = self._now_us()
        _note_worker(connection, worker, serves, holdings, now_us)
        return _attendance(connection, serves, now_us, alive_for)

    @write
    def begin_backfill(
        self,
        connection: Connection,
        stage: str,
        *,
        reason: str,
        unless_within: timedelta | None = None,
        actor: str | None = None,
    ) -> bool:
        now_us = self._now_us()
        if unless_within is not None:
            (began,) = connection.execute(SQL["begin_backfill_last"], {"stage": stage}).fetchone()
            if began is not None and began > now_us - duration_us(unless_within):
                return False
        start_backfill(connection, stage, reason, now_us)
        if actor is not None:
            self._audit(connection, "backfill_stage", actor, stage)
        return True

    @write
    def forget(self, connection: Connection, stage: str, *, actor: str = LOCAL) -> int:
        gone = {"stage": stage}
        rows: int = connection.execute(SQL["forget_queue"], gone).rowcount
        states: int = connection.execute(SQL["forget_states"], gone).rowcount
        for query in ("forget_backfill", "forget_outbox", "forget_servers", "forget"):
            connection.execute(SQL[query], gone)
        self._audit(connection, "forget_stage", actor, stage)
        return rows + states


def start_backfill(connection: Connection, stage: str, reason: str, now_us: int) -> None:
    connection.execute(SQL["begin_backfill"], {"stage": stage, "reason": reason, "now": now_us})


def _records(connection: Connection, query: str) -> list[StageRecord]:
    return [_record_of(row) for row in connection.execute(SQL[query])]


def _record_of(row: tuple[Any, ...]) -> StageRecord:
    name, kind, revision, first_seen_at, last_seen_at, debounce, watch, writes, *counts = row
    waiting, background, parked, sleeping = counts
    reach = Reach(kind, watch=read_texts(watch), writes=read_texts(writes))
    return StageRecord(
        name=name,
        kind=kind,
        revision=revision,
        first_seen_at=moment(first_seen_at),
        last_seen_at=moment(last_seen_at),
        waiting=waiting,
        background=background,
        parked=parked,
        sleeping=sleeping,
        debounce=timedelta(microseconds=debounce),
        own_echo=bool(reach.own_echo),
        watch=reach.watch,
        writes=reach.writes,
    )


def _note_worker(
    connection: Connection,
    worker: UUID,
    serves: Collection[str],
    holdings: Sequence[HeldShard],
    now_us: int,
) -> None:
    mine: Parameters = {"worker": worker.bytes, "now": now_us}
    for stage in sorted(serves):
        connection.execute(SQL["attend_serve"], {**mine, "stage": stage})
    long_ago = now_us - duration_us(SERVERS_KEPT_FOR)
    connection.execute(
        SQL["attend_drop_servers"], {**mine, "stages": encode_ids(serves), "long_ago": long_ago}
    )
    leases = GoodLeases(connection)
    for holding in holdings:
        if leases.holds(holding.shard, holding.lease_guid):
            row = {**mine, "shard": holding.shard, "lease_guid": holding.lease_guid.bytes}
            connection.execute(SQL["attend_own"], row)


def _attendance(
    connection: Connection, serves: Collection[str], now_us: int, alive_for: timedelta
) -> StageAttendance:
    servers: dict[str, set[UUID]] = {}
    since = {"since": now_us - duration_us(alive_for)}
    for stage, worker in connection.execute(SQL["attend_servers"], since):
        servers.setdefault(stage, set()).add(UUID(bytes=worker))
    openings = connection.execute(SQL["attend_openings"], {"stages": encode_ids(serves)})
    return StageAttendance(
        now=moment(now_us),
        register=_records(connection, "registered"),
        servers={stage: frozenset(workers) for stage, workers in servers.items()},
        openings=[UnservedShard(stage, shard, UUID(bytes=guid)) for stage, shard, guid in openings],
    )


def _known(connection: Connection, stage: StageDeclaration) -> int | None:
    """The revision known before, under this name or, if that is new, under the former one."""
    for name in (stage.name, stage.formerly):
        row = connection.execute(SQL["declare_known"], {"stage": name}).fetchone()
        if row is None:
            continue
        revision, kind = row
        stage.check_kind(kind)
        if name != stage.name:
            names = {"stage": stage.name, "old": name}
            for table in RENAMED:
                connection.execute(SQL[f"declare_rename_{table}"], names)
        return int(revision)
    return None
