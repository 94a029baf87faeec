"""`callbacks`: one-shots that each make an HTTP call, beside a bare aiohttp loop.

Same receiver, same body, same number of connections, in turns. Measured as `drain` is: from the
word to the workers until every action is finished and recorded, so it contains leases, begin,
signature, call and result. The floor contains the calls only.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from statistics import median

from benchmarks.processes import Crew, crew_of
from benchmarks.report import Result
from benchmarks.sides.gnomon import all_recorded, create_all, gnomon_crew, opened
from benchmarks.stand import Stand, progress
from gnomon.model.spec import Http, Spec
from gnomon.scheduler import Request

RECEIVER = "benchmarks.sides.receiver"
BARE = "benchmarks.sides.bare_http"
BODY = {"event": "order.paid", "order": 17, "items": ["a", "b", "c"], "note": "x" * 200}
CONNECTIONS = 100  # http.connections_per_host_max
ROUNDS_MIN = 3
GOAL = 0.6


async def measure(stand: Stand) -> AsyncIterator[Result]:
    count = stand.scale.called
    ours, bare = [], []
    for number in range(max(ROUNDS_MIN, stand.scale.rounds)):
        async with receiving(stand) as (crew, url):
            bare.append(count / await call_bare(stand, url, count))
            ours.append(count / await call_gnomon(stand, crew, url, count))
        progress(f"callbacks round {number + 1}: {ours[-1]:,.0f}/s, bare {bare[-1]:,.0f}/s")
    value, floor = median(ours), median(bare)
    yield Result(
        scenario="callbacks",
        measure="signed HTTP callbacks, whole life",
        engine=stand.engine,
        value=value,
        unit="calls/s",
        floor="a bare aiohttp loop",
        compared_value=floor,
        ratio=value / floor,
        goal=f">= {GOAL:g} x",
        met=value / floor >= GOAL,
        extra={"count": count, "rounds": ours, "floor_rounds": bare},
    )


@asynccontextmanager
async def receiving(stand: Stand) -> AsyncIterator[tuple[Crew, str]]:
    """The receiver, in a process of its own."""
    async with crew_of(RECEIVER, {}, size=1, folder=stand.folder) as crew:
        crew.go()
        yield crew, f"http://127.0.0.1:{crew.workers[0].port}/hook"


async def call_bare(stand: Stand, url: str, count: int) -> float:
    options = {"url": url, "count": count, "concurrency": CONNECTIONS, "body": BODY}
    async with crew_of(BARE, options, size=1, folder=stand.folder) as crew:
        began = time.perf_counter()
        crew.go()
        await crew.performed(count)
        return time.perf_counter() - began


async def call_gnomon(stand: Stand, receiver: Crew, url: str, count: int) -> float:
    spec = Spec(action=Http("POST", url, json=BODY))
    async with stand.database() as database, opened(stand, database) as app:
        await create_all(app, [Request(id=f"call-{n:07d}", spec=spec) for n in range(count)])
        async with gnomon_crew(stand, database, signed=url) as crew:
            await stand.settle(database)
            already, began = receiver.count, time.perf_counter()
            crew.go()
            await receiver.performed(already + count)
            await all_recorded(app, crew)
            return time.perf_counter() - began
