"""What a save, or an answer, makes ready at once: a claim out of memory, the store is not asked.

Its fences are those of any claim. If somebody has changed the entity, the state or the row since,
the commit says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from gnomon.contracts.store.entities import Entity, StageState, StateWrite
from gnomon.contracts.store.queues import (
    ChangedEntity,
    ClaimedEntity,
    Commit,
    Enqueue,
    NewRow,
    QueueRow,
    RowStatus,
)


def claims_after_save(
    claim: ClaimedEntity, commit: Commit, made: Sequence[NewRow]
) -> Iterator[ClaimedEntity]:
    """Claims of the rows that a commit made. It has a document: else it had no enqueues."""
    states, entity = claim.states, claim.entity
    for part in commit.parts:
        states, entity = states_after(states, part), entity_after(entity, part, made[0].at)
    held_back = claim.held_back
    later = [
        enqueue.stage for enqueue in commit.enqueues if enqueue.ready and not enqueue.is_at_once
    ]
    if later:
        held_back = held_back.union(later)
    for row, others in _fresh_rows(commit.enqueues, made, claim.waiting, entity.key):
        yield ClaimedEntity(
            entity=entity,
            row=row,
            states=states,
            waiting=others,
            held_back=held_back,
            now=row.first_at,
        )


def entity_after(entity: Entity, commit: Commit, now: datetime) -> Entity:
    """What a save made of an entity."""
    if commit.doc is None:
        return entity
    return Entity(
        key=entity.key,
        shard=entity.shard,
        epoch=entity.epoch,
        version=commit.version + 1,
        doc=commit.doc,
        changed_at=now,
    )


def states_after(states: Mapping[str, StageState], commit: Commit) -> Mapping[str, StageState]:
    """What it made of the states."""
    if not isinstance(commit.state, StateWrite):
        return states
    return {**states, commit.stage: _stored(commit.state, commit.state_version + 1)}


def claims_after_asking(
    changed: ChangedEntity, enqueues: Sequence[Enqueue], made: Sequence[NewRow]
) -> Iterator[ClaimedEntity]:
    """Claims of the rows that the answers about a change made."""
    waiting = frozenset(
        name for name, row in changed.waiting.items() if row.status is RowStatus.READY
    )
    held_back = frozenset(
        name
        for name, row in changed.waiting.items()
        if row.status is not RowStatus.READY and row.status is not RowStatus.SLEEPING
    )
    for row, others in _fresh_rows(enqueues, made, waiting, changed.entity.key):
        yield ClaimedEntity(
            entity=changed.entity,
            row=row,
            states=changed.states,
            waiting=others,
            held_back=held_back,
            now=row.first_at,
        )


def _fresh_rows(
    enqueues: Sequence[Enqueue], made: Sequence[NewRow], waiting: frozenset[str], entity_key: str
) -> Iterator[tuple[QueueRow, frozenset[str]]]:
    """The rows that are ready now, each with the other stages in whose queue the entity is."""
    by_stage: Mapping[str, Enqueue] = {enqueue.stage: enqueue for enqueue in enqueues}
    ready = waiting.union(enqueue.stage for enqueue in enqueues if enqueue.is_at_once)
    for stage, seq, at in made:
        enqueue = by_stage[stage]
        if not enqueue.is_at_once:
            continue
        row = QueueRow(
            entity_key=entity_key, stage=stage, lane=enqueue.lane, status=RowStatus.READY,
            ready_at=at, timer_at=None, first_at=at, seq=seq, attempts=0,
            reasons=(enqueue.reason,), root=enqueue.root, depth=enqueue.depth,
        )  # fmt: skip
        yield row, ready - {stage}


def _stored(state: StateWrite, version: int) -> StageState:
    return StageState(version=version, revision=state.revision, body=state.body, type=state.type)
