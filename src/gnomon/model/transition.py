"""Every change of an action's status is decided here, and nowhere else.

Pure: `status + event → verdict`. The verdict says what the store is to write; the fence that
the store checks in the same transaction says whether it may. Counters are deltas, because
SQL adds them up inside the compare-and-set and no read-modify-write can lose one.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, assert_never
from uuid import UUID

import msgspec

from gnomon.model.action import State, Status
from gnomon.model.attempt_boundary import AttemptBoundary
from gnomon.model.backoff import retry_delay
from gnomon.model.duration import DURATION_MAX
from gnomon.model.ids import fraction_of
from gnomon.model.outcome import (
    Abandoned,
    Cancelled,
    Failed,
    Interrupted,
    Outcome,
    Succeeded,
    Unserved,
    cut,
)
from gnomon.model.schedule import next_occurrence, occurrence_after
from gnomon.model.spec import ZERO, Once, Periodic, Spec, Unreadable

UNDECIDABLE = "what follows cannot be decided"


class Verdict(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What follows from an event: the next state, time and occurrence, and what is counted."""

    state: State
    reason: str | None = None
    scheduled_at: datetime | None = None  # None if terminal
    occurrence_no: int
    occurrence_at: datetime | None
    expires_at: datetime | None = None
    succeeded: int = 0  # to be added
    failed: int = 0
    interrupted: int = 0
    consecutive_failures: int  # the new value
    consecutive_interruptions: int
    occurrence_failures: int


class MissedOccurrences(msgspec.Struct, frozen=True):
    """The row was due, but `expires_at` had passed: no attempt may begin."""


def due_at(spec: Spec, guid: UUID, occurrence_no: int, occurrence_at: datetime) -> datetime:
    """When the first attempt of an occurrence is due: its planned time plus its jitter."""
    if not spec.jitter:
        return occurrence_at
    micros = spec.jitter // timedelta(microseconds=1)
    return occurrence_at + timedelta(microseconds=int(micros * fraction_of(guid, occurrence_no)))


def expiry_of(spec: Spec, occurrence_at: datetime, due: datetime) -> datetime | None:
    """After this moment the first attempt of the occurrence may not begin any more."""
    limits = [] if spec.deadline is None else [spec.deadline]
    if spec.active is not None:
        limits.append(due + spec.active)
    if spec.catch_up.mode == "none":
        following = _following(spec, occurrence_at)
        if following is not None:
            limits.append(max(following, due + timedelta(seconds=1)))
    return min(limits, default=None)


def _following(spec: Spec, occurrence_at: datetime) -> datetime | None:
    if spec.drift and isinstance(spec.policy, Periodic):
        return occurrence_at + spec.policy.period  # drifting occurrences have left the grid
    return occurrence_after(spec, occurrence_at)


def decide(
    spec: Spec, status: Status, event: Outcome | MissedOccurrences, *, guid: UUID, now: datetime
) -> Verdict:
    """`transition`, for any spec that a store may hold: what cannot be decided is dead.

    A time zone that this host does not know, a period of nothing, a date beyond the calendar: the
    event is counted, and the action ends with the reason. No exception: it would end the worker, or
    leave the attempt unrecorded and repeat its effect for ever.
    """
    if isinstance(event, Succeeded) and isinstance(spec.policy, Once):
        # The commonest of all ends: nothing is worked out, so nothing can go wrong.
        return _done(status.occurrence_no, status.occurrence_at)
    with AttemptBoundary(Exception) as attempt:
        return transition(spec, status, event, guid=guid, now=now)
    error = attempt.failure
    reason = cut(f"{UNDECIDABLE}: {type(error).__name__}: {error}")
    return _verdict(status, State.DEAD, reason, **_count_of(event))


def _count_of(event: Outcome | MissedOccurrences) -> dict[str, Any]:
    """The counter of the verdict that an event counts in."""
    match event:
        case Succeeded() | Cancelled():
            return {"succeeded": 1}
        case Failed():
            return {"failed": 1}
        case Interrupted() | Abandoned():
            return {"interrupted": 1}
        case MissedOccurrences() | Unserved():
            return {}


