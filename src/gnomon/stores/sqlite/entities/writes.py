"""Entities from outside: write, read, states, what is parked, upkeep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import NamedTuple

from gnomon.contracts.store import LOCAL
from gnomon.contracts.store.batches import BATCH_BYTES_MAX, bytes_of
from gnomon.contracts.store.entities import (
    ChangeNote,
    Entity,
    EntityBatch,
    EntityWrite,
    StageState,
    StateWrite,
)
from gnomon.contracts.store.queues import Enqueue
from gnomon.model.ids import save_key
from gnomon.stores._texts import write_texts
from gnomon.stores.entity_audit import audited
from gnomon.stores.entity_pages import end_of
from gnomon.stores.sqlite import verbs
from gnomon.stores.sqlite.entities.outbox import OutboxSave, outgoing_rows
from gnomon.stores.sqlite.entities.rows import (
    Connection,
    EntityRow,
    Parameters,
    encode_ids,
    has_relay,
    note_of,
    state_of,
)
from gnomon.stores.sqlite.entities.snapshot import CommitSnapshot
from gnomon.stores.sqlite.entities.verbs import EntityVerbs, load_entity
from gnomon.stores.sqlite.purge import purge_rows
from gnomon.stores.sqlite.queries import SQL
from gnomon.stores.sqlite.rows import duration_us, moment
from gnomon.stores.sqlite.verbs import write_entry

CHANGES_KEPT_FOR = timedelta(hours=1)
STATES_KEPT_FOR = timedelta(days=7)  # of tombstones
TOMBSTONES_AT_ONCE = 50  # in one transaction; each may keep a state of every stage


class StoredWrite(NamedTuple):
    """A change that was stored; `saves` numbers what goes out with it."""

    epoch: int
    version: int
    saves: int


class SqliteWrites(EntityVerbs):
    """The part of the `EntityStore` that everybody may use."""

    # -- write ------------------------------------------------------------------------------------

    @verbs.write
    def write(
        self, connection: Connection, writes: Sequence[EntityWrite]
    ) -> Sequence[Entity | None]:
        now_us, seq = self._now_us(), self._new_seq()
        answers = [_write(connection, write, now_us, seq) for write in writes]
        _audit_writes(connection, writes, answers, now_us)
        return answers

    # -- read -------------------------------------------------------------------------------------

    @verbs.read
    def get(self, connection: Connection, entity_key: str, *, shard: int) -> Entity | None:
        del shard  # it follows from the key
        return load_entity(connection, entity_key)

    @verbs.read
    def get_many(self, connection: Connection, entity_keys: Mapping[str, int]) -> EntityBatch:
        return _get_many(connection, entity_keys)

    @verbs.browse
    def list(
        self, connection: Connection, *, after: str | None, prefix: str, limit: int
    ) -> Sequence[Entity]:
        wanted: Parameters = {
            "after": after or "",
            "since": max(after or "", prefix),
            "prefix_end": end_of(prefix),
            "limit": limit,
        }
        rows = connection.execute(SQL["list_entities"], wanted)
        return [EntityRow._make(row).entity() for row in rows]

    @verbs.read
    def changes(
        self, connection: Connection, entity_key: str, *, shard: int, limit: int
    ) -> Sequence[ChangeNote]:
        del shard
        wanted = {"entity_key": entity_key, "limit": limit}
        return [note_of(row) for row in connection.execute(SQL["changes"], wanted)]

    # -- states -----------------------------------------------------------------------------------

    @verbs.read
    def state(
        self, connection: Connection, entity_key: str, stage: str, *, shard: int
    ) -> tuple[Entity | None, StageState | None]:
        del shard
        return load_entity(connection, entity_key), _state(connection, entity_key, stage)

    @verbs.write
    def swap_state(  # noqa: PLR0913 - those of the contract, and the connection
        self,
        connection: Connection,
        entity_key: str,
        stage: str,
        *,
        shard: int,
        epoch: int,
        version: int,
        state: StateWrite,
        enqueue: Enqueue | None,
        actor: str = LOCAL,
    ) -> StageState | None:
        key = (entity_key, stage)
        snapshot = CommitSnapshot(connection, [key], now_us=self._now_us(), seq=self._new_seq())
        entity, current = snapshot.entities.get(entity_key), snapshot.states.get(key)
        if entity is None or entity.epoch != epoch:
            return None
        if version != (0 if current is None else current.version):
            return None
        snapshot.put_state(state, key, shard=shard)
        if enqueue is not None:
            snapshot.enqueue(enqueue, shard=shard, entity_key=entity_key)
        snapshot.write_back()
        self._audit(connection, "swap_state", actor, entity_key)
        return snapshot.states[key]

    # -- upkeep -----------------------------------------------------------------------------------

    async def purge(self, *, limit: int) -> int:
        now_us = self._now_us()
        notes = {"changed_before": now_us - duration_us(CHANGES_KEPT_FOR)}
        gone = await purge_rows(self._runner, SQL["purge_changes"], notes, limit=limit)
        deleted_before = now_us - duration_us(STATES_KEPT_FOR)
        emptied = 0
        while emptied < limit:
            tombstones = {
                "deleted_before": deleted_before,
                "limit": min(TOMBSTONES_AT_ONCE, limit - emptied),
            }
            count, states = await self._runner.write(partial(_empty, tombstones=tombstones))
            emptied, gone = emptied + count, gone + states
            if count < tombstones["limit"]:
                break
        return gone


def _get_many(connection: Connection, entity_keys: Mapping[str, int]) -> EntityBatch:
    """Up to the bound: the cursor is lazy."""
    entities: dict[str, Entity] = {}
    left: dict[str, int] = {}
    size = 0
    cursor = connection.execute(SQL["get_many_entities"], {"entity_keys": encode_ids(entity_keys)})
    for place, *row in cursor:
        if size >= BATCH_BYTES_MAX:
            left = dict(list(entity_keys.items())[place:])
            break
        entity = EntityRow._make(row).entity()
        entities[entity.key] = entity
        size += bytes_of(entity.doc)
    cursor.close()
    return EntityBatch(entities, left)


def _empty(connection: Connection, tombstones: Parameters) -> tuple[int, int]:
    """Of how many tombstones how many states went."""
    rows = connection.execute(SQL["purge_tombstones"], tombstones).fetchall()
    gone = 0
    for (entity_key,) in rows:
        gone += connection.execute(SQL["save_drop_states"], {"entity_key": entity_key}).rowcount
        connection.execute(SQL["purge_emptied"], {"entity_key": entity_key})
    return len(rows), gone


def _state(connection: Connection, entity_key: str, stage: str) -> StageState | None:
    wanted = {"entity_key": entity_key, "stage": stage}
    row = connection.execute(SQL["state"], wanted).fetchone()
    return None if row is None else state_of(*row)


def _write(connection: Connection, write: EntityWrite, now_us: int, seq: int) -> Entity | None:
    """One change, with all that follows from it."""
    goes_out = has_relay(connection)
    written = _compare_and_set(connection, write, now_us, counts=goes_out)
    if written is None:
        return None
    epoch, version, _ = written
    row = _change_row(write, written, now_us, seq)
    note = ("shard", "entity_key", "epoch", "version", "depth", "now", "root", "author", "paths")
    connection.execute(SQL["save_note"], [row[name] for name in note])
    if write.doc is None:
        _bury(connection, write, written, now_us)
    else:
        connection.execute(SQL["save_changed"], row)
        if version == 1:
            connection.execute(SQL["save_drop_states"], row)
    if goes_out:
        _put_outgoing(connection, _save_of(write, written, now_us), "")
    return Entity(
        key=write.key,
        shard=write.shard,
        epoch=epoch,
        version=version,
        doc=write.doc,
        changed_at=moment(now_us),
    )


def _audit_writes(
    connection: Connection,
    writes: Sequence[EntityWrite],
    answers: Sequence[Entity | None],
    now_us: int,
) -> None:
    """One entry for all that one author put or deleted."""
    stored = [write for write, entity in zip(writes, answers, strict=True) if entity is not None]
    for author, verb, some in audited(stored):
        first = some[0]
        write_entry(
            connection, verb, author, first.key, at=now_us, guid=first.root, count=len(some)
        )  # fmt: skip


def _compare_and_set(
    connection: Connection, write: EntityWrite, now_us: int, *, counts: bool
) -> StoredWrite | None:
    """What was written; None if the base is not what is there."""
    row: Parameters = {
        "entity_key": write.key,
        "shard": write.shard,
        "doc": write.doc,
        "now": now_us,
        "saves": counts or write.doc is None,
    }
    if write.base is None:
        if write.doc is None:
            return None
        rows = connection.execute(SQL["write_create"], row).fetchall()
    else:
        row["epoch"], row["version"] = write.base
        rows = connection.execute(SQL["write_change"], row).fetchall()
    return StoredWrite._make(rows[0]) if rows else None


def _change_row(write: EntityWrite, written: StoredWrite, now_us: int, seq: int) -> Parameters:
    return {
        "shard": write.shard,
        "entity_key": write.key,
        "epoch": written.epoch,
        "version": written.version,
        "depth": 0,
        "now": now_us,
        "root": write.root.bytes,
        "author": write.author,
        "paths": write_texts(write.paths),
        "seq": seq,
    }


def _bury(connection: Connection, write: EntityWrite, written: StoredWrite, now_us: int) -> None:
    """A deleted entity leaves all queues; the stages that keep a state of it get a save that says
    so."""
    gone = {"shard": write.shard, "entity_key": write.key}
    connection.execute(SQL["write_drop_rows"], gone)
    connection.execute(SQL["write_drop_changed"], gone)
    save = _save_of(write, written, now_us)
    for stage, *state in connection.execute(SQL["write_states"], gone).fetchall():
        _put_outgoing(connection, save._replace(state=state_of(*state)), stage)


def _put_outgoing(connection: Connection, save: OutboxSave, sink: str) -> None:
    connection.executemany(SQL["save_publish"], outgoing_rows(save, [sink]))


def _save_of(write: EntityWrite, written: StoredWrite, now_us: int) -> OutboxSave:
    return OutboxSave(
        shard=write.shard,
        entity_key=write.key,
        n=written.saves,
        epoch=written.epoch,
        version=written.version,
        author=write.author,
        root=write.root,
        paths=write.paths,
        doc=write.doc,
        state=None,
        key=save_key(write.key, written.epoch, written.version),
        now_us=now_us,
    )
