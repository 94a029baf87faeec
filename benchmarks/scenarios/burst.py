"""`burst`: many actions due at one instant, and how an immediate one fares meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import timedelta

import msgspec

from benchmarks.report import Result, percentiles
from benchmarks.sides.gnomon import (
    balanced,
    create_all,
    gnomon_crew,
    lives,
    opened,
    requests,
)
from benchmarks.sides.rivals import Rival, rival_of
from benchmarks.stand import Stand, progress
from gnomon.app import App

WARM = 1_000  # created and performed first: they warm the workers up and tell the pace of creating
WARM_SINGLY = 200  # for huey, which creates one by one
PACE_MARGIN = 2.0  # all must be created before the instant, on a noisy machine too
PROBE_EVERY_S = 0.1
DUE_SLACK_S = 0.2


async def measure(stand: Stand) -> AsyncIterator[Result]:
    ours = await burst_gnomon(stand)
    rival = rival_of(stand)
    progress(f"burst: {ours}")
    compared = await burst_rival(stand, rival)
    progress(f"burst of the rival: {compared}")
    yield Result(
        scenario="burst",
        measure=f"{stand.scale.burst:,} due at one instant: until the last began",
        engine=stand.engine,
        value=ours["until_last_s"],
        unit="s",
        peer=rival.name,
        compared_value=compared["until_last_s"],
        ratio=compared["until_last_s"] / ours["until_last_s"],
        goal="none early",
        met=ours["early"] == 0,
        extra={**ours, "peer_figures": compared},
    )
    yield Result(
        scenario="burst",
        measure="immediate action meanwhile: created to begun, p99",
        engine=stand.engine,
        value=ours["probe_p99_ms"],
        unit="ms",
        extra={name: value for name, value in ours.items() if name.startswith("probe")},
    )


class Prober:
    """Creates an immediate action every 100 ms, one after the other, until told to stop."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._stopping = False
        self.count = 0
        self._probing = asyncio.create_task(self._keep_probing())

    async def stop(self) -> int:
        """How many were created."""
        self._stopping = True
        await self._probing
        return self.count

    async def _keep_probing(self) -> None:
        next_at = time.monotonic()
        while not self._stopping:
            (request,) = requests("probe", [None])
            await self._app.scheduler.create(
                msgspec.structs.replace(request, id=f"probe-{self.count:07d}")
            )
            self.count += 1
            next_at = max(next_at + PROBE_EVERY_S, time.monotonic())
            await asyncio.sleep(next_at - time.monotonic())


async def burst_gnomon(stand: Stand) -> dict[str, float]:
    count = stand.scale.burst
    async with stand.database() as url, opened(stand, url) as app, gnomon_crew(stand, url) as crew:
        crew.go()
        await balanced(app, stand.worker_count)
        began = time.perf_counter()
        await create_all(app, requests("warm", [None] * WARM))
        needed_s = planned_s(stand, WARM, time.perf_counter() - began)
        await crew.performed(WARM)
        instant = await app.store.installation.now() + timedelta(seconds=needed_s)
        await create_all(app, requests("burst", [instant] * count))
        left_s = (instant - await app.store.installation.now()).total_seconds()
        if left_s < 0:
            raise RuntimeError("creating took longer than planned: the instant has passed")
        await asyncio.sleep(max(0.0, left_s - 0.5))
        prober = Prober(app)
        await crew.performed(WARM + count)
        probe_count = await prober.stop()
        begun = await lives(app, "burst", count)
        probes = await lives(app, "probe", probe_count)
    late = sorted(life.late_s for life in begun)
    return {
        "count": count,
        "until_last_s": late[-1],
        "until_half_s": late[count // 2],
        "early": sum(late_s < 0 for late_s in late),
        "created_ahead_s": left_s,
        "probes": probe_count,
        **percentiles([life.latency_s for life in probes], name="probe_"),
    }


async def burst_rival(stand: Stand, rival: Rival) -> dict[str, float]:
    count = stand.scale.burst
    warm = WARM if stand.engine == "postgres" else WARM_SINGLY
    async with stand.database() as url, rival.opened(url), rival.crew(timed=True) as crew:
        crew.go()
        began = time.perf_counter()
        await rival.create([None] * warm)
        needed_s = planned_s(stand, warm, time.perf_counter() - began)
        await crew.performed(warm)
        instant = time.time() + needed_s
        await rival.create([instant] * count)
        left_s = instant - time.time()
        if left_s < 0:
            raise RuntimeError("the rival took longer than planned to create")
        await crew.performed(warm + count)
    # Those for warming up are left out; the rival reckons due times from delays, so: about T.
    late = sorted(at - due for due, at in crew.began if due > instant - DUE_SLACK_S)
    return {
        "count": count,
        "until_last_s": late[-1],
        "until_half_s": late[count // 2],
        "early": sum(late_s < 0 for late_s in late),
        "created_ahead_s": left_s,
    }


def planned_s(stand: Stand, warm: int, warm_s: float) -> float:
    """How far ahead the instant must be, by the pace at which the first were created."""
    return PACE_MARGIN * stand.scale.burst * warm_s / warm + stand.scale.burst_ahead_s