def transition(
    spec: Spec, status: Status, event: Outcome | MissedOccurrences, *, guid: UUID, now: datetime
) -> Verdict:
    """Decide what follows. `status` is the one the attempt began with."""
    match event:
        case Succeeded():
            return _succeeded(spec, status, guid, now)
        case Failed():
            return _failed(spec, status, event, guid, now)
        case Interrupted():
            return _interrupted(spec, status, event, now)
        case Abandoned(retry_after=pause):
            return _same_occurrence(spec, status, now, pause=pause)
        case Unserved():
            return _as_before(status)
        case Cancelled(reason=reason):
            counted = _counted(status, failures=status.consecutive_failures)
            return _verdict(counted, State.CANCELLED, reason, succeeded=1)
        case MissedOccurrences():
            return _missed(spec, status, guid, now)
        case _:
            assert_never(event)


def _succeeded(spec: Spec, status: Status, guid: UUID, now: datetime) -> Verdict:
    if isinstance(spec.policy, Once):
        return _done(status.occurrence_no, status.occurrence_at)
    counted = _counted(status, failures=0)
    if spec.successes_max is not None and status.succeeded + 1 >= spec.successes_max:
        return _verdict(counted, State.DONE, "successes_max reached", succeeded=1)
    verdict = _next(spec, counted, guid, now, skip_missed=spec.catch_up.mode != "all")
    return msgspec.structs.replace(verdict, succeeded=1)


def _done(occurrence_no: int, occurrence_at: datetime | None) -> Verdict:
    return Verdict(
        state=State.DONE,
        occurrence_no=occurrence_no,
        occurrence_at=occurrence_at,
        succeeded=1,
        consecutive_failures=0,
        consecutive_interruptions=0,
        occurrence_failures=0,
    )


def _failed(spec: Spec, status: Status, event: Failed, guid: UUID, now: datetime) -> Verdict:
    failures = status.consecutive_failures + 1
    counted = _counted(
        status, failures=failures, occurrence_failures=status.occurrence_failures + 1
    )
    most = spec.consecutive_failures_max
    if most is not None and failures >= most:
        return _verdict(counted, State.DEAD, "consecutive_failures_max reached", failed=1)
    retry_at = _retry_at(spec, status, event, guid, now)
    if retry_at is not None:
        return _retried(spec, counted, retry_at, guid, now)
    if isinstance(spec.policy, Once):
        reason = "retries used up" if event.retryable else "failed for good"
        if isinstance(spec.action, Unreadable):
            reason = spec.action.error
        return _verdict(counted, State.DEAD, reason, failed=1)
    verdict = _next(spec, counted, guid, now, skip_missed=spec.catch_up.mode != "all")
    return msgspec.structs.replace(verdict, failed=1)


def _retry_at(
    spec: Spec, status: Status, event: Failed, guid: UUID, now: datetime
) -> datetime | None:
    """When to try this occurrence again; None if it is given up."""
    if not event.retryable or status.occurrence_failures >= spec.retry.max:
        return None
    once = isinstance(spec.policy, Once)
    before = status.consecutive_failures if once else status.occurrence_failures
    delay = retry_delay(spec.retry, before, chance=fraction_of(guid, status.attempts))
    if event.retry_after is not None:
        delay = max(delay, min(event.retry_after, DURATION_MAX))
    return now + delay


def _retried(spec: Spec, counted: Status, retry_at: datetime, guid: UUID, now: datetime) -> Verdict:
    """A retry, unless the deadline or the next occurrence comes first."""
    assert counted.occurrence_at is not None
    following = occurrence_after(spec, max(counted.occurrence_at, now))
    if following is not None and retry_at >= following and not spec.drift:
        verdict = _next(spec, counted, guid, now, skip_missed=spec.catch_up.mode != "all")
        return msgspec.structs.replace(verdict, failed=1)
    if spec.deadline is not None and retry_at >= spec.deadline:
        return _verdict(counted, State.EXPIRED, "deadline", failed=1)
    return _verdict(
        counted, State.ACTIVE, scheduled_at=retry_at, expires_at=spec.deadline, failed=1
    )


