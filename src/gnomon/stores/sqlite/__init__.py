"""The SQLite engine: one file, one writer, no server."""

from __future__ import annotations

import sqlite3
from datetime import timedelta
from functools import partial
from pathlib import Path

from gnomon.contracts.clock import Clock, Entropy
from gnomon.contracts.observer import Observer, SilentObserver
from gnomon.contracts.store import ActionWrites, Capabilities, Store
from gnomon.model.errors import InvalidRequest, NotSupported
from gnomon.stores._callers import beneath, is_async_wrapper, is_wrapper
from gnomon.stores.config import ATTEMPTS_KEPT_FOR, AUDIT_KEPT_FOR
from gnomon.stores.sqlite.actions import SqliteActions
from gnomon.stores.sqlite.connection import (
    MEMORY,
    InlineRunner,
    JoinedRunner,
    Runner,
    ThreadRunner,
)
from gnomon.stores.sqlite.entities import SqliteEntities, SqliteQueues, SqliteRegister
from gnomon.stores.sqlite.entities.outbox import SqliteOutbox
from gnomon.stores.sqlite.installation import SqliteInstallation
from gnomon.stores.sqlite.leases import SqliteLeases
from gnomon.stores.sqlite.limits import SqliteLimits
from gnomon.stores.sqlite.programs import SqlitePrograms
from gnomon.stores.sqlite.progress import SqliteProgress
from gnomon.stores.sqlite.queries import SQL
from gnomon.stores.sqlite.reports import SqliteReports
from gnomon.stores.sqlite.tokens import SqliteTokens
from gnomon.stores.sqlite.wakeups import SqliteWakeups
from gnomon.stores.sqlite.work import SqliteWork

__all__ = ["InlineRunner", "Runner", "SqliteWork", "ThreadRunner", "open_sqlite"]


def open_sqlite(
    path: str | Path,
    *,
    clock: Clock,
    entropy: Entropy,
    runner: Runner | None = None,
    attempts_kept_for: timedelta = ATTEMPTS_KEPT_FOR,
    audit_kept_for: timedelta = AUDIT_KEPT_FOR,
    observer: Observer | None = None,
) -> Store:
    """Open a file, or `:memory:`; the schema may be missing until `installation.migrate`.

    A runner that is given stays the caller's: `close` leaves it open.
    """
    path = str(path)
    used = runner or ThreadRunner(path, clock=clock, observer=observer or SilentObserver())
    return Store(
        capabilities=Capabilities(
            engine="sqlite",
            parallel_writers=False,
            wakeups=True,
            caller_transactions=path != MEMORY,
            many_shards=True,
        ),
        actions=SqliteActions(used, clock),
        work=SqliteWork(used, clock),
        leases=SqliteLeases(used, clock),
        installation=SqliteInstallation(
            used,
            path=path,
            clock=clock,
            entropy=entropy,
            attempts_kept_for=attempts_kept_for,
            audit_kept_for=audit_kept_for,
        ),
        tokens=SqliteTokens(used, clock),
        limits=SqliteLimits(used, clock),
        programs=SqlitePrograms(used, clock),
        progress=SqliteProgress(used, clock),
        entities=SqliteEntities(used, clock, entropy),
        queues=SqliteQueues(used, clock, entropy),
        register=SqliteRegister(used, clock, entropy),
        outbox=SqliteOutbox(used, clock, entropy),
        reports=SqliteReports(used, clock),
        wakeups=SqliteWakeups(used),
        close=used.close if runner is None else _leave_open,
        joining=partial(_joining, path=path, runner=used, clock=clock),
    )


async def _leave_open() -> None:
    """The runner belongs to the one who made it."""


def _joining(connection: object, *, path: str, runner: Runner, clock: Clock) -> ActionWrites:
    """Actions inside the transaction of a `sqlite3.Connection` to the same file, or of what
    SQLAlchemy or Django make of one."""
    if path == MEMORY:
        raise NotSupported(
            "a caller's transaction", engine="sqlite", remedy="use a file: memory is not shared"
        )
    if is_wrapper(connection) and not is_async_wrapper(connection):
        connection = beneath(connection, SQL["join_transaction"])
    if not isinstance(connection, sqlite3.Connection):
        raise NotSupported(
            f"joining a {type(connection).__name__}",
            engine="sqlite",
            remedy="give a sqlite3.Connection, or one of SQLAlchemy or Django over sqlite3",
        )
    _check_same_file(connection, path)
    return SqliteActions(JoinedRunner(connection, runner.hub), clock)


def _check_same_file(connection: sqlite3.Connection, path: str) -> None:
    try:
        cursor = connection.cursor()
        cursor.row_factory = None  # the caller may have one of his own
        rows = cursor.execute("PRAGMA database_list").fetchall()
    except sqlite3.ProgrammingError as exc:  # it is closed, or another thread's
        raise InvalidRequest(f"the connection cannot be used: {exc}") from exc
    files = {name: file for _, name, file in rows}
    if not files["main"] or not Path(files["main"]).samefile(path):
        raise NotSupported(
            "joining a connection to another database",
            engine="sqlite",
            remedy="connect to the file of the store",
        )
