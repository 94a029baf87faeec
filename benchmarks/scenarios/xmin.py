"""`xmin`: a steady stream of create and drain while a foreign snapshot is held, and without it.

A snapshot keeps vacuum from removing dead rows; on SQLite it keeps the log from being folded into
the file. The stream is closed, so many being outstanding at most: both ends set its pace. A stream
like this slows down by itself when its tables and the disk's queue fill, so the same for as long,
on a new database, is what it is compared with.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from statistics import mean
from typing import NamedTuple

import asyncpg

from benchmarks.metering import Meter
from benchmarks.processes import Crew
from benchmarks.report import Compared, Cost, Result, Series
from benchmarks.scenarios.sustained import Look, plots_of, state_of
from benchmarks.sides.gnomon import balanced, create_all, gnomon_crew, opened, requests
from benchmarks.stand import Stand
from gnomon.app import App

OUTSTANDING_MAX = 10_000
CHUNK = 1_000
WARM_S = 2.0
STEP_S = 2.0
GOAL = 0.9


class Held(NamedTuple):
    """Rates before, while and after the snapshot was held, or would have been, and what one action
    cost meanwhile."""

    before: list[float]
    held: list[float]
    after: list[float]
    cost: Cost
    looks: list[Look]

    @property
    def rates(self) -> list[float]:
        return [*self.before, *self.held, *self.after]


async def measure(stand: Stand) -> AsyncIterator[Result]:
    scale = stand.scale
    alone = await stand.once(lambda: stream(stand, is_held=False), again=False)
    found = await stand.once(lambda: stream(stand, is_held=True), again=False)
    usual, run = alone.value, found.value
    held, free = mean(run.held), mean(usual.held)
    last_third = max(1, len(run.held) // 3)
    for name, each in (("without", usual), ("with a snapshot", run)):
        stand.say(
            f"xmin, {name}: {mean(each.before):,.0f}/s, {mean(each.held):,.0f}/s, "
            f"{mean(each.after):,.0f}/s"
        )
    lines = {
        name: [((n + 1) * step_s(stand), rate) for n, rate in enumerate(each.rates)]
        for name, each in (("held", run), ("without", usual))
    }
    yield Result(
        scenario="xmin",
        measure=f"create and drain, a foreign snapshot held for {scale.snapshot_for_s:g} s",
        engine=stand.engine,
        unit="actions/s",
        value=held,
        rounds=run.held,
        cost=run.cost,
        compared=[
            Compared(
                name="the same without it",
                kind="before",
                value=free,
                ratio=held / free,
                rounds=usual.held,
                cost=usual.cost,
            )
        ],
        goal=f">= {GOAL:g} x",
        met=held / free >= GOAL,
        around=[found.around],
        series=[
            Series(
                title=f"Actions a second; a foreign snapshot is held from {scale.steady_for_s:g} s "
                f"to {scale.steady_for_s + scale.snapshot_for_s:g} s",
                unit="actions/s",
                lines=lines,
            ),
            *plots_of(run.looks),
        ],
        extra={
            "last_third_ratio": mean(run.held[-last_third:]) / mean(usual.held[-last_third:]),
            "before": mean(run.before),
            "after": mean(run.after),
        },
    )


async def stream(stand: Stand, *, is_held: bool) -> Held:
    scale = stand.scale
    looks: list[Look] = []

    async def rates(for_s: float) -> list[float]:
        found = []
        for _ in range(max(1, round(for_s / step_s(stand)))):
            found.append(await rate(stand, app, crew, streaming))
            looks.append(Look(time.time() - start, *await state_of(app, url)))
        return found

    async with stand.database() as url, opened(stand, url) as app, gnomon_crew(stand, url) as crew:
        crew.go()
        await balanced(app, stand.worker_count)
        streaming = asyncio.create_task(keep_creating(app, crew))
        meter = Meter(stand, crew.pids, itself=True)
        try:
            await asyncio.sleep(WARM_S)
            start = time.time()
            before = await rates(scale.steady_for_s)
            snapshot = foreign_snapshot(url, app.settings.database.schema)
            async with snapshot if is_held else nullcontext():
                await meter.begin()
                count = crew.count
                held = await rates(scale.snapshot_for_s)
                cost = await meter.end(crew.count - count)
            after = await rates(scale.steady_for_s / 2)
        finally:
            streaming.cancel()
            await asyncio.gather(streaming, return_exceptions=True)
    return Held(before, held, after, cost, looks)


def step_s(stand: Stand) -> float:
    """One point of the plot."""
    return min(STEP_S, stand.scale.steady_for_s / 2)


async def keep_creating(app: App, crew: Crew) -> None:
    created = number = 0
    while True:
        if created - crew.count > OUTSTANDING_MAX:
            await asyncio.sleep(0.002)
            continue
        await create_all(app, requests(f"stream{number}", [None] * CHUNK))
        created += CHUNK
        number += 1


async def rate(stand: Stand, app: App, crew: Crew, streaming: asyncio.Task[None]) -> float:
    """How many a second are performed, for one step."""
    count, began = crew.count, time.perf_counter()
    await asyncio.wait({streaming}, timeout=step_s(stand))
    if streaming.done():
        streaming.result()  # raises what ended it
    crew.check()
    if crew.count == count:
        counts = await app.store.actions.count()
        logs = [worker.errors for worker in crew.workers]
        stand.say(f"xmin: nothing was performed for {step_s(stand):g} s; {dict(counts)}; {logs}")
    return (crew.count - count) / (time.perf_counter() - began)


@asynccontextmanager
async def foreign_snapshot(url: str, schema: str) -> AsyncIterator[None]:
    """A transaction of somebody else's that has read something and does not end."""
    if url.startswith("sqlite"):
        connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM shard_lock").fetchone()
        yield
        connection.close()
        return
    foreign = await asyncpg.connect(url)
    try:
        async with foreign.transaction(isolation="repeatable_read"):
            await foreign.fetchval(f'SELECT count(*) FROM "{schema}".shard_lock')
            yield
    finally:
        await foreign.close()
