"""Loads actions by the million, straight into the tables, as if created and moved long ago.

One action is created and moved by the product itself; the others are copies of its rows (of a
pending one in `scheduled_action` and in `processing_queue`), with ids, guids, shards and due times
of their own. So the loader knows four column names and nothing else of the layout. The copies'
specs carry the first one's start time, which nobody reads while they wait; they are due in a day at
the earliest.
"""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import asyncpg
import msgspec

from benchmarks.sides.gnomon import NOOP, held
from gnomon.app import App
from gnomon.clock import uuid7
from gnomon.model.ids import shard_of
from gnomon.scheduler import Request

CHUNK = 500_000
SOONEST = timedelta(days=1)
SPREAD = timedelta(days=30)
OWN_COLUMNS = {  # what a copy does not take from the first one -> column of the list of copies
    "shard_id": "shard_id",
    "id": "id",
    "guid": "guid",
    "scheduled_at": "scheduled_at",
    "occurrence_at": "scheduled_at",
}
LIVE = ("scheduled_action", "processing_queue")
FINISHED = ("finished_action",)
Copy = tuple[int, str, UUID, datetime]
Told = Callable[[int], None]  # how many are there by now


def tell_nobody(_loaded: int) -> None: ...


async def load_pending(app: App, url: str, count: int, *, due_at: datetime | None = None) -> None:
    """Add `count` actions to a database where nobody works yet: far in the future, or all due at
    one moment."""
    first = await _first_action(app)
    await load_copies(app, url, first, count, due_at=due_at)


async def load_copies(
    app: App,
    url: str,
    first: UUID,
    count: int,
    *,
    tables: Sequence[str] = LIVE,
    prefix: str = "pending",
    due_at: datetime | None = None,
    told: Told = tell_nobody,
) -> None:
    """Add `count` copies of an action that is there, in these tables."""
    prefix = f"{prefix}-{first.hex[-6:]}"
    copies = _copies(count, app.installation.shard_count, prefix=prefix, due_at=due_at)
    if url.startswith("sqlite"):
        _load_sqlite(Path(url.removeprefix("sqlite:///")), first, copies, tables, told)
    else:
        await _load_postgres(url, app.settings.database.schema, first, copies, tables, told)


async def _first_action(app: App) -> UUID:
    """Create one far-future action and move it, holding its shard for a moment."""
    at = datetime.now(UTC) + SOONEST + SPREAD
    name = f"pending-first-{app.env.entropy.token()}"
    spec = msgspec.structs.replace(NOOP, start_at=at)
    meta = (await app.scheduler.create(Request(id=name, spec=spec))).action.meta
    async with held(app, [meta.shard]) as holdings:
        await app.store.work.move(holdings, limit=1_000)
    return meta.guid


def _copies(
    count: int, shard_count: int, *, prefix: str, due_at: datetime | None
) -> Iterator[Copy]:
    soonest = datetime.now(UTC) + SOONEST
    now_ms = time.time_ns() // 1_000_000
    spread_s = SPREAD.total_seconds()
    for number in range(count):
        name = f"{prefix}-{number:08d}"
        at = due_at or soonest + timedelta(seconds=random.random() * spread_s)
        yield shard_of(name, shard_count), name, uuid7(now_ms, os.urandom(10)), at


def _chunks(copies: Iterator[Copy]) -> Iterator[list[Copy]]:
    chunk: list[Copy] = []
    for copy in copies:
        chunk.append(copy)
        if len(chunk) == CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _insertion(table: str, columns: Iterable[str], *, list_name: str, guid_mark: str) -> str:
    """One INSERT that makes a row of the table for every copy."""
    names = list(columns)
    values = [f"c.{OWN_COLUMNS[n]}" if n in OWN_COLUMNS else f"f.{n}" for n in names]
    return (
        f"INSERT INTO {table} ({', '.join(names)}) SELECT {', '.join(values)} "
        f"FROM {list_name} AS c, {table} AS f WHERE f.guid = {guid_mark}"
    )


async def _load_postgres(
    dsn: str, schema: str, first: UUID, copies: Iterator[Copy], tables: Sequence[str], told: Told
) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(
            "CREATE TEMPORARY TABLE copy_list "
            "(shard_id int, id text, guid uuid, scheduled_at timestamptz)"
        )
        await connection.execute("SET synchronous_commit = off")  # for the loading only
        loaded = 0
        for chunk in _chunks(copies):
            await connection.copy_records_to_table("copy_list", records=chunk)
            for table in tables:
                names = await _column_names(connection, schema, table)
                text = _insertion(
                    f'"{schema}".{table}', names, list_name="copy_list", guid_mark=f"'{first}'"
                )
                await connection.execute(text, timeout=600)
            await connection.execute("TRUNCATE copy_list")
            loaded += len(chunk)
            told(loaded)
    finally:
        await connection.close()


async def _column_names(connection: asyncpg.Connection, schema: str, table: str) -> list[str]:
    rows = await connection.fetch(
        "SELECT column_name FROM information_schema.columns "
        "WHERE table_schema = $1 AND table_name = $2",
        schema,
        table,
    )
    return [row["column_name"] for row in rows]


def _load_sqlite(
    path: Path, first: UUID, copies: Iterator[Copy], tables: Sequence[str], told: Told
) -> None:
    connection = sqlite3.connect(path, isolation_level=None, timeout=60)
    try:
        connection.execute("PRAGMA synchronous = OFF")  # of this connection, for the loading only
        connection.execute("PRAGMA cache_size = -200000")
        connection.execute(
            "CREATE TEMPORARY TABLE copy_list "
            "(shard_id INTEGER, id TEXT, guid BLOB, scheduled_at INTEGER)"
        )
        loaded = 0
        for chunk in _chunks(copies):
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(
                "INSERT INTO copy_list VALUES (?, ?, ?, ?)",
                [(s, name, g.bytes, int(at.timestamp() * 1_000_000)) for s, name, g, at in chunk],
            )
            for table in tables:
                names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
                # In the order of the main index: a million random inserts into a tree are slow.
                order = " ORDER BY 1, 2" if table == "processing_queue" else " ORDER BY c.id"
                text = _insertion(table, names, list_name="temp.copy_list", guid_mark="?")
                connection.execute(text + order, (first.bytes,))
            connection.execute("DELETE FROM copy_list")
            connection.execute("COMMIT")
            loaded += len(chunk)
            told(loaded)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("ANALYZE")
    finally:
        connection.close()
