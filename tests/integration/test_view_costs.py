"""What the console's views ask of a store costs the same, however many actions there are."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from benchmarks.sides.console_stock import fill
from gnomon.app import App
from gnomon.clock import SystemClock, SystemEntropy
from gnomon.config import Settings
from gnomon.contracts.observer import SilentObserver
from gnomon.contracts.store import Selection, Store
from gnomon.model.action import State
from gnomon.model.load import LoadUnit, bucket_times
from gnomon.stores.config import DatabaseConfig
from gnomon.stores.postgres import list_query as postgres_list
from gnomon.stores.postgres import reports as postgres_reports
from gnomon.stores.sqlite import InlineRunner, open_sqlite
from gnomon.stores.sqlite import list_query as sqlite_list
from gnomon.stores.sqlite import reports as sqlite_reports
from tests.fixtures.postgres import PostgresSchema, drop_schema

FEW, MANY = 12_000, 48_000
SHARDS = 2
LOOKED_AT = 60
GROWTH_MAX = 1.4  # a deeper tree, more lanes; what goes through a table grows four times
AROUND = 500  # steps or blocks: what is that little may vary
Ask = Callable[[Store, datetime], Awaitable[object]]


def listed(**conditions: Any) -> Ask:
    return lambda store, _: store.actions.list(Selection(**conditions), after=None, limit=50)


def counted(**conditions: Any) -> Ask:
    return lambda store, _: store.actions.count_selected(Selection(**conditions), limit=10_000)


def due(ahead: timedelta) -> Ask:
    return lambda store, now: store.actions.list(
        Selection(due_before=now + ahead), after=None, limit=8
    )


def load(unit: LoadUnit) -> Ask:
    return lambda store, now: store.reports.load(bucket_times(now, unit, 60), lanes=1_000)


ASKED: dict[str, Ask] = {
    "figures": lambda store, _: store.installation.figures(
        limit=100, alive_for=timedelta(seconds=30)
    ),
    "failures": lambda store, _: store.reports.failures(queue=None, limit=20),
    "all": listed(),
    "prefix": listed(id_prefix="order-search"),
    "queue": listed(queue="search"),
    "no such queue": listed(queue="none"),
    "no such label": listed(labels={"team": "none"}),
    "no such function": listed(function="none"),
    "no such error": listed(error_contains="none"),
    "active": listed(states=(State.ACTIVE,)),
    "paused": listed(states=(State.PAUSED,)),
    "dead": listed(states=(State.DEAD,)),
    "cancelled": listed(states=(State.CANCELLED,)),
    "done": listed(states=(State.DONE,)),
    "overdue": due(timedelta(0)),
    "due within a week": due(timedelta(days=7)),
    "count of all": counted(),
    "count of a queue": counted(queue="mail"),
    "count of paused": counted(states=(State.PAUSED,)),
    "count of dead": counted(states=(State.DEAD,)),
    "schedules": listed(recurring=True),
    "schedules in vain": listed(recurring=True, search="nothing"),
    "load of an hour": load(LoadUnit.MINUTE),
    "load of months": load(LoadUnit.DAY),
    "herd": lambda store, now: store.reports.herd(
        now, now + timedelta(days=9), lanes=1_000, limit=20
    ),
    "why": lambda store, _: store.reports.why("order-mail"),
}


@pytest.fixture(autouse=True)
def few_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that few rows are many already."""
    for module in (postgres_list, sqlite_list):
        monkeypatch.setattr(module, "LOOKED_AT_MAX", LOOKED_AT)
        monkeypatch.setattr(module, "DUE_MAX", LOOKED_AT)
    for reports in (postgres_reports, sqlite_reports):
        monkeypatch.setattr(reports, "BEHIND_MAX", LOOKED_AT)


@asynccontextmanager
async def filled(url: str, count: int, schema: str = "gnomon") -> AsyncIterator[App]:
    database = DatabaseConfig(url=url, schema=schema, shard_count=SHARDS)
    settings = replace(Settings(), database=database)
    async with App(settings=settings, observer=SilentObserver(), migrate=True) as app:
        await fill(app, url, count)
        yield app


def grown(few: dict[str, int], many: dict[str, int]) -> dict[str, tuple[int, int]]:
    return {
        name: (few[name], cost)
        for name, cost in many.items()
        if cost > GROWTH_MAX * few[name] + AROUND
    }


