"""Rows of transactions that were open while the marks went past them are found when they commit.

The full look is switched off here: only the poll's knowledge of open transactions can find them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from gnomon.clock import SystemClock, SystemEntropy
from gnomon.contracts.env import Env
from gnomon.contracts.executor import AttemptRequest
from gnomon.contracts.store import Store
from gnomon.model.outcome import Outcome, Succeeded
from gnomon.model.spec import Mock
from gnomon.stores.postgres import connection
from gnomon.worker import Worker, WorkerConfig
from tests.fixtures.postgres import PostgresSchema
from tests.integration.postgres.conftest import Drafter

# Plain: late commits are told by the snapshots of one machine.
pytestmark = [pytest.mark.postgres, pytest.mark.plain]

NEVER = timedelta(hours=1)
WITHIN_S = 60.0  # a guard: the full look would come after an hour


class Executed:
    """An executor that says which actions it was given."""

    def __init__(self) -> None:
        self._events: dict[str, asyncio.Event] = {}

    def event(self, name: str) -> asyncio.Event:
        return self._events.setdefault(name, asyncio.Event())

    def serves(self, need: str) -> bool:
        return True

    async def execute(self, order: AttemptRequest) -> Outcome:
        self.event(order.id).set()
        return Succeeded()

    async def close(self) -> None: ...

    async def wait(self, name: str) -> None:
        async with asyncio.timeout(WITHIN_S):
            await self.event(name).wait()


@pytest.fixture(autouse=True)
def no_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks follow at once, so that a transaction need not be open for seconds to be passed."""
    monkeypatch.setattr(connection, "MARK_SLACK", timedelta(0))


@asynccontextmanager
async def working(store: Store) -> AsyncIterator[Executed]:
    executed, stop = Executed(), asyncio.Event()
    worker = Worker(
        store,
        await store.installation.open(),
        {Mock: executed},
        env=Env(clock=SystemClock(), entropy=SystemEntropy()),
        owner="late",
        config=WorkerConfig(sweep=NEVER, poll=timedelta(milliseconds=20)),
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(worker.work(stop))
        yield executed
        stop.set()


async def pass_by(store: Store, executed: Executed, draft: Drafter, prefix: str) -> None:
    """Traffic in every shard, so that all marks move on."""
    for turn in range(2):
        drafts = [draft(f"{prefix}-{turn}-{number}") for number in range(16)]
        await store.actions.create(drafts)
        for each in drafts:
            await executed.wait(each.id)


@asynccontextmanager
async def plain(connection: Any, store: Store, made: list[Any]) -> AsyncIterator[None]:
    transaction = connection.transaction()
    await transaction.start()
    await store.joining(connection).create(made)
    yield
    await transaction.commit()


@asynccontextmanager
async def with_savepoint(connection: Any, store: Store, made: list[Any]) -> AsyncIterator[None]:
    transaction, savepoint = connection.transaction(), connection.transaction()
    await transaction.start()
    await savepoint.start()
    await store.joining(connection).create(made)
    await savepoint.commit()
    yield
    await transaction.commit()


@asynccontextmanager
async def prepared(connection: Any, store: Store, made: list[Any]) -> AsyncIterator[None]:
    await connection.execute("BEGIN")
    await store.joining(connection).create(made)
    await connection.execute("PREPARE TRANSACTION 'late'")
    yield
    await connection.execute("COMMIT PREPARED 'late'")


KINDS: dict[str, Callable[..., AbstractAsyncContextManager[None]]] = {
    "plain": plain,
    "savepoint": with_savepoint,
    "prepared": prepared,
}


@pytest.mark.parametrize("kind", KINDS)
async def test_what_a_long_transaction_commits_is_begun(
    kind: str, store: Store, draft: Drafter, installed_schema: PostgresSchema
) -> None:
    """Marks have passed its rows, and it is not the full look that finds them."""
    late = [draft(f"late-{number}") for number in range(8)]
    connection = await asyncpg.connect(installed_schema.dsn)
    async with working(store) as executed:
        await pass_by(store, executed, draft, "before")
        async with KINDS[kind](connection, store, late):
            await pass_by(store, executed, draft, "meanwhile")
        for each in late:
            await executed.wait(each.id)
    await connection.close()


async def test_a_transaction_older_than_the_worker_is_waited_for(
    store: Store, draft: Drafter, installed_schema: PostgresSchema
) -> None:
    """Whoever takes a shard looks for what was being written before."""
    late = [draft(f"late-{number}") for number in range(8)]
    connection = await asyncpg.connect(installed_schema.dsn)
    async with plain(connection, store, late):
        async with working(store) as executed:  # its marks are saved when it leaves
            await pass_by(store, executed, draft, "first")
        async with working(store) as executed:
            await pass_by(store, executed, draft, "second")
    async with working(store) as executed:
        for each in late:
            await executed.wait(each.id)
    await connection.close()


async def test_a_transaction_that_outlives_its_worker_is_found_by_the_next(
    store: Store, draft: Drafter, installed_schema: PostgresSchema
) -> None:
    """It was open when the first one's marks passed, and is when the next one starts."""
    late = [draft(f"late-{number}") for number in range(8)]
    connection = await asyncpg.connect(installed_schema.dsn)
    transaction = connection.transaction()
    await transaction.start()
    await store.joining(connection).create(late)
    async with working(store) as executed:
        await pass_by(store, executed, draft, "first")
    async with working(store) as executed:
        await pass_by(store, executed, draft, "second")
        await transaction.commit()
        for each in late:
            await executed.wait(each.id)
    await connection.close()


async def test_a_create_that_waited_for_another_is_begun(
    store: Store, draft: Drafter, installed_schema: PostgresSchema
) -> None:
    """It bears the time at which its statement began, and marks have passed that meanwhile. It has
    its number before it waits, so polls know of it."""
    connection = await asyncpg.connect(installed_schema.dsn)
    async with working(store) as executed:
        await pass_by(store, executed, draft, "before")
        transaction = connection.transaction()
        await transaction.start()
        await store.joining(connection).create([draft("late")])
        waiting = asyncio.create_task(store.actions.create([draft("late")]))
        for turn in range(8):
            await pass_by(store, executed, draft, f"meanwhile-{turn}")
        assert not waiting.done()
        await transaction.rollback()
        await waiting
        await executed.wait("late")
    await connection.close()
