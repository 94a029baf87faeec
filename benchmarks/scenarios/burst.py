"""`burst`: many actions due at one instant, and how an immediate one fares meanwhile.

What counts is the call of the executor: the worker programs note it themselves, on the clock of the
machine that the database is on, too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Literal

import msgspec

from benchmarks.metering import Meter
from benchmarks.peers.peer import Peer
from benchmarks.processes import Call
from benchmarks.report import Compared, Cost, Result, percentiles, windows
from benchmarks.report import Series as Plot
from benchmarks.sides import floor
from benchmarks.sides.gnomon import balanced, create_all, gnomon_crew, opened, requests
from benchmarks.stand import Stand
from gnomon.app import App

WARM = 1_000  # created and performed first: they warm the workers up and tell the pace of creating
WARM_SINGLY = 200  # for huey, which creates one by one
PACE_MARGIN = 2.0  # all must be created before the instant, on a noisy machine too
PROBE = "probe"
PROBE_EVERY_S = 0.1
PROBES_BEFORE_S = 0.5
GOALS_S = {"postgres": 1.0, "sqlite": 2.0}  # until the last executes
PROBE_GOAL_MS = 100.0
FLOOR = "a look at each row when it is due, and the calls"
DUE_SLACK_S = 0.2
PLOT_STEPS = 40


class Burst(msgspec.Struct):
    """How late each was, and what they cost."""

    late_s: list[float]
    cost: Cost
    probes_s: list[float] = []  # from the creation of each probe to its call

    @property
    def figures(self) -> dict[str, float]:
        late = sorted(self.late_s)
        return {
            "count": len(late),
            "until_last_s": late[-1],
            "until_half_s": late[len(late) // 2],
            "early": sum(late_s < 0 for late_s in late),
        }

    def plot(self) -> list[tuple[float, float]]:
        """How many were executed, by the seconds since the instant."""
        width_s = max(self.late_s) / PLOT_STEPS or 1.0
        counts = windows(((late_s, 1) for late_s in self.late_s), width_s, len)
        total, found = 0.0, [(0.0, 0.0)]
        for at, count in counts:
            total += count
            found.append((at, total / len(self.late_s) * 100))
        return found


async def measure(stand: Stand) -> AsyncIterator[Result]:
    async def one() -> tuple[Burst, dict[Peer, Burst], Burst]:
        ours = await burst_gnomon(stand)
        stand.say(f"burst: {ours.figures}, probes {percentiles(ours.probes_s)}")
        bare = await burst_floor(stand)
        stand.say(f"burst of the floor: {bare.figures}")
        theirs = await stand.beside(lambda peer: burst_peer(stand, peer))
        for peer, found in theirs.items():
            stand.say(f"burst of {peer.name}: {found.figures}")
        return ours, theirs, bare

    found = await stand.once(one)
    ours, theirs, bare = found.value
    goal_s = GOALS_S[stand.engine]
    yield Result(
        scenario="burst",
        measure=f"{stand.scale.burst:,} due at one instant: until the last executes",
        engine=stand.engine,
        unit="s",
        value=max(ours.late_s),
        cost=ours.cost,
        compared=[
            compared_with(FLOOR, "floor", bare, ours),
            *(compared_with(peer.name, "peer", burst, ours) for peer, burst in theirs.items()),
        ],
        goal=f"<= {goal_s:g} s, none early",
        met=max(ours.late_s) <= goal_s and ours.figures["early"] == 0,
        around=[found.around],
        series=[
            Plot(
                title="A burst: part of it that was executed, by seconds since the instant",
                unit="%",
                lines={"Gnomon": ours.plot(), **{p.name: b.plot() for p, b in theirs.items()}},
            )
        ],
        extra=ours.figures,
    )
    probes = percentiles(ours.probes_s)
    yield Result(
        scenario="burst",
        measure="immediate action meanwhile: created to executor called, p99",
        engine=stand.engine,
        unit="ms",
        value=probes["p99_ms"],
        goal=f"<= {PROBE_GOAL_MS:g} ms",
        met=probes["p99_ms"] <= PROBE_GOAL_MS,
        around=[found.around],
        extra={**probes, "probes": len(ours.probes_s)},
    )


def compared_with(
    name: str, kind: Literal["peer", "floor"], theirs: Burst, ours: Burst
) -> Compared:
    """By the time for each, for a slow peer is given fewer."""
    count, last_s = len(theirs.late_s), max(theirs.late_s)
    fewer = count < len(ours.late_s)
    return Compared(
        name=f"{name}, {count:,} of them" if fewer else name,
        kind=kind,
        value=last_s,
        ratio=(last_s / count) / (max(ours.late_s) / len(ours.late_s)),
        cost=theirs.cost,
        extra=theirs.figures,
    )


class Prober:
    """Creates an immediate action every 100 ms, one after the other, until told to stop."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._stopping = False
        self.created: dict[str, float] = {}  # id -> when its creation began
        self._probing = asyncio.create_task(self._keep_probing())

    async def stop(self) -> None:
        self._stopping = True
        await self._probing

    async def _keep_probing(self) -> None:
        next_at = time.monotonic()
        while not self._stopping:
            (request,) = requests(PROBE, [None])
            request = msgspec.structs.replace(request, id=f"{PROBE}-{len(self.created):07d}")
            assert request.id is not None
            self.created[request.id] = time.time()
            await self._app.scheduler.create(request)
            next_at = max(next_at + PROBE_EVERY_S, time.monotonic())
            await asyncio.sleep(next_at - time.monotonic())


