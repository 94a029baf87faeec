"""The database that tests of task tables share one after the other: each finds it as if new."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import conninfo

from tests.fixtures.postgres import ExternalPostgres, PostgresServer
from tests.fixtures.task_databases import TaskDatabase

IN_PUBLIC = """
SELECT (SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace),
       (SELECT count(*) FROM pg_proc WHERE pronamespace = 'public'::regnamespace)
"""
PUBLIC = "SELECT nspowner::regrole::text, nspacl::text FROM pg_namespace WHERE nspname = 'public'"


@pytest.fixture
def database(postgres: PostgresServer | ExternalPostgres) -> Iterator[TaskDatabase]:
    if isinstance(postgres, ExternalPostgres):
        pytest.skip("needs a server on which databases may be made")
    made = TaskDatabase(postgres)
    yield made
    made.close()


def execute(dsn: str, text: str) -> object:
    with psycopg.connect(dsn, autocommit=True) as user:
        cursor = user.execute(text.encode())
        return cursor.fetchone() if cursor.description else None


def test_what_was_made_in_public_is_gone(database: TaskDatabase) -> None:
    """The same database, with `public` as a new one has it, although a session was left open."""
    dsn = database.ready()
    before = execute(dsn, PUBLIC)
    execute(dsn, "CREATE TABLE task (id int); CREATE FUNCTION f() RETURNS int RETURN 1")
    execute(dsn, "REVOKE ALL ON SCHEMA public FROM PUBLIC")
    left_open = psycopg.connect(dsn)
    left_open.execute("LOCK TABLE task")
    database.renew()
    left_open.close()

    assert dsn == database.ready()
    assert (0, 0) == execute(dsn, IN_PUBLIC)
    assert before == execute(dsn, PUBLIC)


@pytest.mark.parametrize(
    "change",
    [
        "CREATE SCHEMA beside",
        "ALTER DATABASE {} SET work_mem = '7MB'",
        "ALTER DATABASE {} SET default_transaction_read_only = on",
        "ALTER ROLE postgres IN DATABASE {} SET work_mem = '7MB'",
        "REVOKE CONNECT ON DATABASE {} FROM PUBLIC",
        "SELECT lo_create(0)",
        "ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO PUBLIC",
        "CREATE FUNCTION pg_catalog.beside() RETURNS int RETURN 1",
    ],
)
def test_a_database_that_was_changed_is_not_used_again(database: TaskDatabase, change: str) -> None:
    """Whatever a test did to more than `public`, the next one does not see it."""
    dsn = database.ready()
    execute(dsn, change.format(conninfo.conninfo_to_dict(dsn)["dbname"]))
    database.renew()

    assert dsn != database.ready()
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(dsn)
