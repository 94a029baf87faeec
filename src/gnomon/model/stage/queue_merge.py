"""What an enqueue makes of a row that waits in a stage's queue: the one rule, for every engine.

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
    """A queue row, as far as enqueues change it."""

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
    """An enqueue: see `contracts.store.queues.Enqueue`."""

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


def made(enqueue: EnqueueRule, now: int, seq: int) -> QueuedEntity | None:
    """The row that an enqueue makes where there is none; None if it wants nothing."""
    if not enqueue.ready and enqueue.looping is None and enqueue.wake is None:
        return None
    status = LOOPING if enqueue.looping is not None else READY if enqueue.ready else SLEEPING
    return QueuedEntity(
        lane=enqueue.lane,
        status=status,
        ready_at=now + enqueue.delay if status == READY else None,
        timer_at=enqueue.wake,
        first_at=now,
        seq=seq,
        attempts=0,
        reasons=() if status == SLEEPING else (enqueue.reason,),
        root=enqueue.root,
        depth=enqueue.depth,
        error=enqueue.looping,
    )


def merged(row: QueuedEntity, enqueue: EnqueueRule, now: int) -> QueuedEntity:
    """What an enqueue makes of a row that is there."""
    row = row._replace(timer_at=earlier(row.timer_at, enqueue.wake))
    if enqueue.looping is not None:
        return row if row.status == READY else _looping(row, enqueue)
    if not enqueue.ready:
        return row
    if row.status == READY:
        return _joined(row, enqueue, now)
    is_readied = row.status == SLEEPING or _is_freed(row, enqueue)
    return _readied(row, enqueue, now) if is_readied else row


def earlier(first: int | None, second: int | None) -> int | None:
    """The earlier of two timers, where there are two."""
    if first is None or second is None:
        return second if first is None else first
    return min(first, second)


def _is_freed(row: QueuedEntity, enqueue: EnqueueRule) -> bool:
    """What stages cause does not free what loops: it may be the loop itself."""
    return enqueue.frees and (row.status != LOOPING or enqueue.depth == 0)


def _joined(row: QueuedEntity, enqueue: EnqueueRule, now: int) -> QueuedEntity:
    """It waits already, and waits on for one reason more."""
    assert row.ready_at is not None
    wanted_at = now + enqueue.delay
    if row.attempts:
        wanted_at = max(wanted_at, now + _FLOOR_US)
    ready_at = min(row.ready_at, wanted_at)
    if row.ready_at > now:  # until it is quiet long enough, or has waited for that long enough
        debounced_at = min(now + enqueue.debounce, row.first_at + DEBOUNCES_MAX * enqueue.debounce)
        ready_at = max(ready_at, debounced_at)
    if enqueue.lane < row.lane:
        ready_at = max(ready_at, now)
    return _told(row, enqueue)._replace(lane=min(row.lane, enqueue.lane), ready_at=ready_at)


def _readied(row: QueuedEntity, enqueue: EnqueueRule, now: int) -> QueuedEntity:
    """It slept or was parked, and is ready as if new."""
    return _told(row, enqueue)._replace(
        status=READY, lane=enqueue.lane, ready_at=now + enqueue.delay, first_at=now, attempts=0
    )


def _looping(row: QueuedEntity, enqueue: EnqueueRule) -> QueuedEntity:
    return _told(row, enqueue)._replace(status=LOOPING, ready_at=None, error=enqueue.looping)


def _told(row: QueuedEntity, enqueue: EnqueueRule) -> QueuedEntity:
    """With the enqueue's reason as the newest, and in its chain."""
    others = [known for known in row.reasons if known != enqueue.reason]
    return row._replace(
        seq=row.seq + 1,
        reasons=tuple([*others, enqueue.reason][-REASONS_MAX:]),
        root=enqueue.root,
        depth=enqueue.depth,
    )