async def burst_gnomon(stand: Stand) -> Burst:
    count = stand.scale.burst
    async with (
        stand.database() as url,
        opened(stand, url) as app,
        gnomon_crew(stand, url, timed=True) as crew,
    ):
        crew.go()
        await balanced(app, stand.worker_count)
        began = time.perf_counter()
        await create_all(app, requests("warm", [None] * WARM))
        needed_s = planned_s(stand, count, (time.perf_counter() - began) / WARM)
        await crew.performed(WARM)
        instant = time.time() + needed_s
        due = datetime.fromtimestamp(instant, UTC)
        await create_all(app, requests("burst", [due] * count))
        await before(instant, PROBES_BEFORE_S)
        meter = Meter(stand, crew.pids)
        await meter.begin()
        prober = Prober(app)
        await crew.performed(WARM + count)
        await prober.stop()
        await crew.performed(WARM + count + len(prober.created))
        cost = await meter.end(count)
    calls = crew.calls
    return Burst(
        [call.late_s for call in calls if call.name.startswith("burst-")],
        cost,
        waited(prober.created, calls),
    )


def waited(created: dict[str, float], calls: Sequence[Call]) -> list[float]:
    """Seconds from the creation of each probe to its first call."""
    called: dict[str, float] = {}
    for call in calls:
        if call.name in created:
            called[call.name] = min(call.at, called.get(call.name, call.at))
    return [called[name] - at for name, at in created.items()]


async def burst_floor(stand: Stand) -> Burst:
    calls, cost = await floor.called_at(stand, stand.scale.burst)
    return Burst([call.late_s for call in calls], cost)


async def burst_peer(stand: Stand, peer: Peer) -> Burst:
    count = peer.share(stand.scale.burst)
    warm = WARM if stand.engine == "postgres" else WARM_SINGLY
    async with (
        stand.database() as url,
        stand.opened_peer(peer, url) as side,
        side.crew(timed=True) as crew,
    ):
        crew.go()
        created = await side.create([None] * warm)
        needed_s = planned_s(stand, count, created.wall_s / warm)
        await crew.performed(warm)
        warm += await side.settled(crew)
        instant = time.time() + needed_s
        await side.create([instant] * count)
        await before(instant, PROBES_BEFORE_S)
        meter = Meter(stand, crew.pids)
        await meter.begin()
        await crew.performed(warm + count)
        cost = await meter.end(count)
    # Those for warming up are left out; some reckon due times from delays, so: about the instant.
    late = [c.late_s for c in crew.calls if c.due is not None and c.due > instant - DUE_SLACK_S]
    return Burst(late, cost)


async def before(instant: float, lead_s: float) -> None:
    """Wait until shortly before the instant; all must have been created by now."""
    left_s = instant - time.time()
    if left_s < 0:
        raise RuntimeError("creating took longer than planned: the instant has passed")
    await asyncio.sleep(max(0.0, left_s - lead_s))


def planned_s(stand: Stand, count: int, each_s: float) -> float:
    """How far ahead the instant must be, by the pace at which the first were created."""
    return PACE_MARGIN * count * each_s + stand.scale.burst_ahead_s
