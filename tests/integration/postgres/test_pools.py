"""What is small and urgent shares no connection with what is large, or with what waits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from gnomon.clock import SystemClock, SystemEntropy
from gnomon.contracts.observer import SilentObserver
from gnomon.contracts.store import HeldShard, LeaseRequest, Store
from gnomon.model.errors import StoreUnavailable
from gnomon.stores.postgres import connection as connecting
from gnomon.stores.postgres import open_postgres, pools
from gnomon.stores.postgres.connection import Database, open_database
from gnomon.stores.postgres.leases import PostgresLeases
from gnomon.stores.postgres.pools import LEASE_POOL_SIZE, WIDE_POOL_SIZE, WIDE_SETTINGS
from tests.fixtures.postgres import PostgresSchema
from tests.integration.postgres.conftest import Drafter

POOL_SIZE = 2
FOR_EVER = "SELECT pg_sleep(3600)"
PATIENCE_S = 60.0
POLL_S = 0.02
HOUR = timedelta(hours=1)
NOBODY = SystemEntropy().token()


@pytest.fixture
async def small_store(store: Store, installed_schema: PostgresSchema) -> AsyncIterator[Store]:
    dsn, schema = installed_schema
    opened = await open_postgres(
        dsn, schema=schema, clock=SystemClock(), entropy=SystemEntropy(), pool_size=POOL_SIZE
    )
    yield opened
    await opened.close()


async def opened_database(where: PostgresSchema, *, prepared: bool = True) -> Database:
    return await open_database(
        where.dsn, schema=where.schema, pool_size=POOL_SIZE, prepared=prepared, many_shards=None,
        observer=SilentObserver(),
    )  # fmt: skip


@asynccontextmanager
async def meanwhile(*calls: Awaitable[Any]) -> AsyncIterator[Sequence[asyncio.Future[Any]]]:
    """Calls that are under way and go nowhere until the block ends."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until_waiting(dsn: str, count: int, like: str) -> None:
    """Until so many sessions are at a statement like this."""
    looking: asyncpg.Connection[Any] = await asyncpg.connect(dsn)
    try:
        async with asyncio.timeout(PATIENCE_S):
            while count > await looking.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE $1 "
                "AND pid <> pg_backend_pid() AND wait_event IS NOT NULL",
                like,
            ):
                await asyncio.sleep(POLL_S)
    finally:
        await looking.close()


@pytest.mark.usefixtures("store")
async def test_leases_do_not_wait_behind_slow_reads(installed_schema: PostgresSchema) -> None:
    """As many listings as there are connections for them: locks are looked at and taken at once."""
    database = await opened_database(installed_schema)
    lists = [database.fetch_text("list", FOR_EVER) for _ in range(WIDE_POOL_SIZE)]
    try:
        async with meanwhile(*lists) as slow:
            await until_waiting(installed_schema.dsn, WIDE_POOL_SIZE, FOR_EVER)
            assert await PostgresLeases(database.for_leases()).list_locks()
            assert not any(task.done() for task in slow)
    finally:
        await database.close()


async def test_who_takes_shards_does_not_wait_for_one_that_is_being_changed(
    store: Store, installed_schema: PostgresSchema
) -> None:
    """It is passed over and can be had later; the others are taken at once."""
    requests = [
        LeaseRequest(seen=lock, lease_guid=SystemEntropy().token())
        for lock in await store.leases.list_locks()
    ]
    holder: asyncpg.Connection[Any] = await asyncpg.connect(installed_schema.dsn)
    try:
        async with holder.transaction():
            table = f'"{installed_schema.schema}".shard_lock'
            await holder.execute(f"SELECT 1 FROM {table} WHERE shard_id = 1 FOR UPDATE")
            taken = await store.leases.acquire(requests, owner="me", lease_for=HOUR)
    finally:
        await holder.close()
    wanted = {request.seen.shard for request in requests}
    assert wanted - {1} == {held.shard for held in taken}
    later = await store.leases.acquire(requests, owner="me", lease_for=HOUR)
    assert wanted == {held.shard for held in later}


@pytest.mark.plain  # lock_timeout does not reach the nodes of Citus
@pytest.mark.usefixtures("waiting_verbs")
async def test_work_and_leases_do_not_wait_behind_verbs_that_wait(
    small_store: Store, installed_schema: PostgresSchema, draft: Drafter
) -> None:
    """Somebody holds an action's row, and every connection for verbs waits for it: the worker goes
    on, and so does its heart."""
    await small_store.actions.create([draft("held")])
    holder: asyncpg.Connection[Any] = await asyncpg.connect(installed_schema.dsn)
    transaction = holder.transaction()
    await transaction.start()
    await holder.execute(f'SELECT FROM "{installed_schema.schema}".scheduled_action FOR UPDATE')
    deletes = [small_store.actions.delete("held", if_match=None) for _ in range(POOL_SIZE)]
    try:
        async with meanwhile(*deletes) as waiting:
            await until_waiting(installed_schema.dsn, POOL_SIZE, "%scheduled_action%")
            await small_store.work.poll([HeldShard(shard=0, lease_guid=NOBODY)])
            await small_store.leases.list_locks()
            assert not any(task.done() for task in waiting)
    finally:
        await transaction.rollback()
        await holder.close()


