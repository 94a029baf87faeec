"""Moving rows in SQLite from the incoming to the processing queue.

There are no dead rows and one writer at a time, so marks are not needed: every look is at all rows.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from gnomon.contracts.store import HeldShard, Lane, MoveResult
from gnomon.stores.sqlite.queries import SQL, fetch, fetch_one
from gnomon.stores.sqlite.results import Parameters
from gnomon.stores.sqlite.rows import micros, moment

Connection = sqlite3.Connection

ALWAYS_US = 2**63 - 1
EVER_SINCE = (-ALWAYS_US, b"")
OVERDUE_US = 1_000_000  # a helper leaves younger rows to the owner


def move_held(
    connection: Connection,
    holdings: Sequence[HeldShard],
    limit: int,
    now: datetime,
) -> MoveResult:
    """Move rows of shards whose lease is the given one."""
    filled = filled_shards(connection, [holding.shard for holding in holdings])
    return _move_heads(
        connection,
        [
            _head(holding.shard, limit, lease_guid=holding.lease_guid.bytes)
            for holding in holdings
            if holding.shard in filled
        ],
        now,
    )


def move_unheld(
    connection: Connection, shards: Sequence[int], limit: int, now: datetime, *, silent_us: int
) -> MoveResult:
    """Move rows of shards that are free, or whose owner keeps silent."""
    since = {"silent_since": micros(now) - silent_us, "created_before": micros(now) - OVERDUE_US}
    heads = [_head(shard, limit, **since) for shard in sorted(filled_shards(connection, shards))]
    return msgspec.structs.replace(_move_heads(connection, heads, now), marks={})


def move_newest(
    connection: Connection,
    holdings: Sequence[HeldShard],
    limit: int,
    now: datetime,
    *,
    room: Mapping[str, int],
) -> MoveResult:
    """Move what is due among the newest rows of shards whose lease is the given one, as far as
    there is room."""
    lanes: dict[Lane, datetime] = {}
    count, left = 0, sum(room.values())
    terms = {"limit": limit, "now": micros(now), "queues": json.dumps(list(room))}
    for held in holdings:
        if left <= 0:
            break
        wanted = terms | {"shard": held.shard, "lease_guid": held.lease_guid.bytes, "room": left}
        for row in fetch(connection, "move_newest", wanted):
            last_at, first = row["created_at"], (row["created_at"], row["first_guid"])
            rows = rows_until(held.shard, last_at, row["guid"], first=first)
            lanes |= moved_lanes(connection, rows)
            count += move_rows(connection, rows)
            left -= row["count"]
    return MoveResult(count=count, lanes=lanes, marks={}, more=False, now=now)


def is_mixed(connection: Connection, shards: Sequence[int], limit: int) -> bool:
    """Whether the oldest rows are of several queues or priorities."""
    kinds: set[tuple[str, int]] = set()
    for shard in shards:
        kinds |= set(connection.execute(SQL["is_mixed"], {"shard": shard, "limit": limit}))
        if len(kinds) > 1:
            return True
    return False


def _head(shard: int, limit: int, **fence: object) -> Parameters:
    """The parameters of `move_head`: with a lease guid for its owner, without one for a helper."""
    anything = {"lease_guid": None, "silent_since": None, "created_before": ALWAYS_US}
    return {"shard": shard, "limit": limit, **anything, **fence}


def _move_heads(
    connection: Connection,
    heads: Sequence[Parameters],
    now: datetime,
) -> MoveResult:
    """Move the oldest rows of shards, as far as the fence lets them go."""
    lanes: dict[Lane, datetime] = {}
    marks: dict[int, datetime] = {}
    count = 0
    more = False
    for wanted in heads:
        last = fetch_one(connection, "move_head", wanted)
        if last is None:
            continue
        shard, last_at = wanted["shard"], last["created_at"]
        rows = rows_until(shard, last["created_at"], last["guid"])
        lanes |= moved_lanes(connection, rows)
        count += move_rows(connection, rows)
        marks[shard] = moment(last_at)
        more = more or last["count"] == wanted["limit"]
    return MoveResult(count=count, lanes=lanes, marks=marks, more=more, now=now)


def rows_until(
    shard: int, last_at: int, last_guid: bytes, *, first: tuple[int, bytes] = EVER_SINCE
) -> Parameters:
    """The rows of a shard up to this one."""
    first_at, first_guid = first
    return {
        "shard": shard,
        "first_at": first_at,
        "first_guid": first_guid,
        "last_at": last_at,
        "last_guid": last_guid,
    }


def moved_lanes(connection: Connection, rows: Parameters) -> dict[Lane, datetime]:
    return {
        Lane(rows["shard"], row["queue"], row["priority"]): moment(row["earliest"])
        for row in fetch(connection, "move_lanes", rows)
    }


def move_rows(connection: Connection, rows: Parameters) -> int:
    """Into the one queue and out of the other; rows of old generations only out."""
    moved: int = connection.execute(SQL["move_insert"], rows).rowcount
    connection.execute(SQL["move_delete"], rows)
    return moved


def filled_shards(connection: Connection, shards: Sequence[int]) -> frozenset[int]:
    """Those that have incoming rows."""
    filled = fetch(connection, "poll", {"shards": json.dumps(list(shards))})
    return frozenset(row["shard"] for row in filled)