def _interrupted(spec: Spec, status: Status, event: Interrupted, now: datetime) -> Verdict:
    """Interruptions have their own budget: a crash must not eat the retries."""
    interruptions = status.consecutive_interruptions + (not event.planned)
    counted = _counted(
        status,
        failures=status.consecutive_failures + 1,
        interruptions=interruptions,
        occurrence_failures=status.occurrence_failures,
    )
    if interruptions > spec.interruptions_max:
        return _verdict(counted, State.DEAD, f"interrupted: {event.reason}", interrupted=1)
    pause = ZERO
    if interruptions > 1 and event.reserved_until is not None:
        # It may be what ends its process: then not one process after the other, as fast as it can.
        pause = max(ZERO, event.reserved_until - now)
    return _same_occurrence(spec, counted, now, pause=pause)


def _as_before(status: Status) -> Verdict:
    """Nothing was sent, and nothing is counted: it is due when it was, for somebody else."""
    return _verdict(
        status, State.ACTIVE, scheduled_at=status.scheduled_at, expires_at=status.expires_at
    )


def _same_occurrence(spec: Spec, counted: Status, now: datetime, *, pause: timedelta) -> Verdict:
    """It was cut short: the same occurrence again, after a pause."""
    if spec.deadline is not None and now >= spec.deadline:
        return _verdict(counted, State.EXPIRED, "deadline", interrupted=1)
    # Rather too often than never again: after the deadline nothing begins.
    is_too_long = spec.deadline is not None and now + pause >= spec.deadline
    return _verdict(
        counted,
        State.ACTIVE,
        scheduled_at=now if is_too_long else now + pause,
        expires_at=spec.deadline,
        interrupted=1,
    )


def _missed(spec: Spec, status: Status, guid: UUID, now: datetime) -> Verdict:
    if spec.deadline is not None and now >= spec.deadline:
        return _verdict(status, State.EXPIRED, "deadline")
    if isinstance(spec.policy, Once):
        return _verdict(status, State.EXPIRED, "not begun within its window")
    if spec.catch_up.mode != "all" or spec.active is None:
        return _next(spec, status, guid, now, skip_missed=True)
    # Whatever is older than its window is missed as well; the younger ones still count.
    return _next(spec, status, guid, now, skip_missed=False, after=now - spec.active - spec.jitter)


def _next(
    spec: Spec,
    status: Status,
    guid: UUID,
    now: datetime,
    *,
    skip_missed: bool,
    after: datetime | None = None,
) -> Verdict:
    """The next occurrence (after `after`, if that is later), or the end if there is none."""
    if spec.occurrences_max is not None and status.occurrence_no >= spec.occurrences_max:
        return _verdict(status, State.DONE, "occurrences_max reached")
    assert status.occurrence_at is not None
    past = status.occurrence_at if after is None else max(status.occurrence_at, after)
    following = next_occurrence(spec, past, now=now, skip_missed=skip_missed)
    if following is None:
        return _verdict(status, State.DONE, "no further occurrence")
    planned, _ = following
    number = status.occurrence_no + 1
    due = due_at(spec, guid, number, planned)
    if spec.deadline is not None and max(due, now) >= spec.deadline:
        return _verdict(status, State.EXPIRED, "deadline")
    moved = msgspec.structs.replace(
        status, occurrence_no=number, occurrence_at=planned, occurrence_failures=0
    )
    return _verdict(moved, State.ACTIVE, scheduled_at=due, expires_at=expiry_of(spec, planned, due))


def _counted(
    status: Status, *, failures: int, interruptions: int = 0, occurrence_failures: int = 0
) -> Status:
    return msgspec.structs.replace(
        status,
        consecutive_failures=failures,
        consecutive_interruptions=interruptions,
        occurrence_failures=occurrence_failures,
    )


def _verdict(
    status: Status,
    state: State,
    reason: str | None = None,
    *,
    scheduled_at: datetime | None = None,
    expires_at: datetime | None = None,
    succeeded: int = 0,
    failed: int = 0,
    interrupted: int = 0,
) -> Verdict:
    """The occurrence and what was counted in a row, as `status` has them; the rest as given."""
    return Verdict(
        state=state,
        reason=reason,
        scheduled_at=scheduled_at,
        occurrence_no=status.occurrence_no,
        occurrence_at=status.occurrence_at,
        expires_at=expires_at,
        succeeded=succeeded,
        failed=failed,
        interrupted=interrupted,
        consecutive_failures=status.consecutive_failures,
        consecutive_interruptions=status.consecutive_interruptions,
        occurrence_failures=status.occurrence_failures,
    )
