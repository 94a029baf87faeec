"""Saves of stages, each whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import islice
from typing import NamedTuple

from gnomon.contracts.store.queues import Commit, CommitKind, CommitResult
from gnomon.stores.postgres.connection import Database, Session
from gnomon.stores.postgres.entities.claimed import ClaimFacts, lock_claims, settle_commits
from gnomon.stores.postgres.entities.enqueues import EnqueueRow, RowsMade, write_enqueues
from gnomon.stores.postgres.entities.parts import (
    counts,
    key_of,
    last_doc,
    note_of,
    publications_of,
    states_of,
    timer_alone,
    version_count,
)
from gnomon.stores.postgres.entities.plain_commits import commit_plainly
from gnomon.stores.postgres.entities.rows import entity_of, notes_of
from gnomon.stores.postgres.entities.versions import (
    add_to_feed,
    apart,
    columns,
    publish,
    save_states,
    write_notes,
)
from gnomon.stores.postgres.parts import Only


class CommitPart(NamedTuple):
    """A part of a commit, and what is known under the locks."""

    commit: Commit
    facts: ClaimFacts


async def commit(database: Database, commits: Sequence[Commit]) -> list[CommitResult]:
    answers: dict[int, CommitResult] = {}
    if database.many_shards:
        answers = await commit_plainly(database, commits)
    left = [place for place in range(len(commits)) if place not in answers]
    for group in database.groups(commits[place].shard for place in left):
        async with database.transaction("commit") as session:
            chosen = [left[place] for place in group.places]
            for places in apart(chosen, lambda place: key_of(commits[place])):
                places.sort(key=lambda place: key_of(commits[place]))
                results = await _commit(session, [commits[place] for place in places], group.shards)
                answers.update(zip(places, results, strict=True))
    return [answers[place] for place in range(len(commits))]


async def _commit(session: Session, commits: Sequence[Commit], only: Only) -> list[CommitResult]:
    parts = [part for commit in commits for part in commit.parts]
    locked = await lock_claims(session, parts, only)
    saves = map(CommitPart, parts, locked)
    passes = [list(islice(saves, len(commit.parts))) for commit in commits]
    kinds = [_kind(saves) for saves in passes]
    saved = [saves for saves, kind in zip(passes, kinds, strict=True) if kind is CommitKind.SAVED]
    made = await _save(session, saved, only) if saved else {}
    answers = [
        CommitResult(kind=kind, made=made.get(commit.entity_key, ()))
        for commit, kind in zip(commits, kinds, strict=True)
    ]
    moved = [place for place, kind in enumerate(kinds) if kind is CommitKind.MOVED]
    if moved:
        told = await _what_moved(session, [commits[place] for place in moved], only)
        for place, answer in zip(moved, told, strict=True):
            answers[place] = answer
    return answers


def _kind(parts: Sequence[CommitPart]) -> CommitKind:
    commit, facts = parts[0]
    if not facts.held:
        return CommitKind.LOST
    if facts.is_locked:
        return CommitKind.HELD
    if not facts.lives or facts.epoch != commit.epoch:
        return CommitKind.GONE
    if facts.version != commit.version:
        return CommitKind.MOVED
    if any((part.facts.state_version or 0) != part.commit.state_version for part in parts):
        return CommitKind.STATE_MOVED
    return CommitKind.SAVED


async def _what_moved(
    session: Session, commits: Sequence[Commit], only: Only
) -> list[CommitResult]:
    keys = columns([key_of(commit) for commit in commits])
    versions = [commit.version for commit in commits]
    rows = await session.fetch("commit_moved", *keys, versions, *only)
    return [
        CommitResult(kind=CommitKind.MOVED, entity=entity_of(row), since=notes_of(row))
        for row in rows
    ]


async def _save(session: Session, passes: Sequence[Sequence[CommitPart]], only: Only) -> RowsMade:
    """All under the lock of the entities; what goes out has the states as they are by then."""
    saves = [save for parts in passes for save in parts]
    now, has_relay = saves[0].facts.now, saves[0].facts.has_relay
    await save_states(session, states_of([save.commit for save in saves]), only)
    await _write(session, passes, now, only, has_relay=has_relay)
    await settle_commits(session, saves, only)
    rows = [EnqueueRow(key_of(part), enqueue) for part, _ in saves for enqueue in part.enqueues]
    rows += [
        EnqueueRow(key_of(part), timer_alone(part))
        for part, facts in saves
        if facts.queue_row is None and isinstance(part.wake, datetime)
    ]
    made = await write_enqueues(session, rows, only)
    fed = [part for part, _ in saves if part.doc is not None and part.unrouted]
    await add_to_feed(session, [note_of(part, now) for part in fed], only)
    return made


async def _write(
    session: Session,
    passes: Sequence[Sequence[CommitPart]],
    now: datetime,
    only: Only,
    *,
    has_relay: bool,
) -> None:
    """What entities are now, with its notes and what goes out."""
    counted = [
        (parts, facts.entity_row)
        for fused in passes
        if (parts := [part for part, _ in fused if counts(part)])
        for facts in [fused[0].facts]
    ]
    if not counted:
        return
    await session.fetch(
        "commit_entity",
        [row_id for _, row_id in counted],
        [last_doc(parts) for parts, _ in counted],
        [version_count(parts) for parts, _ in counted],
        [len(parts) for parts, _ in counted],
        now,
        *only,
    )
    noted = [part for parts, _ in counted for part in parts if part.doc is not None]
    await write_notes(session, [note_of(part, now) for part in noted], only)
    outgoing = [
        entry for parts, _ in counted for entry in publications_of(parts, now, has_relay=has_relay)
    ]
    await publish(session, outgoing, only)
