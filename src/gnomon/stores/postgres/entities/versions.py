"""What saves consist of: locks in one order, notes, the feed, states, the outbox.

Everything here happens inside a transaction that has locked the entities concerned.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from gnomon.contracts.store.entities import StateWrite
from gnomon.contracts.store.tokens import face_of
from gnomon.stores._texts import write_texts
from gnomon.stores.postgres.connection import Session, read_now
from gnomon.stores.postgres.parts import Only

T = TypeVar("T")

RowId = tuple[int, int]  # where a locked row is
RELAY = ""  # the sink that is no stage's


class AuditRow(NamedTuple):
    """Who did what to an entity or a stage, for the audit."""

    verb: str
    actor: str
    name: str
    guid: UUID


async def write_entry(session: Session, entry: AuditRow, shard: int) -> None:
    """An entry of the audit."""
    verb, actor, name, guid = entry
    now = await read_now(session)
    await session.fetch(
        "write_audit_entry", now, guid, shard, 1, verb, str(actor), name, face_of(actor)
    )


class ShardedKey(NamedTuple):
    """Which entity, in the order of locking."""

    shard: int
    entity_key: str


class LockedEntity(NamedTuple):
    """An entity's row, locked."""

    row_id: RowId
    epoch: int
    version: int
    lives: bool


class FreeEntities(NamedTuple):
    """Those of some entities that nobody else has locked, locked; where there is none, None."""

    rows: list[LockedEntity | None]
    held: frozenset[ShardedKey]  # the others: of these there is no row


class VersionRow(NamedTuple):
    """A new version of an entity."""

    key: ShardedKey
    epoch: int
    version: int
    paths: Sequence[str]
    author: str
    root: UUID
    depth: int
    at: datetime


class OutboxEntry(NamedTuple):
    """A save on its way out, with the state of a stage if one is named."""

    key: ShardedKey
    sink: str
    stage: str | None
    author: str
    root: UUID
    paths: Sequence[str]
    save_key: str
    at: datetime
    doc: str | None = None  # None: as it is now
    versions_after: int = 0  # by other stages, in the same pass
    saves_after: int = 0  # likewise


class StateRow(NamedTuple):
    """A new state; `version` is its own."""

    key: ShardedKey
    stage: str
    version: int
    state: StateWrite


def apart(things: Iterable[T], key_of: Callable[[T], Hashable]) -> Iterator[list[T]]:
    """Split so that no key is twice in a batch, and each finds what the one before it left."""
    left = list(things)
    while left:
        batch: dict[Hashable, T] = {}
        others = [thing for thing in left if batch.setdefault(key_of(thing), thing) is not thing]
        yield list(batch.values())
        left = others


async def lock_entities(
    session: Session, keys: Sequence[ShardedKey], only: Only
) -> list[LockedEntity | None]:
    """The row of each, None where there is none. The keys are sorted, whoever calls."""
    locked: list[LockedEntity | None] = [None] * len(keys)
    for place, *row in await session.fetch("save_lock", *columns(keys), *only):
        locked[place - 1] = LockedEntity(*row)
    return locked


async def lock_free(session: Session, keys: Sequence[ShardedKey], only: Only) -> FreeEntities:
    """The same, and nobody is waited for."""
    rows: list[LockedEntity | None] = [None] * len(keys)
    held: set[ShardedKey] = set()
    for place, *row in await session.fetch("save_lock_free", *columns(keys), *only):
        if row[0] is None:
            held.add(keys[place - 1])
        else:
            rows[place - 1] = LockedEntity(*row)
    return FreeEntities(rows, frozenset(held))


async def touch_entities(session: Session, keys: Sequence[ShardedKey], only: Only) -> None:
    """Lock them and write their rows, so that a commit that has not seen it is not made plainly."""
    await _touch(session, await lock_entities(session, keys, only), only)


async def touch_free(
    session: Session, keys: Sequence[ShardedKey], only: Only
) -> frozenset[ShardedKey]:
    """The same of those that nobody holds; the others."""
    free = await lock_free(session, keys, only)
    await _touch(session, free.rows, only)
    return free.held


async def _touch(session: Session, locked: Sequence[LockedEntity | None], only: Only) -> None:
    await session.fetch("save_touch", [row.row_id for row in locked if row is not None], *only)


async def write_notes(session: Session, notes: Sequence[VersionRow], only: Only) -> None:
    if notes:
        await session.fetch(
            "save_note",
            *columns([note.key for note in notes]),
            [note.epoch for note in notes],
            [note.version for note in notes],
            [write_texts(note.paths) for note in notes],
            [note.author for note in notes],
            [note.root for note in notes],
            [note.depth for note in notes],
            [note.at for note in notes],
            *only,
        )


async def add_to_feed(session: Session, notes: Sequence[VersionRow], only: Only) -> None:
    """The stages are to be asked about these changes."""
    if notes:
        await session.fetch(
            "save_changed",
            *columns([note.key for note in notes]),
            [note.epoch for note in notes],
            [note.version - 1 for note in notes],
            *only,
        )


async def save_states(session: Session, saves: Sequence[StateRow], only: Only) -> None:
    if saves:
        await session.fetch(
            "save_state",
            *columns([save.key for save in saves]),
            [save.stage for save in saves],
            [save.version for save in saves],
            [save.state.revision for save in saves],
            [save.state.type for save in saves],
            [save.state.body for save in saves],
            *only,
        )


async def publish(session: Session, publications: Sequence[OutboxEntry], only: Only) -> None:
    if publications:
        await session.fetch(
            "save_publish",
            *columns([entry.key for entry in publications]),
            [entry.sink for entry in publications],
            [entry.stage for entry in publications],
            [entry.author for entry in publications],
            [entry.root for entry in publications],
            [write_texts(entry.paths) for entry in publications],
            [entry.save_key for entry in publications],
            [entry.at for entry in publications],
            sparse([entry.doc for entry in publications]),
            sparse([entry.versions_after or None for entry in publications]),
            sparse([entry.saves_after or None for entry in publications]),
            *only,
        )


def columns(keys: Sequence[ShardedKey]) -> tuple[list[int], list[str]]:
    return [key.shard for key in keys], [key.entity_key for key in keys]


def sparse(column: list[Any]) -> list[Any]:
    """A column that has nothing but None is as good as empty: `unnest` fills it up."""
    return [] if column.count(None) == len(column) else column


def common(column: list[Any]) -> list[Any]:
    """A column of which all places are the same is told once, where the statement knows it."""
    return column[:1] if column and column.count(column[0]) == len(column) else column
