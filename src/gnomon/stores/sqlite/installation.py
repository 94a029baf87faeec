"""The SQLite schema and its upkeep: migrate, open, identity, doctor, figures, purge."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

from gnomon.contracts.clock import Clock, Entropy
from gnomon.contracts.store import Finding, Installation, InstallationFigures, StoreMeasures
from gnomon.model.errors import SchemaMismatch
from gnomon.stores._upkeep import (
    OVERRUN,
    PROGRESS_KEPT_FOR,
    WORKERS_KEPT_FOR,
    Migration,
    check_past_due,
    skip_of,
)
from gnomon.stores.config import ATTEMPTS_KEPT_FOR, AUDIT_KEPT_FOR
from gnomon.stores.sqlite.connection import MEMORY, Runner
from gnomon.stores.sqlite.figures import read_figures
from gnomon.stores.sqlite.measures import read_measures
from gnomon.stores.sqlite.purge import changed_rows, purge_rows
from gnomon.stores.sqlite.queries import SQL, fetch
from gnomon.stores.sqlite.results import settle_rows
from gnomon.stores.sqlite.rows import Row, micros
from gnomon.stores.sqlite.schema import FLOOR, VERSION, migrations, split
from gnomon.stores.sqlite.verbs import Connection, SqliteVerbs, browse, read, write
from gnomon.stores.sqlite.work import lapsed_of

PURGES = ("purge_finished", "purge_attempts", "purge_audit")
DOCTOR_QUERIES = (
    "doctor_counters",
    "doctor_one_row",
    "doctor_scheduled",
    "doctor_lock_rows",
    "doctor_running",
    "doctor_stale_rows",
    "doctor_entity_rows",
    "doctor_entity_times",
)


class SqliteInstallation(SqliteVerbs):
    """The `InstallationStore` of this engine."""

    def __init__(
        self,
        runner: Runner,
        *,
        path: str,
        clock: Clock,
        entropy: Entropy,
        attempts_kept_for: timedelta = ATTEMPTS_KEPT_FOR,
        audit_kept_for: timedelta = AUDIT_KEPT_FOR,
    ) -> None:
        super().__init__(runner, clock)
        self._path = path
        self._entropy = entropy
        self._attempts_kept_for = attempts_kept_for
        self._audit_kept_for = audit_kept_for

    # -- schema -----------------------------------------------------------------------------------

    async def migrate(self, *, shard_count: int) -> Sequence[str]:
        if await self._is_current():
            return []  # nobody's open transaction is waited for; it may be the caller's own
        return await self._migrate(shard_count)

    @read
    def _is_current(self, connection: Connection) -> bool:
        row = _installed(connection)
        return row is not None and row["schema_version"] == VERSION

    @write
    def _migrate(self, connection: Connection, shard_count: int) -> Sequence[str]:
        row = _installed(connection)
        version = 0 if row is None else row["schema_version"]
        if version > VERSION:
            raise SchemaMismatch(found=version, expected=VERSION)
        missing = [step for step in migrations() if step.version > version]
        now_us = self._now_us()
        for step in missing:
            _apply(connection, step, now_us)
        if version == 0:
            self._install(connection, shard_count, now_us)
        elif missing:
            connection.execute(SQL["migrate_set_version"], {"version": VERSION})
        return [step.name for step in missing]

    def _install(self, connection: Connection, shard_count: int, now_us: int) -> None:
        row = {
            "id": self._entropy.token().bytes,
            "shard_count": shard_count,
            "version": VERSION,
            "floor": FLOOR,
            "now": now_us,
            "inode": self._inode(),
        }
        connection.execute(SQL["migrate_install"], row)
        connection.execute(
            SQL["migrate_install_locks"], {"shards": json.dumps(list(range(shard_count)))}
        )

    @read
    def open(self, connection: Connection) -> Installation:
        row = _installed(connection)
        if row is None or row["schema_version"] < VERSION:
            version = 0 if row is None else row["schema_version"]
            raise SchemaMismatch(found=version, expected=VERSION)
        if row["floor"] > VERSION:
            raise SchemaMismatch(found=row["floor"], expected=VERSION)
        return Installation(
            id=UUID(bytes=row["id"]),
            shard_count=row["shard_count"],
            schema_version=row["schema_version"],
            durability="none" if self._path == MEMORY else "local",
            engine="sqlite",
        )

    async def placement(self) -> str | None:
        return None

    # -- identity ---------------------------------------------------------------------------------

    @read
    def verify_identity(self, connection: Connection) -> str | None:
        (row,) = fetch(connection, "open")
        present = self._inode()
        if row["inode"] == present:
            return None
        return f"the file is inode {present}, installed was inode {row['inode']}"

    def _inode(self) -> int | None:
        """A copy has another inode. The device is left out: its number may change at a reboot."""
        return None if self._path == MEMORY else Path(self._path).stat().st_ino

    @write
    def adopt(self, connection: Connection, *, past_due: str) -> int:
        check_past_due(past_due)
        connection.execute(SQL["adopt"], {"inode": self._inode()})
        if past_due == "run":
            return 0
        now = self._clock.now()
        connection.execute(SQL["adopt_move"])
        connection.execute(SQL["adopt_clear"])
        rows = fetch(connection, "adopt_overdue", {"now": micros(now)})
        return settle_rows(connection, [skip_of(lapsed_of(row, now)) for row in rows], now)

    # -- upkeep -----------------------------------------------------------------------------------

    async def now(self) -> datetime:
        return self._clock.now()

    @browse
    def doctor(
        self, connection: Connection, shards: Sequence[int] | None = None
    ) -> Sequence[Finding]:
        if shards is not None and 0 not in shards:
            return []
        bounds = {"overrun_before": micros(self._clock.now() - OVERRUN)}
        return [
            Finding(rule=rule, subject=subject, detail=detail)
            for query in DOCTOR_QUERIES
            for rule, subject, detail in fetch(connection, query, bounds)
        ]

    @browse
    def figures(
        self, connection: Connection, *, limit: int, alive_for: timedelta
    ) -> InstallationFigures:
        return read_figures(connection, now=self._clock.now(), limit=limit, alive_for=alive_for)

    @browse
    def measure(self, connection: Connection) -> StoreMeasures:
        return read_measures(connection, path=self._path, now=self._clock.now())

    async def purge(self, *, limit: int) -> int:
        now = self._clock.now()
        bounds = {
            "now": micros(now),
            "logged_before": micros(now - self._attempts_kept_for),
            "audited_before": micros(now - self._audit_kept_for),
        }
        silent = {"silent_since": micros(now - WORKERS_KEPT_FOR)}
        await self._runner.write(changed_rows(SQL["purge_workers"], silent))
        reported = {"reported_before": micros(now - PROGRESS_KEPT_FOR)}
        await self._runner.write(changed_rows(SQL["purge_progress"], reported))
        gone = 0
        for query in PURGES:
            gone += await purge_rows(self._runner, SQL[query], bounds, limit=limit)
        return gone


def _installed(connection: Connection) -> Row | None:
    """The row of the installation; None where nothing is installed."""
    (tables,) = fetch(connection, "open_is_installed")
    if not tables["count"]:
        return None
    (row,) = fetch(connection, "open")
    return row


def _apply(connection: Connection, step: Migration, now_us: int) -> None:
    for statement in split(step.script):
        connection.execute(statement)
    done = {"version": step.version, "name": step.name, "now": now_us}
    connection.execute(SQL["migrate_record"], done)
