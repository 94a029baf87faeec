"""Offers: entities into the queues of stages, at most once each. The merging is
`model.stage.merging`, in SQL; the store suite compares the two."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from gnomon.contracts.store.queues import Enqueue, NewRow
from gnomon.model.stage.queue_merge import BACKOFF_FLOOR, DEBOUNCES_MAX, REASONS_MAX
from gnomon.stores.postgres.connection import Row, Session
from gnomon.stores.postgres.entities.versions import ShardedKey, apart, columns, common, sparse
from gnomon.stores.postgres.parts import Only


class EnqueueRow(NamedTuple):
    """An enqueue about an entity, which is locked and lives."""

    key: ShardedKey
    enqueue: Enqueue


RowsMade = dict[str, tuple[NewRow, ...]]  # by entity


async def write_enqueues(session: Session, rows: Sequence[EnqueueRow], only: Only) -> RowsMade:
    """One statement for each kind of enqueue, unless one (entity, stage) has several."""
    made: RowsMade = {}
    batches = list(apart(rows, lambda row: (row.key, row.enqueue.stage)))
    for batch in batches:
        await _arm(session, [row for row in batch if row.enqueue.wake is not None], only)
        await _park(session, [row for row in batch if row.enqueue.looping is not None], only)
        for kind, ready in _ready_kinds(batch).items():
            for row in await _ready(session, kind, ready, only):
                if row["is_new"] and len(batches) == 1:  # else it may have been merged since
                    key = row["entity_key"]
                    made[key] = (*made.get(key, ()), new_row_of(row))
    return made


def new_row_of(row: Row) -> NewRow:
    return NewRow(row["stage"], row["seq"], row["first_at"])


class EnqueueBatch(NamedTuple):
    """What the enqueues of one statement have in common."""

    frees: bool
    debounce: timedelta


def _ready_kinds(rows: Sequence[EnqueueRow]) -> dict[EnqueueBatch, list[EnqueueRow]]:
    kinds: dict[EnqueueBatch, list[EnqueueRow]] = {}
    for row in rows:
        enqueue = row.enqueue
        if enqueue.ready and enqueue.looping is None:
            kinds.setdefault(EnqueueBatch(enqueue.frees, enqueue.debounce), []).append(row)
    return kinds


async def _ready(
    session: Session, kind: EnqueueBatch, rows: Sequence[EnqueueRow], only: Only
) -> Sequence[Row]:
    return await session.fetch(
        "enqueue_ready",
        *columns([row.key for row in rows]),
        common([row.enqueue.stage for row in rows]),
        sparse([row.enqueue.lane or None for row in rows]),
        sparse([max(row.enqueue.delay, kind.debounce) or None for row in rows]),
        common([row.enqueue.reason for row in rows]),
        common([row.enqueue.root for row in rows]),
        common([row.enqueue.depth for row in rows]),
        kind.frees,
        BACKOFF_FLOOR,
        kind.debounce,
        DEBOUNCES_MAX * kind.debounce,
        REASONS_MAX,
        *only,
    )


async def _arm(session: Session, rows: Sequence[EnqueueRow], only: Only) -> None:
    if rows:
        await session.fetch(
            "enqueue_timer",
            *columns([row.key for row in rows]),
            [row.enqueue.stage for row in rows],
            [row.enqueue.wake for row in rows],
            [row.enqueue.root for row in rows],
            [row.enqueue.depth for row in rows],
            *only,
        )


async def _park(session: Session, rows: Sequence[EnqueueRow], only: Only) -> None:
    if rows:
        await session.fetch(
            "enqueue_looping",
            *columns([row.key for row in rows]),
            [row.enqueue.stage for row in rows],
            [row.enqueue.lane for row in rows],
            [row.enqueue.reason for row in rows],
            [row.enqueue.root for row in rows],
            [row.enqueue.depth for row in rows],
            [row.enqueue.looping for row in rows],
            REASONS_MAX,
            *only,
        )
