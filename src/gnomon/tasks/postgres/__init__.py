"""Task tables in PostgreSQL databases."""

from __future__ import annotations

from gnomon.contracts.env import Env
from gnomon.model.secret import Secret
from gnomon.model.task.conf import TaskEntry
from gnomon.tasks.config import TasksConfig
from gnomon.tasks.postgres.conninfo import login_of
from gnomon.tasks.postgres.table import PostgresTaskTable

__all__ = ["PostgresTaskTable", "login_of", "open_postgres_table"]


def open_postgres_table(
    dsn: str, entry: TaskEntry, *, config: TasksConfig, env: Env
) -> PostgresTaskTable:
    """The table of an entry; nothing is connected yet."""
    return PostgresTaskTable(Secret(dsn), entry, env=env, result_bytes_max=config.result_bytes_max)
