"""A process of the floor: the same calls, and the least that any program could write for them.

No lease, no fence, no retry, no history: what it holds nobody may change, and what it has begun is
lost with it. `drain`: each row is begun, called and moved to the finished ones, a shard at a time.
`burst`: each row is looked at when its time has come, by the hundred. `lateness`: each row is begun
when its time has come.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar
from uuid import UUID, uuid4

import asyncpg
import uvloop

from benchmarks.sides.worker import Tally, options
from gnomon.app import sqlite_path

T = TypeVar("T")

AT_ONCE = 2  # connections of each process: one works while the other one's answer is used
LOOKED_AT = 250  # rows, as Gnomon does
PLANNED_AS_MEANT = "SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_seqscan = off"

_BEGIN = """
UPDATE gnomon.incoming_queue AS i
SET attempt_id = gen_random_uuid(), began_at = now(), deadline_at = now() + interval '60 s',
    reserved_until = now() + interval '80 s', owner = 'floor'
FROM gnomon.scheduled_action AS a
WHERE i.shard_id = $1 AND a.guid = i.guid
RETURNING a.id, a.spec
"""
_FINISH = """
WITH gone AS (
    DELETE FROM gnomon.incoming_queue WHERE shard_id = $1 RETURNING guid, attempt_id, began_at
), ended AS (
    DELETE FROM gnomon.scheduled_action AS a USING gone AS g WHERE a.guid = g.guid
    RETURNING a.*, g.attempt_id, g.began_at
)
INSERT INTO gnomon.finished_action (
    shard_id, id, guid, spec, state, queue, priority, keyed, created_at, updated_at, occurrence_no,
    occurrence_at, attempts, succeeded, failed, interrupted, consecutive_failures,
    consecutive_interruptions, occurrence_failures, attempt_id, began_at, finished_at, purge_at
)
SELECT
    shard_id, id, guid, spec, 'done', queue, priority, keyed, created_at, updated_at, occurrence_no,
    occurrence_at, 1, 1, 0, 0, 0, 0, 0, attempt_id, began_at, now(), now() + interval '7 days'
FROM ended
"""
_LOOK = "SELECT guid FROM floor WHERE guid = ANY ($1::uuid[]) AND attempt IS NULL"
_MARK = "UPDATE floor SET attempt = $2 WHERE guid = $1"

Look = Callable[[list[UUID]], Awaitable[Sequence[UUID]]]
Mark = Callable[[UUID], Awaitable[object]]


class Calls:
    """The function that does nothing, as the bench's workers have it."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    async def noop(self, _id: str) -> None:
        self._tally.add()

    async def timed(self, name: str, due: float) -> None:
        self._tally.add_call(due, name)


async def drain(url: str, shards: Sequence[int], calls: Calls) -> None:
    """All rows of these shards, as many shards at a time as there are connections."""
    left = list(shards)

    async def work(connection: asyncpg.Connection[Any]) -> None:
        while left:
            shard = left.pop()
            for row in await connection.fetch(_BEGIN, shard):
                await calls.noop(row["id"])
            await connection.execute(_FINISH, shard)

    await asyncio.gather(*[work(connection) for connection in await connected(url)])


async def connected(url: str) -> list[asyncpg.Connection[Any]]:
    found = [await asyncpg.connect(url) for _ in range(AT_ONCE)]
    for connection in found:
        await connection.execute(PLANNED_AS_MEANT)
    return found


async def until(due: float) -> None:
    """Not before: a timer may ring a little early."""
    while (left_s := due - time.time()) > 0:
        await asyncio.sleep(left_s)


async def burst(looks: Sequence[Look], guids: Sequence[UUID], due: float, calls: Calls) -> None:
    """All rows at their time: a look by the hundred, and the calls."""
    parts = [list(guids[start : start + LOOKED_AT]) for start in range(0, len(guids), LOOKED_AT)]
    await until(due)

    async def work(look: Look) -> None:
        while parts:
            for guid in await look(parts.pop()):
                await calls.timed(str(guid), due)

    await asyncio.gather(*map(work, looks))


async def lateness(mark: Mark, guids: Sequence[UUID], dues: Sequence[float], calls: Calls) -> None:
    """Each row at its own time: one durable write, and the call."""

    async def work(guid: UUID, due: float) -> None:
        await until(due)
        await mark(guid)
        await calls.timed(str(guid), due)

    await asyncio.gather(*map(work, guids, dues))


def mine(given: dict[str, Any], everything: Sequence[T]) -> Sequence[T]:
    """The part of this process."""
    place, count = given["part"]
    return everything[place::count]


async def on_postgres(url: str, given: dict[str, Any], tally: Tally, calls: Calls) -> None:
    connections = await connected(url)
    guids: Sequence[UUID] = []
    if given["does"] != "drain":
        rows = await connections[0].fetch("SELECT guid FROM floor ORDER BY guid")
        guids = mine(given, [row["guid"] for row in rows])

    def look_by(connection: asyncpg.Connection[Any]) -> Look:
        async def look(part: list[UUID]) -> Sequence[UUID]:
            return [row["guid"] for row in await connection.fetch(_LOOK, part)]

        return look

    async def mark(guid: UUID) -> object:
        return await connections[0].execute(_MARK, guid, uuid4())

    await asyncio.to_thread(tally.wait_go)
    match given["does"]:
        case "drain":
            await drain(url, given["shards"], calls)
        case "burst":
            await burst([look_by(each) for each in connections], guids, given["due"], calls)
        case "lateness":
            await lateness(mark, guids, mine(given, given["dues"]), calls)


async def on_sqlite(url: str, given: dict[str, Any], tally: Tally, calls: Calls) -> None:
    connection = sqlite3.connect(sqlite_path(url), isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA synchronous = FULL")
    found = connection.execute("SELECT guid FROM floor ORDER BY guid").fetchall()
    guids = mine(given, [UUID(bytes=guid) for (guid,) in found])

    def look_now(part: list[UUID]) -> list[UUID]:
        marks = ", ".join("?" * len(part))
        query = f"SELECT guid FROM floor WHERE guid IN ({marks}) AND attempt IS NULL"
        return [
            UUID(bytes=found) for (found,) in connection.execute(query, [g.bytes for g in part])
        ]

    async def look(part: list[UUID]) -> Sequence[UUID]:
        return await asyncio.to_thread(look_now, part)

    async def mark(guid: UUID) -> object:
        values = (uuid4().bytes, guid.bytes)
        return await asyncio.to_thread(
            connection.execute, "UPDATE floor SET attempt = ? WHERE guid = ?", values
        )

    await asyncio.to_thread(tally.wait_go)
    if given["does"] == "burst":
        await burst([look], guids, given["due"], calls)
    else:
        await lateness(mark, guids, mine(given, given["dues"]), calls)


async def work(given: dict[str, Any]) -> None:
    tally = Tally()
    calls = Calls(tally)
    place = on_sqlite if given["url"].startswith("sqlite:") else on_postgres
    await place(given["url"], given, tally, calls)
    await asyncio.to_thread(tally.wait_stop)
    tally.bye()


if __name__ == "__main__":
    uvloop.run(work(options()))
