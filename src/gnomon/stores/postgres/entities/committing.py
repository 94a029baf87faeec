"""Saves of stages, each whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from gnomon.contracts.store.entities import (
    Commit,
    CommitKind,
    Committed,
    Offer,
    StateWrite,
)
from gnomon.stores.postgres.connection import Database, Session
from gnomon.stores.postgres.entities.claimed import Facts, lock_claims, settle_commits
from gnomon.stores.postgres.entities.offering import Offered, RowsMade, make_offers
from gnomon.stores.postgres.entities.plainly import commit_plainly, key_of
from gnomon.stores.postgres.entities.rows import entity_of, notes_of
from gnomon.stores.postgres.entities.saving import (
    RELAY,
    Key,
    Note,
    Publication,
    RowId,
    StateSave,
    add_to_feed,
    apart,
    columns,
    publish,
    save_states,
    write_notes,
)


class Save(NamedTuple):
    """A commit that may be saved."""

    commit: Commit
    key: Key
    entity_row: RowId
    facts: Facts

    @property
    def has_doc(self) -> bool:
        return self.commit.doc is not None

    @property
    def has_state(self) -> bool:
        return isinstance(self.commit.state, StateWrite)

    @property
    def counts(self) -> bool:
        """Whether anything was saved at all."""
        return self.has_doc or self.has_state

    @property
    def version(self) -> int:
        return self.commit.version + self.has_doc


async def commit(database: Database, commits: Sequence[Commit]) -> list[Committed]:
    answers: dict[int, Committed] = {}
    if database.many_shards:
        answers = await commit_plainly(database, commits)
    left = [place for place in range(len(commits)) if place not in answers]
    for group in database.groups(commits[place].shard for place in left):
        async with database.transaction("commit") as session:
            chosen = [left[place] for place in group.places]
            for places in apart(chosen, lambda place: _key(commits[place])):
                places.sort(key=lambda place: _key(commits[place]))
                found = await _commit(session, [commits[place] for place in places], group.shards)
                answers.update(zip(places, found, strict=True))
    return [answers[place] for place in range(len(commits))]


async def _commit(
    session: Session, commits: Sequence[Commit], only: tuple[int, ...]
) -> list[Committed]:
    found = await lock_claims(session, commits, only)
    kinds = [_kind(commit, facts) for commit, facts in zip(commits, found, strict=True)]
    saves = [
        Save(commit, _key(commit), facts.entity_row, facts)
        for commit, facts, kind in zip(commits, found, kinds, strict=True)
        if kind is CommitKind.SAVED and facts.entity_row is not None
    ]
    made = await _save(session, saves, only) if saves else {}
    answers = [
        Committed(kind=kind, made=made.get(commit.entity_id, ()))
        for commit, kind in zip(commits, kinds, strict=True)
    ]
    moved = [place for place, kind in enumerate(kinds) if kind is CommitKind.MOVED]
    if moved:
        told = await _what_moved(session, [commits[place] for place in moved], only)
        for place, answer in zip(moved, told, strict=True):
            answers[place] = answer
    return answers


def _kind(commit: Commit, facts: Facts) -> CommitKind:
    if not facts.held:
        return CommitKind.LOST
    if not facts.lives or facts.epoch != commit.epoch:
        return CommitKind.GONE
    if facts.version != commit.version:
        return CommitKind.MOVED
    if (facts.state_version or 0) != commit.state_version:
        return CommitKind.STATE_MOVED
    return CommitKind.SAVED


async def _what_moved(
    session: Session, commits: Sequence[Commit], only: tuple[int, ...]
) -> list[Committed]:
    keys = columns([_key(commit) for commit in commits])
    versions = [commit.version for commit in commits]
    rows = await session.fetch("entity_since", *keys, versions, *only)
    return [
        Committed(kind=CommitKind.MOVED, entity=entity_of(row), since=notes_of(row, 6))
        for row in rows
    ]


async def _save(session: Session, saves: Sequence[Save], only: tuple[int, ...]) -> RowsMade:
    """All under the lock of the entities; what goes out has the states as they are by then."""
    now = saves[0].facts.now
    await save_states(session, [_state(save) for save in saves if save.has_state], only)
    counted = [save for save in saves if save.counts]
    if counted:
        await _write(session, counted, now, only)
    await settle_commits(session, [(save.commit, save.facts) for save in saves], only)
    offered = [Offered(save.key, offer) for save in saves for offer in save.commit.offers]
    offered += [Offered(save.key, timer) for save in saves if (timer := _lost_timer(save))]
    made = await make_offers(session, offered, only)
    fed = [_note(save, now) for save in saves if save.has_doc and save.commit.feed]
    await add_to_feed(session, fed, only)
    return made


async def _write(
    session: Session, saves: Sequence[Save], now: datetime, only: tuple[int, ...]
) -> None:
    row_ids = [save.entity_row for save in saves]
    await session.fetch("entity_save", row_ids, [save.commit.doc for save in saves], now, *only)
    await write_notes(session, [_note(save, now) for save in saves if save.has_doc], only)
    await publish(session, [each for save in saves for each in _publications(save, now)], only)


def _note(save: Save, now: datetime) -> Note:
    commit = save.commit
    return Note(
        save.key, commit.epoch, save.version, commit.paths, _author(commit), commit.root,
        commit.depth, now,
    )  # fmt: skip


def _state(save: Save) -> StateSave:
    commit = save.commit
    assert isinstance(commit.state, StateWrite)
    return StateSave(save.key, commit.stage, commit.state_version + 1, commit.state)


def _publications(save: Save, now: datetime) -> list[Publication]:
    commit = save.commit
    sinks = [RELAY] * commit.publish + [commit.stage] * commit.after_save
    key = key_of(commit)
    return [
        Publication(
            save.key, sink, commit.stage, _author(commit), commit.root, commit.paths, key, now
        )
        for sink in sinks
    ]


def _author(commit: Commit) -> str:
    return f"stage:{commit.stage}"


def _lost_timer(save: Save) -> Offer | None:
    """The timer of a stage whose row somebody has removed meanwhile."""
    commit = save.commit
    if save.facts.queue_row is not None or not isinstance(commit.wake, datetime):
        return None
    return Offer(
        stage=commit.stage,
        reason="",
        root=commit.root,
        depth=commit.depth,
        ready=False,
        wake=commit.wake,
    )


def _key(commit: Commit) -> Key:
    return Key(commit.shard, commit.entity_id)
