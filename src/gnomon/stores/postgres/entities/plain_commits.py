"""Commits that nobody is in the way of, which is nearly all of them: in one statement.

It is for plain PostgreSQL, where a statement may write several tables and shards. What it leaves
out is decided under locks, see `commit`, in a transaction of its own: within one transaction
entities are locked in one order only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from gnomon.contracts.store.entities import StateWrite
from gnomon.contracts.store.queues import (
    Commit,
    CommitKind,
    CommitResult,
    Enqueue,
    NewRow,
    Unchanged,
)
from gnomon.stores._texts import write_texts
from gnomon.stores.postgres.connection import Database, Row, Session
from gnomon.stores.postgres.entities.claimed import lock_claims, settle_commits
from gnomon.stores.postgres.entities.enqueues import EnqueueRow, write_enqueues
from gnomon.stores.postgres.entities.parts import (
    counts,
    key_of,
    last_doc,
    publications_of,
    states_of,
    timer_alone,
    version_count,
)
from gnomon.stores.postgres.entities.versions import (
    columns,
    common,
    publish,
    save_states,
    sparse,
)


async def commit_plainly(database: Database, commits: Sequence[Commit]) -> dict[int, CommitResult]:
    """Save what can be saved so; the answers to those that were, by their places."""
    places = _candidates(commits)
    if not places:
        return {}
    async with database.transaction("commit") as session:
        candidates = [commits[place] for place in places]
        [told] = await session.fetch("commit_plain", *_arguments(candidates))
        saved = sorted(places[place - 1] for place in told["places"] or ())
        chosen = [commits[place] for place in saved]
        made = _rows_made(chosen, told)
        if told["settled"] < len(saved):
            await _settle_others(session, chosen)
        passes = [commit for commit in chosen if commit.then]
        timers = await _write_rest(session, passes, told) if passes else []
        others = await write_enqueues(session, [*_enqueues_left(chosen, made), *timers], ())
        fed = [commit for commit in chosen if commit.doc is not None and commit.unrouted]
        if fed:
            keys = columns([key_of(commit) for commit in fed])
            epochs = [commit.epoch for commit in fed]
            await session.fetch("save_changed", *keys, epochs, [commit.version for commit in fed])
    answers = {}
    for place in saved:
        key = commits[place].entity_key
        rows = (made[key], *others.get(key, ())) if key in made else others.get(key, ())
        answers[place] = CommitResult(kind=CommitKind.SAVED, made=rows)
    return answers


def _rows_made(commits: Sequence[Commit], told: Row) -> dict[str, NewRow]:
    """The rows of the offers that were made, by entity: the first enqueue of each."""
    keys, seq, now = frozenset(told["made"] or ()), told["seq"], told["now"]
    return {
        commit.entity_key: NewRow(commit.enqueues[0].stage, seq, now)
        for commit in commits
        if commit.entity_key in keys
    }


def _enqueues_left(commits: Sequence[Commit], made: Mapping[str, NewRow]) -> list[EnqueueRow]:
    """The enqueues that are not made yet: one more than the first, or not as plain, or others."""
    return [
        EnqueueRow(key_of(commit), enqueue)
        for commit in commits
        for enqueue in commit.enqueues
        if commit.entity_key not in made or made[commit.entity_key].stage != enqueue.stage
    ]


async def _write_rest(session: Session, passes: Sequence[Commit], told_of: Row) -> list[EnqueueRow]:
    """What further stages made in the same passes, whose entities and notes are saved: all but
    that. Timers are left for those that have no row."""
    now, has_relay = told_of["now"], told_of["has_relay"]
    then = [part for commit in passes for part in commit.then]
    await save_states(session, states_of(then), ())
    outgoing = [
        entry
        for commit in passes
        for entry in publications_of(commit.parts, now, has_relay=has_relay)
    ]
    await publish(session, outgoing, ())
    told = [part for part in then if part.note or not isinstance(part.wake, Unchanged)]
    if not told:
        return []  # nearly always: a row that sleeps stays as it is
    facts = await lock_claims(session, told, ())
    await settle_commits(session, list(zip(told, facts, strict=True)), ())
    return [
        EnqueueRow(key_of(part), timer_alone(part))
        for part, claim_facts in zip(told, facts, strict=True)
        if claim_facts.queue_row is None and isinstance(part.wake, datetime)
    ]


async def _settle_others(session: Session, commits: Sequence[Commit]) -> None:
    """Some of the claimed rows were just being written by somebody: now they can be settled."""
    facts = await lock_claims(session, commits, ())
    await settle_commits(session, list(zip(commits, facts, strict=True)), ())


def _candidates(commits: Sequence[Commit]) -> list[int]:
    """In the order of locking, the first of each entity; of a shard those under one lease."""
    first: dict[tuple[int, str], int] = {}
    leases: dict[int, UUID] = {}
    for place, commit in enumerate(commits):
        if leases.setdefault(commit.shard, commit.lease_guid) == commit.lease_guid:
            first.setdefault((commit.shard, commit.entity_key), place)
    return [first[key] for key in sorted(first) if _is_plain(commits[first[key]])]


def _is_plain(commit: Commit) -> bool:
    """An enqueue needs the entity locked; whoever changes nothing does not lock it."""
    return commit.doc is not None or isinstance(commit.state, StateWrite) or not commit.enqueues


def _arguments(commits: Sequence[Commit]) -> tuple[Sequence[object], ...]:
    enqueues = [_plain_enqueue(commit) for commit in commits]
    states = [commit.state if isinstance(commit.state, StateWrite) else None for commit in commits]
    return (
        [commit.shard for commit in commits],
        list({commit.lease_guid for commit in commits}),
        [commit.entity_key for commit in commits],
        common([commit.stage for commit in commits]),
        [commit.seq for commit in commits],
        common([commit.epoch for commit in commits]),
        common([commit.version for commit in commits]),
        sparse([commit.state_version or None for commit in commits]),
        sparse([last_doc(commit.parts) if commit.then else commit.doc for commit in commits]),
        common([write_texts(commit.paths) for commit in commits]),
        common([commit.root for commit in commits]),
        common([commit.depth for commit in commits]),
        sparse([None if isinstance(commit.wake, Unchanged) else True for commit in commits]),
        sparse([None if isinstance(commit.wake, Unchanged) else commit.wake for commit in commits]),
        sparse([commit.note or None for commit in commits]),
        sparse([True if commit.then else None for commit in commits]),
        sparse([commit.after_save or None for commit in commits]),
        sparse([None if state is None else state.revision for state in states]),
        sparse([None if state is None else state.type for state in states]),
        sparse([None if state is None else state.body for state in states]),
        common(["" if enqueue is None else enqueue.stage for enqueue in enqueues]),
        common(["" if enqueue is None else enqueue.reason for enqueue in enqueues]),
        sparse([version_count(commit.then) or None for commit in commits]),
        sparse([sum(map(counts, commit.then)) or None for commit in commits]),
        *_then(commits),
    )


def _then(commits: Sequence[Commit]) -> tuple[Sequence[str | None], ...]:
    """What further stages made: a text for each commit, a line for each stage."""
    if not any(commit.then for commit in commits):
        return ((),) * 5
    return (
        [_lines(part.stage for part in commit.then) for commit in commits],
        [_lines(str(part.state_version) for part in commit.then) for commit in commits],
        [
            _lines(
                "" if part.doc is None else str(part.version - commit.version)
                for part in commit.then
            )
            for commit in commits
        ],
        [_lines(write_texts(part.paths) for part in commit.then) for commit in commits],
        [_lines(str(part.depth) for part in commit.then) for commit in commits],
    )


def _lines(texts: Iterable[str]) -> str | None:
    return "\n".join(texts) or None


def _plain_enqueue(commit: Commit) -> Enqueue | None:
    """The first one, if it says no more than that another stage is to see this very change."""
    if not commit.enqueues:
        return None
    enqueue = commit.enqueues[0]
    is_plain = (
        enqueue.is_at_once
        and (enqueue.root, enqueue.depth) == (commit.root, commit.depth)
        and enqueue.stage != commit.stage
        and all(enqueue.stage != other.stage for other in commit.enqueues[1:])
    )
    return enqueue if is_plain else None
