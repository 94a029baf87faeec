"""`xmin`: a steady stream of create and drain, before and while a foreign snapshot is held.

A snapshot keeps vacuum from removing dead rows; on SQLite it keeps the log from being folded into
the file. The stream is closed, so many being outstanding at most: both ends set its pace.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from benchmarks.processes import Crew
from benchmarks.report import Result
from benchmarks.sides.gnomon import balanced, create_all, gnomon_crew, opened, requests
from benchmarks.stand import Stand, progress
from gnomon.app import App

OUTSTANDING_MAX = 10_000
CHUNK = 1_000
WARM_S = 2.0
GOAL = 0.7


async def measure(stand: Stand) -> AsyncIterator[Result]:
    scale = stand.scale
    async with stand.database() as url, opened(stand, url) as app, gnomon_crew(stand, url) as crew:
        crew.go()
        await balanced(app, stand.worker_count)
        streaming = asyncio.create_task(keep_creating(app, crew))
        try:
            await rate(app, crew, WARM_S, streaming)
            before = await rate(app, crew, scale.steady_for_s, streaming)
            async with foreign_snapshot(url, app.settings.database.schema):
                thirds = [
                    await rate(app, crew, scale.snapshot_for_s / 3, streaming) for _ in range(3)
                ]
            after = await rate(app, crew, scale.steady_for_s / 2, streaming)
        finally:
            streaming.cancel()
            await asyncio.gather(streaming, return_exceptions=True)
    held = sum(thirds) / 3
    progress(f"xmin: {before:,.0f}/s before, {[round(t) for t in thirds]} held, {after:,.0f} after")
    yield Result(
        scenario="xmin",
        measure=f"create and drain, a foreign snapshot held for {scale.snapshot_for_s:g} s",
        engine=stand.engine,
        value=held,
        unit="actions/s",
        floor="the same before",
        compared_value=before,
        ratio=held / before,
        goal=f">= {GOAL:g} x",
        met=held / before >= GOAL,
        extra={"held_thirds": thirds, "last_third_ratio": thirds[-1] / before, "after": after},
    )


async def keep_creating(app: App, crew: Crew) -> None:
    created = number = 0
    while True:
        if created - crew.count > OUTSTANDING_MAX:
            await asyncio.sleep(0.002)
            continue
        await create_all(app, requests(f"stream{number}", [None] * CHUNK))
        created += CHUNK
        number += 1


async def rate(app: App, crew: Crew, for_s: float, streaming: asyncio.Task[None]) -> float:
    """How many a second are performed, for so long."""
    count, began = crew.count, time.perf_counter()
    await asyncio.wait({streaming}, timeout=for_s)
    if streaming.done():
        streaming.result()  # raises what ended it
    crew.check()
    if crew.count == count:
        counts = await app.store.actions.count()
        logs = [worker.errors for worker in crew.workers]
        progress(f"xmin: nothing was performed for {for_s:g} s; {dict(counts)}; {logs}")
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
