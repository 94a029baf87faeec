"""What was begun waits for nothing else: neither for the look at what its lane has next, nor for
another part."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from gnomon.clock import SystemClock, SystemEntropy
from gnomon.contracts.store import BegunAttempt, Store
from gnomon.stores.postgres import open_postgres
from gnomon.stores.postgres.connection import Database, PoolSession, Row
from tests.conformance.store.suite.given import HOUR, OWNER, Given
from tests.fixtures.installed import INSTALLED_SHARD_COUNT
from tests.fixtures.postgres import PostgresSchema

SHARD_COUNT = INSTALLED_SHARD_COUNT
PATIENCE_S = 60.0


class Handed:
    """Notes what was handed, and lets a test wait for it."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self._came = asyncio.Event()

    def __call__(self, begun: Sequence[BegunAttempt]) -> None:
        self.ids += [attempt.id for attempt in begun]
        self._came.set()

    async def first(self) -> list[str]:
        async with asyncio.timeout(PATIENCE_S):
            await self._came.wait()
        return list(self.ids)


@pytest.fixture(params=["many shards", "two parts"])
async def store(
    request: pytest.FixtureRequest, installed_schema: PostgresSchema
) -> AsyncIterator[Store]:
    dsn, schema = installed_schema
    how: dict[str, Any] = {"parts": 2, "many_shards": False} if request.param == "two parts" else {}
    opened = await open_postgres(
        dsn, schema=schema, clock=SystemClock(), entropy=SystemEntropy(), **how
    )
    await opened.installation.migrate(shard_count=SHARD_COUNT)
    yield opened
    await opened.close()


async def test_an_attempt_does_not_wait_for_the_look_at_the_next(
    given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look is held, as by a slow disk; the attempt is handed over meanwhile."""
    await given.moved("x")
    goes_on, fetch = asyncio.Event(), Database.fetch

    async def fetch_slowly(database: Database, name: str, *args: object) -> Sequence[Row]:
        if name.startswith("begin_next_due"):
            await goes_on.wait()
        return await fetch(database, name, *args)

    monkeypatch.setattr(Database, "fetch", fetch_slowly)
    handed = Handed()
    beginning = asyncio.create_task(given.begin(hand=handed))

    assert ["x"] == await handed.first()
    assert not beginning.done()
    goes_on.set()
    assert ["x"] == [attempt.id for attempt in (await beginning).begun]
    assert ["x"] == handed.ids


@pytest.mark.parametrize("store", ["two parts"], indirect=True)
async def test_what_arrived_does_not_wait_for_another_part(
    store: Store, given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All parts but the first to answer are held, as by a slow node."""
    await store.actions.create([await given.draft() for _ in range(4 * SHARD_COUNT)])
    holdings = await given.holdings()
    goes_on, fetch, is_first = asyncio.Event(), PoolSession.fetch, iter([True])

    async def fetch_slowly(session: PoolSession, name: str, *args: object) -> Sequence[Row]:
        if name.startswith("move_and_begin_part") and not next(is_first, False):
            await goes_on.wait()
        return await fetch(session, name, *args)

    monkeypatch.setattr(PoolSession, "fetch", fetch_slowly)
    handed = Handed()
    arriving = asyncio.create_task(
        store.work.move_and_begin(
            holdings, limit=100, room={"default": 1_000}, batch=given.entropy.token(),
            owner=OWNER, grace=HOUR, window=HOUR, hand=handed,
        )
    )  # fmt: skip

    first = await handed.first()
    assert 0 < len(first) < 4 * SHARD_COUNT
    assert not arriving.done()
    goes_on.set()
    begun = (await arriving).begun
    assert sorted(handed.ids) == sorted(attempt.id for attempt in begun)
    assert 4 * SHARD_COUNT == len(begun)
