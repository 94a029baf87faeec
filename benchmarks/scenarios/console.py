"""`console`: what the console's views ask for, over many actions and while others fire.

Every GET that a view makes is here (a test compares), with the filters that cost the most. They are
asked in turn, a second or more from one round to the next: nothing is kept for so long.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import NamedTuple

from benchmarks.processes import Program, crew_of
from benchmarks.report import Result, quantile
from benchmarks.scenarios.sustained import CREATE_EVERY_S
from benchmarks.sides.console_stock import ENTITY_KIND, ERRORS, stock
from benchmarks.sides.gnomon import balanced, create_all, gnomon_crew, opened, requests
from benchmarks.stand import Stand
from gnomon.app import App, open_task_rows
from gnomon.config import load_settings
from gnomon.contracts.store import Selection

ASKER = "benchmarks.sides.console_asker"
GOAL_MS = 100.0
LOADED_WITHIN_S = 600.0
PAGE = 50


def asks_of(now: datetime, ids: Mapping[str, str]) -> dict[str, str]:
    """By a name for people: what is asked for. `ids`: of an action that waits, of a dead one, …"""
    soon = _time(now + timedelta(hours=1))
    day = f"from={_time(now - timedelta(days=1))}&to={_time(now)}&step=10m"
    month = f"from={_time(now - timedelta(days=30))}&to={_time(now)}&step=6h"
    error = ERRORS[-1].replace(" ", "%20")
    return {
        # every page, and the overview
        "me": "/v1/me",
        "installations": "/v1/installations",
        "health": "/health",
        "openapi": "/openapi.json",
        "figures": "/v1/figures",
        "is anything there": "/v1/actions?limit=1",
        "overdue now": f"/v1/actions?state=active&due_before={_time(now)}&limit=8",
        "due within the hour": f"/v1/actions?state=active&due_before={soon}&limit=8",
        "paused, of which there are none": "/v1/actions?state=paused&limit=8",
        "history, a day": f"/v1/history?{day}",
        "history of a queue, 30 days": f"/v1/history?{month}&queue=mail",
        # actions
        "actions": f"/v1/actions?limit={PAGE}",
        "actions, from the middle": f"/v1/actions?limit={PAGE}&after={ids['cursor']}",
        "actions by id": f"/v1/actions?id_prefix=order-mail&limit={PAGE}",
        "actions by queue": f"/v1/actions?queue=mail&limit={PAGE}",
        "actions by a queue without any": f"/v1/actions?queue=none&limit={PAGE}",
        "actions by label": f"/v1/actions?label=team%3Dsearch&limit={PAGE}",
        "actions by a label without any": f"/v1/actions?label=team%3Dnone&limit={PAGE}",
        "actions by function": f"/v1/actions?function=fail&limit={PAGE}",
        "actions by argument": f"/v1/actions?argument=order%3D17&limit={PAGE}",
        "actions by an argument that all have": f"/v1/actions?argument=customer%3D17&limit={PAGE}",
        "actions by error": f"/v1/actions?error_contains={error}&limit={PAGE}",
        "dead": f"/v1/actions?state=dead&limit={PAGE}",
        "dead by error": f"/v1/actions?state=dead&error_contains={error}&limit={PAGE}",
        "cancelled, of which there are none": f"/v1/actions?state=cancelled&limit={PAGE}",
        "count of a queue": "/v1/actions:count?queue=mail&state=active&limit=10000",
        "count of paused": "/v1/actions:count?state=paused&limit=10000",
        "count by a label without any": "/v1/actions:count?label=team%3Dnone&limit=10000",
        "count of dead": "/v1/actions:count?state=dead&limit=10000",
        # one action
        "an action": f"/v1/actions/{ids['waits']}",
        "its attempts": f"/v1/actions/{ids['dead']}/attempts?limit=100",
        "why it waits": f"/v1/actions/{ids['waits']}/why",
        "preview of a schedule": "/v1/preview?cron=30%202%20*%20*%20*&count=5",
        # the other views
        "schedules": f"/v1/schedules?limit={PAGE}",
        "schedules, searched": f"/v1/schedules?search=hourly&limit={PAGE}",
        "schedules, searched in vain": f"/v1/schedules?search=nothing&limit={PAGE}",
        "failures": "/v1/failures",
        "failures, the first": "/v1/failures?limit=8",
        "load of a minute": "/v1/load?unit=second&count=60",
        "load of an hour": "/v1/load?unit=minute&count=60",
        "load of three days": "/v1/load?unit=hour&count=72",
        "load of two months": "/v1/load?unit=day&count=60",
        "functions": "/v1/functions",
        "limits": "/v1/limits",
        "workers": "/v1/workers",
        "database": "/v1/database",
        "audit": f"/v1/audit?limit={PAGE}",
        "audit of somebody": f"/v1/audit?actor=nobody&limit={PAGE}",
        # stages, entities, SQL tasks
        "stages": "/v1/stages",
        "parked": f"/v1/parked?limit={PAGE}",
        "entities": f"/v1/entities/{ENTITY_KIND}?limit={PAGE}",
        "an entity": f"/v1/entities/{ENTITY_KIND}/000001",
        "an entity, explained": f"/v1/entities/{ENTITY_KIND}/000001/explain",
        "task tables": "/v1/task-tables",
        "tasks": f"/v1/task-tables/{ids['table']}/tasks?limit={PAGE}",
        "failed tasks": f"/v1/task-tables/{ids['table']}/tasks?state=FAIL&limit={PAGE}",
        "tasks of a group": f"/v1/task-tables/{ids['table']}/tasks?group=mail&limit={PAGE}",
        "a task": f"/v1/task-tables/{ids['table']}/tasks/100",
    }


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


class Asked(NamedTuple):
    """What all questions took, and how much was done meanwhile."""

    took: Mapping[str, list[float]]
    sizes: Mapping[str, int]
    for_s: float
    fired: int


async def measure(stand: Stand) -> AsyncIterator[Result]:
    for pending in stand.scale.console:
        found = await stand.once(lambda pending=pending: ask_all(stand, pending), again=False)  # type: ignore[misc]
        asked = found.value
        rate = asked.fired / asked.for_s
        stand.say(f"console: {rate:.0f} actions a second fired meanwhile")
        for name, values in asked.took.items():
            p50_ms, p95_ms = median(values) * 1000, quantile(values, 0.95) * 1000
            stand.say(f"{name}: p50 {p50_ms:.1f} ms, p95 {p95_ms:.1f} ms")
            yield Result(
                scenario="console",
                measure=f"{name}, {pending:,} pending: p95",
                engine=stand.engine,
                unit="ms",
                value=p95_ms,
                goal=f"<= {GOAL_MS:g} ms",
                met=p95_ms <= GOAL_MS,
                around=[found.around],
                extra={"p50_ms": p50_ms, "bytes": asked.sizes[name], "fired_per_s": rate},
            )


async def ask_all(stand: Stand, pending: int) -> Asked:
    async with stand.database() as url, opened(stand, url) as app:
        began = time.perf_counter()
        tasks = await stock(stand, app, url, pending)
        stand.say(f"{pending:,} pending and the rest after {time.perf_counter() - began:.0f} s")
        await stand.settle(url)
        asks = asks_of(datetime.now(UTC), await ids_of(app, tasks))
        options = {"url": url, "asks": asks, "times": stand.scale.console_times, "tasks": tasks}
        async with (
            gnomon_crew(stand, url) as crew,
            crew_of(Program(ASKER, options), size=1, folder=stand.folder) as asker,
        ):
            crew.go()
            await balanced(app, stand.worker_count)
            firing = asyncio.create_task(keep_firing(app, stand.scale.console_rate))
            try:
                before, start = crew.count, time.perf_counter()
                asker.go()
                await asker.performed(stand.scale.console_times * len(asks))
                for_s, fired = time.perf_counter() - start, crew.count - before
            finally:
                firing.cancel()
                await asyncio.gather(firing, return_exceptions=True)
            await asker.stop()
            (word,) = asker.last_words
    return Asked(word["took"], word["sizes"], for_s, fired)


async def ids_of(app: App, tasks: Mapping[str, str]) -> dict[str, str]:
    """Names that the questions need."""
    page = await app.scheduler.list(Selection(id_prefix="order-search"), limit=100)
    dead = await app.scheduler.list(Selection(id_prefix="lost-"), limit=1)
    settings = load_settings(flags=tasks, environ={})
    async with open_task_rows(settings, app.env) as tables:
        (table,) = tables
    return {
        "cursor": page.next or "",
        "waits": page.actions[0].meta.id,
        "dead": dead.actions[0].meta.id,
        "table": table,
    }


async def keep_firing(app: App, rate: int) -> None:
    """Create at this rate, due at once, until cancelled."""
    each = max(1, int(rate * CREATE_EVERY_S))
    began = time.monotonic()
    for number in itertools.count():
        await asyncio.sleep(max(0.0, began + number * each / rate - time.monotonic()))
        await create_all(app, requests(f"steady{number}", [None] * each))
