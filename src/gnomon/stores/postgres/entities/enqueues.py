"""Offers: entities into the queues of stages, at most once each. The merging is
`model.stage.merging`, in SQL; the store suite compares the two."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from gnomon.contracts.store.queues import Enqueue, NewRow
from gnomon.model.stage.queue_merge import BACKOFF_FLOOR, DEBOUNCES_MAX, REASONS_MAX
from gnomon.stores.postgres.connection import Row, Session
from gnomon.stores.postgres.entities.versions import ShardedKey, apart, columns, sparse


class EnqueueRow(NamedTuple):
    """An offer about an entity, which is locked and lives."""

    key: ShardedKey
    offer: Enqueue


RowsMade = dict[str, tuple[NewRow, ...]]  # by entity


async def make_offers(
    session: Session, offered: Sequence[EnqueueRow], only: tuple[int, ...]
) -> RowsMade:
    """One statement for each kind of offer, unless one (entity, stage) has several."""
    made: RowsMade = {}
    batches = list(apart(offered, lambda row: (row.key, row.offer.stage)))
    for batch in batches:
        await _arm(session, [row for row in batch if row.offer.wake is not None], only)
        await _park(session, [row for row in batch if row.offer.looping is not None], only)
        for kind, ready in _ready_kinds(batch).items():
            for row in await _ready(session, kind, ready, only):
                if row["is_new"] and len(batches) == 1:  # else it may have been merged since
                    key = row["entity_key"]
                    made[key] = (*made.get(key, ()), new_row_of(row))
    return made


def new_row_of(row: Row) -> NewRow:
    return NewRow(row["stage"], row["seq"], row["first_at"])


class EnqueueBatch(NamedTuple):
    """What the offers of one statement have in common."""

    frees: bool
    debounce: timedelta


def _ready_kinds(offered: Sequence[EnqueueRow]) -> dict[EnqueueBatch, list[EnqueueRow]]:
    kinds: dict[EnqueueBatch, list[EnqueueRow]] = {}
    for row in offered:
        offer = row.offer
        if offer.ready and offer.looping is None:
            kinds.setdefault(EnqueueBatch(offer.frees, offer.debounce), []).append(row)
    return kinds


async def _ready(
    session: Session, kind: EnqueueBatch, offered: Sequence[EnqueueRow], only: tuple[int, ...]
) -> Sequence[Row]:
    return await session.fetch(
        "enqueue_ready",
        *columns([row.key for row in offered]),
        [row.offer.stage for row in offered],
        sparse([row.offer.lane or None for row in offered]),
        sparse([max(row.offer.delay, kind.debounce) or None for row in offered]),
        [row.offer.reason for row in offered],
        [row.offer.root for row in offered],
        [row.offer.depth for row in offered],
        kind.frees,
        BACKOFF_FLOOR,
        kind.debounce,
        DEBOUNCES_MAX * kind.debounce,
        REASONS_MAX,
        *only,
    )


async def _arm(session: Session, offered: Sequence[EnqueueRow], only: tuple[int, ...]) -> None:
    if offered:
        await session.fetch(
            "enqueue_timer",
            *columns([row.key for row in offered]),
            [row.offer.stage for row in offered],
            [row.offer.wake for row in offered],
            [row.offer.root for row in offered],
            [row.offer.depth for row in offered],
            *only,
        )


async def _park(session: Session, offered: Sequence[EnqueueRow], only: tuple[int, ...]) -> None:
    if offered:
        await session.fetch(
            "enqueue_looping",
            *columns([row.key for row in offered]),
            [row.offer.stage for row in offered],
            [row.offer.lane for row in offered],
            [row.offer.reason for row in offered],
            [row.offer.root for row in offered],
            [row.offer.depth for row in offered],
            [row.offer.looping for row in offered],
            REASONS_MAX,
            *only,
        )
