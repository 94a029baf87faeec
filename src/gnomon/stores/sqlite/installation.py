"""The SQLite schema and its upkeep: migrate, open, identity, doctor, purge."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

import msgspec

from gnomon.contracts.clock import Clock, Entropy
from gnomon.contracts.store import Finding, Installation, LapsedRow, SettleRequest
from gnomon.model.errors import InvalidRequest, SchemaMismatch
from gnomon.model.transition import MissedOccurrences, Verdict, decide
from gnomon.stores.config import ATTEMPTS_KEPT_FOR, AUDIT_KEPT_FOR
from gnomon.stores.sqlite.connection import MEMORY, Runner
from gnomon.stores.sqlite.purge import changed_rows, purge_rows
from gnomon.stores.sqlite.queries import SQL
from gnomon.stores.sqlite.results import settle_rows
from gnomon.stores.sqlite.rows import micros
from gnomon.stores.sqlite.schema import FLOOR, VERSION, SqliteMigration, migrations
from gnomon.stores.sqlite.work import lapsed_of

Connection = sqlite3.Connection

SKIPPED = "skipped when the database was adopted"
OVERRUN = timedelta(seconds=60)  # this long after its deadline nobody can still be at an attempt
WORKERS_KEPT_FOR = timedelta(minutes=5)  # of silence: its attempts are settled by then
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


class SqliteInstallation:
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
        self._runner = runner
        self._path = path
        self._clock = clock
        self._entropy = entropy
        self._attempts_kept_for = attempts_kept_for
        self._audit_kept_for = audit_kept_for

    # -- schema -----------------------------------------------------------------------------------

    async def migrate(self, *, shard_count: int) -> Sequence[str]:
        return await self._runner.write(lambda connection: self._migrate(connection, shard_count))

    def _migrate(self, connection: Connection, shard_count: int) -> list[str]:
        found = _version(connection)
        if found > VERSION:
            raise SchemaMismatch(found=found, expected=VERSION)
        missing = [step for step in migrations() if step.version > found]
        now_us = micros(self._clock.now())
        for step in missing:
            self._apply(connection, step, now_us)
        if found == 0:
            self._install(connection, shard_count, now_us)
        elif missing:
            connection.execute(SQL["migrate_set_version"], {"version": VERSION})
        return [step.name for step in missing]

    def _apply(self, connection: Connection, step: SqliteMigration, now_us: int) -> None:
        for statement in step.statements:
            connection.execute(statement)
        done = {"version": step.version, "name": step.name, "now": now_us}
        connection.execute(SQL["migrate_record"], done)

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

    async def open(self) -> Installation:
        return await self._runner.read(self._open)

    def _open(self, connection: Connection) -> Installation:
        version = _version(connection)
        if version < VERSION:
            raise SchemaMismatch(found=version, expected=VERSION)
        guid, shard_count, _, floor, _ = connection.execute(SQL["open"]).fetchone()
        if floor > VERSION:
            raise SchemaMismatch(found=floor, expected=VERSION)
        return Installation(
            id=UUID(bytes=guid),
            shard_count=shard_count,
            schema_version=version,
            durability="none" if self._path == MEMORY else "local",
            engine="sqlite",
        )

    # -- identity ---------------------------------------------------------------------------------

    async def verify_identity(self) -> str | None:
        return await self._runner.read(self._verify_identity)

    def _verify_identity(self, connection: Connection) -> str | None:
        *_, stored = connection.execute(SQL["open"]).fetchone()
        present = self._inode()
        if stored == present:
            return None
        return f"the file is inode {present}, installed was inode {stored}"

    def _inode(self) -> int | None:
        """A copy has another inode. The device is left out: its number may change at a reboot."""
        return None if self._path == MEMORY else Path(self._path).stat().st_ino

    async def adopt(self, *, past_due: str) -> int:
        if past_due not in ("run", "skip"):
            raise InvalidRequest("past_due must be `run` or `skip`")
        return await self._runner.write(lambda connection: self._adopt(connection, past_due))

    def _adopt(self, connection: Connection, past_due: str) -> int:
        connection.execute(SQL["adopt"], {"inode": self._inode()})
        if past_due == "run":
            return 0
        now = self._clock.now()
        connection.execute(SQL["adopt_move"])
        connection.execute(SQL["adopt_clear"])
        rows = connection.execute(SQL["adopt_overdue"], {"now": micros(now)}).fetchall()
        skips = [lapsed_of(row, now) for row in rows]
        return settle_rows(
            connection,
            [
                SettleRequest(lapsed=lapsed, verdict=_skip(lapsed, now), reason=SKIPPED)
                for lapsed in skips
            ],
            now,
        )

    # -- upkeep -----------------------------------------------------------------------------------

    async def now(self) -> datetime:
        return self._clock.now()

    async def doctor(self) -> Sequence[Finding]:
        now = {"overrun_before": micros(self._clock.now() - OVERRUN)}
        return await self._runner.browse(
            lambda connection: [
                Finding(rule=rule, subject=subject, detail=detail)
                for query in DOCTOR_QUERIES
                for rule, subject, detail in connection.execute(SQL[query], now)
            ]
        )

    async def purge(self, *, limit: int) -> int:
        now = self._clock.now()
        bounds = {
            "now": micros(now),
            "logged_before": micros(now - self._attempts_kept_for),
            "audited_before": micros(now - self._audit_kept_for),
        }
        silent = {"silent_since": micros(now - WORKERS_KEPT_FOR)}
        await self._runner.write(changed_rows(SQL["purge_workers"], silent))
        gone = 0
        for query in PURGES:
            gone += await purge_rows(self._runner, SQL[query], bounds, limit=limit)
        return gone


def _version(connection: Connection) -> int:
    """The schema's version; 0 where nothing is installed."""
    (has_installation,) = connection.execute(SQL["open_is_installed"]).fetchone()
    if not has_installation:
        return 0
    version: int = connection.execute(SQL["open"]).fetchone()[2]
    return version


def _skip(lapsed: LapsedRow, now: datetime) -> Verdict:
    """As if its time had passed unseen; what ran elsewhere counts as interrupted."""
    verdict = decide(lapsed.spec, lapsed.status, MissedOccurrences(), guid=lapsed.guid, now=now)
    return msgspec.structs.replace(verdict, interrupted=1) if lapsed.running else verdict
