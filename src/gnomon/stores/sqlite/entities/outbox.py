"""Saves on their way out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

from gnomon.contracts.store import HeldShard
from gnomon.contracts.store.batches import BATCH_BYTES_MAX
from gnomon.contracts.store.entities import StageState
from gnomon.contracts.store.outbox import OutboxRow, SinkBacklog, SinkQueue
from gnomon.model.stage.paths import WHOLE
from gnomon.stores._texts import read_texts, write_texts
from gnomon.stores.sqlite.entities.rows import (
    Connection,
    Parameters,
    encode_ids,
    first_of,
    held_shards,
    state_of,
)
from gnomon.stores.sqlite.entities.verbs import EntityVerbs
from gnomon.stores.sqlite.queries import SQL
from gnomon.stores.sqlite.rows import duration_us, moment
from gnomon.stores.sqlite.verbs import browse, read, write

_NEXT = "\x01"  # less than whatever may follow in a stage's name


class OutboxSave(NamedTuple):
    """What goes out with a save, whoever it goes to."""

    shard: int
    entity_key: str
    n: int
    epoch: int
    version: int
    author: str
    root: UUID
    paths: tuple[str, ...]
    doc: str | None
    state: StageState | None
    key: str
    now_us: int


class SqliteOutbox(EntityVerbs):
    """The `OutboxStore` of this engine."""

    @read
    def waiting_sinks(
        self, connection: Connection, holdings: Sequence[HeldShard]
    ) -> Sequence[SinkQueue]:
        return _waiting_sinks(connection, held_shards(connection, holdings), self._now_us())

    @read
    def due_saves(
        self,
        connection: Connection,
        holdings: Sequence[HeldShard],
        sink: str,
        *,
        limit: int,
        skip: Collection[str] = (),
    ) -> Sequence[OutboxRow]:
        shards, now = held_shards(connection, holdings), self._now_us()
        rows = first_of(
            connection, "due_saves", shards, limit=limit, skip=skip, place=2, sink=sink, now=now
        )
        return _load(connection, sink, [(entity_key, n) for _, n, entity_key in rows])

    @write
    def remove(self, connection: Connection, rows: Sequence[OutboxRow]) -> None:
        connection.executemany(SQL["remove_saves"], [_key(row) for row in rows])

    @write
    def put_off(
        self,
        connection: Connection,
        rows: Sequence[OutboxRow],
        *,
        delay: timedelta,
        error: str,
        counts: bool,
    ) -> frozenset[str]:
        ready_at = self._now_us() + duration_us(delay)
        for row in rows:
            values = _key(row) | {"ready_at": ready_at, "error": error, "counts": int(counts)}
            if connection.execute(SQL["put_off_count"], values).rowcount:
                connection.execute(SQL["put_off"], values)
        return frozenset()

    @write
    def quarantine(self, connection: Connection, row: OutboxRow, *, error: str) -> bool:
        values = _key(row) | {"error": error, "counts": 1}
        if connection.execute(SQL["put_off_count"], values).rowcount:
            connection.execute(SQL["quarantine"], values)
        return True

    @browse
    def backlog(self, connection: Connection) -> Sequence[SinkBacklog]:
        return [
            SinkBacklog(
                sink=sink, count=count, oldest_at=moment(at), error=error, quarantined=quarantined
            )
            for sink, count, at, error, quarantined in connection.execute(SQL["backlog"])
        ]


def _load(connection: Connection, sink: str, keys: Sequence[tuple[str, int]]) -> list[OutboxRow]:
    """Up to the bound: the cursor is lazy."""
    saves: list[OutboxRow] = []
    size = 0
    cursor = connection.execute(SQL["due_saves_load"], {"sink": sink, "keys": encode_ids(keys)})
    for row in cursor:
        saves.append(_outgoing_of(row))
        size += saves[-1].size
        if size >= BATCH_BYTES_MAX:
            break
    cursor.close()
    return saves


def _waiting_sinks(connection: Connection, shards: Sequence[int], now_us: int) -> list[SinkQueue]:
    """The earliest of each sink in all of the shards."""
    times: dict[str, tuple[int, int]] = {}
    for shard in shards:
        wanted: Parameters = {"shard": shard, "sink": ""}
        while row := connection.execute(SQL["waiting_sinks"], wanted).fetchone():
            sink, ready_at, oldest_at = row
            known_ready_at, known_oldest_at = times.get(sink, (ready_at, oldest_at))
            times[sink] = (min(ready_at, known_ready_at), min(oldest_at, known_oldest_at))
            wanted["sink"] = sink + _NEXT
    return [
        SinkQueue(
            sink,
            age=timedelta(microseconds=now_us - oldest_at),
            due_in=timedelta(microseconds=ready_at - now_us),
        )
        for sink, (ready_at, oldest_at) in sorted(times.items())
    ]


def outgoing_rows(save: OutboxSave, sinks: Sequence[str]) -> list[Parameters]:
    """The outbox rows of a save, one for each sink."""
    state = save.state
    row: Parameters = {
        "shard": save.shard,
        "entity_key": save.entity_key,
        "n": save.n,
        "now": save.now_us,
        "epoch": save.epoch,
        "version": save.version,
        "author": save.author,
        "root": save.root.bytes,
        "paths": write_texts(save.paths),
        "key": save.key,
        "state_version": None if state is None else state.version,
        "state_revision": None if state is None else state.revision,
        "state_type": None if state is None else state.type,
        "state_body": None if state is None else state.body,
        "doc": save.doc,
    }
    return [row | {"sink": sink} for sink in sinks]


def _key(row: OutboxRow) -> Parameters:
    return {"entity_key": row.entity_key, "sink": row.sink, "n": row.n}


def _outgoing_of(row: tuple[Any, ...]) -> OutboxRow:
    (
        n, entity_key, sink, shard, epoch, version, root, author, paths, key, attempts, at,
        state_version, *state, doc,
    ) = row  # fmt: skip
    return OutboxRow(
        shard=shard,
        n=n,
        sink=sink,
        entity_key=entity_key,
        epoch=epoch,
        version=version,
        author=author,
        root=UUID(bytes=root),
        paths=read_texts(paths, unreadable=(WHOLE,)),
        doc=doc,
        state=None if state_version is None else state_of(state_version, *state),
        key=key,
        attempts=attempts,
        at=moment(at),
    )
