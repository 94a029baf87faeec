"""`drain`: no-op one-shots through their whole life, all created before the first worker begins.

Measured from the word to the worker processes (started, connected, idle) until nothing is left that
is not finished and recorded; so it contains the taking of leases.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import msgspec

from benchmarks.metering import Meter
from benchmarks.peers.peer import Peer, Settings
from benchmarks.report import Cost, Result, Sample, median_cost, middle, peer_of
from benchmarks.sides import floor
from benchmarks.sides.gnomon import all_recorded, create_all, gnomon_crew, opened, requests
from benchmarks.stand import Stand

GOALS = {
    ("drain", "postgres"): (("PgQueuer", 2.0), ("awa", 5.0)),
    ("create+drain", "postgres"): (("PgQueuer", 1.5),),
    ("drain", "sqlite"): (("huey", 5.0),),
}
LOOK_S = 0.005
FLOOR = "the same rows and calls, no fence, no lease"


class Drained(msgspec.Struct):
    """One side in one round."""

    count: int
    create_s: float
    drain_s: float
    first_s: float  # until the first was performed
    create_cost: Cost
    drain_cost: Cost

    @property
    def drained(self) -> Sample:
        return Sample(self.count / self.drain_s, self.drain_cost)

    @property
    def whole(self) -> Sample:
        return Sample(
            self.count / (self.create_s + self.drain_s), sum_of(self.create_cost, self.drain_cost)
        )


Sides = tuple[Drained, dict[Peer, Drained], Sample | None]


async def measure(stand: Stand) -> AsyncIterator[Result]:
    count = stand.scale.drained
    await stand.beside(lambda peer: sweep(stand, peer))

    async def one() -> Sides:
        ours = await drain_gnomon(stand, count)
        theirs = await stand.beside(lambda peer: drain_peer(stand, peer, peer.share(count)))
        bare = await floor.drained(stand, count) if stand.engine == "postgres" else None
        shown = [f"{peer.name} {part.drained.value:,.0f}/s" for peer, part in theirs.items()]
        shown += [] if bare is None else [f"floor {bare.value:,.0f}/s"]
        stand.say(f"drain: {', '.join([f'{ours.drained.value:,.0f}/s', *shown])}")
        return ours, theirs, bare

    rounds = await stand.rounds(one)
    for name in ("drain", "create+drain"):
        field = "drained" if name == "drain" else "whole"
        ours: list[Sample] = [getattr(each.value[0], field) for each in rounds]
        value = middle(ours)
        compared = [
            peer_of(peer.name, [getattr(r.value[1][peer], field) for r in rounds], value)
            for peer in stand.peers
            if all(peer in each.value[1] for each in rounds)
        ]
        goals = [
            (title, goal, each.ratio)
            for title, goal in GOALS.get((name, stand.engine), ())
            for each in compared
            if each.name.startswith(title)
        ]
        bare = [each.value[2] for each in rounds if each.value[2] is not None]
        if name == "drain" and bare:
            compared.append(floor.floor_of(FLOOR, bare, value, more_is_better=True))
        yield Result(
            scenario="drain",
            measure=f"{name}, {count:,}",
            engine=stand.engine,
            unit="actions/s",
            value=value,
            rounds=[sample.value for sample in ours],
            cost=median_cost(sample.cost for sample in ours),
            compared=compared,
            goal=", ".join(f">= {goal:g} x {title}" for title, goal, _ in goals) or None,
            met=all(ratio >= goal for _, goal, ratio in goals) if goals else None,
            around=[each.around for each in rounds],
            extra={
                "first_s": [each.value[0].first_s for each in rounds],
                "settings": {p.name: dict(stand.all_peers.settings(p)) for p in stand.peers},
            },
        )


async def drain_gnomon(stand: Stand, count: int, *, tallied: bool = True) -> Drained:
    async with stand.database() as url, opened(stand, url) as app:
        wanted = requests("drain", [None] * count)
        meter = Meter(stand, itself=True)
        await meter.begin()
        began = time.perf_counter()
        await create_all(app, wanted)
        create_s = time.perf_counter() - began
        create_cost = await meter.end(count)
        async with gnomon_crew(stand, url, tallied=tallied) as crew:
            await stand.settle(url)
            meter = Meter(stand, crew.pids)
            await meter.begin()
            said_at, began = time.time(), time.perf_counter()
            crew.go()
            await crew.performed(count)
            await all_recorded(app, crew)
            drain_s = time.perf_counter() - began
            drain_cost = await meter.end(count)
        if crew.count != count:
            stand.say(f"drain: {crew.count} performed of {count}: some twice")
    first_s = (crew.first_at or said_at) - said_at
    return Drained(count, create_s, drain_s, first_s, create_cost, drain_cost)


async def drain_peer(
    stand: Stand, peer: Peer, count: int, settings: Settings | None = None
) -> Drained:
    async with stand.database() as url, stand.opened_peer(peer, url, settings) as side:
        meter = Meter(stand, [side.client.pid])
        await meter.begin()
        created = await side.create([None] * count)
        create_cost = await meter.end(count)
        async with side.crew() as crew:
            await stand.settle(url)
            meter = Meter(stand, crew.pids)
            await meter.begin()
            said_at, began = time.time(), time.perf_counter()
            crew.go()
            await crew.performed(count)
            while await side.waiting():
                await asyncio.sleep(LOOK_S)
            drain_s = time.perf_counter() - began
            drain_cost = await meter.end(count)
    first_s = (crew.first_at or said_at) - said_at
    return Drained(count, created.wall_s, drain_s, first_s, create_cost, drain_cost)


async def sweep(stand: Stand, peer: Peer) -> None:
    """Find the peer's best settings on this machine, today."""
    count = peer.share(stand.scale.sweep)
    if not stand.scale.sweep or peer.key in stand.all_peers.best:
        return
    rates = [
        count / (await drain_peer(stand, peer, count, settings)).drain_s
        for settings in peer.settings
    ]
    best = max(range(len(rates)), key=rates.__getitem__)
    stand.all_peers.best[peer.key] = peer.settings[best]
    stand.say(f"sweep of {peer.name}: {[round(r) for r in rates]}/s -> {peer.settings[best]}")


def sum_of(first: Cost, second: Cost) -> Cost:
    def added(field: str) -> float | None:
        one, other = getattr(first, field), getattr(second, field)
        return None if one is None or other is None else one + other

    return Cost(
        python_us=first.python_us + second.python_us,
        server_us=added("server_us"),
        wal_bytes=added("wal_bytes"),
    )
