"""`growth`: what it costs to begin an action, by how many others are pending.

The store's verbs are called as a worker calls them, on databases of different sizes in turn, so
that a noisy moment hits all sizes alike.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from statistics import median
from typing import TypeVar

from benchmarks.loader import load_pending
from benchmarks.metering import Meter
from benchmarks.report import Compared, Cost, Result, median_cost
from benchmarks.sides.gnomon import create_all, held, opened, requests
from benchmarks.stand import Stand
from gnomon.app import App
from gnomon.contracts.store import BeginRequest, BegunAttempt, FinishRequest, HeldShard, Lane
from gnomon.model.outcome import Succeeded
from gnomon.worker import WorkerConfig
from gnomon.worker.attempt import finish_of

BATCH = 1_000
WARM = 3  # batches that count not: they pay for cold plans, caches, and pages logged in full
GOAL = 1.3
CONFIG = WorkerConfig()
OWNER = "bench"

T = TypeVar("T")


@dataclass
class Pond:
    """One database with so many pending actions, and what its verbs cost."""

    app: App
    url: str
    pending: int
    holdings: Sequence[HeldShard]
    ms: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))  # a row
    costs: list[Cost] = field(default_factory=list)  # of whole lives

    async def timed(self, verb: str, call: Awaitable[T]) -> T:
        began = time.perf_counter()
        result = await call
        self.ms[verb].append((time.perf_counter() - began) * 1000 / BATCH)
        return result

    def cost(self, verb: str) -> float:
        return median(self.ms[verb][WARM:])


async def measure(stand: Stand) -> AsyncIterator[Result]:
    found = await stand.once(lambda: measure_ponds(stand), again=False)
    smallest, *larger = found.value
    for pond in larger:
        growth = pond.cost("begin") / smallest.cost("begin")
        stand.say(f"growth: {pond.pending:,} pending: {growth:.2f} x")
        yield Result(
            scenario="growth",
            measure=f"begin, {pond.pending:,} pending",
            engine=stand.engine,
            value=pond.cost("begin"),
            unit="ms/row",
            cost=median_cost(pond.costs[WARM:]),
            compared=[
                Compared(
                    name=f"{smallest.pending:,} pending",
                    kind="before",
                    value=smallest.cost("begin"),
                    ratio=growth,
                    cost=median_cost(smallest.costs[WARM:]),
                )
            ],
            goal=f"<= {GOAL:g} x",
            met=growth <= GOAL,
            around=[found.around],
            extra={
                f"{verb}_ms": {str(p.pending): p.cost(verb) for p in (smallest, pond)}
                for verb in ("create", "move", "begin", "finish")
            },
        )


async def measure_ponds(stand: Stand) -> list[Pond]:
    """All sizes in turn, batch by batch."""
    async with AsyncExitStack() as stack:
        ponds = [await fill(stand, stack, size) for size in stand.scale.growth]
        for pond in ponds:
            await stand.settle(pond.url)
        for number in range(WARM + stand.scale.growth_batches):
            for pond in ponds:
                meter = Meter(stand, itself=True)
                await meter.begin()
                await one_batch(pond, number)
                pond.costs.append(await meter.end(BATCH))
    return ponds


async def fill(stand: Stand, stack: AsyncExitStack, size: int) -> Pond:
    url = await stack.enter_async_context(stand.database())
    app = await stack.enter_async_context(opened(stand, url))
    began = time.perf_counter()
    await load_pending(app, url, size)
    await stand.analyze(url)
    stand.say(f"{size:,} pending loaded in {time.perf_counter() - began:.1f} s")
    shards = range(app.installation.shard_count)
    return Pond(app, url, size, await stack.enter_async_context(held(app, shards)))


async def one_batch(pond: Pond, number: int) -> None:
    """Create a batch of due actions, move, begin and finish it."""
    work = pond.app.store.work
    wanted = requests(f"batch{number}", [None] * BATCH)
    await pond.timed("create", create_all(pond.app, wanted))
    moved = await pond.timed("move", work.move(pond.holdings, limit=BATCH))
    if moved.count != BATCH:
        raise RuntimeError(f"{moved.count} of {BATCH} moved")
    lanes = {lane: at for lane, at in moved.lanes.items() if at <= moved.now}
    result = await pond.timed(
        "begin",
        work.begin(
            demands_for(lanes, pond.holdings),
            batch=pond.app.env.entropy.token(),
            owner=OWNER,
            grace=CONFIG.grace,
            window=CONFIG.window,
            silent=CONFIG.silent,
        ),
    )
    if len(result.begun) != BATCH:
        raise RuntimeError(f"{len(result.begun)} of {BATCH} begun")
    finishes = [_finished(begun) for begun in result.begun]
    await pond.timed("finish", work.finish(finishes, owner=OWNER))


def demands_for(lanes: dict[Lane, datetime], holdings: Sequence[HeldShard]) -> list[BeginRequest]:
    leases = {held.shard: held.lease_guid for held in holdings}
    return [
        BeginRequest(lane=lane, lease_guid=leases[lane.shard], limit=BATCH, since=at)
        for lane, at in lanes.items()
    ]


def _finished(begun: BegunAttempt) -> FinishRequest:
    return finish_of(begun, Succeeded(), ended_after=timedelta(milliseconds=1))
