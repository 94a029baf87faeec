"""`tasks`: SQL tasks beside pg_task's figures and a bare loop, with a growing queue, and at idle.

pg_task's figures were measured on a machine of this size (2 cores, fsync on) and are written down
here: it needs a server that was compiled for it. There are two bare loops over one connection: one
sends the input and what the row must say before and after it, as any program would that keeps such
a table; the other sends the input alone and writes nothing down. What the rows alone cost, in one
round trip a task, is the floor (`sides/task_floor.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from statistics import median
from typing import NamedTuple

import asyncpg
import psycopg

from benchmarks.metering import Meter
from benchmarks.report import Compared, Result, Sample, median_cost, middle, percentiles, quantile
from benchmarks.sides.task_floor import floor_loop
from benchmarks.sides.task_owner import insert, performed, task_owner
from benchmarks.stand import Stand

PEER = "pg_task, live, as recorded"
PEER_RATES = {0: 505.0, 3: 447.0}  # 10,000 tasks a second, by `max`
PEER_START_MS = 517.0  # at its default settings
PEER_GOAL = 3.0
LOOP_GOAL = 0.3  # of the loop that keeps the table
ALONE_GOAL = 0.5  # of the one that does not; of tasks one after the other
LOOP_ROWS_MAX = 2_000
SESSIONS_SHARE = 10  # of the tasks: a session costs much more than a task
GROWTH_GOAL = 1.3
START_GOAL_MS = 10.0
GROUPS = {0: "sequential", 3: "4 parallel"}


async def measure(stand: Stand) -> AsyncIterator[Result]:
    if stand.server is None:
        return  # one writer: there is nothing to be compared with
    async for result in measure_rates(stand):
        yield result
    async for result in measure_without_reuse(stand):
        yield result
    async for result in measure_growth(stand):
        yield result
    yield await measure_start(stand)


class Rates(NamedTuple):
    """One round: tasks a second by `max`, the two loops, and the floor."""

    groups: dict[int, Sample]
    kept: float
    alone: float
    floor: float


async def measure_rates(stand: Stand) -> AsyncIterator[Result]:
    count = stand.scale.tasks
    rounds = await stand.rounds(lambda: rates_of(stand, count))
    kept = median(each.value.kept for each in rounds)
    alone = median(each.value.alone for each in rounds)
    floor = median(each.value.floor for each in rounds)
    for beside, group in GROUPS.items():
        samples = [each.value.groups[beside] for each in rounds]
        rate, peer = middle(samples), PEER_RATES[beside]
        stand.say(
            f"tasks, {group}: {rate:.0f}/s; loops {kept:.0f}/s and {alone:.0f}/s, "
            f"floor {floor:.0f}/s"
        )
        yield Result(
            scenario="tasks",
            measure=f"{count:,} tasks, live, {group}",
            engine=stand.engine,
            unit="tasks/s",
            value=rate,
            rounds=[sample.value for sample in samples],
            cost=median_cost(sample.cost for sample in samples),
            compared=[
                Compared(name=PEER, kind="peer", value=peer, ratio=rate / peer),
                Compared(name="loop of the same", kind="floor", value=kept, ratio=rate / kept),
                Compared(
                    name="loop of the input alone", kind="floor", value=alone, ratio=rate / alone
                ),
                Compared(
                    name="the rows alone, unfenced", kind="floor", value=floor, ratio=rate / floor
                ),
            ],
            goal=f">= {PEER_GOAL:g} x pg_task, {LOOP_GOAL:g} x the loop of the same"
            + (f", {ALONE_GOAL:g} x the other" if not beside else ""),
            met=rate / peer >= PEER_GOAL
            and rate / kept >= LOOP_GOAL
            and (bool(beside) or rate / alone >= ALONE_GOAL),
            around=[each.around for each in rounds],
        )


async def rates_of(stand: Stand, count: int) -> Rates:
    groups = {}
    async with stand.database() as url, task_owner(stand, url) as owner:
        for beside, group in GROUPS.items():
            await stand.settle(url)
            meter = Meter(stand, [owner.pid])
            await meter.begin()
            first = await insert(owner.user, count, group=group, beside=beside)
            rate = count / await performed(owner.user, first, count)
            groups[beside] = Sample(rate, await meter.end(count))
        kept = await asyncio.to_thread(loop_with_rows, url, count)
        alone = await asyncio.to_thread(bare_loop, url, count)
        floor = await asyncio.to_thread(floor_loop, url, count)
    return Rates(groups, kept, alone, floor)


def loop_with_rows(url: str, count: int) -> float:
    """Tasks a second: WORK, the input, DONE, each as it comes."""
    count = min(count, LOOP_ROWS_MAX)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            'INSERT INTO task (state, "group", input) '
            "SELECT 'STOP', 'loop', 'SELECT 1' FROM generate_series(1, %s)",
            [count],
        )
        found = connection.execute("SELECT id FROM task WHERE \"group\" = 'loop'").fetchall()
        began = time.perf_counter()
        for row in found:
            _perform(connection, row)
        return count / (time.perf_counter() - began)


def _perform(connection: psycopg.Connection[tuple[int]], row: tuple[int]) -> None:
    connection.execute(
        "UPDATE task SET state = 'WORK', start = clock_timestamp(), "
        "pid = pg_backend_pid() WHERE id = %s",
        row,
    )
    result = connection.execute("SELECT 1").fetchone()
    connection.execute(
        "UPDATE task SET state = 'DONE', stop = clock_timestamp(), output = %s WHERE id = %s",
        [str(result), *row],
    )


def bare_loop(url: str, count: int) -> float:
    """Statements a second over one connection, as a program sends them with psycopg."""
    with psycopg.connect(url, autocommit=True) as connection:
        began = time.perf_counter()
        for _ in range(count):
            connection.execute("SELECT 1").fetchone()
        return count / (time.perf_counter() - began)


async def measure_without_reuse(stand: Stand) -> AsyncIterator[Result]:
    """Each task on a session of its own, as without `live` and `count`. Of pg_task there is no
    recorded figure for that: it was as fast as we were, in one run beside it."""
    count = max(1, stand.scale.tasks // SESSIONS_SHARE)
    found = await stand.once(lambda: rates_without_reuse(stand, count))
    groups, loop = found.value
    for beside, group in GROUPS.items():
        rate = groups[beside].value
        stand.say(f"tasks, a session each, {group}: {rate:.0f}/s; loop {loop:.0f}/s")
        yield Result(
            scenario="tasks",
            measure=f"{count:,} tasks, a session each, {group}",
            engine=stand.engine,
            unit="tasks/s",
            value=rate,
            cost=groups[beside].cost,
            compared=[
                Compared(
                    name="loop of the same, a session each",
                    kind="floor",
                    value=loop,
                    ratio=rate / loop,
                )
            ],
            around=[found.around],
        )


async def rates_without_reuse(stand: Stand, count: int) -> tuple[dict[int, Sample], float]:
    groups = {}
    async with stand.database() as url, task_owner(stand, url) as owner:
        loop = await asyncio.to_thread(loop_of_sessions, url, count)
        for beside, group in GROUPS.items():
            await stand.settle(url)
            meter = Meter(stand, [owner.pid])
            await meter.begin()
            alone = f"{group}, alone"
            first = await insert(owner.user, count, group=alone, beside=beside, live="0")
            rate = count / await performed(owner.user, first, count)
            groups[beside] = Sample(rate, await meter.end(count))
    return groups, loop


def loop_of_sessions(url: str, count: int) -> float:
    """Tasks a second: a connection, WORK, the input, DONE, each as it comes."""
    with psycopg.connect(url, autocommit=True) as user:
        found = user.execute(
            'INSERT INTO task (state, "group", input) '
            "SELECT 'STOP', 'sessions', 'SELECT 1' FROM generate_series(1, %s) RETURNING id",
            [count],
        ).fetchall()
    began = time.perf_counter()
    for row in found:
        with psycopg.connect(url, autocommit=True) as connection:
            _perform(connection, row)
    return count / (time.perf_counter() - began)


async def measure_growth(stand: Stand) -> AsyncIterator[Result]:
    """The rate of the first tasks of queues of different lengths."""
    found = await stand.once(lambda: costs_of_queues(stand), again=False)
    costs = found.value
    smallest = min(costs)
    for waiting, sample in costs.items():
        if waiting == smallest:
            continue
        growth = sample.value / costs[smallest].value
        yield Result(
            scenario="tasks",
            measure=f"{waiting:,} waiting",
            engine=stand.engine,
            unit="ms/task",
            value=sample.value,
            cost=sample.cost,
            compared=[
                Compared(
                    name=f"{smallest:,} waiting",
                    kind="before",
                    value=costs[smallest].value,
                    ratio=growth,
                    cost=costs[smallest].cost,
                )
            ],
            goal=f"<= {GROWTH_GOAL:g} x",
            met=growth <= GROWTH_GOAL,
            around=[found.around],
        )


async def costs_of_queues(stand: Stand) -> dict[int, Sample]:
    """Milliseconds for a task, by how many wait."""
    found = {}
    for waiting in stand.scale.tasks_growth:
        async with stand.database() as url:
            async with task_owner(stand, url):
                pass  # the table is made
            first = await queue_up(stand, url, waiting)
            count = min(waiting, stand.scale.tasks)
            async with task_owner(stand, url) as owner:
                meter = Meter(stand, [owner.pid])
                await meter.begin()
                took_ms = await performed(owner.user, first, count) / count * 1000
                found[waiting] = Sample(took_ms, await meter.end(count))
        stand.say(f"tasks, {waiting:,} waiting: {1000 / took_ms:.0f}/s")
    return found


async def queue_up(stand: Stand, url: str, waiting: int) -> int:
    """Tasks that wait, with nobody at them until all is at rest; the first one's id."""
    user = await asyncpg.connect(url)
    try:
        first = await insert(user, waiting, group="queue", beside=0)
    finally:
        await user.close()
    await stand.analyze(url)
    await stand.settle(url)
    return first


