"""Beginning what arrived in SQLite, in place, inside a write transaction."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

import msgspec

from gnomon.contracts.store import (
    ArrivalResult,
    BeginRequest,
    BegunAttempt,
    HeldShard,
    Lane,
    MoveResult,
)
from gnomon.model.action import Status
from gnomon.stores.sqlite.begin import SPECS, BeginTerms, begin_lanes, derive_attempt_ids
from gnomon.stores.sqlite.move import move_newest, move_rows, moved_lanes, rows_until
from gnomon.stores.sqlite.queries import SQL
from gnomon.stores.sqlite.results import Parameters
from gnomon.stores.sqlite.rows import moment, moment_or_none

Connection = sqlite3.Connection


class ShardHead(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The oldest arrivals of a shard, in the order of `move_and_begin_heads`."""

    shard: int
    count: int
    last: tuple[int, UUID]


class FirstRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An arrival that was never attempted, in the order of `move_and_begin_due`."""

    shard: int
    queue: str
    priority: int
    guid: UUID
    scheduled_at: int
    id: str
    timeout_us: int
    occurrence_no: int
    occurrence_at: int
    expires_at: int | None
    spec: str
    series: UUID | None


_HEADS = msgspec.json.Decoder(list[ShardHead])
_FIRST_ROWS = msgspec.json.Decoder(list[FirstRow])


class Arrivals(NamedTuple):
    """What was moved and begun. The attempts are made of their rows by whoever asked, not by the
    thread that writes: others wait for that."""

    moved: MoveResult
    first: Sequence[tuple[FirstRow, UUID]]  # with their attempt ids
    begun: Sequence[BegunAttempt]  # the long way
    now: datetime

    def result(self) -> ArrivalResult:
        begun = [_first_attempt(row, attempt_id, self.now) for row, attempt_id in self.first]
        return ArrivalResult(moved=self.moved, begun=[*begun, *self.begun])


def move_and_begin(
    connection: Connection,
    holdings: Sequence[HeldShard],
    limit: int,
    room: Mapping[str, int],
    terms: BeginTerms,
    *,
    newest: bool,
) -> Arrivals:
    """What was never attempted and is due begins as it is moved; the rest one step after the other:
    it is not the only thing due, so a lane is begun in its order."""
    left = dict(room)
    if newest:
        moved = move_newest(connection, holdings, limit, terms.now, room=room)
        first: list[tuple[FirstRow, UUID]] = []
    else:
        moved, first = _move_oldest(connection, holdings, limit, left, terms)
    begun: list[BegunAttempt] = []
    leases = {holding.shard: holding.lease_guid for holding in holdings}
    lanes = dict(moved.lanes)
    for lane in sorted(moved.lanes, key=lambda lane: lane.priority):
        if moved.lanes[lane] > terms.now or left.get(lane.queue, 0) <= 0:
            continue
        demand = BeginRequest(lane=lane, lease_guid=leases[lane.shard], limit=left[lane.queue])
        result = begin_lanes(connection, [demand], terms)
        begun += result.begun
        left[lane.queue] -= len(result.begun)
        rest = result.refused.get(lane, result.next_due[lane])
        lanes.pop(lane) if rest is None else lanes.update({lane: rest})
    return Arrivals(msgspec.structs.replace(moved, lanes=lanes), first, begun, terms.now)


def _move_oldest(
    connection: Connection,
    holdings: Sequence[HeldShard],
    limit: int,
    left: dict[str, int],
    terms: BeginTerms,
) -> tuple[MoveResult, list[tuple[FirstRow, UUID]]]:
    """Of each shard: begin what can be begun in place, as far as there is room `left`, and move the
    others."""
    heads = _heads(connection, holdings, limit)
    lanes: dict[Lane, datetime] = {}
    marks = {head.shard: moment(head.last[0]) for head in heads}
    first: list[tuple[FirstRow, UUID]] = []
    count = 0
    if heads:
        first = _begin_in_place(connection, heads, left, terms)
        begun = Counter(row.shard for row, _ in first)
        whole = [head for head in heads if begun[head.shard] == head.count]
        connection.execute(SQL["move_and_begin_delete"], _ends(whole))
        count = len(first)
        for head in heads:
            if begun[head.shard] < head.count:
                rows = rows_until(head.shard, head.last[0], head.last[1].bytes)
                lanes |= moved_lanes(connection, rows)
                count += move_rows(connection, rows)
    more = any(head.count == limit for head in heads)
    return MoveResult(count=count, lanes=lanes, marks=marks, more=more, now=terms.now), first


def _heads(
    connection: Connection, holdings: Sequence[HeldShard], limit: int
) -> Sequence[ShardHead]:
    wanted = {
        "shards": json.dumps([holding.shard for holding in holdings]),
        "leases": b"".join(holding.lease_guid.bytes for holding in holdings),
        "limit": limit,
    }
    (text,) = connection.execute(SQL["move_and_begin_heads"], wanted).fetchone()
    return _HEADS.decode(text)


def _ends(heads: Sequence[ShardHead]) -> Parameters:
    return {
        "ends": json.dumps([(head.shard, head.last[0]) for head in heads]),
        "guids": b"".join(head.last[1].bytes for head in heads),
    }


def _begin_in_place(
    connection: Connection, heads: Sequence[ShardHead], left: dict[str, int], terms: BeginTerms
) -> list[tuple[FirstRow, UUID]]:
    """Put what is due of these incoming rows into the queue as running. The lease was checked when
    they were found."""
    (text,) = connection.execute(
        SQL["move_and_begin_due"], {**_ends(heads), "now": terms.now_us}
    ).fetchone()
    chosen: dict[tuple[str, int], list[FirstRow]] = {}
    for row in sorted(_FIRST_ROWS.decode(text), key=lambda row: row.priority):
        room = left.get(row.queue, 0)
        if room > 0:
            left[row.queue] = room - 1
            chosen.setdefault((row.queue, row.priority), []).append(row)
    begun: list[tuple[FirstRow, UUID]] = []
    for (queue, priority), rows in chosen.items():
        attempt_ids, packed = derive_attempt_ids(terms.first_half, [row.guid for row in rows])
        stamp = {
            "told": json.dumps([row.shard << 40 | row.timeout_us for row in rows]),
            "packed": packed,
            "queue": queue,
            "priority": priority,
            "now": terms.now_us,
            "window_us": terms.window_us,
            "grace_us": terms.grace_us,
            "owner": terms.owner,
        }
        connection.execute(SQL["move_and_begin_stamp"], stamp)
        begun += zip(rows, attempt_ids, strict=True)
    return begun


def _first_attempt(row: FirstRow, attempt_id: UUID, began_at: datetime) -> BegunAttempt:
    due = moment(row.scheduled_at)
    is_planned = row.occurrence_at == row.scheduled_at  # as most are
    status = Status(
        scheduled_at=due,
        occurrence_no=row.occurrence_no,
        occurrence_at=due if is_planned else moment(row.occurrence_at),
        expires_at=moment_or_none(row.expires_at),
        attempts=1,
    )
    spec = SPECS.read(row.spec)
    deadline = began_at + timedelta(0, 0, row.timeout_us)
    return BegunAttempt(
        row.shard, row.id, row.guid, attempt_id, spec, status, due, began_at, deadline, row.series
    )
