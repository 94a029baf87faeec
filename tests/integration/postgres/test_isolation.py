"""A change inside a transaction that keeps one snapshot misses no attempt that began since."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Literal, TypeAlias

import asyncpg
import pytest

from gnomon.clock import SystemEntropy
from gnomon.contracts.store import Store
from gnomon.model.errors import StoreUnavailable
from tests.conformance.store.suite.given import HOUR, OWNER, Given
from tests.fixtures.postgres import PostgresSchema

Isolation = Literal["repeatable_read", "serializable"]
Connection: TypeAlias = "asyncpg.Connection[Any]"
ISOLATIONS: list[Isolation] = ["repeatable_read", "serializable"]
FAILURES = (StoreUnavailable, asyncpg.SerializationError)


@pytest.fixture
async def connection(installed_schema: PostgresSchema) -> AsyncIterator[Connection]:
    opened: Connection = await asyncpg.connect(installed_schema.dsn)
    yield opened
    await opened.close()


@pytest.fixture
async def given(store: Store) -> Given:
    async def nothing(_: str) -> list[list[Any]]:
        return []

    async def the_same() -> Store:
        return store

    return Given(
        store,
        await store.installation.open(),
        entropy=SystemEntropy(),
        execute_raw=nothing,
        open_another=the_same,
    )


@pytest.fixture(params=["joined", "sql"])
def cancel(
    request: pytest.FixtureRequest,
    store: Store,
    connection: Connection,
    installed_schema: PostgresSchema,
) -> Callable[[str], Awaitable[object]]:
    """Deletes an action in the open transaction of the connection."""

    async def by_sql(name: str) -> object:
        return await connection.fetchval(f'SELECT "{installed_schema.schema}".cancel($1)', name)

    async def joined(name: str) -> object:
        return await store.joining(connection).delete(name, if_match=None)

    return joined if request.param == "joined" else by_sql


async def arrive(store: Store, given: Given) -> list[str]:
    """Begin what has just been created, the short way."""
    arrived = await store.work.move_and_begin(
        await given.holdings(), limit=10, room={"default": 10}, batch=given.entropy.token(),
        owner=OWNER, grace=HOUR, window=HOUR,
    )  # fmt: skip
    return [begun.id for begun in arrived.begun]


@pytest.mark.plain  # there each node has its snapshot, taken when it is first asked
@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("place", ["processing", "incoming"])
async def test_an_attempt_that_began_since_the_snapshot_fails_the_change(
    store: Store,
    given: Given,
    connection: Connection,
    cancel: Callable[[str], Awaitable[object]],
    isolation: Isolation,
    place: str,
) -> None:
    """It could not be named. Tried again, as such transactions are, it is."""
    await given.holdings()
    await (given.moved("x") if place == "processing" else given.created("x"))
    transaction = connection.transaction(isolation=isolation)
    await transaction.start()
    await connection.fetchval("SELECT count(*) FROM pg_class")
    if place == "processing":
        (begun,) = (await given.begin()).begun
        assert "x" == begun.id
    else:
        assert ["x"] == await arrive(store, given)

    with pytest.raises(FAILURES):
        await cancel("x")
    await transaction.rollback()

    assert (await given.action("x")).status.current_attempt is not None
    changed = await store.actions.delete("x", if_match=None)
    assert changed.in_flight is not None


@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_a_change_of_what_has_not_begun_goes_through_and_holds_up_nobody(
    store: Store,
    given: Given,
    connection: Connection,
    cancel: Callable[[str], Awaitable[object]],
    isolation: Isolation,
) -> None:
    """In either queue; while the transaction is open its row can be moved, and is not begun."""
    await given.moved("waits", due_in=HOUR)
    await given.created("new")
    async with connection.transaction(isolation=isolation):
        await cancel("waits")
        await cancel("new")
        assert [] == await arrive(store, given)

    assert 0 == await given.move()
    assert [] == list((await given.begin()).begun)
