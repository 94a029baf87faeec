"""The engines that must conform, each in its configurations.

A store on PostgreSQL stays open from test to test, like the schema below it: to connect, and to
plan each statement anew, took longer than the tests themselves. So these tests share an event loop.
What a test leaves in the rows is taken out, and what it leaves running is waited for.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest
import pytest_asyncio

from gnomon.clock import SystemClock, SystemEntropy
from gnomon.contracts.store import Store
from gnomon.stores.postgres import open_postgres
from gnomon.stores.sqlite import InlineRunner, open_sqlite
from tests.fixtures.at_home import open_at_home
from tests.fixtures.installed import INSTALLED_SHARD_COUNT
from tests.fixtures.postgres import PostgresSchema

pytest.register_assert_rewrite("tests.conformance.store.suite")

from tests.conformance.store.suite.entities.given import GivenEntities  # noqa: E402 - after it
from tests.conformance.store.suite.given import Caller, Given  # noqa: E402 - after the registration

SHARD_COUNT = INSTALLED_SHARD_COUNT
HERE = Path(__file__).parent
QUIET_WITHIN_S = 5.0


class Engine(NamedTuple):
    """A configuration of an engine: how to open it, and how to reach beneath it."""

    open: Callable[[], Awaitable[Store]]  # one of the test's own
    execute_raw: Callable[[str], Sequence[Sequence[Any]]]
    caller_transaction: Caller | None
    kept: Callable[[], Awaitable[Store]] | None = None  # one that is open, and stays so
    is_shared: bool = True
    arrives: bool = False  # first attempts are begun on arrival


POSTGRES: dict[str, dict[str, Any]] = {
    "postgres": {},
    "postgres-unprepared": {"prepared": False},  # as behind a pooler
    "postgres-one-part": {"many_shards": False, "parts": 2},  # the statements that Citus gets
    "postgres-in-place": {},  # first attempts run in their incoming rows, see ADR 0020
    "postgres-part-in-place": {"many_shards": False, "parts": 2},
    # Parts of a cluster that are reached at their nodes: see `open_at_home`.
    "postgres-home-in-place": {"many_shards": False, "parts": 2},
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
STATEMENTS = configurations("sqlite-memory", "postgres", "postgres-one-part")
SHARED_STATEMENTS = [*STATEMENTS, "sqlite-file"]  # several processes' worth of stores
ATTEMPT_STATEMENTS = [
    *SHARED_STATEMENTS,
    *configurations("postgres-in-place", "postgres-part-in-place", "postgres-home-in-place"),
]
SENT_STATEMENTS = [*SHARED_STATEMENTS, *configurations("postgres-unprepared")]
ALL_WAYS = configurations("sqlite-memory", "sqlite-file", *POSTGRES)
NO_SHARDS = configurations("sqlite-memory", "sqlite-file", "postgres")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest.fixture(params=ATTEMPT_STATEMENTS)
def engine(request: pytest.FixtureRequest) -> Engine:
    return engine_of(request)


def engine_of(request: pytest.FixtureRequest) -> Engine:
    match request.param:
        case "sqlite-memory":
            return sqlite_memory(request)
        case "sqlite-file":
            folder: Path = request.getfixturevalue("tmp_path")
            return sqlite_file(folder / "gnomon.db")
        case configuration:
            open_stores: OpenStores = request.getfixturevalue("open_stores")
            place: PostgresSchema = request.getfixturevalue("installed_schema")
            return postgres(open_stores, place, configuration)


@pytest_asyncio.fixture(loop_scope="session")
async def store(engine: Engine) -> AsyncIterator[Store]:
    if engine.kept is not None:
        yield await engine.kept()
        await no_others()
        return
    opened = await engine.open()
    await opened.installation.migrate(shard_count=SHARD_COUNT)
    yield opened
    await opened.close()


@pytest_asyncio.fixture(loop_scope="session")
async def given(engine: Engine, store: Store) -> AsyncIterator[Given]:
    async with AsyncExitStack() as others:

        async def execute_raw(sql: str) -> Sequence[Sequence[Any]]:
            return engine.execute_raw(sql)

        async def open_another() -> Store:
            if not engine.is_shared:
                return store
            another = await engine.open()
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


async def no_others() -> None:
    """What a test started in the background has ended: a hint on its way, and nothing else."""
    if others := asyncio.all_tasks() - {asyncio.current_task()}:
        _, left = await asyncio.wait(others, timeout=QUIET_WITHIN_S)
        assert not left, f"still running after the test: {left}"


@pytest.fixture
def entities(given: Given) -> GivenEntities:
    return GivenEntities(given)


# -- SQLite ---------------------------------------------------------------------------------------


def sqlite_memory(request: pytest.FixtureRequest) -> Engine:
    runner = InlineRunner()
    request.addfinalizer(runner.connection.close)  # a runner that was given is not the store's

    async def open_it() -> Store:
        return open_sqlite(":memory:", clock=SystemClock(), entropy=SystemEntropy(), runner=runner)

    def execute_raw(sql: str) -> Sequence[Sequence[Any]]:
        return runner.connection.execute(sql).fetchall()

    return Engine(open_it, execute_raw, None, is_shared=False)


def sqlite_file(path: Path) -> Engine:
    async def open_it() -> Store:
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


class OpenStores:
    """Stores in the schema that tests share, one for each configuration, and a way beneath them."""

    def __init__(self) -> None:
        self._place = PostgresSchema("", "")
        self._stores: dict[str, Store] = {}
        self._connection: psycopg.Connection[Any] | None = None

    async def kept(self, place: PostgresSchema, configuration: str) -> Store:
        """The one of the last test, unless that spoilt the schema."""
        if place != self._place:
            await self.close()
            self._place = place
        if configuration not in self._stores:
            store = self._stores[configuration] = await opened(place, configuration)
            await store.installation.open()  # as every program does first
        return self._stores[configuration]

    def execute_raw(self, sql: str) -> Sequence[Sequence[Any]]:
        """As somebody with other tools does it."""
        if self._connection is None:
            dsn, schema = self._place
            options = f"-c search_path={schema}"
            self._connection = psycopg.connect(dsn, autocommit=True, options=options)
        cursor = self._connection.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []

    async def close(self) -> None:
        """All of them. May be used again."""
        for store in self._stores.values():
            await store.close()
        self._stores.clear()
        if self._connection is not None:
            self._connection.close()
            self._connection = None


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def open_stores(shared_installation: object) -> AsyncIterator[OpenStores]:
    found = OpenStores()
    yield found
    await found.close()


async def opened(place: PostgresSchema, configuration: str) -> Store:
    open_it = open_at_home if "home" in configuration else open_postgres
    return await open_it(
        place.dsn,
        schema=place.schema,
        clock=SystemClock(),
        entropy=SystemEntropy(),
        **POSTGRES[configuration],
    )


def postgres(open_stores: OpenStores, place: PostgresSchema, configuration: str) -> Engine:
    @asynccontextmanager
    async def caller() -> AsyncIterator[AsyncpgCaller]:
        import asyncpg

        connection = await asyncpg.connect(place.dsn)
        transaction = connection.transaction()
        await transaction.start()
        try:
            yield AsyncpgCaller(connection, transaction)
        finally:
            await connection.close()

    return Engine(
        partial(opened, place, configuration),
        open_stores.execute_raw,
        caller,
        kept=partial(open_stores.kept, place, configuration),
        arrives=configuration.endswith("in-place"),
    )


class AsyncpgCaller:
    def __init__(self, connection: object, transaction: Any) -> None:
        self.connection = connection
        self._transaction = transaction

    async def commit(self) -> None:
        await self._transaction.commit()

    async def roll_back(self) -> None:
        await self._transaction.rollback()
