from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import conninfo, sql

from gnomon.model.task.conf import TaskEntry
from tests.conformance.tasks.benches import ENGINES, PostgresBench
from tests.conformance.tasks.driving import Driver
from tests.conformance.tasks.sqlite_driving import Bench, SqliteDriver
from tests.fixtures.postgres import SCHEMA_PREFIX, ExternalPostgres, PostgresServer


@pytest.fixture
def task_dsn(postgres: PostgresServer | ExternalPostgres) -> Iterator[str]:
    """A database of the test's own: task tables live in `public`, as pg_task's do."""
    if isinstance(postgres, ExternalPostgres):
        pytest.skip("needs a server on which databases may be made")
    name = f"{SCHEMA_PREFIX}{uuid.uuid4().hex[:16]}"
    with psycopg.connect(postgres.dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        yield conninfo.make_conninfo(postgres.dsn, dbname=name)
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def entry(task_dsn: str) -> TaskEntry:
    parts = conninfo.conninfo_to_dict(task_dsn)
    return TaskEntry(data=str(parts["dbname"]), user="postgres", superuser=True, remote="free")


@pytest.fixture
async def driver(task_dsn: str, entry: TaskEntry) -> AsyncIterator[Driver]:
    async with Driver(task_dsn, entry) as driver:
        yield driver


@pytest.fixture(params=ENGINES)
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    """A task table of each engine."""
    if request.param == "sqlite":
        async with SqliteDriver(tmp_path / "tasks.db") as sqlite:
            yield sqlite
        return
    dsn, entry = request.getfixturevalue("task_dsn"), request.getfixturevalue("entry")
    async with PostgresBench(dsn, entry) as postgres:
        yield postgres
