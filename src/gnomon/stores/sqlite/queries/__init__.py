"""The SQL of this engine, by the contract's verbs; rows are read by the names of their columns."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from gnomon.queries import load

SQL = {name: query.sql for name, query in load(__name__).items()}
NOTHING: Mapping[str, object] = {}


def fetch(
    connection: sqlite3.Connection, query: str, values: Mapping[str, object] = NOTHING
) -> list[sqlite3.Row]:
    """The rows of a query."""
    return fetch_text(connection, SQL[query], values)


def fetch_one(
    connection: sqlite3.Connection, query: str, values: Mapping[str, object] = NOTHING
) -> sqlite3.Row | None:
    """The row of a query that gives one or none."""
    rows = fetch(connection, query, values)
    return rows[0] if rows else None


def fetch_text(
    connection: sqlite3.Connection, sql: str, values: Mapping[str, object]
) -> list[sqlite3.Row]:
    """The rows of a statement that was put together."""
    cursor = connection.cursor()
    cursor.row_factory = sqlite3.Row
    return cursor.execute(sql, values).fetchall()
