"""`drain`: no-op one-shots through their whole life, all created before the first worker begins.

Measured from the word to the worker processes (started, connected, idle) until nothing is left that
is not finished and recorded; so it contains the taking of leases.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from statistics import median
from typing import NamedTuple

from benchmarks.report import Result
from benchmarks.sides.gnomon import all_recorded, create_all, gnomon_crew, opened, requests
from benchmarks.sides.rivals import (
    BATCHES_TRIED,
    CREWS_TRIED,
    HueyRival,
    PgQueuerRival,
    Rival,
    rival_of,
)
from benchmarks.stand import Stand, progress

GOALS = {"postgres": 2.0, "sqlite": 3.0}


class Drained(NamedTuple):
    """Seconds of one round."""

    create_s: float
    drain_s: float
    first_s: float  # until the first was performed

    @property
    def whole_s(self) -> float:
        return self.create_s + self.drain_s


async def measure(stand: Stand) -> AsyncIterator[Result]:
    count = stand.scale.drained
    await sweep(stand)
    ours: list[Drained] = []
    theirs: list[Drained] = []
    for number in range(stand.scale.rounds):
        ours.append(await drain_gnomon(stand, count))
        theirs.append(await drain_rival(stand, rival_of(stand), count))
        progress(
            f"drain round {number + 1}: {count / ours[-1].drain_s:,.0f}/s, "
            f"rival {count / theirs[-1].drain_s:,.0f}/s"
        )
    goal = GOALS[stand.engine]
    for name in ("drain", "create+drain"):
        field = "drain_s" if name == "drain" else "whole_s"
        value = count / median(getattr(part, field) for part in ours)
        compared = count / median(getattr(part, field) for part in theirs)
        yield Result(
            scenario="drain",
            measure=name,
            engine=stand.engine,
            value=value,
            unit="actions/s",
            peer=rival_of(stand).name,
            compared_value=compared,
            ratio=value / compared,
            goal=f">= {goal:g} x" if name == "drain" else None,
            met=value / compared >= goal if name == "drain" else None,
            extra={
                "count": count,
                "rounds": [part._asdict() for part in ours],
                "peer_rounds": [part._asdict() for part in theirs],
                "peer_settings": dict(stand.best),
            },
        )


async def drain_gnomon(stand: Stand, count: int) -> Drained:
    async with stand.database() as url, opened(stand, url) as app:
        wanted = requests("drain", [None] * count)
        began = time.perf_counter()
        await create_all(app, wanted)
        create_s = time.perf_counter() - began
        async with gnomon_crew(stand, url) as crew:
            await stand.settle(url)
            said_at, began = time.time(), time.perf_counter()
            crew.go()
            await crew.performed(count)
            await all_recorded(app, crew)
            drain_s = time.perf_counter() - began
        if crew.count != count:
            progress(f"drain: {crew.count} performed of {count}: some twice")
    return Drained(create_s, drain_s, (crew.first_at or said_at) - said_at)


async def drain_rival(stand: Stand, rival: Rival, count: int) -> Drained:
    async with stand.database() as url, rival.opened(url):
        began = time.perf_counter()
        await rival.create([None] * count)
        create_s = time.perf_counter() - began
        async with rival.crew() as crew:
            await stand.settle(url)
            said_at, began = time.time(), time.perf_counter()
            crew.go()
            await crew.performed(count)
            while await rival.waiting():
                await asyncio.sleep(0.005)
            drain_s = time.perf_counter() - began
    return Drained(create_s, drain_s, (crew.first_at or said_at) - said_at)


async def sweep(stand: Stand) -> None:
    """Find the rival's best settings on this machine, today."""
    count = stand.scale.sweep
    if not count:
        return
    tried: dict[tuple[str, object], float] = {}
    if stand.engine == "postgres":
        for batch in BATCHES_TRIED:
            rival: Rival = PgQueuerRival(stand, batch_size=batch)
            tried["pgqueuer_batch", batch] = (await drain_rival(stand, rival, count)).drain_s
    else:
        for crew in CREWS_TRIED:
            rival = HueyRival(stand, crew=crew)
            tried["huey_crew", crew] = (await drain_rival(stand, rival, count)).drain_s
    (setting, best), _ = min(tried.items(), key=lambda item: item[1])
    stand.best[setting] = best
    progress(f"sweep: { ({str(k[1]): round(count / s) for k, s in tried.items()}) } -> {best}")
