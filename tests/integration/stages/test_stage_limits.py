"""The limits of stages with three real workers on PostgreSQL: what really overlaps."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import asyncpg

from gnomon.app import App
from gnomon.config import DatabaseConfig, Settings
from gnomon.model.limits import Limit, LimitKind
from gnomon.stages import EntityView, Stage, Stages, Update
from gnomon.worker import WorkerConfig
from tests.fixtures.postgres import PostgresSchema

WORKERS = 3
SHARD_COUNT = 12
ENTITIES = 60
CONFIG = WorkerConfig(
    lease=timedelta(seconds=3),
    step_down=timedelta(seconds=1),
    heartbeat=timedelta(milliseconds=300),
    silent=timedelta(milliseconds=900),
)


class Seen:
    """Who is called, and how many at once at most."""

    def __init__(self) -> None:
        self.present = 0
        self.most = 0
        self.ended: Counter[int] = Counter()

    def stage(self, worker: int, parallel: int) -> Stage[Any, Any]:
        seen = self

        class Slow(Stage[Any, Any]):
            name = "slow"
            writes = ("by",)

            async def process(self, it: EntityView[Any, Any]) -> Update[Any]:
                seen.present += 1
                seen.most = max(seen.most, seen.present)
                await asyncio.sleep(0.02)
                seen.present -= 1
                seen.ended[worker] += 1
                return Update({"by": worker})

        Slow.parallel = parallel
        return Slow()


async def at_work(
    stack: AsyncExitStack, place: PostgresSchema, seen: Seen, parallel: int
) -> Stages[Any]:
    """Three workers that share the shards; the stages of the first."""
    dsn, schema = place
    settings = Settings(worker=CONFIG, database=DatabaseConfig(shard_count=SHARD_COUNT))
    stop = asyncio.Event()
    made = []
    for number in range(WORKERS):
        app = await stack.enter_async_context(
            App(dsn, schema=schema, settings=settings, migrate=True)
        )
        stages: Stages[Any] = Stages(app, "ad")
        stages.add(seen.stage(number, parallel))
        made.append((app, stages))
    group = await stack.enter_async_context(asyncio.TaskGroup())
    for app, _ in made:
        group.create_task(app.work(stop))
    stack.callback(stop.set)
    await shards_are_shared(place)
    return made[0][1]


async def shards_are_shared(place: PostgresSchema) -> None:
    """Until every worker holds its part of them."""
    dsn, schema = place
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


async def written(stages: Stages[Any], seen: Seen) -> None:
    """Put entities, and wait until all of them have been looked at; again, until every worker had
    some: on a busy machine one may have lost its shards for a moment."""
    async with asyncio.timeout(90):
        for turn in range(1, 100):
            values = {f"e{n}": {"n": turn * ENTITIES + n} for n in range(ENTITIES)}
            await stages.entities.put_many("ad", values)
            while seen.ended.total() < turn * ENTITIES:
                await asyncio.sleep(0.02)
            if len(seen.ended) == WORKERS:
                return


async def test_a_stage_is_no_more_parallel_than_it_says_in_the_whole_installation(
    postgres_schema: PostgresSchema,
) -> None:
    """Two at once with three processes, and every entity gets its turn."""
    seen = Seen()
    async with AsyncExitStack() as stack:
        stages = await at_work(stack, postgres_schema, seen, parallel=2)
        await written(stages, seen)
    assert 2 == seen.most
    assert WORKERS == len(seen.ended)


async def test_the_limit_of_a_stage_can_be_changed_while_it_works(
    postgres_schema: PostgresSchema,
) -> None:
    """What an operator sets counts for all processes as soon as each has asked again."""
    seen = Seen()
    async with AsyncExitStack() as stack:
        stages = await at_work(stack, postgres_schema, seen, parallel=30)
        dsn, schema = postgres_schema
        operator = await stack.enter_async_context(App(dsn, schema=schema, migrate=True))
        async with asyncio.timeout(30):
            while not (await operator.scheduler.list_limits()):
                await asyncio.sleep(0.02)  # the stage's own word comes first
        await operator.scheduler.set_limit(Limit(kind=LimitKind.STAGE, name="slow", parallel=1))
        async with asyncio.timeout(30):
            while (await operator.scheduler.list_limits())[0].granted > 1:
                await asyncio.sleep(0.02)  # idle ones have kept a call ready
        await written(stages, seen)
    assert 1 == seen.most
    assert WORKERS == len(seen.ended)
