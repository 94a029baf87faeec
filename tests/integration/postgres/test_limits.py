"""Limits with three real workers on PostgreSQL: what really overlaps in the executor."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta

import asyncpg
import pytest

from gnomon.app import App
from gnomon.config import DatabaseConfig, Settings
from gnomon.contracts.observer import SilentObserver
from gnomon.executors.python import AttemptContext
from gnomon.model.limits import Limit, LimitKind
from gnomon.model.spec import Python, Spec
from gnomon.scheduler import Request
from gnomon.worker import WorkerConfig
from tests.fixtures.postgres import PostgresSchema

WORKERS = 3
SHARD_COUNT = 15
CONFIG = WorkerConfig(
    concurrency=10,
    lease=timedelta(seconds=3),
    step_down=timedelta(seconds=1),
    heartbeat=timedelta(milliseconds=300),
    silent=timedelta(milliseconds=900),
)


@dataclass
class Seen:
    """Who is at it, and how many there were at most."""

    present: Counter[int] = field(default_factory=Counter)  # by worker
    most: int = 0
    ended: Counter[int] = field(default_factory=Counter)

    async def take(self, worker: int, took_s: float) -> None:
        self.present[worker] += 1
        self.most = max(self.most, self.present.total())
        try:
            await asyncio.sleep(took_s)
            self.ended[worker] += 1
        finally:
            self.present[worker] -= 1


class Granted(SilentObserver):
    """What a worker says that it may use; None until it knows of the limit."""

    value: float | None = None

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        if name == "limit_granted" and labels == {"kind": "queue", "name": "default"}:
            self.value = value


@dataclass
class Stage:
    """Three workers, each with its own connections, and a scheduler."""

    apps: list[App]
    seen: Seen
    granted: list[Granted]
    working: list[asyncio.Task[None]]

    async def until(self, condition: Callable[[], bool], within_s: float = 30.0) -> None:
        async with asyncio.timeout(within_s):
            while not condition():
                await asyncio.sleep(0.01)

    async def limit(self, parallel: int) -> None:
        """Set it, and wait until it holds."""
        limit = Limit(kind=LimitKind.QUEUE, name="default", parallel=parallel)
        await self.apps[0].scheduler.set_limit(limit)
        await self.until(lambda: sum(self._granted()) <= parallel)

    def _granted(self) -> list[float]:
        return [math.inf if each.value is None else each.value for each in self.granted]

    async def create(self, count: int) -> None:
        spec = Spec(action=Python(function="take"))
        await self.apps[0].scheduler.create_many([Request(spec=spec) for _ in range(count)])


@pytest.fixture
async def stage(postgres_schema: PostgresSchema) -> AsyncIterator[Stage]:
    dsn, schema = postgres_schema
    seen, stop = Seen(), asyncio.Event()
    settings = Settings(worker=CONFIG, database=DatabaseConfig(shard_count=SHARD_COUNT))
    async with AsyncExitStack() as opened:
        apps, granted = [], [Granted() for _ in range(WORKERS)]
        for number in range(WORKERS):
            app = App(dsn, schema=schema, settings=settings, observer=granted[number], migrate=True)
            app.action(name="take")(_function(seen, number))
            apps.append(await opened.enter_async_context(app))
        working = [asyncio.create_task(app.work(stop)) for app in apps]
        made = Stage(apps, seen, granted, working)
        await _shards_are_shared(postgres_schema)
        yield made
        stop.set()
        await asyncio.gather(*working, return_exceptions=True)


def _function(seen: Seen, number: int) -> Callable[[AttemptContext], object]:
    async def take(_attempt: AttemptContext) -> None:
        await seen.take(number, 0.05)

    return take


async def _shards_are_shared(postgres_schema: PostgresSchema) -> None:
    """Until every worker holds its part of them."""
    dsn, schema = postgres_schema
    connection = await asyncpg.connect(dsn)
    try:
        async with asyncio.timeout(30):
            while True:
                rows = await connection.fetch(f'SELECT shards FROM "{schema}".worker')
                held = [row["shards"] for row in rows]
                if len(held) == WORKERS and min(held) >= SHARD_COUNT // WORKERS:
                    return
                await asyncio.sleep(0.05)
    finally:
        await connection.close()


async def test_three_workers_never_overlap_beyond_the_limit(stage: Stage) -> None:
    """Up, down, up, all of it used each time, and nothing is lost."""
    await stage.limit(4)
    await stage.create(100)
    await stage.until(lambda: stage.seen.ended.total() >= 100)
    assert 4 == stage.seen.most
    assert WORKERS == len(stage.seen.ended)

    await stage.limit(1)
    stage.seen.most = 0
    await stage.create(40)
    await stage.until(lambda: stage.seen.ended.total() >= 140)
    assert 1 == stage.seen.most

    await stage.limit(9)
    await stage.create(200)
    await stage.until(lambda: stage.seen.ended.total() >= 340)
    assert 9 == stage.seen.most


async def test_the_part_of_one_that_disappears_comes_back(stage: Stage) -> None:
    """After its lease the others use all of it; meanwhile they do not exceed it."""
    await stage.limit(3)
    await stage.create(400)
    await stage.until(lambda: stage.seen.present.total() == 3)
    await stage.until(lambda: len(stage.seen.ended) == WORKERS)
    await stage.until(lambda: stage.seen.present[0] > 0)
    stage.working[0].cancel()  # no goodbye: its grants are left as they were
    await asyncio.wait([stage.working[0]])
    await stage.until(lambda: stage.seen.present.total() == 3, within_s=15)
    await stage.until(lambda: stage.seen.ended.total() >= 300)
    assert 3 == stage.seen.most
