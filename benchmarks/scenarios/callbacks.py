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
from typing import NamedTuple

from benchmarks.metering import Meter
from benchmarks.processes import Crew, Program, crew_of
from benchmarks.report import Compared, Result, Sample, median_cost, middle
from benchmarks.sides.gnomon import all_recorded, create_all, gnomon_crew, opened
from benchmarks.stand import Stand
from gnomon.model.spec import Http, Spec
from gnomon.scheduler import Request

RECEIVER = "benchmarks.sides.receiver"
CALLER = "benchmarks.sides.http_caller"
BODY = {"event": "order.paid", "order": 17, "items": ["a", "b", "c"], "note": "x" * 200}
CONNECTIONS = 100  # http.connections_per_host_max
GOALS = {"postgres": 0.8, "sqlite": 0.6}  # of the whole life


class Called(NamedTuple):
    """One round: the three ways in turn."""

    bare: Sample
    executor: Sample
    whole: Sample


async def measure(stand: Stand) -> AsyncIterator[Result]:
    count = stand.scale.called

    async def one() -> Called:
        async with receiving(stand) as (crew, url):
            found = Called(
                await call(stand, url, count, by_executor=False),
                await call(stand, url, count, by_executor=True),
                await call_by_actions(stand, crew, url, count),
            )
        shown = (f"{name} {sample.value:,.0f}/s" for name, sample in found._asdict().items())
        stand.say(f"callbacks: {', '.join(shown)}")
        return found

    rounds = await stand.rounds(one)
    bare = [each.value.bare for each in rounds]
    for name, field, goal in (
        ("executor", "executor", None),
        ("whole life", "whole", GOALS[stand.engine]),
    ):
        ours: list[Sample] = [getattr(each.value, field) for each in rounds]
        ratio = middle(ours) / middle(bare)
        yield Result(
            scenario="callbacks",
            measure=f"signed HTTP calls, {name}",
            engine=stand.engine,
            unit="calls/s",
            value=middle(ours),
            rounds=[sample.value for sample in ours],
            cost=median_cost(sample.cost for sample in ours),
            compared=[
                Compared(
                    name="a bare aiohttp loop",
                    kind="floor",
                    value=middle(bare),
                    ratio=ratio,
                    rounds=[sample.value for sample in bare],
                    cost=median_cost(sample.cost for sample in bare),
                )
            ],
            goal=f">= {goal:g} x" if goal else None,
            met=ratio >= goal if goal else None,
            around=[each.around for each in rounds],
            extra={"count": count},
        )


@asynccontextmanager
async def receiving(stand: Stand) -> AsyncIterator[tuple[Crew, str]]:
    """The receiver, in a process of its own."""
    async with crew_of(Program(RECEIVER, {}), size=1, folder=stand.folder) as crew:
        crew.go()
        yield crew, f"http://127.0.0.1:{crew.workers[0].port}/hook"


async def call(stand: Stand, url: str, count: int, *, by_executor: bool) -> Sample:
    wanted = {"url": url, "count": count, "concurrency": CONNECTIONS, "body": BODY}
    program = Program(CALLER, {**wanted, "by_executor": by_executor})
    async with crew_of(program, size=1, folder=stand.folder) as crew:
        meter = Meter(stand, crew.pids)
        await meter.begin()
        began = time.perf_counter()
        crew.go()
        await crew.performed(count)
        rate = count / (time.perf_counter() - began)
        return Sample(rate, await meter.end(count))


async def call_by_actions(stand: Stand, receiver: Crew, url: str, count: int) -> Sample:
    spec = Spec(action=Http("POST", url, json=BODY))
    async with stand.database() as database, opened(stand, database) as app:
        await create_all(app, [Request(id=f"call-{n:07d}", spec=spec) for n in range(count)])
        async with gnomon_crew(stand, database, signed=url) as crew:
            await stand.settle(database)
            meter = Meter(stand, crew.pids)
            await meter.begin()
            already, began = receiver.count, time.perf_counter()
            crew.go()
            await receiver.performed(already + count)
            await all_recorded(app, crew)
            rate = count / (time.perf_counter() - began)
            return Sample(rate, await meter.end(count))
