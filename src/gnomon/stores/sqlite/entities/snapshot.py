"""What a batch is about, in memory: read by few statements, changed there, written back by few.

A verb is one write transaction, so nobody else changes what was read until it is written back;
and a batch is worked off in its order, so what comes later sees what came before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from gnomon.contracts.store.entities import StageState, StateWrite
from gnomon.contracts.store.queues import Commit, Enqueue, NewRow
from gnomon.model.ids import author_of
from gnomon.model.stage.queue_merge import READY
from gnomon.stores._texts import write_texts
from gnomon.stores.sqlite.entities.enqueues import enqueued, fresh_row
from gnomon.stores.sqlite.entities.outbox import OutboxSave, outgoing_rows
from gnomon.stores.sqlite.entities.rows import (
    Connection,
    Parameters,
    StoredRow,
    encode_ids,
    has_relay,
    read_rows,
    state_of,
)
from gnomon.stores.sqlite.queries import SQL
from gnomon.stores.sqlite.rows import moment

Key = tuple[str, str]  # entity and stage


class EntityVersions(NamedTuple):
    """A living entity, but for its document."""

    key: str
    epoch: int
    version: int
    saves: int


_VERSIONS = msgspec.json.Decoder(list[EntityVersions])


class CommitSnapshot:
    """The living entities of a batch, their rows, and the states that it asks for."""

    def __init__(
        self, connection: Connection, keys: Sequence[Key], *, now_us: int, seq: int
    ) -> None:
        self.now_us = now_us
        self._now = moment(now_us)
        self._seq = seq  # of rows that are new
        self._connection = connection
        wanted = {"entity_keys": encode_ids({entity_key for entity_key, _ in keys})}
        (versions,) = connection.execute(SQL["load_versions"], wanted).fetchone()
        self.entities = {entity.key: entity for entity in _VERSIONS.decode(versions)}
        self._stored = {
            (row.entity_key, row.stage): row for row in read_rows(connection, "load_rows", wanted)
        }
        self.rows = dict(self._stored)
        self.states = _states(connection, keys)
        self.has_relay = has_relay(connection)
        self._documents: dict[str, str] = {}
        self._published: set[str] = set()
        self._notes: list[tuple[object, ...]] = []
        self._pending: dict[str, list[Parameters]] = {}

    def put_row(self, row: StoredRow) -> None:
        self.rows[row.entity_key, row.stage] = row

    def enqueue(self, enqueue: Enqueue, *, shard: int, entity_key: str) -> NewRow | None:
        """Make an enqueue for an entity that lives; the row if it made a ready one."""
        before = self.rows.get((entity_key, enqueue.stage))
        if before is None and enqueue.is_at_once:  # nearly all
            self.put_row(fresh_row(enqueue, shard, entity_key, self.now_us, self._seq))
            return NewRow(enqueue.stage, self._seq, self._now)
        row = enqueued(
            before, enqueue, shard=shard, entity_key=entity_key, now_us=self.now_us, seq=self._seq
        )
        if row is None:
            return None
        self.put_row(row)
        if before is not None or row.status != READY:
            return None
        return NewRow(row.stage, row.seq, self._now)

    def enqueue_all(
        self, enqueues: Sequence[Enqueue], *, shard: int, entity_key: str
    ) -> tuple[NewRow, ...]:
        """The same with several; a row that two of them met is not all that one says."""
        if len(enqueues) == 1:
            only = self.enqueue(enqueues[0], shard=shard, entity_key=entity_key)
            return () if only is None else (only,)
        made = [self.enqueue(enqueue, shard=shard, entity_key=entity_key) for enqueue in enqueues]
        if len({enqueue.stage for enqueue in enqueues}) < len(enqueues):
            return ()
        return tuple(row for row in made if row is not None)

    def change(self, commit: Commit, doc: str) -> None:
        """Make a new version, and let the shard's owner ask about it if wanted."""
        name, epoch, version, saves = self.entities[commit.entity_key]
        version += 1
        self.entities[name] = EntityVersions(name, epoch, version, saves)
        self._documents[name] = doc
        self._notes.append(
            (
                commit.shard, name, epoch, version, commit.depth, self.now_us, commit.root.bytes,
                author_of(commit.stage), write_texts(commit.paths),
            )
        )  # fmt: skip
        if commit.unrouted:
            self._later(
                "save_changed",
                {
                    "shard": commit.shard,
                    "entity_key": name,
                    "epoch": epoch,
                    "version": version,
                    "now": self.now_us,
                    "seq": self._seq,
                },
            )

    def put_state(self, state: StateWrite, key: Key, *, shard: int) -> None:
        """Store the next version of a state."""
        before = self.states.get(key)
        version = 1 if before is None else before.version + 1
        self.states[key] = state_of(version, state.revision, state.body, state.type)
        row = {
            "shard": shard,
            "entity_key": key[0],
            "stage": key[1],
            "version": version,
            "revision": state.revision,
            "type": state.type,
            "body": state.body,
        }
        self._later("save_state", row)

    def publish(self, save: OutboxSave, sinks: Sequence[str]) -> None:
        """Let a save go out."""
        entity = self.entities[save.entity_key]
        entity = entity._replace(saves=entity.saves + 1)
        self.entities[entity.key] = entity
        self._published.add(entity.key)
        for row in outgoing_rows(save._replace(n=entity.saves), sinks):
            self._later("save_publish", row)

    def _later(self, query: str, row: Parameters) -> None:
        self._pending.setdefault(query, []).append(row)

    def write_back(self) -> None:
        """Write all that was changed, table by table."""
        self._write_entities()
        self._connection.executemany(SQL["save_note"], self._notes)
        self._notes = []
        for query, rows in self._pending.items():
            self._connection.executemany(SQL[query], rows)
        self._pending = {}
        self._write_rows()

    def _write_entities(self) -> None:
        """Each row once: it is wide."""
        saved = [
            (self.entities[name].version, self.entities[name].saves, doc, self.now_us, name)
            for name, doc in self._documents.items()
        ]
        self._connection.executemany(SQL["save_entity"], saved)
        counted = [
            {"entity_key": entity_key, "saves": self.entities[entity_key].saves}
            for entity_key in sorted(self._published - self._documents.keys())
        ]
        self._connection.executemany(SQL["save_count"], counted)
        self._documents, self._published = {}, set()

    def _write_rows(self) -> None:
        touched = [key for key, row in self.rows.items() if self._stored.get(key) is not row]
        touched.sort(key=lambda key: self.rows[key].place())  # each page of the table once
        new = [self.rows[key].values() for key in touched if key not in self._stored]
        changed = [self.rows[key].values_and_key() for key in touched if key in self._stored]
        gone = [row for key, row in self._stored.items() if key not in self.rows]
        gone.sort(key=StoredRow.place)
        removed = [row.key() for row in gone]
        for query, values in (
            ("row_insert", new),
            ("row_update", changed),
            ("row_remove", removed),
        ):
            self._connection.executemany(SQL[query], values)
        self._stored = dict(self.rows)


def _states(connection: Connection, keys: Iterable[Key]) -> dict[Key, StageState]:
    rows = connection.execute(SQL["load_states_of"], {"keys": encode_ids(keys)})
    return {(entity_key, stage): state_of(*state) for entity_key, stage, *state in rows}