async def steps_of(folder: Path, count: int) -> dict[str, int]:
    """Of SQLite's machine."""
    path = folder / f"{count}.db"
    async with filled(f"sqlite:///{path}", count):
        pass
    runner = InlineRunner(str(path))
    store = open_sqlite(str(path), clock=SystemClock(), entropy=SystemEntropy(), runner=runner)
    steps = 0

    def step() -> int:
        nonlocal steps
        steps += 1
        return 0

    found = {}
    now = await store.installation.now()
    for name, ask in ASKED.items():
        runner.connection.set_progress_handler(step, 1)
        steps = 0
        await ask(store, now)
        found[name] = steps
    runner.connection.set_progress_handler(None, 1)
    await runner.close()
    return found


async def test_on_sqlite_the_steps_do_not_grow(tmp_path: Path) -> None:
    """Four times the actions, and each view takes what it took."""
    few, many = await steps_of(tmp_path, FEW), await steps_of(tmp_path, MANY)
    assert {} == grown(few, many)


class Blocks:
    """Counts the blocks that each statement of the engine touches, by explaining it first."""

    def __init__(self) -> None:
        self.touched = 0
        self._fetch = asyncpg.Connection.fetch

    def patched(self) -> Callable[..., Awaitable[Any]]:
        async def fetch(connection: Any, sql: str, *args: Any, **options: Any) -> Any:
            rows = await self._fetch(
                connection, f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}", *args
            )
            (told,) = json.loads(rows[0][0])
            self.touched += told["Plan"]["Shared Hit Blocks"] + told["Plan"]["Shared Read Blocks"]
            return await self._fetch(connection, sql, *args, **options)

        return fetch


async def blocks_of(
    schema: PostgresSchema, count: int, monkeypatch: pytest.MonkeyPatch
) -> dict[str, int]:
    async with filled(schema.dsn, count, schema.schema) as app:
        await clean(schema)
        return await blocks_asked(app, monkeypatch)


async def clean(schema: PostgresSchema) -> None:
    connection = await asyncpg.connect(schema.dsn)
    for table in ("scheduled_action", "processing_queue", "incoming_queue", "finished_action"):
        await connection.execute(f'VACUUM ANALYZE "{schema.schema}".{table}')
    await connection.close()


async def blocks_asked(app: App, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    blocks = Blocks()
    found = {}
    now = await app.store.installation.now()
    with monkeypatch.context() as patched:
        patched.setattr(asyncpg.Connection, "fetch", blocks.patched())
        for name, ask in ASKED.items():
            blocks.touched = 0
            await ask(app.store, now)
            found[name] = blocks.touched
    assert all(found.values()), found
    return found


@pytest.fixture
def other_schema(postgres_schema: PostgresSchema) -> Iterator[PostgresSchema]:
    other = postgres_schema._replace(schema=f"{postgres_schema.schema}_b")
    yield other
    drop_schema(other.dsn, other.schema)


async def test_on_postgres_the_blocks_do_not_grow(
    postgres_schema: PostgresSchema,
    other_schema: PostgresSchema,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same, by the plans that the engine really gets."""
    few = await blocks_of(postgres_schema, FEW, monkeypatch)
    many = await blocks_of(other_schema, MANY, monkeypatch)
    assert {} == grown(few, many)


ENDED = """
WITH ended AS (
    INSERT INTO "{schema}".incoming_queue
        (shard_id, created_at, guid, queue, priority, scheduled_at)
    SELECT n % {shards}, at, gen_random_uuid(), 'default', 0, at
    FROM generate_series(1, {count}) AS n,
         LATERAL (SELECT now() - interval '1 hour' + n * interval '10 ms' AS at) AS t
    RETURNING guid
)
SELECT count(*) FROM ended
"""


async def leave_ended(connection: asyncpg.Connection, schema: str, count: int) -> None:
    """What so many actions leave behind that arrived and ended in place; no mark is before it."""
    await connection.execute(ENDED.format(schema=schema, shards=SHARDS, count=count))
    await connection.execute(f'DELETE FROM "{schema}".incoming_queue')
    await connection.execute(
        f"UPDATE \"{schema}\".shard_lock SET incoming_mark = now() - interval '1 minute'"
    )


async def test_what_has_ended_costs_nothing_while_somebody_holds_a_snapshot(
    postgres_schema: PostgresSchema, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dump that lasts: vacuum may remove nothing meanwhile, and views do not go through it."""
    dsn, schema = postgres_schema.dsn, postgres_schema.schema
    async with filled(dsn, 1_000, schema) as app:
        await clean(postgres_schema)
        before = await blocks_asked(app, monkeypatch)
        dump, other = await asyncpg.connect(dsn), await asyncpg.connect(dsn)
        try:
            async with dump.transaction(isolation="repeatable_read"):
                await dump.fetch("SELECT 1")
                await leave_ended(other, schema, 20_000)
                during = await blocks_asked(app, monkeypatch)
        finally:
            await dump.close()
            await other.close()
    assert {} == grown(before, during)