async def measure_start(stand: Stand) -> Result:
    """From the commit of an insert to the start, at idle and with default settings."""
    round_ = await stand.once(lambda: late_starts(stand))
    late = round_.value
    found = percentiles(late)
    stand.say(f"tasks, start at idle: {found}")
    return Result(
        scenario="tasks",
        measure="start after insert, idle: median",
        engine=stand.engine,
        value=found["p50_ms"],
        unit="ms",
        compared=[
            Compared(
                name="pg_task, sleep 1 s, as recorded",
                kind="peer",
                value=PEER_START_MS,
                ratio=PEER_START_MS / found["p50_ms"],
            )
        ],
        goal=f"<= {START_GOAL_MS:g} ms",
        met=found["p50_ms"] <= START_GOAL_MS,
        around=[round_.around],
        extra={**found, "p95_ms": quantile(late, 0.95) * 1000},
    )


async def late_starts(stand: Stand) -> list[float]:
    late = []
    async with stand.database() as url, task_owner(stand, url) as owner:
        for _ in range(stand.scale.tasks_idle):
            late.append(await start_after(owner.user))
            await asyncio.sleep(0.05)
    return late


async def start_after(user: asyncpg.Connection) -> float:
    """Seconds by the server's clock, from the insert's own time: its commit is counted, too."""
    task_id = await user.fetchval("INSERT INTO task (input) VALUES ('SELECT 1') RETURNING id")
    while True:
        found = await user.fetchval(
            "SELECT extract(epoch FROM start - plan) FROM task WHERE id = $1 AND stop IS NOT NULL",
            task_id,
        )
        if found is not None:
            return float(found)
        await asyncio.sleep(0.02)
