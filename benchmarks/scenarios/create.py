"""`create`: single calls beside the rival's, bulk beside a bare insert of the same rows, and by SQL
beside a plain INSERT into the one table that people write themselves."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import AsyncIterator, Sequence
from statistics import median
from typing import Any

import asyncpg

from benchmarks.report import Result
from benchmarks.sides.gnomon import create_all, opened, requests
from benchmarks.sides.rivals import rival_of
from benchmarks.stand import Stand, progress

TABLES = ("scheduled_action", "incoming_queue")
FLOOR_GOAL = 0.5
ROUNDS_MIN = 3  # they are short
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
    "many": "SELECT count(*) FROM {schema}.schedule_many((SELECT array_agg(jsonb_build_object("
    f"'task_type', 'http', 'payload', {_PAYLOAD}, 'execute_at', {_AT})) "
    "FROM generate_series(1, {count}) AS n))",
}

Rows = dict[str, tuple[list[str], list[tuple[Any, ...]]]]  # table -> columns, rows


async def measure(stand: Stand) -> AsyncIterator[Result]:
    yield await measure_single(stand)
    yield await measure_bulk(stand)
    if stand.engine == "postgres":
        for result in await measure_sql(stand):
            yield result


async def measure_single(stand: Stand) -> Result:
    count, rival = stand.scale.created_singly, rival_of(stand)
    ours, theirs = [], []
    async with (
        stand.database() as url,
        stand.database() as rival_url,
        opened(stand, url) as app,
        rival.opened(rival_url),
    ):
        for number in range(max(ROUNDS_MIN, stand.scale.rounds)):
            wanted = requests(f"single{number}", [None] * count)
            began = time.perf_counter()
            for request in wanted:
                await app.scheduler.create(request)
            ours.append(count / (time.perf_counter() - began))
            began = time.perf_counter()
            await rival.create_singly(count)
            theirs.append(count / (time.perf_counter() - began))
    return Result(
        scenario="create",
        measure="single calls, one after the other",
        engine=stand.engine,
        value=median(ours),
        unit="actions/s",
        peer=rival.name,
        compared_value=median(theirs),
        ratio=median(ours) / median(theirs),
        extra={"count": count, "rounds": ours, "peer_rounds": theirs},
    )


async def measure_bulk(stand: Stand) -> Result:
    count = stand.scale.created
    ours: list[float] = []
    floors: list[float] = []
    async with (
        stand.database() as url,
        stand.database() as bare_url,
        opened(stand, url) as app,
        opened(stand, bare_url),  # the same tables in both
    ):
        schema = app.settings.database.schema
        for number in range(max(ROUNDS_MIN, stand.scale.rounds)):
            wanted = requests("bulk", [None] * count)
            await stand.settle(url)
            began = time.perf_counter()
            await create_all(app, wanted)
            ours.append(count / (time.perf_counter() - began))
            await stand.settle(url)
            floors.append(count / await bare_insert(stand, url, bare_url, schema))
            progress(f"create round {number + 1}: {ours[-1]:,.0f}/s, bare {floors[-1]:,.0f}/s")
    ratio = median(ours) / median(floors)
    return Result(
        scenario="create",
        measure=f"bulk, {count:,} in one call",
        engine=stand.engine,
        value=median(ours),
        unit="actions/s",
        floor="bare insert of the same rows",
        compared_value=median(floors),
        ratio=ratio,
        goal=f">= {FLOOR_GOAL:g} x the floor" if stand.engine == "postgres" else None,
        met=ratio >= FLOOR_GOAL if stand.engine == "postgres" else None,
        extra={"count": count, "rounds": ours, "floor_rounds": floors},
    )


async def measure_sql(stand: Stand) -> list[Result]:
    """In turn: the plain INSERT, a call for each row, one call for all."""
    count = stand.scale.created_by_sql
    found: dict[str, list[float]] = {name: [] for name in SQL_WAYS}
    async with (
        stand.database() as url,
        opened(stand, url) as app,
    ):
        schema = app.settings.database.schema
        connection = await asyncpg.connect(url)
        try:
            await connection.execute(PLAIN_TABLE)
            for number in range(max(ROUNDS_MIN, stand.scale.rounds)):
                for name, text in SQL_WAYS.items():
                    await stand.settle(url)
                    began = time.perf_counter()
                    await connection.execute(text.format(schema=schema, count=count), timeout=600)
                    found[name].append((time.perf_counter() - began) / count * 1e6)
                shown = ", ".join(f"{name} {times[-1]:.1f} µs" for name, times in found.items())
                progress(f"create by SQL, round {number + 1}: {shown}")
        finally:
            await connection.close()
    plain = median(found["plain"])
    return [
        Result(
            scenario="create",
            measure=f"by SQL, {count:,} {what} in one statement",
            engine=stand.engine,
            value=median(found[name]),
            unit="µs/action",
            floor="plain INSERT into a table of tasks",
            compared_value=plain,
            ratio=median(found[name]) / plain,
            goal=f"<= {goal:g} x the plain INSERT",
            met=median(found[name]) / plain <= goal,
            extra={"count": count, "rounds": found[name], "floor_rounds": found["plain"]},
        )
        for name, what, goal in (
            ("single", "calls of schedule", SINGLE_SQL_GOAL),
            ("many", "by schedule_many", MANY_SQL_GOAL),
        )
    ]


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
