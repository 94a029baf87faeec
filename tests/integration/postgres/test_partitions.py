"""Days as partitions: they come, they go, and nobody waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from gnomon.clock import SystemEntropy
from gnomon.contracts.observer import SilentObserver
from gnomon.contracts.store import Store
from gnomon.stores.postgres import partitions
from gnomon.stores.postgres.connection import Database, open_database
from gnomon.stores.postgres.partitions import PartitionJanitor, partition_name
from tests.fixtures.postgres import PostgresSchema

LONG_AGO = (datetime.now(UTC) - timedelta(days=200)).date()
DAY = timedelta(days=1)


class Noting(SilentObserver):
    def __init__(self) -> None:
        self.events: list[str] = []

    def event(self, name: str, /, **fields: object) -> None:
        self.events.append(name)


@pytest.fixture
def installed_schema(postgres_schema: PostgresSchema) -> PostgresSchema:
    """One of the test's own: partitions come and go."""
    return postgres_schema


@pytest.fixture
def noting() -> Noting:
    return Noting()


@pytest.fixture
async def database(
    store: Store, postgres_schema: PostgresSchema, noting: Noting
) -> AsyncIterator[Database]:
    dsn, schema = postgres_schema
    del store  # installed before
    opened = await open_database(
        dsn, schema=schema, pool_size=2, prepared=True, many_shards=None, observer=noting
    )
    yield opened
    await opened.close()


@pytest.fixture
def janitor(database: Database, monkeypatch: pytest.MonkeyPatch) -> PartitionJanitor:
    monkeypatch.setattr(partitions, "TRY_AGAIN_S", 0.01)
    return PartitionJanitor(database, entropy=SystemEntropy())


@pytest.fixture
async def raw(postgres_schema: PostgresSchema) -> AsyncIterator[asyncpg.Connection[Any]]:
    dsn, schema = postgres_schema
    opened: asyncpg.Connection[Any] = await asyncpg.connect(
        dsn, server_settings={"search_path": schema}
    )
    yield opened
    await opened.close()


async def make_old(raw: asyncpg.Connection[Any], table: str) -> str:
    """A partition of a day long ago."""
    name = partition_name(table, LONG_AGO)
    await raw.execute(
        f"CREATE TABLE {name} PARTITION OF {table} "
        f"FOR VALUES FROM ('{LONG_AGO} 00:00+00') TO ('{LONG_AGO + DAY} 00:00+00')"
    )
    return name


async def exists(raw: asyncpg.Connection[Any], name: str) -> bool:
    return await raw.fetchval("SELECT to_regclass($1)", name) is not None


async def finish_long_ago(raw: asyncpg.Connection[Any], *, over: int, kept: int) -> None:
    """Finished actions of that day: some are over, some are kept for another year."""
    await raw.execute(
        "INSERT INTO finished_action (guid, created_at, updated_at, finished_at, purge_at, "
        "occurrence_at, occurrence_no, shard_id, attempts, succeeded, failed, interrupted, "
        "consecutive_failures, consecutive_interruptions, occurrence_failures, priority, keyed, "
        "state, queue, id, spec) "
        "SELECT gen_random_uuid(), at, at, at, CASE WHEN n <= $2 THEN at ELSE $3 END, at, 1, 0, 1, "
        "1, 0, 0, 0, 0, 0, 0, false, 'done', 'default', 'old' || n, '{}' "
        "FROM generate_series(1, $2::int + $4::int) AS n, (SELECT $1::timestamptz AS at) AS day",
        datetime.combine(LONG_AGO, datetime.min.time(), UTC) + DAY / 2,
        over,
        datetime.now(UTC) + timedelta(days=365),
        kept,
    )


@pytest.mark.parametrize("table", ["finished_action", "attempt_log", "audit"])
async def test_each_log_has_a_partition_for_tomorrow_and_loses_old_ones(
    janitor: PartitionJanitor, raw: asyncpg.Connection[Any], table: str
) -> None:
    """However much is written in a day, removing the day is one step."""
    old = await make_old(raw, table)

    gone = await janitor.purge(10)

    today = (await raw.fetchval("SELECT now()")).date()
    assert 1 == gone
    assert not await exists(raw, old)
    assert await exists(raw, partition_name(table, today + DAY))


async def test_what_few_rows_keep_does_not_keep_their_day(
    janitor: PartitionJanitor, raw: asyncpg.Connection[Any]
) -> None:
    """One action that is kept for a year must not keep a day of millions for a year."""
    old = await make_old(raw, "finished_action")
    await finish_long_ago(raw, over=40, kept=3)

    assert 1 == await janitor.purge(10)

    assert not await exists(raw, old)
    assert 3 == await raw.fetchval("SELECT count(*) FROM finished_action")


async def test_a_day_that_is_mostly_kept_stays_as_it_is(
    janitor: PartitionJanitor, raw: asyncpg.Connection[Any]
) -> None:
    """Nothing is carried about without need."""
    old = await make_old(raw, "finished_action")
    await finish_long_ago(raw, over=1, kept=3)

    assert 0 == await janitor.purge(10)

    assert await exists(raw, old)


async def test_a_reader_postpones_a_drop_and_nobody_waits_behind_it(
    janitor: PartitionJanitor,
    raw: asyncpg.Connection[Any],
    postgres_schema: PostgresSchema,
    noting: Noting,
) -> None:
    """A long read holds the table: the drop gives way instead of making all others queue."""
    old = await make_old(raw, "finished_action")
    dsn, schema = postgres_schema
    reader: asyncpg.Connection[Any] = await asyncpg.connect(
        dsn, server_settings={"search_path": schema}
    )
    async with reader.transaction():
        await reader.fetch("SELECT 1 FROM finished_action")
        purging = asyncio.create_task(janitor.purge(10))
        await finish_long_ago(raw, over=1, kept=0)  # another that needs the table meanwhile
        await purging
        assert await exists(raw, old)
        assert "store_partition_postponed" in noting.events
    await reader.close()

    assert 1 == await janitor.purge(10)
    assert not await exists(raw, old)


async def test_rows_without_a_day_go_too(
    janitor: PartitionJanitor, raw: asyncpg.Connection[Any]
) -> None:
    """Those that found no partition, as many at a time as it is told."""
    await finish_long_ago(raw, over=25, kept=2)

    assert [10, 10, 5, 0] == [await janitor.purge(10) for _ in range(4)]
    assert 2 == await raw.fetchval("SELECT count(*) FROM finished_action")
