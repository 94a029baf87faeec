"""`sustained`: a steady rate for minutes, with autovacuum as Debian ships it.

What grows shows only over time: dead rows that vacuum does not reach, files that get longer,
actions that get later. All three are looked at every few seconds and plotted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import asyncpg

from benchmarks.metering import Meter
from benchmarks.report import Compared, Cost, Result, Series, percentiles, quantile, windows
from benchmarks.sides.gnomon import balanced, create_all, gnomon_crew, opened, requests
from benchmarks.stand import Stand
from gnomon.app import App

CREATE_EVERY_S = 0.1
LOOKS = 60  # over the whole time
LOOK_S_MIN = 0.5
GOAL_MS = 100.0
STATE = """
SELECT coalesce(sum(n_dead_tup), 0)::float8 AS dead_rows,
    coalesce(sum(pg_total_relation_size(relid)), 0)::float8 / 1048576 AS size_mb
FROM pg_stat_user_tables WHERE schemaname = $1
"""
MB = 1024 * 1024


class Look(NamedTuple):
    """The tables at one moment."""

    at_s: float
    dead_rows: float  # none on SQLite
    size_mb: float


class Sustained(NamedTuple):
    """The whole time."""

    late: list[tuple[float, float]]  # (seconds since the start, seconds late)
    looks: list[Look]
    created: int
    for_s: float  # until the last was performed
    cost: Cost


async def measure(stand: Stand) -> AsyncIterator[Result]:
    scale = stand.scale
    found = await stand.once(lambda: sustain(stand), again=False)
    run = found.value
    figures = percentiles([late_s for _, late_s in run.late])
    end_s = run.late[-1][0]
    early, late = (
        [s for at, s in run.late if start <= at / end_s < start + 0.25] for start in (0, 0.75)
    )
    stand.say(f"sustained: {figures}, {run.looks[-1]}")
    width_s = look_every_s(stand)
    yield Result(
        scenario="sustained",
        measure=f"{scale.sustained_rate:,} a second for {scale.sustained_for_s:g} s: lateness, p99",
        engine=stand.engine,
        unit="ms",
        value=figures["p99_ms"],
        cost=run.cost,
        compared=[
            Compared(
                name="the first quarter alone",
                kind="before",
                value=quantile(early, 0.99) * 1000,
                ratio=quantile(early, 0.99) / quantile(late, 0.99),
            )
        ],
        goal=f"<= {GOAL_MS:g} ms",
        met=figures["p99_ms"] <= GOAL_MS,
        around=[found.around],
        series=[
            Series(
                title="Lateness over time",
                unit="ms",
                lines={
                    name: windows(run.late, width_s, lambda v, part=part: quantile(v, part) * 1000)  # type: ignore[misc]
                    for name, part in (("p50", 0.5), ("p99", 0.99))
                },
            ),
            *plots_of(run.looks),
        ],
        extra={
            **figures,
            "last_quarter_p99_ms": quantile(late, 0.99) * 1000,
            "reached_per_s": run.created / run.for_s,
            "dead_rows_max": max(look.dead_rows for look in run.looks),
            "size_mb_last": run.looks[-1].size_mb,
        },
    )


def plots_of(looks: list[Look]) -> list[Series]:
    sizes = [(look.at_s, look.size_mb) for look in looks]
    dead = [(look.at_s, look.dead_rows) for look in looks]
    plots = [Series(title="Size of all tables over time", unit="MB", lines={"size": sizes})]
    if any(rows for _, rows in dead):
        plots.append(Series(title="Dead rows over time", unit="rows", lines={"dead rows": dead}))
    return plots


async def sustain(stand: Stand) -> Sustained:
    scale = stand.scale
    async with (
        stand.database() as url,
        opened(stand, url) as app,
        gnomon_crew(stand, url, timed=True) as crew,
    ):
        crew.go()
        await balanced(app, stand.worker_count)
        meter = Meter(stand, crew.pids)
        await meter.begin()
        start = time.time()
        watching = asyncio.create_task(keep_looking(stand, app, url, start))
        try:
            created = await create_steadily(app, scale.sustained_rate, scale.sustained_for_s)
            await crew.performed(created)
            for_s = time.time() - start
        finally:
            watching.cancel()
        cost = await meter.end(created)
        (looks,) = await asyncio.gather(watching)
    late = sorted((call.at - start, call.late_s) for call in crew.calls)
    return Sustained(late, looks, created, for_s, cost)


async def create_steadily(app: App, rate: int, for_s: float) -> int:
    """Create at this rate, due at once, for so long; how many."""
    each = max(1, int(rate * CREATE_EVERY_S))
    began = time.monotonic()
    number = 0
    while (at_s := number * each / rate) < for_s:
        await asyncio.sleep(max(0.0, began + at_s - time.monotonic()))
        await create_all(app, requests(f"steady{number}", [None] * each))
        number += 1
    return number * each


async def keep_looking(stand: Stand, app: App, url: str, start: float) -> list[Look]:
    """Until cancelled."""
    looks: list[Look] = []
    try:
        while True:
            dead_rows, size_mb = await state_of(app, url)
            looks.append(Look(time.time() - start, dead_rows, size_mb))
            await asyncio.sleep(look_every_s(stand))
    except asyncio.CancelledError:
        return looks


async def state_of(app: App, url: str) -> tuple[float, float]:
    """Dead rows and megabytes of all tables."""
    if url.startswith("sqlite"):
        path = Path(url.removeprefix("sqlite:///"))
        return 0.0, sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*")) / MB
    connection = await asyncpg.connect(url)
    try:
        found = await connection.fetchrow(STATE, app.settings.database.schema)
        assert found is not None
        return found["dead_rows"], found["size_mb"]
    finally:
        await connection.close()


def look_every_s(stand: Stand) -> float:
    return max(LOOK_S_MIN, stand.scale.sustained_for_s / LOOKS)
