"""The engines that must conform, each in its configurations."""

from __future__ import annotations

import inspect
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest

from gnomon.clock import SystemClock, SystemEntropy
from gnomon.contracts.store import Store
from tests.fixtures.installed import INSTALLED_SHARD_COUNT

pytest.register_assert_rewrite("tests.conformance.store.suite")

from tests.conformance.store.suite.entities.given import GivenEntities  # noqa: E402 - after it
from tests.conformance.store.suite.given import Caller, Given  # noqa: E402 - after the registration

SHARD_COUNT = INSTALLED_SHARD_COUNT


class Engine(NamedTuple):
    """A configuration of an engine: how to open it, and how to reach beneath it."""

    open: Callable[[], Store]
    execute_raw: Callable[[str], Sequence[Sequence[Any]]]
    caller_transaction: Caller | None
    is_shared: bool = True
    arrives: bool = False  # first attempts are begun on arrival


POSTGRES: dict[str, dict[str, Any]] = {
    "postgres": {},
    "postgres-unprepared": {"prepared": False},  # as behind a pooler
    "postgres-one-shard": {"many_shards": False},  # the statements that Citus gets
    "postgres-in-place": {},  # first attempts run in their incoming rows, see ADR 0020
}


def configurations(*names: str) -> list[Any]:
    """Some of them, as parameters of the fixture `engine`."""
    return [
        pytest.param(name, marks=pytest.mark.postgres) if name in POSTGRES else name
        for name in names
    ]


# The statements differ: SQLite's, PostgreSQL's, and what Citus gets. How they are sent, prepared or
# not, is the same for all of them: that is tested with the actions, which also join the caller's
# transaction, and with the leases, which are single statements; the rest runs behind a pooler in
# tests/integration/postgres/test_pooler.py. What belongs to no shard is the same on Citus, and only
# actions have attempts that run in place.
STATEMENTS = configurations("sqlite-memory", "postgres", "postgres-one-shard")
SHARED_STATEMENTS = [*STATEMENTS, "sqlite-file"]  # several processes' worth of stores
ATTEMPT_STATEMENTS = [*SHARED_STATEMENTS, *configurations("postgres-in-place")]
ALL_WAYS = configurations("sqlite-memory", "sqlite-file", *POSTGRES)
NO_SHARDS = configurations("sqlite-memory", "sqlite-file", "postgres")


@pytest.fixture(params=ATTEMPT_STATEMENTS)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Engine:
    return engine_of(request, tmp_path)


def engine_of(request: pytest.FixtureRequest, tmp_path: Path) -> Engine:
    match request.param:
        case "sqlite-memory":
            return sqlite_memory(request)
        case "sqlite-file":
            return sqlite_file(tmp_path / "gnomon.db")
        case configuration:
            dsn, schema = request.getfixturevalue("installed_schema")
            engine = postgres(dsn, schema, POSTGRES[configuration])
            return engine._replace(arrives=configuration == "postgres-in-place")


@pytest.fixture
async def store(engine: Engine) -> AsyncIterator[Store]:
    opened = await opened_store(engine)
    await opened.installation.migrate(shard_count=SHARD_COUNT)
    yield opened
    await opened.close()


@pytest.fixture
async def given(engine: Engine, store: Store) -> AsyncIterator[Given]:
    async with AsyncExitStack() as others:

        async def execute_raw(sql: str) -> Sequence[Sequence[Any]]:
            return engine.execute_raw(sql)

        async def open_another() -> Store:
            if not engine.is_shared:
                return store
            another = await opened_store(engine)
            others.push_async_callback(another.close)
            return another

        yield Given(
            store,
            await store.installation.open(),
            entropy=SystemEntropy(),
            execute_raw=execute_raw,
            open_another=open_another,
            caller_transaction=engine.caller_transaction,
            arrives=engine.arrives,
        )


@pytest.fixture
def entities(given: Given) -> GivenEntities:
    return GivenEntities(given)


async def opened_store(engine: Engine) -> Store:
    found: Any = engine.open()
    opened: Store = await found if inspect.isawaitable(found) else found
    return opened


# -- SQLite ---------------------------------------------------------------------------------------


def sqlite_memory(request: pytest.FixtureRequest) -> Engine:
    from gnomon.stores.sqlite import InlineRunner, open_sqlite

    runner = InlineRunner()
    request.addfinalizer(runner.connection.close)  # a runner that was given is not the store's

    def open_it() -> Store:
        return open_sqlite(":memory:", clock=SystemClock(), entropy=SystemEntropy(), runner=runner)

    def execute_raw(sql: str) -> Sequence[Sequence[Any]]:
        return runner.connection.execute(sql).fetchall()

    return Engine(open_it, execute_raw, None, is_shared=False)


def sqlite_file(path: Path) -> Engine:
    from gnomon.stores.sqlite import open_sqlite

    def open_it() -> Store:
        return open_sqlite(path, clock=SystemClock(), entropy=SystemEntropy())

    def execute_raw(sql: str) -> Sequence[Sequence[Any]]:
        connection = sqlite3.connect(path, isolation_level=None)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()

    @asynccontextmanager
    async def caller() -> AsyncIterator[SqliteCaller]:
        connection = sqlite3.connect(path)
        try:
            yield SqliteCaller(connection)
        finally:
            connection.close()

    return Engine(open_it, execute_raw, caller)


class SqliteCaller:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection: object = connection
        self._connection = connection

    async def commit(self) -> None:
        self._connection.commit()

    async def roll_back(self) -> None:
        self._connection.rollback()


# -- PostgreSQL -----------------------------------------------------------------------------------


def postgres(dsn: str, schema: str, settings: dict[str, Any]) -> Engine:
    from gnomon.stores.postgres import open_postgres

    def open_it() -> Any:
        return open_postgres(
            dsn, schema=schema, clock=SystemClock(), entropy=SystemEntropy(), **settings
        )

    def execute_raw(sql: str) -> Sequence[Sequence[Any]]:
        options = f"-c search_path={schema}"
        with psycopg.connect(dsn, autocommit=True, options=options) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    @asynccontextmanager
    async def caller() -> AsyncIterator[AsyncpgCaller]:
        import asyncpg

        connection = await asyncpg.connect(dsn)
        transaction = connection.transaction()
        await transaction.start()
        try:
            yield AsyncpgCaller(connection, transaction)
        finally:
            await connection.close()

    return Engine(open_it, execute_raw, caller)


class AsyncpgCaller:
    def __init__(self, connection: object, transaction: Any) -> None:
        self.connection = connection
        self._transaction = transaction

    async def commit(self) -> None:
        await self._transaction.commit()

    async def roll_back(self) -> None:
        await self._transaction.rollback()
