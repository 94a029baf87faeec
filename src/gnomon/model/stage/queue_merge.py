"""What an offer makes of a row that waits in a stage's queue: the one rule, for every engine.

SQLite calls it; what PostgreSQL does in SQL is compared with it by the store suite. Times are in
microseconds.
"""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

BACKOFF_FLOOR = timedelta(seconds=5)
REASONS_MAX = 8
DEBOUNCES_MAX = (
    10  # so many times `debounce` after it was first woken, a row is not moved on any more
)
READY, SLEEPING, LOOPING = "ready", "sleeping", "looping"

_FLOOR_US = BACKOFF_FLOOR // timedelta(microseconds=1)


class QueuedEntity(NamedTuple):
    """A queue row, as far as offers change it."""

    lane: int
    status: str
    ready_at: int | None
    timer_at: int | None
    first_at: int
    seq: int
    attempts: int
    reasons: tuple[str, ...]
    root: UUID
    depth: int
    error: str | None


class EnqueueRule(NamedTuple):
    """An offer: see `contracts.store.entities.Offer`."""

    reason: str
    root: UUID
    depth: int
    ready: bool
    lane: int
    wake: int | None
    delay: int  # at least `debounce`
    debounce: int
    frees: bool
    looping: str | None


def made(offer: EnqueueRule, now: int, seq: int) -> QueuedEntity | None:
    """The row that an offer makes where there is none; None if it wants nothing."""
    if not offer.ready and offer.looping is None and offer.wake is None:
        return None
    status = LOOPING if offer.looping is not None else READY if offer.ready else SLEEPING
    return QueuedEntity(
        lane=offer.lane,
        status=status,
        ready_at=now + offer.delay if status == READY else None,
        timer_at=offer.wake,
        first_at=now,
        seq=seq,
        attempts=0,
        reasons=() if status == SLEEPING else (offer.reason,),
        root=offer.root,
        depth=offer.depth,
        error=offer.looping,
    )


def merged(row: QueuedEntity, offer: EnqueueRule, now: int) -> QueuedEntity:
    """What an offer makes of a row that is there."""
    row = row._replace(timer_at=earlier(row.timer_at, offer.wake))
    if offer.looping is not None:
        return row if row.status == READY else _looping(row, offer)
    if not offer.ready:
        return row
    if row.status == READY:
        return _joined(row, offer, now)
    is_readied = row.status == SLEEPING or _is_freed(row, offer)
    return _readied(row, offer, now) if is_readied else row


def earlier(first: int | None, second: int | None) -> int | None:
    """The earlier of two timers, where there are two."""
    if first is None or second is None:
        return second if first is None else first
    return min(first, second)


def _is_freed(row: QueuedEntity, offer: EnqueueRule) -> bool:
    """What stages cause does not free what loops: it may be the loop itself."""
    return offer.frees and (row.status != LOOPING or offer.depth == 0)


def _joined(row: QueuedEntity, offer: EnqueueRule, now: int) -> QueuedEntity:
    """It waits already, and waits on for one reason more."""
    assert row.ready_at is not None
    offered_at = now + offer.delay
    if row.attempts:
        offered_at = max(offered_at, now + _FLOOR_US)
    ready_at = min(row.ready_at, offered_at)
    if row.ready_at > now:  # until it is quiet long enough, or has waited for that long enough
        debounced_at = min(now + offer.debounce, row.first_at + DEBOUNCES_MAX * offer.debounce)
        ready_at = max(ready_at, debounced_at)
    if offer.lane < row.lane:
        ready_at = max(ready_at, now)
    return _told(row, offer)._replace(lane=min(row.lane, offer.lane), ready_at=ready_at)


def _readied(row: QueuedEntity, offer: EnqueueRule, now: int) -> QueuedEntity:
    """It slept or was parked, and is ready as if new."""
    return _told(row, offer)._replace(
        status=READY, lane=offer.lane, ready_at=now + offer.delay, first_at=now, attempts=0
    )


def _looping(row: QueuedEntity, offer: EnqueueRule) -> QueuedEntity:
    return _told(row, offer)._replace(status=LOOPING, ready_at=None, error=offer.looping)


def _told(row: QueuedEntity, offer: EnqueueRule) -> QueuedEntity:
    """With the offer's reason as the newest, and in its chain."""
    others = [known for known in row.reasons if known != offer.reason]
    return row._replace(
        seq=row.seq + 1,
        reasons=tuple([*others, offer.reason][-REASONS_MAX:]),
        root=offer.root,
        depth=offer.depth,
    )
