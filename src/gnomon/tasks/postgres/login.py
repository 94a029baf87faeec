"""Whose connection string it is."""

from __future__ import annotations

from psycopg import pq

from gnomon.tasks.postgres.table_access import parsed


def login_of(dsn: str) -> tuple[str, str]:
    """Database and user of a connection string, with libpq's defaults for what it leaves out.

    Errors: ConfigurationError.
    """
    known = {
        option.keyword.decode(): option.val.decode()
        for option in pq.Conninfo.get_defaults()
        if option.val
    }
    given = {**known, **parsed(dsn)}
    user = given.get("user") or "postgres"
    return given.get("dbname") or user, user