@pytest.mark.plain  # lock_timeout does not reach the nodes of Citus
async def test_verbs_do_not_wait_behind_verbs_that_wait(
    small_store: Store, installed_schema: PostgresSchema, draft: Drafter
) -> None:
    """More callers want what somebody holds than there are connections: others come before them,
    and they are served when it is free."""
    await small_store.actions.create([draft("held"), draft("free")])
    holder: asyncpg.Connection[Any] = await asyncpg.connect(installed_schema.dsn)
    transaction = holder.transaction()
    await transaction.start()
    held = (
        f"SELECT FROM \"{installed_schema.schema}\".scheduled_action WHERE id = 'held' FOR UPDATE"
    )
    await holder.execute(held)
    pauses = [
        small_store.actions.pause("held", SystemEntropy().guid(), if_match=None)
        for _ in range(2 * POOL_SIZE)
    ]
    try:
        async with meanwhile(*pauses) as waiting:
            await asyncio.sleep(0)  # all of them are asked for
            other = asyncio.ensure_future(small_store.actions.delete("free", if_match=None))
            await asyncio.wait([other, *waiting], return_when=asyncio.FIRST_COMPLETED)
            assert other.done()
            await transaction.rollback()
            assert {"held"} == {(await task).action.meta.id for task in waiting}
    finally:
        await holder.close()


async def test_the_heart_has_more_than_one_connection() -> None:
    """A connection that hangs must not be the only one."""
    assert 2 <= LEASE_POOL_SIZE


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody gives up after a fifth of a second, and the client shortly after."""
    for module in (connecting, pools):
        monkeypatch.setattr(module, "SILENCE_S", 0.3)
    hasty = {**WIDE_SETTINGS, "statement_timeout": "200"}
    monkeypatch.setattr(pools, "WIDE_SETTINGS", hasty)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("prepared", [True, False])
async def test_a_transaction_may_take_as_long_as_it_says(
    installed_schema: PostgresSchema,
    prepared: bool,
) -> None:
    """A migration of ten minutes is not ended by a client that waits for ten seconds: neither the
    server nor the client gives up before that."""
    database = await opened_database(installed_schema, prepared=prepared)
    long = timedelta(seconds=PATIENCE_S)
    try:
        with pytest.raises(StoreUnavailable, match="statement timeout"):
            await database.fetch_text("list", "SELECT pg_sleep(30)")
        async with database.transaction("migrate", wide=True, patience=long) as session:
            await session.execute("SELECT pg_sleep(0.6)")
            rows = await session.fetch("now")
        assert 1 == len(rows)
    finally:
        await database.close()


async def test_settings_hold_without_prepared_statements(installed_schema: PostgresSchema) -> None:
    """Behind a pooler a session is nobody's: each transaction says its settings, and leaves none
    behind."""
    database = await opened_database(installed_schema, prepared=False)
    try:
        async with database.transaction("look") as session:
            shown = await session.connection.fetchval("SHOW enable_seqscan")
            assert "off" == shown
        async with database._pools.verbs.acquire() as raw:
            assert "on" == await raw.fetchval("SHOW enable_seqscan")
    finally:
        await database.close()


async def test_a_warning_casts_doubt_on_what_was_written_only(
    installed_schema: PostgresSchema,
) -> None:
    """The doctor asks nodes of a cluster that may be away: each is a warning, and a finding."""
    database = await opened_database(installed_schema)
    warn = "DO $$ BEGIN RAISE WARNING 'a node is away'; END $$"
    try:
        async with database.transaction("look", wide=True, reads=True) as session:
            await session.connection.execute(warn)
        with pytest.raises(StoreUnavailable, match="a node is away"):
            async with database.transaction("write", wide=True) as session:
                await session.connection.execute(warn)
    finally:
        await database.close()


@pytest.mark.parametrize("turns", range(5))
async def test_who_stood_still_in_a_transaction_finds_the_store_unavailable(
    installed_schema: PostgresSchema, turns: int
) -> None:
    """The server has ended the session; how far the driver has read that depends on how often the
    loop had its turn before the commit. The next one has another connection."""
    database = await opened_database(installed_schema)
    limit = "SET LOCAL idle_in_transaction_session_timeout = '50ms'"

    async def stand_still() -> None:
        async with database.transaction("stand still") as session:
            await session.connection.execute(limit)
            await session.fetch("now")
            time.sleep(0.2)  # not asyncio's: that is the fault
            for _ in range(turns):
                await asyncio.sleep(0)

    try:
        with pytest.raises(StoreUnavailable):
            await stand_still()
        assert await database.fetch("now")
    finally:
        await database.close()
