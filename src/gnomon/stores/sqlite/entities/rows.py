"""Rows of entities, queues and states to values and back."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from heapq import merge
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from gnomon.contracts.store import HeldShard
from gnomon.contracts.store.entities import ChangeNote, Entity, StageState
from gnomon.contracts.store.queues import QueueRow, RowStatus, StageLane
from gnomon.model.stage.paths import WHOLE
from gnomon.stores._texts import read_texts
from gnomon.stores.sqlite.queries import SQL
from gnomon.stores.sqlite.rows import moment, moment_or_none

Connection = sqlite3.Connection
Parameters = dict[str, Any]

_ENCODER = msgspec.json.Encoder()


def encode_ids(ids: Iterable[object]) -> str:
    """Many values as one parameter, for `json_each`."""
    return _ENCODER.encode(list(ids)).decode()


class EntityRow(NamedTuple):
    """An entity, in the order of the queries."""

    entity_key: str
    shard_id: int
    epoch: int
    version: int
    changed_at: int
    doc: str | None

    def entity(self) -> Entity:
        return Entity(
            key=self.entity_key,
            shard=self.shard_id,
            epoch=self.epoch,
            version=self.version,
            doc=self.doc,
            changed_at=moment(self.changed_at),
        )


class StoredRow(NamedTuple):
    """A row of a stage's queue, in the order of the queries."""

    entity_key: str
    stage: str
    shard_id: int
    lane: int
    status: str
    ready_at: int | None
    timer_at: int | None
    first_at: int
    seq: int
    attempts: int
    reasons: str
    root: UUID
    depth: int
    error: str | None
    note: str | None

    def key(self) -> tuple[Any, ...]:
        return self[:3]

    def place(self) -> tuple[Any, ...]:
        """In the order of the table."""
        return (self.shard_id, self.entity_key, self.stage)

    def values(self) -> tuple[Any, ...]:
        return (*self[:11], self.root.bytes, *self[12:])

    def values_and_key(self) -> tuple[Any, ...]:
        """In the order of an update."""
        return (*self[3:11], self.root.bytes, *self[12:], *self[:3])

    def queue_row(self) -> QueueRow:
        return QueueRow(
            entity_key=self.entity_key,
            stage=self.stage,
            lane=StageLane(self.lane),
            status=RowStatus(self.status),
            ready_at=moment_or_none(self.ready_at),
            timer_at=moment_or_none(self.timer_at),
            first_at=moment(self.first_at),
            seq=self.seq,
            attempts=self.attempts,
            reasons=read_texts(self.reasons),
            root=self.root,
            depth=self.depth,
            error=self.error,
            note=self.note,
        )


_STORED_ROWS = msgspec.json.Decoder(list[StoredRow])


def read_rows(connection: Connection, query: str, wanted: Parameters) -> list[StoredRow]:
    """The rows of a query that gives them as one JSON text."""
    (text,) = connection.execute(SQL[query], wanted).fetchone()
    return _STORED_ROWS.decode(text)


def state_of(version: int, revision: int, body: bytes, kind: str | None) -> StageState:
    return StageState(version=version, revision=revision, body=body, type=kind)


def note_of(row: tuple[Any, ...]) -> ChangeNote:
    version, paths, author, root, depth, at = row
    return ChangeNote(
        version=version,
        paths=read_texts(paths, unreadable=(WHOLE,)),
        author=author,
        root=UUID(bytes=root),
        depth=depth,
        at=moment(at),
    )


class GoodLeases:
    """Which leases are good, each looked up once in a transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._known: dict[tuple[int, int], bool] = {}

    def holds(self, shard: int, lease_guid: UUID) -> bool:
        key = (shard, lease_guid.int)  # a UUID's own hash is slow
        if key not in self._known:
            wanted = {"shard": shard, "lease_guid": lease_guid.bytes}
            row = self._connection.execute(SQL["holds_lease"], wanted).fetchone()
            self._known[key] = row is not None
        return self._known[key]


def has_relay(connection: Connection) -> bool:
    """Whether the register knows a relay: then every save goes there."""
    (is_known,) = connection.execute(SQL["save_has_relay"]).fetchone()
    return bool(is_known)


def held_shards(connection: Connection, holdings: Sequence[HeldShard]) -> list[int]:
    leases = GoodLeases(connection)
    return [held.shard for held in holdings if leases.holds(held.shard, held.lease_guid)]


def first_of(
    connection: Connection,
    query: str,
    shards: Sequence[int],
    *,
    limit: int,
    skip: Iterable[str] = (),
    place: int = 1,
    until: int | None = None,
    **parameters: object,
) -> list[tuple[Any, ...]]:
    """The first rows of all shards together, in the order of a query that is ordered within each.

    Cursors are lazy: of each shard no more is read than one row beyond what is taken. At `place` is
    the entity, for `skip`; the first that is later than `until` is the last.
    """
    skipped = frozenset(skip)
    cursors = [connection.execute(SQL[query], {**parameters, "shard": shard}) for shard in shards]
    rows: list[tuple[Any, ...]] = []
    for row in merge(*cursors):
        if len(rows) >= limit:
            break
        if not skipped or row[place] not in skipped:
            rows.append(row)
            if until is not None and row[0] > until:
                break
    for cursor in cursors:  # what is open here would be in the way of what is written next
        cursor.close()
    return rows
