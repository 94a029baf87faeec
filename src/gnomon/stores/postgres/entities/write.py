"""Changes from outside: documents, deletes, states."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from gnomon.contracts.store.entities import (
    Entity,
    EntityWrite,
    StageState,
    StateWrite,
)
from gnomon.contracts.store.queues import Enqueue
from gnomon.contracts.store.tokens import face_of
from gnomon.model.ids import save_key
from gnomon.model.stage.queue_merge import REASONS_MAX
from gnomon.stores.entity_audit import audited
from gnomon.stores.postgres.connection import Database, Group, Session, insisting
from gnomon.stores.postgres.entities.enqueues import EnqueueRow, write_enqueues
from gnomon.stores.postgres.entities.versions import (
    RELAY,
    AuditRow,
    LockedEntity,
    OutboxEntry,
    RowId,
    ShardedKey,
    StateRow,
    VersionRow,
    add_to_feed,
    apart,
    columns,
    lock_entities,
    publish,
    save_states,
    touch_entities,
    write_entry,
    write_notes,
)
from gnomon.stores.postgres.parts import Only


class AdmittedWrite(NamedTuple):
    """A write that may be made, and what it makes."""

    place: int  # in the caller's list
    write: EntityWrite
    key: ShardedKey
    epoch: int
    version: int
    row_id: RowId | None  # None: the key was never used


class CompletedWrite(NamedTuple):
    """A write that was made."""

    put: AdmittedWrite
    at: datetime


async def write(database: Database, writes: Sequence[EntityWrite]) -> list[Entity | None]:
    answers: list[Entity | None] = [None] * len(writes)
    for group in database.groups(write.shard for write in writes):
        for done in await _write_group(database, writes, group):
            answers[done.put.place] = _entity(done)
    return answers


@insisting
async def _write_group(
    database: Database, writes: Sequence[EntityWrite], group: Group
) -> list[CompletedWrite]:
    stored: list[CompletedWrite] = []
    async with database.transaction("write") as session:
        for places in apart(group.places, lambda place: _key(writes[place])):
            stored += await _write(session, writes, places, group.shards)
        await _audit_writes(session, stored)
    return stored


async def _audit_writes(session: Session, stored: Sequence[CompletedWrite]) -> None:
    """One entry for all that one author put or deleted."""
    if not stored:
        return
    at = stored[0].at
    for author, verb, some in audited(done.put.write for done in stored):
        first = some[0]
        await session.fetch(
            "write_audit_entry", at, first.root, first.shard, len(some), verb, str(author),
            first.key, face_of(author),
        )  # fmt: skip


async def _write(
    session: Session, writes: Sequence[EntityWrite], places: list[int], only: Only
) -> list[CompletedWrite]:
    places.sort(key=lambda place: _key(writes[place]))
    keys = [_key(writes[place]) for place in places]
    locked = await lock_entities(session, keys, only)
    puts = [
        put
        for place, key, entity in zip(places, keys, locked, strict=True)
        if (put := _put(place, writes[place], key, entity)) is not None
    ]
    stored = await _create(session, [put for put in puts if put.row_id is None], only)
    stored += await _change(session, [put for put in puts if put.row_id is not None], only)
    await _follow(session, stored, only)
    return stored


def _put(
    place: int, write: EntityWrite, key: ShardedKey, locked: LockedEntity | None
) -> AdmittedWrite | None:
    """What a write makes of an entity; None where its base is another."""
    if locked is not None and locked.lives:
        if write.base != (locked.epoch, locked.version):
            return None
        return AdmittedWrite(place, write, key, locked.epoch, locked.version + 1, locked.row_id)
    if write.base is not None or write.doc is None:
        return None
    if locked is None:
        return AdmittedWrite(place, write, key, 1, 1, None)
    return AdmittedWrite(place, write, key, locked.epoch + 1, 1, locked.row_id)


async def _create(
    session: Session, puts: Sequence[AdmittedWrite], only: Only
) -> list[CompletedWrite]:
    if not puts:
        return []
    docs = [put.write.doc for put in puts]
    rows = await session.fetch("write_create", *columns([put.key for put in puts]), docs, *only)
    made = {row["entity_key"]: row["changed_at"] for row in rows}
    # Without those that somebody made just now.
    return [
        CompletedWrite(put, made[put.key.entity_key]) for put in puts if put.key.entity_key in made
    ]


async def _change(
    session: Session, puts: Sequence[AdmittedWrite], only: Only
) -> list[CompletedWrite]:
    if not puts:
        return []
    rows = await session.fetch(
        "write_change",
        [put.row_id for put in puts],
        [put.epoch for put in puts],
        [put.version for put in puts],
        [put.write.doc for put in puts],
        *only,
    )
    made = {row["entity_key"]: row["changed_at"] for row in rows}
    return [CompletedWrite(put, made[put.key.entity_key]) for put in puts]


async def _follow(session: Session, stored: Sequence[CompletedWrite], only: Only) -> None:
    """All that comes with a new version: its note, rows that go, who is to be asked and told."""
    if not stored:
        return
    notes = [_note(done) for done in stored]
    await write_notes(session, notes, only)
    gone = [done for done in stored if done.put.write.doc is None]
    ((has_relay,),) = await session.fetch("save_has_relay")
    publications = [_publication(done, RELAY) for done in stored if has_relay]
    if gone:
        publications += await _clear(session, gone, only)
    revived = [done.put.key for done in stored if done.put.epoch > 1 and done.put.version == 1]
    if revived:
        await session.fetch("save_drop_states", *columns(revived), *only)
    living = [
        note for note, done in zip(notes, stored, strict=True) if done.put.write.doc is not None
    ]
    await add_to_feed(session, living, only)
    await publish(session, publications, only)


async def _clear(session: Session, gone: Sequence[CompletedWrite], only: Only) -> list[OutboxEntry]:
    """Entities leave all queues; their stages that have a state are to be told."""
    keys = columns([done.put.key for done in gone])
    rows = await session.fetch("write_lock_rows", *keys, *only)
    if rows:
        await session.fetch("row_remove", [row["row_id"] for row in rows], *only)
    await session.fetch("write_drop_changed", *keys, *only)
    stated = await session.fetch("write_states", *keys, *only)
    return [_publication(gone[place - 1], stage) for place, stage in stated]


def _publication(stored: CompletedWrite, sink: str) -> OutboxEntry:
    put = stored.put
    return OutboxEntry(
        put.key,
        sink,
        sink or None,
        put.write.author,
        put.write.root,
        put.write.paths,
        save_key(put.key.entity_key, put.epoch, put.version),
        stored.at,
    )


def _note(stored: CompletedWrite) -> VersionRow:
    put = stored.put
    write = put.write
    return VersionRow(
        put.key, put.epoch, put.version, write.paths, write.author, write.root, 0, stored.at
    )


def _entity(stored: CompletedWrite) -> Entity:
    put = stored.put
    return Entity(
        key=put.key.entity_key,
        shard=put.key.shard,
        epoch=put.epoch,
        version=put.version,
        doc=put.write.doc,
        changed_at=stored.at,
    )


def _key(write: EntityWrite) -> ShardedKey:
    return ShardedKey(write.shard, write.key)


@insisting
async def swap_state(
    database: Database,
    key: ShardedKey,
    stage: str,
    *,
    epoch: int,
    version: int,
    state: StateWrite,
    enqueue: Enqueue | None,
    entry: AuditRow,
) -> StageState | None:
    only = database.only(key.shard)
    async with database.transaction("swap_state") as session:
        (locked,) = await lock_entities(session, [key], only)
        if locked is None or not locked.lives or locked.epoch != epoch:
            return None
        rows = await session.fetch("swap_state", *columns([key]), [stage], *only)
        if version != (rows[0]["version"] if rows else 0):
            return None
        await session.fetch("save_touch", [locked.row_id], *only)
        await save_states(session, [StateRow(key, stage, version + 1, state)], only)
        await write_enqueues(session, [] if enqueue is None else [EnqueueRow(key, enqueue)], only)
        await write_entry(session, entry, key.shard)
    return StageState(
        version=version + 1, revision=state.revision, body=state.body, type=state.type
    )


@insisting
async def release(
    database: Database, key: ShardedKey, stage: str | None, *, root: UUID, entry: AuditRow
) -> int:
    only = database.only(key.shard)
    async with database.transaction("release") as session:
        await touch_entities(session, [key], only)
        freed = len(await session.fetch("release_rows", *key, stage, root, REASONS_MAX))
        freed += len({sink for (sink,) in await session.fetch("release_saves", *key, stage)})
        if freed:
            await write_entry(session, entry, key.shard)
        return freed
