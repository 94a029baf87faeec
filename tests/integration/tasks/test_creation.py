"""A missing database, user, schema and table are made, or it is said exactly what may not be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager

import psycopg
import pytest
from psycopg import conninfo, sql

from gnomon.clock import SystemClock, SystemEntropy
from gnomon.contracts.env import Env
from gnomon.contracts.task_table import TaskTable
from gnomon.model.errors import ConfigurationError
from gnomon.model.task.conf import TaskEntry
from gnomon.tasks.config import TasksConfig
from gnomon.tasks.factory import opener_of


@asynccontextmanager
async def opened(dsn: str, entry: TaskEntry) -> AsyncIterator[TaskTable]:
    env = Env(clock=SystemClock(), entropy=SystemEntropy())
    table = opener_of(TasksConfig(dsn=dsn), env)(entry)
    try:
        yield table
    finally:
        await table.close()


async def prepare(dsn: str, entry: TaskEntry) -> Sequence[str]:
    async with opened(dsn, entry) as table:
        return await table.prepare()


@pytest.fixture
def plain_login(admin_dsn: str, database: str) -> Iterator[str]:
    """A login that may do nothing of itself; its dsn."""
    name = f"{database}_plain"
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(name)))
        parts = conninfo.conninfo_to_dict(admin_dsn)
        yield f"postgresql://{name}@{parts['host']}:{parts['port']}/postgres"
        dropping = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
        admin.execute(dropping.format(sql.Identifier(database)))
        admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


def login_name(dsn: str) -> str:
    return str(conninfo.conninfo_to_dict(dsn)["user"])


async def test_all_that_is_missing_is_made_once(admin_dsn: str, database: str) -> None:
    """Database, user, schema and table; the second time there is nothing to do."""
    entry = TaskEntry(data=database, user=f"{database}_user", schema="work", table="nightly")
    try:
        done = await prepare(admin_dsn, entry)
        assert [f"created user {entry.user}", f"created database {database}"] == list(done[:2])
        assert "created schema work" in done
        assert "created table nightly" in done
        assert [] == list(await prepare(admin_dsn, entry))
        dsn = conninfo.make_conninfo(admin_dsn, dbname=database)
        with psycopg.connect(dsn, autocommit=True) as user:
            user.execute("INSERT INTO work.nightly (input) VALUES ('SELECT 1')")
            found = user.execute("SELECT tableowner FROM pg_tables WHERE tablename = 'nightly'")
            assert (entry.user,) == found.fetchone()
    finally:
        with psycopg.connect(admin_dsn, autocommit=True) as admin:
            dropping = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
            admin.execute(dropping.format(sql.Identifier(database)))
            admin.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(entry.user)))


async def test_several_may_prepare_at_once(admin_dsn: str, database: str) -> None:
    """Processes that start together do not get in each other's way."""
    entry = TaskEntry(data=database, user="gnomon_tasker")
    await asyncio.gather(*(prepare(admin_dsn, entry) for _ in range(4)))
    assert [] == list(await prepare(admin_dsn, entry))


REFUSED = {
    "active": "0",
    "live": "-1 s",
    "repeat": "-1 s",
    "timeout": "-1 s",
    "count": "-1",
    "retry": "-1",
    "retried": "-1",
}


@pytest.mark.parametrize("column", REFUSED)
async def test_values_that_the_original_refuses_are_refused_in_its_words(
    admin_dsn: str, database: str, column: str
) -> None:
    """In a new row and in a change of one, by the constraint's name; other changes go through."""
    await prepare(admin_dsn, TaskEntry(data=database, user="gnomon_tasker"))
    dsn = conninfo.make_conninfo(admin_dsn, dbname=database)
    with psycopg.connect(dsn, autocommit=True) as user:
        user.execute("INSERT INTO task (input) VALUES ('SELECT 1')")
        name, value = sql.Identifier(column), sql.Literal(REFUSED[column])
        inserting = sql.SQL("INSERT INTO task (input, {}) VALUES ('SELECT 1', {})")
        changing = sql.SQL("UPDATE task SET {} = {}")
        for statement in (inserting, changing):
            with pytest.raises(psycopg.errors.CheckViolation) as refused:
                user.execute(statement.format(name, value))
            assert f"task_{column}_check" == refused.value.diag.constraint_name
            assert (
                f'new row for relation "task" violates check constraint "task_{column}_check"'
                == refused.value.diag.message_primary
            )
        user.execute(sql.SQL("UPDATE task SET {} = '1'").format(name))
        assert (1,) == user.execute("SELECT count(*) FROM task").fetchone()


async def test_login_that_may_not_create_a_user_is_told(plain_login: str, database: str) -> None:
    entry = TaskEntry(data=database, user=f"{database}_missing")
    problem = (
        f"the user {entry.user} is missing, and {login_name(plain_login)} may not create it: "
        "permission denied to create role"
    )
    with pytest.raises(ConfigurationError, match=problem):
        await prepare(plain_login, entry)


async def test_login_that_may_not_create_a_database_is_told(
    plain_login: str, database: str
) -> None:
    login = login_name(plain_login)
    problem = (
        f"the database {database} is missing, and {login} may not create it: "
        "permission denied to create database"
    )
    with pytest.raises(ConfigurationError, match=problem):
        await prepare(plain_login, TaskEntry(data=database, user=login))


async def test_user_that_may_not_create_a_table_is_told(
    admin_dsn: str, plain_login: str, database: str
) -> None:
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database)))
    with psycopg.connect(admin_dsn, dbname=database, autocommit=True) as admin:
        admin.execute(b"REVOKE CREATE ON SCHEMA public FROM PUBLIC")  # as it is from 15 on
    login = login_name(plain_login)
    problem = (
        f"the user {login} may not create type state in database {database}: "
        "permission denied for schema public"
    )
    with pytest.raises(ConfigurationError, match=problem):
        await prepare(plain_login, TaskEntry(data=database, user=login))


async def test_superuser_is_refused_unless_it_is_wanted(admin_dsn: str, database: str) -> None:
    """Whoever may insert a task would be one, too."""
    entry = TaskEntry(data=database, user="postgres")
    with pytest.raises(ConfigurationError, match=r'is a superuser.*"superuser": true'):
        await prepare(admin_dsn, entry)
    wanted = TaskEntry(data=database, user="postgres", superuser=True)
    assert "created table task" in await prepare(admin_dsn, wanted)


async def test_rows_of_pg_task_are_taken_over(admin_dsn: str, database: str) -> None:
    """A table that pg_task made is mended, and its rows are performed."""
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database)))
    dsn = conninfo.make_conninfo(admin_dsn, dbname=database)
    with psycopg.connect(dsn, autocommit=True) as user:
        user.execute(
            "CREATE TYPE state AS ENUM ('PLAN', 'GONE', 'TAKE', 'WORK', 'DONE', 'FAIL', 'STOP');"
            "CREATE TABLE task (id bigserial PRIMARY KEY, parent bigint, plan timestamptz NOT NULL "
            "DEFAULT statement_timestamp(), state state NOT NULL DEFAULT 'PLAN', "
            "input text NOT NULL);"
            "INSERT INTO task (input) VALUES ('SELECT 1')"
        )
        await prepare(admin_dsn, TaskEntry(data=database, user="postgres", superuser=True))
        found = user.execute('SELECT input, "group", max, retry FROM task').fetchall()
        assert [("SELECT 1", "group", 0, 0)] == found
