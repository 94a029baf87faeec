"""`campaign`: very many actions are due at one moment, and cancelled before it. Do others notice?

They are cancelled by SQL, one after the other, in transactions of some thousands. When the moment
comes a stream of new actions goes on as before; the same stream over an empty store is the floor.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import asyncpg

from benchmarks.loader import load_pending
from benchmarks.metering import Meter
from benchmarks.processes import Crew
from benchmarks.report import Compared, Result, percentiles
from benchmarks.sides.gnomon import balanced, create_all, gnomon_crew, opened, requests
from benchmarks.stand import Stand
from gnomon.app import App

PER_S = 10
CHUNK = 5_000
CANCELLERS = 2
CANCELLED_PER_S = 3_500  # pessimistic: all are cancelled a while before their moment
BEFORE_S = 60.0  # that while
LEAD_S = 10.0  # so long before the moment the stream begins
GOAL_MS = 100.0
SMALL = 1_000  # rows that may be left
CANCEL = """
SELECT count("{0}".cancel(a.id))
FROM (
    SELECT s.id FROM "{0}".scheduled_action AS s
    WHERE s.id LIKE 'pending-%' AND s.shard_id % $2::int = $3::int
    LIMIT $1
) AS a
"""


async def measure(stand: Stand) -> AsyncIterator[Result]:
    if stand.engine != "postgres":
        return
    found = await stand.once(lambda: measure_cancelled(stand), again=False)
    found.value.around = [found.around]
    yield found.value


async def measure_cancelled(stand: Stand) -> Result:
    count, for_s = stand.scale.campaign, stand.scale.campaign_for_s
    lead_s = min(LEAD_S, for_s / 4)
    before_s = min(BEFORE_S, for_s * 1.5)
    async with stand.database() as url, opened(stand, url) as app:
        ahead_s = count / CANCELLED_PER_S + count / 20_000 + before_s
        moment = datetime.now(UTC) + timedelta(seconds=ahead_s)
        await load_pending(app, url, count, due_at=moment)
        async with gnomon_crew(stand, url, timed=True) as crew:
            crew.go()
            await balanced(app, stand.worker_count)
            took_s = await _cancel_all(app, url)
            stand.say(f"{count:,} cancelled in {took_s:.0f} s, {_until(moment):.0f} s to go")
            await _stream(app, crew, "quiet", for_s / 2)
            await asyncio.sleep(_until(moment) - lead_s)
            meter = Meter(stand, crew.pids)
            await meter.begin()
            await _stream(app, crew, "stream", for_s)
            cost = await meter.end(int(for_s * PER_S))
            left = await _rows(app, url)
    ours, floor = _late(crew, "stream"), _late(crew, "quiet")
    stand.say(f"campaign: {ours}, quiet {floor}, rows left {left}")
    return Result(
        scenario="campaign",
        measure=f"{count:,} cancelled before their moment, {PER_S} new ones per second: p99",
        engine=stand.engine,
        value=ours["p99_ms"],
        unit="ms",
        cost=cost,
        compared=[
            Compared(
                name="the same stream before the moment",
                kind="before",
                value=floor["p99_ms"],
                ratio=floor["p99_ms"] / ours["p99_ms"],
                extra=floor,
            )
        ],
        goal=f"<= {GOAL_MS:g} ms, tables small again",
        met=ours["p99_ms"] <= GOAL_MS and left <= SMALL,
        extra={**ours, "rows_left": left, "cancelled_in_s": took_s},
    )


async def _cancel_all(app: App, url: str) -> float:
    began = time.perf_counter()
    await asyncio.gather(*(_cancel_part(app, url, part) for part in range(CANCELLERS)))
    return time.perf_counter() - began


async def _cancel_part(app: App, url: str, part: int) -> None:
    connection = await asyncpg.connect(url)
    try:
        text = CANCEL.format(app.settings.database.schema)
        while await connection.fetchval(text, CHUNK, CANCELLERS, part):
            await asyncio.sleep(0)
    finally:
        await connection.close()


async def _stream(app: App, crew: Crew, prefix: str, for_s: float) -> None:
    """New actions, due at once, at a steady rate, until all are performed."""
    count, before = int(for_s * PER_S), crew.count
    began = time.monotonic()
    for number, request in enumerate(requests(prefix, [None] * count)):
        await asyncio.sleep(began + number / PER_S - time.monotonic())
        await create_all(app, [request])
    await crew.performed(before + count)


def _late(crew: Crew, prefix: str) -> dict[str, float]:
    """From the due time to the call of the function."""
    return percentiles([c.late_s for c in crew.calls if c.name.startswith(f"{prefix}-")])


async def _rows(app: App, url: str) -> int:
    """What is left in the queues and among the living."""
    connection = await asyncpg.connect(url)
    schema = app.settings.database.schema
    try:
        total = 0
        for table in ("scheduled_action", "processing_queue", "incoming_queue"):
            total += await connection.fetchval(f'SELECT count(*) FROM "{schema}".{table}')
        return total
    finally:
        await connection.close()


def _until(moment: datetime) -> float:
    return (moment - datetime.now(UTC)).total_seconds()
