"""`lateness`: from the due time to the call of the executor, idle and loaded."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Literal

import msgspec

from benchmarks.loader import load_pending
from benchmarks.metering import Meter
from benchmarks.peers.peer import Peer
from benchmarks.report import Compared, Cost, Result, Series, percentiles, windows
from benchmarks.sides import floor
from benchmarks.sides.gnomon import balanced, create_all, gnomon_crew, opened, requests
from benchmarks.stand import Stand

AHEAD_S = 1.0
PEER_AHEAD_S = 3.0
SLACK_S = 0.2  # some reckon due times from delays
CREATED_PER_S = 8_000  # pessimistic: all are created before the first is due
IDLE_GOAL_MS = 3.0
LOADED_GOALS_MS = {"postgres": 15.0, "sqlite": 30.0}
WINDOW_S = 0.5
FLOOR = "one durable write when it is due, and the call"


class Late(msgspec.Struct):
    """How late each was, in seconds, and what they cost. `by_due`: with when it was due."""

    late_s: list[float]
    cost: Cost
    by_due: list[tuple[float, float]] = []

    @property
    def figures(self) -> dict[str, float]:
        return {**percentiles(self.late_s), "early": sum(late_s < 0 for late_s in self.late_s)}


async def measure(stand: Stand) -> AsyncIterator[Result]:
    yield await measure_idle(stand)
    for pending in stand.scale.loaded_pending:
        yield await measure_loaded(stand, pending)


async def measure_idle(stand: Stand) -> Result:
    """Few actions at random times, and nothing else to do."""
    scale = stand.scale
    offsets = sorted(random.random() * scale.idle_for_s for _ in range(scale.idle_count))

    async def one() -> tuple[Late, dict[Peer, Late], Late]:
        ours = await late_gnomon(stand, offsets, pending=0)
        stand.say(f"lateness, idle: {ours.figures}")
        bare = await late_floor(stand, offsets)
        stand.say(f"lateness of the floor: {bare.figures}")
        theirs = await stand.beside(lambda peer: late_peer(stand, peer, offsets))
        for peer, late in theirs.items():
            stand.say(f"lateness of {peer.name}, idle: {late.figures}")
        return ours, theirs, bare

    found = await stand.once(one)
    ours, theirs, bare = found.value
    p99_ms = ours.figures["p99_ms"]
    others: list[tuple[str, Literal["peer", "floor"], Late]] = [(FLOOR, "floor", bare)]
    others += [(peer.name, "peer", late) for peer, late in theirs.items()]
    return Result(
        scenario="lateness",
        measure=f"idle, {scale.idle_count} at random times: p99",
        engine=stand.engine,
        unit="ms",
        value=p99_ms,
        cost=ours.cost,
        compared=[
            Compared(
                name=name,
                kind=kind,
                value=late.figures["p99_ms"],
                ratio=late.figures["p99_ms"] / p99_ms,
                cost=late.cost,
                extra=late.figures,
            )
            for name, kind, late in others
        ],
        goal=f"<= {IDLE_GOAL_MS:g} ms, none early",
        met=p99_ms <= IDLE_GOAL_MS and ours.figures["early"] == 0,
        around=[found.around],
        extra=ours.figures,
    )


async def measure_loaded(stand: Stand, pending: int) -> Result:
    """A steady rate of due actions over many that wait."""
    scale = stand.scale
    count = int(scale.loaded_rate * scale.loaded_for_s)
    offsets = [number / scale.loaded_rate for number in range(count)]
    found = await stand.once(lambda: late_gnomon(stand, offsets, pending=pending))
    figures, goal_ms = found.value.figures, LOADED_GOALS_MS[stand.engine]
    stand.say(f"lateness, {pending:,} pending: {figures}")
    return Result(
        scenario="lateness",
        measure=f"{scale.loaded_rate:,} due per second, {pending:,} pending: p99",
        engine=stand.engine,
        unit="ms",
        value=figures["p99_ms"],
        cost=found.value.cost,
        goal=f"<= {goal_ms:g} ms, none early",
        met=figures["p99_ms"] <= goal_ms and figures["early"] == 0,
        around=[found.around],
        series=[
            Series(
                title=f"Lateness, {pending:,} pending, by half seconds",
                unit="ms",
                lines={
                    name: windows(found.value.by_due, WINDOW_S, lambda v, n=name: of(v)[n])  # type: ignore[misc]
                    for name in ("p50", "p99", "max")
                },
            )
        ],
        extra={**figures, "count": count},
    )


def of(late_s: Sequence[float]) -> dict[str, float]:
    """In milliseconds, by short names."""
    return {key.removesuffix("_ms"): value for key, value in percentiles(late_s).items()}


async def late_gnomon(stand: Stand, offsets: Sequence[float], *, pending: int) -> Late:
    async with stand.database() as url, opened(stand, url) as app:
        if pending:
            began = time.perf_counter()
            await load_pending(app, url, pending)
            await stand.analyze(url)
            stand.say(f"{pending:,} pending loaded in {time.perf_counter() - began:.1f} s")
        await stand.settle(url)
        async with gnomon_crew(stand, url, timed=True) as crew:
            crew.go()
            await balanced(app, stand.worker_count)
            start = time.time() + ahead_s(AHEAD_S, len(offsets))
            due: list[datetime | None] = [datetime.fromtimestamp(start + o, UTC) for o in offsets]
            await create_all(app, requests("late", due))
            if time.time() > start:
                raise RuntimeError("creating took longer than planned: some are due already")
            meter = Meter(stand, crew.pids)
            await meter.begin()
            await crew.performed(len(due))
            cost = await meter.end(len(due))
    by_due = sorted((call.due - start, call.late_s) for call in crew.calls if call.due is not None)
    return Late([call.late_s for call in crew.calls], cost, by_due)


async def late_floor(stand: Stand, offsets: Sequence[float]) -> Late:
    calls, cost = await floor.called_at(stand, len(offsets), offsets)
    return Late([call.late_s for call in calls], cost)


async def late_peer(stand: Stand, peer: Peer, offsets: Sequence[float]) -> Late:
    async with (
        stand.database() as url,
        stand.opened_peer(peer, url) as side,
        side.crew(timed=True) as crew,
    ):
        crew.go()
        before = await side.settled(crew)
        start = time.time() + ahead_s(PEER_AHEAD_S, len(offsets))
        await side.create([start + part for part in offsets])
        meter = Meter(stand, crew.pids)
        await meter.begin()
        await crew.performed(before + len(offsets))
        cost = await meter.end(len(offsets))
    return Late(
        [c.late_s for c in crew.calls if c.due is not None and c.due > start - SLACK_S], cost
    )


def ahead_s(least_s: float, count: int) -> float:
    """So that all are created before the first is due."""
    return least_s + count / CREATED_PER_S
