"""`tasks`: SQL tasks beside pg_task's figures and a bare loop, with a growing queue, and at idle.

pg_task's figures were measured on a machine of this size (2 cores, fsync on) and are written down
here: it needs a server that was compiled for it. There are two bare loops over one connection: one
sends the input and what the row must say before and after it, as any program would that keeps such
a table; the other sends the input alone and writes nothing down.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from statistics import median

import asyncpg
import psycopg

from benchmarks.report import Result, percentiles
from benchmarks.sides.task_owner import insert, performed, task_owner
from benchmarks.stand import Stand, progress

PEER = "pg_task, live, as recorded"
PEER_RATES = {0: 505.0, 3: 447.0}  # 10,000 tasks a second, by `max`
PEER_START_MS = 517.0  # at its default settings
PEER_GOAL = 3.0
LOOP_GOAL = 0.3
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


async def measure_rates(stand: Stand) -> AsyncIterator[Result]:
    count = stand.scale.tasks
    rates: dict[int, list[float]] = {beside: [] for beside in GROUPS}
    loops: dict[str, list[float]] = {"kept": [], "alone": []}
    for _ in range(stand.scale.rounds):
        async with stand.database() as url, task_owner(stand, url) as user:
            for beside, group in GROUPS.items():
                await stand.settle(url)
                first = await insert(user, count, group=group, beside=beside)
                rates[beside].append(count / await performed(user, first, count))
            loops["kept"].append(await asyncio.to_thread(loop_with_rows, url, count))
            loops["alone"].append(await asyncio.to_thread(bare_loop, url, count))
    kept, alone = median(loops["kept"]), median(loops["alone"])
    for beside, group in GROUPS.items():
        rate = median(rates[beside])
        progress(f"tasks, {group}: {rate:.0f}/s; loops {kept:.0f}/s and {alone:.0f}/s")
        peer = PEER_RATES[beside]
        yield _rate(stand, group, rate, peer=PEER, compared=peer, goal=PEER_GOAL)
        yield _rate(stand, group, rate, floor="loop of the same", compared=kept, goal=LOOP_GOAL)
        yield _rate(stand, group, rate, floor="loop of the input alone", compared=alone)


def _rate(
    stand: Stand,
    group: str,
    rate: float,
    *,
    compared: float,
    goal: float | None = None,
    peer: str | None = None,
    floor: str | None = None,
) -> Result:
    return Result(
        scenario="tasks",
        measure=f"{stand.scale.tasks:,} tasks, live, {group}",
        engine=stand.engine,
        value=rate,
        unit="tasks/s",
        peer=peer,
        floor=floor,
        compared_value=compared,
        ratio=rate / compared,
        goal=None if goal is None else f">= {goal:g} x",
        met=None if goal is None else rate / compared >= goal,
    )


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
    async with stand.database() as url, task_owner(stand, url) as user:
        loop = await asyncio.to_thread(loop_of_sessions, url, count)
        for beside, group in GROUPS.items():
            await stand.settle(url)
            first = await insert(user, count, group=f"{group}, alone", beside=beside, live="0")
            rate = count / await performed(user, first, count)
            progress(f"tasks, a session each, {group}: {rate:.0f}/s; loop {loop:.0f}/s")
            yield Result(
                scenario="tasks",
                measure=f"{count:,} tasks, a session each, {group}",
                engine=stand.engine,
                value=rate,
                unit="tasks/s",
                floor="loop of the same, a session each",
                compared_value=loop,
                ratio=rate / loop,
            )


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
    costs = {}
    for waiting in stand.scale.tasks_growth:
        async with stand.database() as url:
            async with task_owner(stand, url):
                pass  # the table is made
            first = await queue_up(stand, url, waiting)
            count = min(waiting, stand.scale.tasks)
            async with task_owner(stand, url) as user:
                costs[waiting] = await performed(user, first, count) / count
        progress(f"tasks, {waiting:,} waiting: {1 / costs[waiting]:.0f}/s")
    smallest = min(costs)
    for waiting, cost in costs.items():
        if waiting != smallest:
            yield Result(
                scenario="tasks",
                measure=f"{waiting:,} waiting",
                engine=stand.engine,
                value=cost * 1000,
                unit="ms/task",
                floor=f"{smallest:,} waiting",
                compared_value=costs[smallest] * 1000,
                ratio=cost / costs[smallest],
                goal=f"<= {GROWTH_GOAL:g} x",
                met=cost / costs[smallest] <= GROWTH_GOAL,
            )


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
    late = []
    async with stand.database() as url, task_owner(stand, url) as user:
        for _ in range(stand.scale.tasks_idle):
            late.append(await start_after(user))
            await asyncio.sleep(0.05)
    found = percentiles(late)
    p95_ms = sorted(late)[int(len(late) * 0.95)] * 1000
    progress(f"tasks, start at idle: {found}")
    return Result(
        scenario="tasks",
        measure="start after insert, idle: median",
        engine=stand.engine,
        value=found["p50_ms"],
        unit="ms",
        peer="pg_task, sleep 1 s, as recorded",
        compared_value=PEER_START_MS,
        ratio=PEER_START_MS / found["p50_ms"],
        goal=f"<= {START_GOAL_MS:g} ms",
        met=found["p50_ms"] <= START_GOAL_MS,
        extra={**found, "p95_ms": p95_ms},
    )


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
