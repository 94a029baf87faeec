"""The floor of `stages`: the rows that four stages write, by bare batched SQL and nothing else.

Of each entity: out of the feed and into the first queue; then four times the document with its
change note, out of one queue and into the next. Batches and durability are Gnomon's own.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Sequence
from uuid import UUID

import asyncpg
import msgspec

from benchmarks.sides.stage_chain import CHAIN, document
from gnomon.app import sqlite_path
from gnomon.model.ids import shard_of

BATCH = 500
CONNECTIONS = 2
ROOT = UUID(int=7)

_QUEUE = (
    "INSERT INTO gnomon.stage_queue (ready_at, first_at, root, seq, shard_id, depth, attempts, "
    "lane, status, entity_key, stage, reasons) "
    "SELECT now(), now(), $3, 1, u.s, 0, 0, 0, 'ready', u.i, $4, "
    "ARRAY['change v1 by user: everything'] FROM unnest($1::int[], $2::text[]) AS u (s, i)"
)
_FEED = (
    "DELETE FROM gnomon.changed_entity AS f USING unnest($1::int[], $2::text[]) AS u (s, i) "
    "WHERE f.shard_id = u.s AND f.entity_key = u.i"
)
_SAVE = (
    "UPDATE gnomon.entity AS e SET doc = u.d, version = e.version + 1, changed_at = now() "
    "FROM unnest($1::int[], $2::text[], $3::text[]) AS u (s, i, d) "
    "WHERE e.shard_id = u.s AND e.entity_key = u.i"
)
_NOTE = (
    "INSERT INTO gnomon.entity_change (root, at, epoch, version, shard_id, depth, entity_key, "
    "author, paths) SELECT $3, now(), 1, $4, u.s, 1, u.i, 'stage:s1', '[\"s1\"]' "
    "FROM unnest($1::int[], $2::text[]) AS u (s, i)"
)
_GONE = (
    "DELETE FROM gnomon.stage_queue AS q USING unnest($1::int[], $2::text[]) AS u (s, i) "
    "WHERE q.shard_id = u.s AND q.entity_key = u.i AND q.stage = $3"
)


def _documents(numbers: Sequence[int], done: int) -> list[str]:
    return [
        msgspec.json.encode(
            {**document(n), **{f"s{step}": n + step for step in range(1, done + 1)}}
        ).decode()
        for n in numbers
    ]


async def on_postgres(url: str, count: int, shard_count: int) -> float:
    """Seconds for the rows of so many entities `e0`, `e1`, …"""

    async def part(place: int) -> None:
        connection = await asyncpg.connect(url)
        mine = range(place, count, CONNECTIONS)
        for step in range(CHAIN + 1):
            for start in range(0, len(mine), BATCH):
                numbers = mine[start : start + BATCH]
                async with connection.transaction():
                    await _step(connection, numbers, step, shard_count)
        await connection.close()

    began = time.perf_counter()
    await asyncio.gather(*map(part, range(CONNECTIONS)))
    return time.perf_counter() - began


async def _step(
    connection: asyncpg.Connection, numbers: Sequence[int], step: int, shard_count: int
) -> None:
    ids = [f"ad/e{n}" for n in numbers]
    shards = [shard_of(name, shard_count) for name in ids]
    if step == 0:
        await connection.execute(_FEED, shards, ids)
    else:
        await connection.execute(_SAVE, shards, ids, _documents(numbers, step))
        await connection.execute(_NOTE, shards, ids, ROOT, step + 1)
        await connection.execute(_GONE, shards, ids, f"s{step}")
    if step < CHAIN:
        await connection.execute(_QUEUE, shards, ids, ROOT, f"s{step + 1}")


def on_sqlite(url: str, count: int, shard_count: int) -> float:
    """The same on a file."""
    connection = sqlite3.connect(sqlite_path(url), isolation_level=None)
    connection.execute("PRAGMA synchronous = FULL")
    began = time.perf_counter()
    for step in range(CHAIN + 1):
        for start in range(0, count, BATCH):
            connection.execute("BEGIN IMMEDIATE")
            _sqlite_step(connection, range(start, min(count, start + BATCH)), step, shard_count)
            connection.execute("COMMIT")
    took_s = time.perf_counter() - began
    connection.close()
    return took_s


def _sqlite_step(
    connection: sqlite3.Connection, numbers: Sequence[int], step: int, shard_count: int
) -> None:
    keys = [(shard_of(f"ad/e{n}", shard_count), f"ad/e{n}") for n in numbers]
    if step == 0:
        connection.executemany("DELETE FROM changed_entity WHERE ? >= 0 AND entity_key = ?", keys)
    else:
        saved = [
            (text, name) for text, (_, name) in zip(_documents(numbers, step), keys, strict=True)
        ]
        connection.executemany(
            "UPDATE entity SET doc = ?, version = version + 1, changed_at = 1 WHERE entity_key = ?",
            saved,
        )
        connection.executemany(
            "INSERT INTO entity_change (shard_id, entity_key, epoch, version, depth, at, root, "
            "author, paths) "
            f"VALUES (?, ?, 1, {step + 1}, 1, 1, zeroblob(16), 'stage:s1', '[\"s1\"]')",
            keys,
        )
        connection.executemany(
            f"DELETE FROM stage_queue WHERE shard_id = ? AND entity_key = ? AND stage = 's{step}'",
            keys,
        )
    if step < CHAIN:
        connection.executemany(
            "INSERT INTO stage_queue (shard_id, entity_key, stage, lane, status, ready_at, "
            "first_at, seq, depth, root, reasons) "
            f"VALUES (?, ?, 's{step + 1}', 0, 'ready', 1, 1, 1, 0, zeroblob(16), "
            "'[\"change v1 by user: everything\"]')",
            keys,
        )
