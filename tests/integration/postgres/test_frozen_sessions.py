"""A process that stopped in the middle of a statement holds its rows until somebody ends its
session: no time-out of PostgreSQL's does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta

import asyncpg
import pytest

from gnomon.clock import SystemClock, SystemEntropy
from gnomon.contracts.env import Env
from gnomon.contracts.store import Store
from gnomon.worker import Worker
from gnomon.worker import dead_workers as dead_workers_module
from tests.fixtures.postgres import PostgresSchema
from tests.unit.worker.surroundings import Audience

# The server may be somebody's Citus, where other tests work at the same time: longer than any of
# their processes stands still, and so short that none of their workers ends a session of ours.
SOON, HOUR = timedelta(seconds=2), timedelta(hours=1)
TURN = 7_431_908  # a lock: one of these tests at a time
LOCK = "SELECT shard_id FROM shard_lock WHERE shard_id = 0 FOR UPDATE"
POLL_S = 0.02
PATIENCE_S = 60.0


@asynccontextmanager
async def connected(
    where: PostgresSchema, application_name: str
) -> AsyncIterator[asyncpg.Connection]:
    """A session named like those of the pools, or not."""
    connection = await asyncpg.connect(
        where.dsn,
        server_settings={"application_name": application_name, "search_path": where.schema},
    )
    try:
        yield connection
    finally:
        connection.terminate()


async def freeze(connection: asyncpg.Connection) -> int:
    """Lock a row, then stop where a process is between two messages of one statement; its pid."""
    pid = connection.get_server_pid()
    await connection.execute("BEGIN")
    await connection.execute(LOCK)
    await connection.prepare("SELECT count(*) FROM shard_lock")
    return pid


async def state_of(watcher: asyncpg.Connection, pid: int) -> tuple[str, str] | None:
    row = await watcher.fetchrow(
        "SELECT state, wait_event FROM pg_stat_activity WHERE pid = $1", pid
    )
    return None if row is None else (row["state"], row["wait_event"])


async def until(watcher: asyncpg.Connection, pid: int, *states: tuple[str, str] | None) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await state_of(watcher, pid) not in states:
            await asyncio.sleep(POLL_S)


async def has_stood(watcher: asyncpg.Connection, pid: int) -> None:
    """Until its last statement began so long ago that only its state speaks for it."""
    age = "SELECT clock_timestamp() - query_start FROM pg_stat_activity WHERE pid = $1"
    async with asyncio.timeout(PATIENCE_S):
        while await watcher.fetchval(age, pid) <= SOON:
            await asyncio.sleep(POLL_S)


@pytest.fixture
async def watcher(
    store: Store, installed_schema: PostgresSchema
) -> AsyncIterator[asyncpg.Connection]:
    """Somebody else at the same database, and the only one there who freezes sessions."""
    connection = await asyncpg.connect(
        installed_schema.dsn, server_settings={"search_path": installed_schema.schema}
    )
    await connection.execute("SELECT pg_advisory_lock($1)", TURN)
    yield connection
    await connection.close()


async def test_a_session_that_stopped_within_a_statement_is_ended(
    store: Store, watcher: asyncpg.Connection, installed_schema: PostgresSchema
) -> None:
    """Whoever waits for its row gets it, and a process that goes on meets a lost connection."""
    async with connected(installed_schema, "gnomon") as frozen:
        pid = await freeze(frozen)
        with pytest.raises(asyncpg.LockNotAvailableError):
            await watcher.execute(f"{LOCK} NOWAIT")
        await has_stood(watcher, pid)
        assert ("active", "ClientRead") == await state_of(watcher, pid)

        assert 1 == await store.leases.end_frozen_sessions(after=SOON)

        await until(watcher, pid, None)
        assert 0 == await watcher.fetchval(LOCK)
        async with asyncio.timeout(PATIENCE_S):
            while not frozen.is_closed():
                await asyncio.sleep(POLL_S)
        assert 0 == await store.leases.end_frozen_sessions(after=SOON)


async def test_whoever_is_not_frozen_is_left_alone(
    store: Store, watcher: asyncpg.Connection, installed_schema: PostgresSchema
) -> None:
    """A stranger's session, one that has not stopped for so long, an idle one and a busy one."""
    async with AsyncExitStack() as stack:
        stranger, idle, busy = [
            await stack.enter_async_context(connected(installed_schema, name))
            for name in ("psql", "gnomon", "gnomon")
        ]
        stranger_pid, busy_pid = await freeze(stranger), busy.get_server_pid()
        await idle.execute("SELECT 1")
        sleep = asyncio.create_task(busy.execute("SELECT pg_sleep(3600)"))
        await until(watcher, busy_pid, ("active", "PgSleep"))
        for pid in (stranger_pid, idle.get_server_pid(), busy_pid):
            await has_stood(watcher, pid)

        assert 0 == await store.leases.end_frozen_sessions(after=SOON)

        assert ("active", "ClientRead") == await state_of(watcher, stranger_pid)
        assert ("idle", "ClientRead") == await state_of(watcher, idle.get_server_pid())
        assert ("active", "PgSleep") == await state_of(watcher, busy_pid)
        sleep.cancel()
        await asyncio.wait([sleep])
    async with connected(installed_schema, "gnomon") as young:
        pid = await freeze(young)
        assert 0 == await store.leases.end_frozen_sessions(after=HOUR)
        assert ("active", "ClientRead") == await state_of(watcher, pid)


async def test_a_worker_ends_them_and_says_so(
    store: Store,
    watcher: asyncpg.Connection,
    installed_schema: PostgresSchema,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dead_workers_module, "FROZEN_EVERY_S", POLL_S)
    monkeypatch.setattr(dead_workers_module, "FROZEN_AFTER", SOON)
    audience = Audience()
    env = Env(clock=SystemClock(), entropy=SystemEntropy(), observer=audience)
    worker = Worker(store, await store.installation.open(), {}, env=env, owner="here")
    services = dict(worker._beginning())
    for service in services.values():
        service.close()
    assert "frozen" in services  # it is part of a worker's life
    async with connected(installed_schema, "gnomon") as frozen:
        pid = await freeze(frozen)
        ending = asyncio.create_task(worker._dead_workers.keep_ending_frozen())
        await until(watcher, pid, None)
        async with asyncio.timeout(PATIENCE_S):
            while "frozen_sessions_ended" not in audience.events:
                await asyncio.sleep(POLL_S)
        ending.cancel()
        await asyncio.wait([ending])
    assert ["frozen_sessions_ended"] == audience.events
