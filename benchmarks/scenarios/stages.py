"""`stages`: entities through a chain of four stages, one stage elsewhere, what a base costs, lanes.

The chain is measured from the word to the worker processes until nothing waits in any queue, beside
the same rows written by bare batched SQL in the same run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from statistics import median
from typing import NamedTuple

from benchmarks.metering import Meter
from benchmarks.processes import Crew, Program, crew_of
from benchmarks.report import Compared, Result, Sample, median_cost, middle, percentiles
from benchmarks.sides import stage_floor
from benchmarks.sides.stage_chain import CHAIN, Document, document
from benchmarks.sides.stage_graph import counts_of_a_change
from benchmarks.stand import Stand
from gnomon.app import App
from gnomon.stages import Stages
from gnomon.stages.entities import Entities
from tests.fixtures.postgres import free_port

WORKER = "benchmarks.sides.stage_worker"
SERVICE = "benchmarks.sides.stage_service"
PUT = 2_000
GOALS_FLOOR = {"postgres": 0.4, "sqlite": 0.3}
GOAL_GROWTH = 1.3
GOAL_LANES = 2.0
GOAL_COUNTS = (57, 20, 21)  # asks, runs, saves
PATIENCE_S = 600.0
WALK_S = 5.0


async def measure(stand: Stand) -> AsyncIterator[Result]:
    yield await through_the_chain(stand, fused=False)
    yield await through_the_chain(stand, fused=True)
    yield await through_a_remote_stage(stand)
    async for result in as_the_base_grows(stand):
        yield result
    yield await beside_a_walk(stand)
    for result in await over_a_graph(stand):
        yield result


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[tuple[App, Entities]]:
    """The bench's own way to the entities; it serves no stages."""
    async with App(url, migrate=True) as app:
        stages: Stages[Document] = Stages(app, "ad")
        yield app, stages.entities


@asynccontextmanager
async def crew(
    stand: Stand,
    url: str,
    *,
    size: int | None = None,
    remote: str | None = None,
    fused: bool = False,
) -> AsyncIterator[Crew]:
    options = {"url": url, "remote": remote, "fused": fused}
    count = size or stand.worker_count
    async with crew_of(Program(WORKER, options), size=count, folder=stand.folder) as found:
        yield found
        await found.stop()


async def put_all(entities: Entities, count: int, *, first: int = 0) -> None:
    for start in range(first, first + count, PUT):
        numbers = range(start, min(first + count, start + PUT))
        await entities.put_many("ad", {f"e{n}": document(n) for n in numbers})


