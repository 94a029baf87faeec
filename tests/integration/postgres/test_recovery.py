"""The engine outlives its server, and knows whether it is still the same one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import asyncpg
import pytest

from gnomon.clock import SystemClock, SystemEntropy
from gnomon.contracts.store import Store
from gnomon.model.errors import ConfigurationError, SchemaMismatch, StoreUnavailable
from gnomon.stores.postgres import open_postgres
from gnomon.stores.postgres.wakeups import PAYLOAD_BYTES_MAX, from_payload, to_payload
from tests.fixtures.postgres import PostgresSchema, PostgresServer
from tests.integration.postgres.conftest import SHARD_COUNT, Drafter

T = TypeVar("T")

PATIENCE_S = 60.0
POLL_S = 0.05


@pytest.fixture
async def durable_store(durable_postgres: PostgresServer) -> AsyncIterator[Store]:
    opened = await open_postgres(durable_postgres.dsn, clock=SystemClock(), entropy=SystemEntropy())
    await opened.installation.migrate(shard_count=SHARD_COUNT)
    yield opened
    await opened.close()


async def repeated(call: Callable[[], Awaitable[T]]) -> T:
    """Repeat a call while the store is unavailable, as its callers do."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await call()
            except StoreUnavailable:
                await asyncio.sleep(POLL_S)


async def test_the_store_recovers_from_a_crash_of_the_server(
    durable_store: Store, durable_postgres: PostgresServer, draft: Drafter
) -> None:
    """What was acknowledged is there, and the same open store goes on by itself."""
    await durable_store.actions.create([draft("before")])
    await asyncio.to_thread(durable_postgres.stop, "immediate")
    with pytest.raises(StoreUnavailable):
        await durable_store.actions.create([draft("meanwhile")])
    await asyncio.to_thread(durable_postgres.start)

    await repeated(lambda: durable_store.actions.create([draft("after")]))

    found = await durable_store.actions.get_many(["before", "meanwhile", "after"])
    assert [True, False, True] == [action is not None for action in found]
    assert "local" == (await durable_store.installation.open()).durability


async def test_a_listener_reconnects_and_says_that_it_missed_something(
    durable_store: Store, durable_postgres: PostgresServer
) -> None:
    """Hints come again after the server was away; until then anything may have come."""
    heard: asyncio.Queue[frozenset[int]] = asyncio.Queue()
    listening = asyncio.create_task(durable_store.wakeups.listen(heard.put_nowait))
    try:
        await hinted(durable_store, heard, {1, 3})
        await asyncio.to_thread(durable_postgres.restart, "fast")
        async with asyncio.timeout(PATIENCE_S):
            while await heard.get():
                pass
        await repeated(durable_store.installation.now)
        await hinted(durable_store, heard, {2})
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)


async def hinted(store: Store, heard: asyncio.Queue[frozenset[int]], shards: set[int]) -> None:
    """Hint until it is heard: a hint from before the listener was there is lost."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            store.wakeups.hint(shards)
            try:
                found = await asyncio.wait_for(heard.get(), POLL_S)
            except TimeoutError:
                continue
            if found:  # nothing said: it connected once more, and may have missed something
                assert shards == found
                return


async def execute(where: PostgresSchema, sql: str) -> None:
    connection: asyncpg.Connection[Any] = await asyncpg.connect(where.dsn)
    await connection.execute(sql.replace("installation", f'"{where.schema}".installation'))
    await connection.close()


async def test_another_timeline_of_the_same_system_is_adopted(
    store: Store, installed_schema: PostgresSchema
) -> None:
    """A planned fail-over needs nobody's word."""
    await execute(installed_schema, "UPDATE installation SET timeline = timeline + 7")

    assert None is await store.installation.verify_identity()
    assert None is await store.installation.verify_identity()


async def test_another_system_is_named_until_it_is_adopted(
    store: Store, installed_schema: PostgresSchema
) -> None:
    """A copy must not fire the original's actions."""
    await execute(installed_schema, "UPDATE installation SET system_identifier = 42, timeline = 7")

    told = await store.installation.verify_identity()
    assert told is not None
    assert "42" in told
    await store.installation.adopt(past_due="run")
    assert None is await store.installation.verify_identity()


async def test_without_a_schema_the_store_opens_and_says_what_to_do(
    postgres_schema: PostgresSchema,
) -> None:
    """Opening needs no schema; using it says `gnomon migrate`."""
    dsn, schema = postgres_schema
    opened = await open_postgres(dsn, schema=schema, clock=SystemClock(), entropy=SystemEntropy())
    with pytest.raises(SchemaMismatch, match="gnomon migrate"):
        await opened.installation.open()
    await opened.close()


async def test_a_wrong_database_is_a_matter_of_configuration(
    installed_schema: PostgresSchema,
) -> None:
    """Trying again would not help, so it is not called unavailable."""
    # Over TLS, which a node of Citus has, asyncpg takes leave of a server that refused it, and that
    # may take longer than this test's loop lasts: the next one would be told of an open socket.
    dsn = installed_schema.dsn.rsplit("/", 1)[0] + "/no_such_database?sslmode=disable"
    with pytest.raises(ConfigurationError, match="3D000"):
        await open_postgres(dsn, clock=SystemClock(), entropy=SystemEntropy())


async def test_nobody_listening_there_is_unavailable() -> None:
    """The server may come later."""
    dsn = "postgresql://postgres@127.0.0.1:1/postgres"
    with pytest.raises(StoreUnavailable):
        await open_postgres(dsn, clock=SystemClock(), entropy=SystemEntropy())


def test_hints_are_written_as_they_are_read() -> None:
    """Shards by number, or nothing at all when they do not fit: then anything may have come."""
    assert frozenset({1, 2, 63}) == from_payload(to_payload({2, 1, 63}))
    assert "" == to_payload(range(4096))
    assert PAYLOAD_BYTES_MAX >= len(to_payload(range(1500)))
    assert frozenset() == from_payload("")
    assert frozenset() == from_payload("1,x")
