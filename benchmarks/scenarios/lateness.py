"""`lateness`: from the due time to the beginning, by the database's clock, idle and loaded."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta

from benchmarks.loader import load_pending
from benchmarks.report import Result, percentiles
from benchmarks.sides.gnomon import balanced, create_all, gnomon_crew, lives, opened, requests
from benchmarks.sides.rivals import rival_of
from benchmarks.stand import Stand, progress

AHEAD_S = 1.0
CREATED_PER_S = 8_000  # pessimistic: all are created before the first is due
LOADED_GOAL_MS = 50.0


async def measure(stand: Stand) -> AsyncIterator[Result]:
    yield await measure_idle(stand)
    yield await measure_loaded(stand)


async def measure_idle(stand: Stand) -> Result:
    """Few actions at random times, and nothing else to do."""
    scale, rival = stand.scale, rival_of(stand)
    offsets = sorted(random.random() * scale.idle_for_s for _ in range(scale.idle_count))
    ours = percentiles(await late_gnomon(stand, offsets, pending=0))
    theirs = percentiles(await late_rival(stand, offsets))
    progress(f"lateness, idle: {ours}, rival {theirs}")
    return Result(
        scenario="lateness",
        measure=f"idle, {scale.idle_count} at random times: p99",
        engine=stand.engine,
        value=ours["p99_ms"],
        unit="ms",
        peer=rival.name,
        compared_value=theirs["p99_ms"],
        ratio=theirs["p99_ms"] / ours["p99_ms"],
        extra={**ours, "peer_figures": theirs},
    )


async def measure_loaded(stand: Stand) -> Result:
    """A steady rate of due actions over many that wait."""
    scale = stand.scale
    count = int(scale.loaded_rate * scale.loaded_for_s)
    late = await late_gnomon(
        stand, [number / scale.loaded_rate for number in range(count)], pending=scale.pending
    )
    ours = percentiles(late)
    progress(f"lateness, loaded: {ours}")
    return Result(
        scenario="lateness",
        measure=f"{scale.loaded_rate:,} due per second, {scale.pending:,} pending: p99",
        engine=stand.engine,
        value=ours["p99_ms"],
        unit="ms",
        floor="the goal",
        compared_value=LOADED_GOAL_MS,
        ratio=LOADED_GOAL_MS / ours["p99_ms"],
        goal=f"<= {LOADED_GOAL_MS:g} ms",
        met=ours["p99_ms"] <= LOADED_GOAL_MS and min(late) >= 0,
        extra={**ours, "early": sum(late_s < 0 for late_s in late), "count": count},
    )


async def late_gnomon(stand: Stand, offsets: Sequence[float], *, pending: int) -> list[float]:
    async with stand.database() as url, opened(stand, url) as app:
        if pending:
            began = time.perf_counter()
            await load_pending(app, url, pending)
            await stand.analyze(url)
            progress(f"{pending:,} pending loaded in {time.perf_counter() - began:.1f} s")
        await stand.settle(url)
        async with gnomon_crew(stand, url) as crew:
            crew.go()
            await balanced(app, stand.worker_count)
            start = await app.store.installation.now() + _ahead(len(offsets))
            due: list[datetime | None] = [start + timedelta(seconds=part) for part in offsets]
            await create_all(app, requests("late", due))
            if await app.store.installation.now() > start:
                raise RuntimeError("creating took longer than planned: some are due already")
            await crew.performed(len(due))
            found = await lives(app, "late", len(due))
    return [life.late_s for life in found]


async def late_rival(stand: Stand, offsets: Sequence[float]) -> list[float]:
    rival = rival_of(stand)
    async with stand.database() as url, rival.opened(url), rival.crew(timed=True) as crew:
        crew.go()
        start = time.time() + _ahead(len(offsets)).total_seconds()
        await rival.create([start + part for part in offsets])
        await crew.performed(len(offsets))
    return [began - due for due, began in crew.began]


def _ahead(count: int) -> timedelta:
    return timedelta(seconds=AHEAD_S + count / CREATED_PER_S)
