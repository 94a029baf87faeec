"""`create`: single calls beside the peers', bulk beside a bare insert of the same rows, and by SQL
beside a plain INSERT into the one table that people write themselves."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Sequence
from statistics import median
from typing import Any

import asyncpg

from benchmarks.metering import Meter
from benchmarks.peers.peer import Peer
from benchmarks.report import Compared, Result, Sample, median_cost, middle, peer_of
from benchmarks.sides.gnomon import create_all, opened, requests
from benchmarks.stand import Stand

TABLES = ("scheduled_action", "incoming_queue")
FLOOR_GOALS = {"postgres": 0.6, "sqlite": 0.5}
PEER_GOAL = 1.5  # of many callers, beside the best peer
ROUNDS_MIN = 3
WARM = 100  # created first: they pay for plans and connections
SINGLE_SQL_GOAL = 15.0
MANY_SQL_GOAL = 5.0

# What people write when they write a scheduler of their own, with its index.
PLAIN_TABLE = """
CREATE TABLE plain_task (
    id BIGSERIAL PRIMARY KEY, execute_at TIMESTAMP NOT NULL, task_type VARCHAR(50) NOT NULL,
    payload JSONB NOT NULL, status VARCHAR(20) DEFAULT 'pending', attempts INT DEFAULT 0,
    max_attempts INT DEFAULT 3, error_message TEXT, created_at TIMESTAMP DEFAULT NOW(),
    updated_at TIMESTAMP DEFAULT NOW(), completed_at TIMESTAMP
);
CREATE INDEX plain_task_idx ON plain_task (execute_at, status)
    WHERE status IN ('pending', 'processing');
