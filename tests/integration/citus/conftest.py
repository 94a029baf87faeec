"""An installation on somebody's Citus cluster, made for one test and dropped."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from gnomon.clock import SystemClock, SystemEntropy
from gnomon.contracts.store import Store
from gnomon.stores.postgres import open_postgres
from tests.fixtures.citus import CitusCluster
from tests.fixtures.postgres import SCHEMA_PREFIX, PostgresSchema, drop_schema

SHARD_COUNT = 8

Opener = Callable[[str], AbstractAsyncContextManager[Store]]


@pytest.fixture
def place(citus: CitusCluster) -> Iterator[PostgresSchema]:
    """Where a schema may be made."""
    schema = f"{SCHEMA_PREFIX}{uuid.uuid4().hex[:16]}"
    yield PostgresSchema(citus.dsn, schema)
    drop_schema(citus.dsn, schema)


@pytest.fixture
def opened(place: PostgresSchema) -> Opener:
    """Opens a store in the schema, by any of the cluster's doors."""

    @asynccontextmanager
    async def open_by(dsn: str) -> AsyncIterator[Store]:
        store = await open_postgres(
            dsn, schema=place.schema, clock=SystemClock(), entropy=SystemEntropy()
        )
        try:
            yield store
        finally:
            await store.close()

    return open_by


@pytest.fixture
async def store(citus: CitusCluster, opened: Opener) -> AsyncIterator[Store]:
    """Installed, by the coordinator."""
    async with opened(citus.dsn) as found:
        await found.installation.migrate(shard_count=SHARD_COUNT)
        yield found
