"""`memory`: what a worker process occupies while many actions are pending, and with none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from benchmarks.loader import load_pending
from benchmarks.report import Compared, Result
from benchmarks.sides.gnomon import balanced, create_all, gnomon_crew, opened, requests
from benchmarks.stand import Stand

GOAL_MB = 150.0
PERFORMED = 2_000  # it must have worked, too


async def measure(stand: Stand) -> AsyncIterator[Result]:
    empty = await stand.once(lambda: occupied(stand, 0), again=False)
    found = await stand.once(lambda: occupied(stand, stand.scale.pending), again=False)
    (empty_mb, _), (full_mb, highest_mb) = empty.value, found.value
    stand.say(f"memory: {full_mb:.0f} MB, {empty_mb:.0f} MB with nothing pending")
    yield Result(
        scenario="memory",
        measure=f"a worker's resident memory, {stand.scale.pending:,} pending",
        engine=stand.engine,
        value=full_mb,
        unit="MB",
        compared=[
            Compared(
                name="nothing pending", kind="before", value=empty_mb, ratio=full_mb / empty_mb
            )
        ],
        goal=f"< {GOAL_MB:g} MB",
        met=highest_mb < GOAL_MB,
        around=[found.around],
        extra={"highest_mb": highest_mb},
    )


async def occupied(stand: Stand, pending: int) -> tuple[float, float]:
    """Megabytes at the end, and the most at any time, of the one worker."""
    async with stand.database() as url, opened(stand, url) as app:
        if pending:
            await load_pending(app, url, pending)
            await stand.analyze(url)
        async with gnomon_crew(stand, url, size=1) as crew:
            crew.go()
            await balanced(app, 1)
            await create_all(app, requests("memory", [None] * PERFORMED))
            await crew.performed(PERFORMED)
            await asyncio.sleep(stand.scale.memory_for_s)
            crew.check()
            (worker,) = crew.workers
            return worker.memory_mb(), worker.memory_mb("VmHWM")