"""
_AT = "now() + interval '1 hour' + n * interval '1 ms'"
_PAYLOAD = (
    "jsonb_build_object('method', 'POST', 'url', 'https://shop.example/thank', "
    "'json', jsonb_build_object('order', n))"
)
SQL_WAYS = {
    "plain": f"INSERT INTO plain_task (execute_at, task_type, payload) "
    f"SELECT {_AT}, 'http', {_PAYLOAD} FROM generate_series(1, {{count}}) AS n",
    "single": f"SELECT count({{schema}}.schedule('http', {_PAYLOAD}, {_AT})) "
    "FROM generate_series(1, {count}) AS n",
    "many": "SELECT count(*) FROM (SELECT {schema}.schedule_many("
    f"'http', array_agg({_PAYLOAD}), array_agg({_AT})) "
    "FROM generate_series(1, {count}) AS n) AS made",
}

Rows = dict[str, tuple[list[str], list[tuple[Any, ...]]]]  # table -> columns, rows


async def measure(stand: Stand) -> AsyncIterator[Result]:
    yield await measure_single(stand, callers=1)
    yield await measure_single(stand, callers=stand.scale.callers)
    yield await measure_bulk(stand)
    if stand.engine == "postgres":
        for result in await measure_sql(stand):
            yield result


async def measure_single(stand: Stand, *, callers: int) -> Result:
    """One call each, by so many callers in one process."""
    count = stand.scale.created_singly

    async def one() -> tuple[Sample, dict[Peer, Sample]]:
        ours = await create_by_gnomon(stand, count, callers)
        theirs = await stand.beside(lambda peer: create_by_peer(stand, peer, count, callers))
        return ours, theirs

    rounds = await stand.rounds(one, count=rounds_of(stand))
    ours = [each.value[0] for each in rounds]
    value = middle(ours)
    how = "one after the other" if callers == 1 else f"{callers} callers at a time"
    compared = [
        peer_of(peer.name, [each.value[1][peer] for each in rounds], value)
        for peer in stand.peers
        if all(peer in each.value[1] for each in rounds)
    ]
    has_goal = callers > 1 and bool(compared)
    stand.say(
        f"create, {how}: {value:,.0f}/s; " + ", ".join(f"{c.name} {c.value:,.0f}" for c in compared)
    )
    return Result(
        scenario="create",
        measure=f"single calls, {how}",
        engine=stand.engine,
        unit="actions/s",
        value=value,
        rounds=[sample.value for sample in ours],
        cost=median_cost(sample.cost for sample in ours),
        compared=compared,
        goal=f">= {PEER_GOAL:g} x the best peer" if has_goal else None,
        met=min(each.ratio for each in compared) >= PEER_GOAL if has_goal else None,
        around=[each.around for each in rounds],
        extra={"count": count},
    )


async def create_by_gnomon(stand: Stand, count: int, callers: int) -> Sample:
    async with stand.database() as url, opened(stand, url) as app:
        await create_all(app, requests("warm", [None] * WARM))
        left = iter(requests("single", [None] * count))

        async def call_on() -> None:
            for request in left:
                await app.scheduler.create(request)

        await stand.settle(url)
        meter = Meter(stand, itself=True)
        await meter.begin()
        began = time.perf_counter()
        await asyncio.gather(*(call_on() for _ in range(callers)))
        rate = count / (time.perf_counter() - began)
        return Sample(rate, await meter.end(count))


async def create_by_peer(stand: Stand, peer: Peer, count: int, callers: int) -> Sample:
    async with stand.database() as url, stand.opened_peer(peer, url) as side:
        await side.create_singly(WARM, callers=callers)
        await stand.settle(url)
        meter = Meter(stand, [side.client.pid])
        await meter.begin()
        used = await side.create_singly(count, callers=callers)
        return Sample(count / used.wall_s, await meter.end(count))


async def measure_bulk(stand: Stand) -> Result:
    count = stand.scale.created

    async def one() -> tuple[Sample, float]:
        async with (
            stand.database() as url,
            stand.database() as bare_url,
            opened(stand, url) as app,
            opened(stand, bare_url),  # the same tables in both
        ):
            await create_all(app, requests("warm", [None] * WARM))
            await bare_insert(stand, url, bare_url, app.settings.database.schema)
            wanted = requests("bulk", [None] * count)
            await stand.settle(url)
            meter = Meter(stand, itself=True)
            await meter.begin()
            began = time.perf_counter()
            await create_all(app, wanted)
            rate = count / (time.perf_counter() - began)
            cost = await meter.end(count)
            await stand.settle(url)
            floor = count / await bare_insert(stand, url, bare_url, app.settings.database.schema)
        stand.say(f"create, bulk: {rate:,.0f}/s, bare {floor:,.0f}/s")
        return Sample(rate, cost), floor

    rounds = await stand.rounds(one, count=rounds_of(stand))
    ours = [each.value[0] for each in rounds]
    floors = [each.value[1] for each in rounds]
    ratio = middle(ours) / median(floors)
    return Result(
        scenario="create",
        measure=f"bulk, {count:,} in one call",
        engine=stand.engine,
        unit="actions/s",
        value=middle(ours),
        rounds=[sample.value for sample in ours],
        cost=median_cost(sample.cost for sample in ours),
        compared=[
            Compared(
                name="bare insert of the same rows",
                kind="floor",
                value=median(floors),
                ratio=ratio,
                rounds=floors,
            )
        ],
        goal=f">= {FLOOR_GOALS[stand.engine]:g} x the floor",
        met=ratio >= FLOOR_GOALS[stand.engine],
        around=[each.around for each in rounds],
        extra={"count": count},
    )


def rounds_of(stand: Stand) -> int:
    """They are short, so there are some in any case."""
    return max(ROUNDS_MIN, stand.scale.rounds) if stand.scale.repeats else stand.scale.rounds


async def measure_sql(stand: Stand) -> list[Result]:
    """In turn: the plain INSERT, a call for each row, one call for all."""
    count = stand.scale.created_by_sql
    rounds = await stand.rounds(lambda: create_by_sql(stand, count), count=rounds_of(stand))
    found = {name: [each.value[name] for each in rounds] for name in SQL_WAYS}
    plain = middle(found["plain"])
    return [
        Result(
            scenario="create",
            measure=f"by SQL, {count:,} {what} in one statement",
            engine=stand.engine,
            unit="µs/action",
            value=middle(found[name]),
            rounds=[sample.value for sample in found[name]],
            cost=median_cost(sample.cost for sample in found[name]),
            compared=[
                Compared(
                    name="plain INSERT into a table of tasks",
                    kind="floor",
                    value=plain,
                    ratio=middle(found[name]) / plain,
                    rounds=[sample.value for sample in found["plain"]],
                    cost=median_cost(sample.cost for sample in found["plain"]),
                )
            ],
            goal=f"<= {goal:g} x the plain INSERT",
            met=middle(found[name]) / plain <= goal,
            around=[each.around for each in rounds],
            extra={"count": count},
        )
        for name, what, goal in (
            ("single", "calls of schedule", SINGLE_SQL_GOAL),
            ("many", "by schedule_many", MANY_SQL_GOAL),
        )
    ]


async def create_by_sql(stand: Stand, count: int) -> dict[str, Sample]:
    """Microseconds for each action, by each way."""
    found = {}
    async with stand.database() as url, opened(stand, url) as app:
        schema = app.settings.database.schema
        connection = await asyncpg.connect(url)
        try:
            await connection.execute(PLAIN_TABLE)
            for name, text in SQL_WAYS.items():
                await stand.settle(url)
                meter = Meter(stand)
                await meter.begin()
                began = time.perf_counter()
                await connection.execute(text.format(schema=schema, count=count), timeout=600)
                took_us = (time.perf_counter() - began) / count * 1e6
                found[name] = Sample(took_us, await meter.end(count))
        finally:
            await connection.close()
    shown = ", ".join(f"{name} {sample.value:.1f} µs" for name, sample in found.items())
    stand.say(f"create by SQL: {shown}")
    return found


async def bare_insert(stand: Stand, url: str, bare_url: str, schema: str) -> float:
    """Seconds to put the rows of one database into the same tables of another, at the barest.
    Both are empty afterwards."""
    if stand.engine == "sqlite":
        return bare_sqlite(url.removeprefix("sqlite:///"), bare_url.removeprefix("sqlite:///"))
    return await bare_postgres(url, bare_url, schema)


async def bare_postgres(url: str, bare_url: str, schema: str) -> float:
    """The faster of COPY and `unnest`, both tables in one transaction."""
    source, target = await asyncpg.connect(url), await asyncpg.connect(bare_url)
    emptying = "TRUNCATE " + ", ".join(f'"{schema}".{table}' for table in TABLES)
    try:
        rows: Rows = {}
        types: dict[str, list[str]] = {}
        for table in TABLES:
            found = await source.fetch(f'SELECT * FROM "{schema}".{table}')
            rows[table] = (list(found[0].keys()), [tuple(row) for row in found])
            described = await source.fetch(
                "SELECT format_type(atttypid, atttypmod) AS type FROM pg_attribute "
                "WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
                f'"{schema}".{table}',
            )
            types[table] = [row["type"] for row in described]
        copied = await _copied(target, schema, rows)
        await target.execute(emptying)
        unnested = await _unnested(target, schema, rows, types)
        await target.execute(emptying)
        await source.execute(emptying)
        return min(copied, unnested)
    finally:
        await source.close()
        await target.close()


async def _copied(target: asyncpg.Connection[Any], schema: str, rows: Rows) -> float:
    began = time.perf_counter()
    async with target.transaction():
        for table, (names, records) in rows.items():
            await target.copy_records_to_table(
                table, records=records, columns=names, schema_name=schema
            )
    return time.perf_counter() - began


async def _unnested(
    target: asyncpg.Connection[Any], schema: str, rows: Rows, types: dict[str, list[str]]
) -> float:
    texts = {
        table: f'INSERT INTO "{schema}".{table} ({", ".join(names)}) SELECT * FROM unnest('
        + ", ".join(f"${n}::{kind}[]" for n, kind in enumerate(types[table], start=1))
        + ")"
        for table, (names, _) in rows.items()
    }
    arrays = {
        table: [list(column) for column in zip(*r, strict=True)] for table, (_, r) in rows.items()
    }
    began = time.perf_counter()
    async with target.transaction():
        for table, text in texts.items():
            await target.execute(text, *arrays[table])
    return time.perf_counter() - began


def bare_sqlite(path: str, bare_path: str) -> float:
    """`executemany` of both tables in one durable transaction."""
    source = sqlite3.connect(path)
    target = sqlite3.connect(bare_path, isolation_level=None, timeout=60)
    try:
        found: dict[str, Sequence[tuple[Any, ...]]] = {
            table: source.execute(f"SELECT * FROM {table}").fetchall() for table in TABLES
        }
        target.execute("PRAGMA synchronous = FULL")
        began = time.perf_counter()
        target.execute("BEGIN IMMEDIATE")
        for table, rows in found.items():
            marks = ", ".join("?" * len(rows[0]))
            target.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
        target.execute("COMMIT")
        elapsed_s = time.perf_counter() - began
        for table in TABLES:
            source.execute(f"DELETE FROM {table}")
            target.execute(f"DELETE FROM {table}")
        source.commit()
        return elapsed_s
    finally:
        source.close()
        target.close()
