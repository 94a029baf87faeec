"""The file and the table in it: made where they are missing."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from gnomon.model.errors import ConfigurationError
from gnomon.sqlite_box import make_private, use_wal
from gnomon.tasks.sqlite.queries import SCHEMA, queries_for

SETTING = "tasks.dsn"
_CREATED = re.compile(
    r'^CREATE (?:TABLE|INDEX|TRIGGER|VIEW) (?:"(?P<quoted>(?:[^"]|"")+)"|(?P<plain>\w+))',
    re.MULTILINE,
)
SCHEDULERS = frozenset({"installation", "shard_lock", "scheduled_action"})
LOCK_S = 10.0
NEEDED = frozenset(
    {
        "id", "parent", "plan", "start", "stop", "active", "live", "repeat", "timeout", "count",
        "max", "pid", "state", "delete", "drift", "header", "save", "string", "delimiter",
        "escape", "quote", "data", "error", "group", "input", "null", "output", "remote", "cron",
        "retry", "retried", "since",
    }
)  # fmt: skip


def prepare(path: Path, table: str) -> Sequence[str]:
    """Make what is missing; what was made. Errors: ConfigurationError."""
    make_private(path)
    try:
        connection = sqlite3.connect(path, timeout=LOCK_S, isolation_level=None)
        try:
            return _prepared(connection, path, table)
        finally:
            connection.close()
    except sqlite3.Error as exc:
        raise ConfigurationError(SETTING, f"{path} cannot be used: {exc}") from exc


def _prepared(connection: sqlite3.Connection, path: Path, table: str) -> list[str]:
    sql = queries_for(table)
    if _objects(connection, sql["objects"]) >= SCHEDULERS:
        raise ConfigurationError(SETTING, f"{path} is the scheduler's own file: tasks need another")
    use_wal(connection)
    connection.execute("BEGIN IMMEDIATE")
    before = _objects(connection, sql["objects"])
    for name in SCHEMA:
        if _defined(sql[name]) not in before:
            connection.execute(sql[name])
    columns = {name for (name,) in connection.execute(sql["table_columns"], {"table_name": table})}
    if missing := sorted(NEEDED - columns):
        connection.execute("ROLLBACK")
        raise ConfigurationError(
            SETTING, f"the table {table} of {path} has no columns {', '.join(missing)}"
        )
    connection.execute("COMMIT")
    return sorted(_objects(connection, sql["objects"]) - before)


def _objects(connection: sqlite3.Connection, sql: str) -> frozenset[str]:
    return frozenset(name for (name,) in connection.execute(sql) if not name.startswith("sqlite_"))


def _defined(statement: str) -> str:
    """The name of what a statement creates."""
    match = _CREATED.search(statement)
    assert match is not None
    return match["quoted"].replace('""', '"') if match["quoted"] else match["plain"]
