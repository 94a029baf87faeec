"""The parts of a commit, stage by stage, as rows to write."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from gnomon.contracts.store.entities import StateWrite
from gnomon.contracts.store.queues import Commit, Enqueue, ReturnedClaim, Routing
from gnomon.model.ids import author_of, save_key
from gnomon.stores.postgres.entities.versions import (
    RELAY,
    OutboxEntry,
    ShardedKey,
    StateRow,
    VersionRow,
)


def key_of(part: Commit | Routing | ReturnedClaim) -> ShardedKey:
    """Which entity it is about."""
    return ShardedKey(part.shard, part.entity_key)


def counts(part: Commit) -> bool:
    """Whether anything is saved at all."""
    return part.doc is not None or isinstance(part.state, StateWrite)


def last_doc(parts: Sequence[Commit]) -> str | None:
    """The document after these; None: unchanged."""
    return next((part.doc for part in reversed(parts) if part.doc is not None), None)


def version_count(parts: Sequence[Commit]) -> int:
    """How many new versions these are."""
    return sum(part.doc is not None for part in parts)


def note_of(part: Commit, now: datetime) -> VersionRow:
    """The note of a new version."""
    return VersionRow(
        key_of(part), part.epoch, part.version + 1, part.paths, author_of(part.stage), part.root,
        part.depth, now,
    )  # fmt: skip


def states_of(parts: Sequence[Commit]) -> list[StateRow]:
    """The new states."""
    return [
        StateRow(key_of(part), part.stage, part.state_version + 1, part.state)
        for part in parts
        if isinstance(part.state, StateWrite)
    ]


def publications_of(
    parts: Sequence[Commit], now: datetime, *, has_relay: bool
) -> list[OutboxEntry]:
    """What goes out of the parts of one commit."""
    saves = [part for part in parts if counts(part)]
    outgoing = []
    for place, part in enumerate(saves):
        sinks = [RELAY] * has_relay + [part.stage] * part.after_save
        if not sinks:
            continue
        after = saves[place + 1 :]
        doc = last_doc(saves[: place + 1]) if after else None
        key, author, save = key_of(part), author_of(part.stage), save_key_of(part)
        tail = (part.root, part.paths, save, now, doc, version_count(after), len(after))
        outgoing += [OutboxEntry(key, sink, part.stage, author, *tail) for sink in sinks]
    return outgoing


def save_key_of(part: Commit) -> str:
    """The key under which a sink knows what this part saves."""
    version = part.version + (part.doc is not None)
    has_state = isinstance(part.state, StateWrite)
    state = (part.stage, part.state_version + 1) if has_state else None
    return save_key(part.entity_key, part.epoch, version, state=state)


def timer_alone(part: Commit) -> Enqueue:
    """For a stage that has no row, though it wants to be woken."""
    assert isinstance(part.wake, datetime)
    return Enqueue(
        stage=part.stage, reason="", root=part.root, depth=part.depth, ready=False, wake=part.wake
    )
