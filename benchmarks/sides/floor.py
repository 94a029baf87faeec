"""The floor of `drain`, `burst` and `lateness`, as the bench uses it; see `floor_worker`."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

import asyncpg

from benchmarks.metering import Meter
from benchmarks.processes import Call, Program, crew_of
from benchmarks.report import Compared, Cost, Sample, median_cost, middle
from benchmarks.sides.gnomon import all_recorded, create_all, opened, requests
from benchmarks.stand import Stand
from gnomon.app import sqlite_path

WORKER = "benchmarks.sides.floor_worker"
READY_S = 3.0  # until the workers have what they are to call


async def drained(stand: Stand, count: int) -> Sample:
    """No-ops a second through the same rows; the rows are Gnomon's own."""
    async with stand.database() as url, opened(stand, url) as app:
        await create_all(app, requests("drain", [None] * count))
        await stand.analyze(url)
        shards = range(app.installation.shard_count)
        parts = [
            {"does": "drain", "url": url, "shards": list(shards[place :: stand.worker_count])}
            for place in range(stand.worker_count)
        ]
        async with crew_of(*programs(parts), folder=stand.folder) as crew:
            await stand.settle(url)
            meter = Meter(stand, crew.pids)
            await meter.begin()
            began = time.perf_counter()
            crew.go()
            await crew.performed(count)
            await all_recorded(app, crew)
            rate = count / (time.perf_counter() - began)
            return Sample(rate, await meter.end(count))


async def called_at(
    stand: Stand, count: int, dues: Sequence[float] | None = None
) -> tuple[list[Call], Cost]:
    """When so many rows are called, each at its time (seconds from then on), or all at once."""
    guids = [uuid4() for _ in range(count)]
    async with stand.database() as url:
        await fill(url, guids)
        await stand.analyze(url)
        start = time.time() + READY_S + (stand.scale.burst_ahead_s if dues is None else 0.0)
        parts = [
            {"does": "burst", "url": url, "part": part, "due": start}
            if dues is None
            else {"does": "lateness", "url": url, "part": part, "dues": [start + at for at in dues]}
            for part in ((place, stand.worker_count) for place in range(stand.worker_count))
        ]
        async with crew_of(*programs(parts), folder=stand.folder) as crew:
            await stand.settle(url)
            crew.go()
            if time.time() > start:
                raise RuntimeError("the floor's workers were not ready in time")
            meter = Meter(stand, crew.pids)
            await meter.begin()
            await crew.performed(count)
            cost = await meter.end(count)
        return crew.calls, cost


def programs(parts: Sequence[Mapping[str, Any]]) -> list[Program]:
    return [Program(WORKER, part) for part in parts]


async def fill(url: str, guids: Sequence[UUID]) -> None:
    """A table with a row for each, on either engine."""
    if url.startswith("sqlite:"):
        await asyncio.to_thread(fill_file, sqlite_path(url), guids)
        return
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("CREATE TABLE floor (guid uuid PRIMARY KEY, attempt uuid)")
        await connection.copy_records_to_table("floor", records=[(guid, None) for guid in guids])
    finally:
        await connection.close()


def fill_file(path: str, guids: Sequence[UUID]) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE floor (guid BLOB PRIMARY KEY, attempt BLOB) WITHOUT ROWID")
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO floor VALUES (?, NULL)", [(g.bytes,) for g in guids])
        connection.execute("COMMIT")
    finally:
        connection.close()


def floor_of(
    name: str, samples: Sequence[Sample], ours: float, *, more_is_better: bool
) -> Compared:
    """The floor's rounds beside Gnomon's value: what part of it Gnomon reaches."""
    value = middle(samples)
    return Compared(
        name=name,
        kind="floor",
        value=value,
        ratio=ours / value if more_is_better else value / ours,
        rounds=[sample.value for sample in samples],
        cost=median_cost(sample.cost for sample in samples),
    )
