"""`callbacks`: signed HTTP calls, beside a bare aiohttp loop.

Same receiver, same body, same number of connections, in turns. The executor alone, one process
like the floor: what the checks, the signature and the bounds cost. Then whole lives, measured as
`drain` is: from the word to the workers until every action is finished and recorded; that has the
database in it, and shares the machine with it.
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
CALLER = "benchmarks.sides.http_caller"
BODY = {"event": "order.paid", "order": 17, "items": ["a", "b", "c"], "note": "x" * 200}
CONNECTIONS = 100  # http.connections_per_host_max
GOAL = 0.6


async def measure(stand: Stand) -> AsyncIterator[Result]:
    count = stand.scale.called
    bare: list[float] = []
    executor: list[float] = []
    whole: list[float] = []
    for number in range(stand.scale.rounds):
        async with receiving(stand) as (crew, url):
            bare.append(count / await call(stand, url, count, by_executor=False))
            executor.append(count / await call(stand, url, count, by_executor=True))
            whole.append(count / await call_by_actions(stand, crew, url, count))
        progress(
            f"callbacks round {number + 1}: executor {executor[-1]:,.0f}/s, "
            f"whole {whole[-1]:,.0f}/s, bare {bare[-1]:,.0f}/s"
        )
    for measure_name, rounds, goal in (("executor", executor, GOAL), ("whole life", whole, None)):
        value, floor = median(rounds), median(bare)
        yield Result(
            scenario="callbacks",
            measure=f"signed HTTP calls, {measure_name}",
            engine=stand.engine,
            value=value,
            unit="calls/s",
            floor="a bare aiohttp loop",
            compared_value=floor,
            ratio=value / floor,
            goal=f">= {goal:g} x" if goal else None,
            met=value / floor >= goal if goal else None,
            extra={"count": count, "rounds": rounds, "floor_rounds": bare},
        )


@asynccontextmanager
async def receiving(stand: Stand) -> AsyncIterator[tuple[Crew, str]]:
    """The receiver, in a process of its own."""
    async with crew_of(RECEIVER, {}, size=1, folder=stand.folder) as crew:
        crew.go()
        yield crew, f"http://127.0.0.1:{crew.workers[0].port}/hook"


async def call(stand: Stand, url: str, count: int, *, by_executor: bool) -> float:
    wanted = {"url": url, "count": count, "concurrency": CONNECTIONS, "body": BODY}
    options = {**wanted, "by_executor": by_executor}
    async with crew_of(CALLER, options, size=1, folder=stand.folder) as crew:
        began = time.perf_counter()
        crew.go()
        await crew.performed(count)
        return time.perf_counter() - began


async def call_by_actions(stand: Stand, receiver: Crew, url: str, count: int) -> float:
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