async def all_done(entities: Entities, last: str, field: str) -> None:
    """Wait until nothing waits in a queue and the last entity has the last stage's field."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = await entities.get("ad", last)  # first, for counting the queues costs
            if f'"{field}"' in (found.doc or ""):
                records = await entities.stages()
                if records and not any(record.waiting for record in records):
                    return
            await asyncio.sleep(0.02)


async def through_the_chain(stand: Stand, *, fused: bool) -> Result:
    """As stages are by default, each saved by itself; or marked `fuse`, saved together."""
    count = stand.scale.staged

    async def one() -> tuple[Sample, float]:
        ours, bare = await chained(stand, count, fused=fused), await floor(stand, count)
        stand.say(f"stages: {ours.value:,.0f} entities/s, floor {bare:,.0f}")
        return ours, bare

    rounds = await stand.rounds(one)
    ours, floors = [each.value[0] for each in rounds], [each.value[1] for each in rounds]
    ratio = middle(ours) / median(floors)
    return Result(
        scenario="stages",
        measure=f"chain of {CHAIN} local stages{', fused' * fused}",
        engine=stand.engine,
        unit="entities/s",
        value=middle(ours),
        rounds=[sample.value for sample in ours],
        cost=median_cost(sample.cost for sample in ours),
        compared=[
            Compared(
                name="bare batched SQL",
                kind="floor",
                value=median(floors),
                ratio=ratio,
                rounds=floors,
            )
        ],
        goal=f">= {GOALS_FLOOR[stand.engine]:g}",
        met=ratio >= GOALS_FLOOR[stand.engine],
        around=[each.around for each in rounds],
        extra={"saves_per_s": middle(ours) * CHAIN},
    )


async def chained(stand: Stand, count: int, *, fused: bool) -> Sample:
    async with stand.database() as url, opened(url) as (_, entities):
        await put_all(entities, count)
        await stand.settle(url)
        async with crew(stand, url, fused=fused) as workers:
            meter = Meter(stand, workers.pids)
            await meter.begin()
            began = time.perf_counter()
            workers.go()
            await all_done(entities, f"e{count - 1}", f"s{CHAIN}")
            rate = count / (time.perf_counter() - began)
            return Sample(rate, await meter.end(count))


async def floor(stand: Stand, count: int) -> float:
    """Entities a second by bare SQL."""
    async with stand.database() as url:
        async with opened(url) as (app, entities):
            await put_all(entities, count)
            shard_count = app.installation.shard_count
        await stand.settle(url)
        if stand.server is None:
            took_s = await asyncio.to_thread(stage_floor.on_sqlite, url, count, shard_count)
        else:
            took_s = await stage_floor.on_postgres(url, count, shard_count)
    return count / took_s


async def through_a_remote_stage(stand: Stand) -> Result:
    found = await stand.once(lambda: remotely(stand, stand.scale.staged))
    return Result(
        scenario="stages",
        measure="one remote stage, batch 256",
        engine=stand.engine,
        unit="entities/s",
        value=found.value.value,
        cost=found.value.cost,
        around=[found.around],
    )


async def remotely(stand: Stand, count: int) -> Sample:
    address = f"127.0.0.1:{free_port()}"
    program = Program(SERVICE, {"address": address})
    async with (
        stand.database() as url,
        opened(url) as (_, entities),
        crew_of(program, size=1, folder=stand.folder) as service,
        crew(stand, url, size=1, remote=address) as workers,
    ):
        await put_all(entities, count)
        service.go()
        meter = Meter(stand, [*service.pids, *workers.pids])
        await meter.begin()
        began = time.perf_counter()
        workers.go()
        await all_done(entities, f"e{count - 1}", "s1")
        rate = count / (time.perf_counter() - began)
        cost = await meter.end(count)
        await service.stop()
    return Sample(rate, cost)


async def as_the_base_grows(stand: Stand) -> AsyncIterator[Result]:
    """What one more change costs, by how many entities are at rest."""

    async def one() -> dict[int, Sample]:
        costs = {}
        for size in stand.scale.staged_bases:
            costs[size] = await cost_at(stand, size)
            stand.say(f"stages: {size:,} entities: {costs[size].value:.3f} ms an entity")
        return costs

    found = await stand.once(one, again=False)
    costs = found.value
    smallest = min(costs)
    for size, sample in costs.items():
        if size == smallest:
            continue
        growth = sample.value / costs[smallest].value
        yield Result(
            scenario="stages",
            measure=f"cost of a change, {size:,} entities",
            engine=stand.engine,
            unit="ms",
            value=sample.value,
            cost=sample.cost,
            compared=[
                Compared(
                    name=f"{smallest:,} entities",
                    kind="before",
                    value=costs[smallest].value,
                    ratio=growth,
                    cost=costs[smallest].cost,
                )
            ],
            goal=f"<= {GOAL_GROWTH:g} x",
            met=growth <= GOAL_GROWTH,
            around=[found.around],
        )


async def cost_at(stand: Stand, size: int) -> Sample:
    """Milliseconds an entity, for changes through the whole chain in a base of this size."""
    fresh = stand.scale.staged // 4
    samples = []
    async with stand.database() as url, opened(url) as (_, entities):
        await put_all(entities, size)
        async with crew(stand, url, fused=True) as workers:
            workers.go()
            await all_done(entities, f"e{size - 1}", f"s{CHAIN}")
            await stand.analyze(url)
            await stand.settle(url)
            meter = Meter(stand, workers.pids, itself=True)
            for number in range(stand.scale.rounds + 1):  # the first warms up
                await meter.begin()
                began = time.perf_counter()
                await put_all(entities, fresh, first=size + number * fresh)
                await all_done(entities, f"e{size + (number + 1) * fresh - 1}", f"s{CHAIN}")
                took_ms = (time.perf_counter() - began) * 1000 / fresh
                samples.append(Sample(took_ms, await meter.end(fresh)))
    counted = samples[1:]
    return Sample(middle(counted), median_cost(sample.cost for sample in counted))


class Walked(NamedTuple):
    """How late fresh changes were, in milliseconds."""

    idle: dict[str, float]
    walking: dict[str, float]
    left: int  # what the walk had still to do


async def beside_a_walk(stand: Stand) -> Result:
    """How late fresh changes are while all stages walk over the base, and when idle."""
    found = await stand.once(lambda: walk(stand, stand.scale.walked))
    idle, walking, left = found.value
    ratio = walking["p99_ms"] / idle["p99_ms"]
    return Result(
        scenario="stages",
        measure="main lane beside a walk, p99",
        engine=stand.engine,
        unit="ms",
        value=walking["p99_ms"],
        compared=[
            Compared(name="idle", kind="before", value=idle["p99_ms"], ratio=ratio, extra=idle)
        ],
        goal=f"<= {GOAL_LANES:g} x",
        met=ratio <= GOAL_LANES,
        around=[found.around],
        extra={**walking, "background_left": left},
    )


async def walk(stand: Stand, size: int) -> Walked:
    async with stand.database() as url, opened(url) as (_, entities):
        await put_all(entities, size)
        async with crew(stand, url) as workers:
            workers.go()
            await all_done(entities, f"e{size - 1}", f"s{CHAIN}")
            idle = percentiles(await fresh_changes(stand, entities, sign=-1))
            for number in range(1, CHAIN + 1):
                await entities.backfill_stage(f"s{number}")
            await walk_begun(entities)
            walking = percentiles(await fresh_changes(stand, entities, sign=-2))
            left = sum(record.background for record in await entities.stages())
    return Walked(idle, walking, left)


async def over_a_graph(stand: Stand) -> list[Result]:
    """What one change leads to where each of twenty stages reads two fields before its own."""
    counts = await counts_of_a_change()
    return [
        Result(
            scenario="stages",
            measure=f"one change over 20 stages, {what}",
            engine=stand.engine,
            value=count,
            unit=what,
            goal=f"<= {most}",
            met=count <= most,
        )
        for what, count, most in zip(counts._fields, counts, GOAL_COUNTS, strict=True)
    ]


async def walk_begun(entities: Entities) -> None:
    """Wait until there is something in a background lane; a short walk may be over before."""
    end = time.monotonic() + WALK_S
    while time.monotonic() < end:
        if any(record.background for record in await entities.stages()):
            return
        await asyncio.sleep(0.005)


async def fresh_changes(stand: Stand, entities: Entities, *, sign: int) -> list[float]:
    """Seconds from a user's change to the first stage's save, by the database's clock."""
    found = []
    for number in range(stand.scale.idle_count):
        name = f"e{number}"
        version = (await entities.patch("ad", name, {"n": sign * (number + 1)})).version
        async with asyncio.timeout(PATIENCE_S):
            while (await entities.get("ad", name)).version == version:
                await asyncio.sleep(0.002)
        notes = {note.version: note.at for note in (await entities.explain("ad", name)).changes}
        found.append((notes[version + 1] - notes[version]).total_seconds())
    return found
