"""Actions stored inside a caller's transaction live and die with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NamedTuple

import asyncpg
import psycopg
import pytest
import sqlalchemy

from gnomon.contracts.store import Selection, Store
from gnomon.model.action import State
from gnomon.model.errors import InvalidRequest, NotSupported
from tests.fixtures.postgres import PostgresSchema
from tests.integration.postgres.conftest import Drafter


class Caller(NamedTuple):
    """A connection in a transaction, and how its owner ends it."""

    connection: object
    commit: Callable[[], Any]
    roll_back: Callable[[], Any]


@asynccontextmanager
async def asyncpg_caller(dsn: str) -> AsyncIterator[Caller]:
    connection = await asyncpg.connect(dsn)
    transaction = connection.transaction()
    await transaction.start()
    yield Caller(connection, transaction.commit, transaction.rollback)
    await connection.close()


@asynccontextmanager
async def asyncpg_pool_caller(dsn: str) -> AsyncIterator[Caller]:
    async with asyncpg.create_pool(dsn, min_size=1, max_size=1) as pool, pool.acquire() as borrowed:
        transaction = borrowed.transaction()
        await transaction.start()
        yield Caller(borrowed, transaction.commit, transaction.rollback)


@asynccontextmanager
async def psycopg_caller(dsn: str) -> AsyncIterator[Caller]:
    with psycopg.connect(dsn) as connection:
        yield Caller(connection, called(connection.commit), called(connection.rollback))


@asynccontextmanager
async def psycopg_async_caller(dsn: str) -> AsyncIterator[Caller]:
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        yield Caller(connection, connection.commit, connection.rollback)


@asynccontextmanager
async def sqlalchemy_caller(dsn: str) -> AsyncIterator[Caller]:
    engine = sqlalchemy.create_engine(with_driver(dsn, "psycopg"))
    with engine.connect() as connection:
        yield Caller(connection, called(connection.commit), called(connection.rollback))
    engine.dispose()


@asynccontextmanager
async def sqlalchemy_async_caller(dsn: str, driver: str) -> AsyncIterator[Caller]:
    from sqlalchemy.ext.asyncio import create_async_engine

    engine = create_async_engine(with_driver(dsn, driver))
    async with engine.connect() as connection:
        yield Caller(connection, connection.commit, connection.rollback)
    await engine.dispose()


@asynccontextmanager
async def session_caller(dsn: str) -> AsyncIterator[Caller]:
    from sqlalchemy.orm import Session

    engine = sqlalchemy.create_engine(with_driver(dsn, "psycopg"))
    with Session(engine) as session:
        yield Caller(session, called(session.commit), called(session.rollback))
    engine.dispose()


@asynccontextmanager
async def async_session_caller(dsn: str, driver: str) -> AsyncIterator[Caller]:
    from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

    engine = create_async_engine(with_driver(dsn, driver))
    async with AsyncSession(engine) as session:
        yield Caller(session, session.commit, session.rollback)
    await engine.dispose()


@asynccontextmanager
async def async_scoped_session_caller(dsn: str) -> AsyncIterator[Caller]:
    from sqlalchemy.ext.asyncio import (
        async_scoped_session,
        async_sessionmaker,
        create_async_engine,
    )

    engine = create_async_engine(with_driver(dsn, "asyncpg"))
    session = async_scoped_session(async_sessionmaker(engine), asyncio.current_task)
    yield Caller(session, session.commit, session.rollback)
    await session.remove()
    await engine.dispose()


CALLERS: dict[str, Callable[[str], AbstractAsyncContextManager[Caller]]] = {
    "asyncpg": asyncpg_caller,
    "asyncpg-pool": asyncpg_pool_caller,
    "psycopg": psycopg_caller,
    "psycopg-async": psycopg_async_caller,
    "sqlalchemy": sqlalchemy_caller,
    "sqlalchemy-asyncpg": lambda dsn: sqlalchemy_async_caller(dsn, "asyncpg"),
    "sqlalchemy-psycopg-async": lambda dsn: sqlalchemy_async_caller(dsn, "psycopg"),
    "session": session_caller,
    "async-session-asyncpg": lambda dsn: async_session_caller(dsn, "asyncpg"),
    "async-session-psycopg": lambda dsn: async_session_caller(dsn, "psycopg"),
    "async-scoped-session": async_scoped_session_caller,
}


@pytest.fixture(params=sorted(CALLERS))
async def caller(
    request: pytest.FixtureRequest, installed_schema: PostgresSchema
) -> AsyncIterator[Caller]:
    async with CALLERS[request.param](installed_schema.dsn) as opened:
        yield opened


async def test_a_commit_makes_it_visible(store: Store, caller: Caller, draft: Drafter) -> None:
    """Nothing is seen before the caller commits, everything after."""
    joined = store.joining(caller.connection)
    keyed = draft("keyed", keyed=True)
    first, second = await joined.create([draft("plain"), keyed])

    assert first is not None
    assert second is not None
    assert [None, None] == list(await store.actions.get_many(["plain", "keyed"]))
    await caller.commit()
    assert [first.action, second.action] == list(await store.actions.get_many(["plain", "keyed"]))
    assert [] == list(await store.installation.doctor())


async def test_a_roll_back_leaves_nothing(store: Store, caller: Caller, draft: Drafter) -> None:
    """What the caller takes back never was."""
    await store.actions.create([draft("kept"), draft("replaced")])
    joined = store.joining(caller.connection)
    await joined.create([draft("one"), draft("two", keyed=True)])
    await joined.replace(draft("replaced"), if_match=None)
    await joined.delete("kept", if_match=None)
    await caller.roll_back()

    page = await store.actions.list(Selection(), after=None, limit=10)
    assert ["kept", "replaced"] == [action.meta.id for action in page.actions]
    assert [] == list(await store.installation.doctor())


async def test_replace_and_delete_can_join(store: Store, caller: Caller, draft: Drafter) -> None:
    """They are ordered and committed with whatever else the caller does."""
    await store.actions.create([draft("gone"), draft("changed")])
    joined = store.joining(caller.connection)
    changed = await joined.replace(draft("changed"), if_match=None)
    await joined.delete("gone", if_match=None)
    await caller.commit()

    gone = await store.actions.get("gone")
    assert gone is not None
    assert State.CANCELLED == gone.status.state
    assert changed.action == await store.actions.get("changed")


async def test_a_repeat_is_recognised_in_a_foreign_transaction(
    store: Store, caller: Caller, draft: Drafter
) -> None:
    """The key counts wherever the change is made."""
    keyed = draft("keyed", keyed=True)
    await store.actions.create([keyed])
    (again,) = await store.joining(caller.connection).create([keyed])
    await caller.roll_back()

    assert again is not None
    assert again.repeated


async def test_an_unknown_connection_is_refused(store: Store) -> None:
    """The remedy names the drivers."""
    with pytest.raises(NotSupported, match="asyncpg, psycopg 3, SQLAlchemy or Django"):
        store.joining(object())


async def test_without_a_transaction_joining_is_refused(
    store: Store, installed_schema: PostgresSchema, draft: Drafter
) -> None:
    """A connection that commits by itself would store half of what was asked when it fails."""
    connection = await asyncpg.connect(installed_schema.dsn)
    with pytest.raises(InvalidRequest, match="begin a transaction"):
        await store.joining(connection).create([draft("one")])
    await connection.close()
    with psycopg.connect(installed_schema.dsn, autocommit=True) as committing:
        with pytest.raises(InvalidRequest, match="begin a transaction"):
            await store.joining(committing).create([draft("one")])
        with committing.transaction():
            await store.joining(committing).create([draft("one")])
    assert await store.actions.get("one") is not None


async def test_a_connection_to_another_database_is_refused(
    store: Store, installed_schema: PostgresSchema, draft: Drafter
) -> None:
    """The transaction there is as good as before: nothing in it has failed."""
    await store.installation.open()
    connection = await asyncpg.connect(installed_schema.dsn, database="template1")
    async with connection.transaction():
        with pytest.raises(NotSupported, match="connect to the database of the store"):
            await store.joining(connection).create([draft("one")])
        assert 1 == await connection.fetchval("SELECT 1")
    await connection.close()


async def test_a_closed_connection_is_refused(
    store: Store, installed_schema: PostgresSchema, draft: Drafter
) -> None:
    connection = await asyncpg.connect(installed_schema.dsn)
    await connection.close()
    with pytest.raises(InvalidRequest, match="closed"):
        await store.joining(connection).create([draft("one")])


async def test_a_known_connection_is_not_asked_again(
    store: Store, installed_schema: PostgresSchema, draft: Drafter
) -> None:
    """Also where a pool lends it a second time."""
    await store.installation.open()
    asked: list[str] = []
    async with asyncpg.create_pool(installed_schema.dsn, min_size=1, max_size=1) as pool:
        for number in range(2):
            async with pool.acquire() as borrowed, borrowed.transaction():
                with borrowed.query_logger(lambda record: asked.append(record.query)):
                    await store.joining(borrowed).create([draft(f"a{number}")])
    assert 1 == sum("to_regclass" in query for query in asked)


def called(function: Callable[[], Any]) -> Callable[[], Any]:
    async def call() -> None:
        function()

    return call


def with_driver(dsn: str, driver: str) -> str:
    return dsn.replace("postgresql://", f"postgresql+{driver}://", 1)
