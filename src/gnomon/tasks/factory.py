"""From settings to tables: which entries there are, and which engine opens them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from gnomon.contracts.env import Env
from gnomon.contracts.task_rows import TaskRows
from gnomon.contracts.task_table import TaskTable
from gnomon.extras import require
from gnomon.model.errors import ConfigurationError
from gnomon.model.secret import Secret, secret_name
from gnomon.model.task.conf import PATH, TaskEntry, read_entries
from gnomon.tasks.config import TasksConfig

FindSecret = Callable[[str], Secret]
ONE_TABLE = "[{}]"


def entries_of(config: TasksConfig, find_secret: FindSecret) -> Sequence[TaskEntry]:
    """The tables that the settings name. Errors: ConfigurationError."""
    if config.dsn is None:
        return ()
    data, user = _login_of(config)
    text = config.conf or ONE_TABLE
    if config.conf_file is not None:
        text = _read(Path(config.conf_file))
    return [_filled(entry, find_secret) for entry in read_entries(text, data=data, user=user)]


def opener_of(config: TasksConfig, env: Env) -> Callable[[TaskEntry], TaskTable]:
    """What opens a table of the dsn's engine."""
    assert config.dsn is not None, "there are no task tables without a dsn"
    dsn, bytes_max = Secret(config.dsn), config.result_bytes_max
    if config.engine == "sqlite":
        from gnomon.tasks.sqlite import SqliteTaskTable

        path = _path_of(config.dsn)
        return lambda entry: SqliteTaskTable(
            path,
            table=entry.table,
            clock=env.clock,
            result_bytes_max=bytes_max,
        )
    require("postgres")
    from gnomon.tasks.postgres import PostgresTaskTable

    return lambda entry: PostgresTaskTable(dsn, entry, env=env, result_bytes_max=bytes_max)


def rows_of(config: TasksConfig, entry: TaskEntry, env: Env) -> TaskRows:
    """The rows of a table, for those who look at them."""
    assert config.dsn is not None, "there are no task tables without a dsn"
    if config.engine == "sqlite":
        from gnomon.tasks.sqlite.task_rows import SqliteTaskRows

        return SqliteTaskRows(_path_of(config.dsn), table=entry.table, clock=env.clock)
    from gnomon.tasks.postgres.table_access import TableAccess
    from gnomon.tasks.postgres.task_rows import PostgresTaskRows

    place = TableAccess(
        Secret(config.dsn), entry, env=env, result_bytes_max=config.result_bytes_max
    )
    return PostgresTaskRows(place.rows_options, schema=entry.schema, table=entry.table)


def _path_of(dsn: str) -> Path:
    """The file of `sqlite:///relative` or `sqlite:////absolute`. Errors: ConfigurationError."""
    path = urlsplit(dsn).path.removeprefix("/")
    if not path or path == ":memory:":
        raise ConfigurationError("tasks.dsn", "names no file: write sqlite:///tasks.db")
    return Path(path)


def _login_of(config: TasksConfig) -> tuple[str, str]:
    """Database and user of the dsn, which stand in where an entry names neither."""
    if config.engine == "sqlite":
        return "tasks", "tasks"
    require("postgres")
    from gnomon.tasks.postgres.conninfo import login_of

    return login_of(config.dsn or "")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigurationError("tasks.conf_file", f"{path} cannot be read: {exc}") from None


def _filled(entry: TaskEntry, find_secret: FindSecret) -> TaskEntry:
    """The entry with its password instead of the password's name."""
    if entry.password is None:
        return entry
    try:
        name = secret_name(entry.password.reveal())
    except ValueError as exc:
        raise ConfigurationError(f"{PATH}.password", str(exc)) from None
    if name is None:
        return entry
    return msgspec.structs.replace(entry, password=find_secret(name))
