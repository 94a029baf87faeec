from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from psycopg import conninfo

from gnomon.model.task.conf import TaskEntry
from tests.conformance.tasks.benches import ENGINES, PostgresBench
from tests.conformance.tasks.driving import Driver
from tests.conformance.tasks.sqlite_driving import Bench, SqliteDriver


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
