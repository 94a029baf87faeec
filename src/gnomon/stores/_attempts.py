"""Attempts as they are written down when they end: the same in every engine."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from gnomon.contracts.store import BegunAttempt, ConfirmResult, FinishRequest, SettleRequest
from gnomon.model.action import Attempt

INTERRUPTED = "interrupted"
UNSERVED = "unserved"
# An attempt in flight when its generation ended, and one that was asked to end, too.
SUPERSEDED = "superseded"
CANCELLING = "cancelling"
OPEN_OUTCOMES = (INTERRUPTED, SUPERSEDED, CANCELLING)  # in the log, but not the attempt's own word


def first_half(batch: UUID) -> str:
    """What the ids of a batch's attempts begin with: 60 random bits of it. They end as their guids
    do, so who knows the batch finds what it began, and no two ids are the same."""
    return str(batch)[:19]


def late_outcome(outcome: str, known: str | None) -> str:
    """What the log calls a result that came after its generation, where it said `known` before:
    who was asked to end and did is not late."""
    return outcome if outcome == "cancelled" and known == CANCELLING else f"late_{outcome}"


def finished_attempt(
    finish: FinishRequest, owner: str, now: datetime, *, outcome: str | None = None
) -> Attempt:
    """The attempt that a result is about; `outcome` is what the log calls it, if not its own."""
    return Attempt(
        attempt_id=finish.attempt_id,
        attempt_no=finish.attempt_no,
        occurrence_no=finish.occurrence_no,
        began_at=finish.began_at,
        ended_at=now if finish.ended_at is None else min(finish.ended_at, now),
        outcome=outcome or finish.outcome,
        error=finish.error,
        answer=finish.answer,
        owner=owner,
    )


def interrupted_attempt(settlement: SettleRequest, now: datetime) -> Attempt | None:
    """The attempt that a lapsed row was running; None if it was not."""
    attempt = settlement.lapsed.attempt
    if not settlement.lapsed.running or attempt is None:
        return None
    return Attempt(
        attempt_id=attempt.attempt_id,
        attempt_no=attempt.attempt_no,
        occurrence_no=attempt.occurrence_no,
        began_at=attempt.began_at,
        deadline=attempt.deadline,
        ended_at=now,
        outcome=INTERRUPTED,
        error=settlement.reason,
        owner=attempt.owner,
    )


def confirmed(
    attempts: Sequence[BegunAttempt], now: datetime, *, gone: set[UUID], expired: set[UUID]
) -> ConfirmResult:
    """What is said of armed attempts, when it is known which of them do not stand."""
    early = {attempt.attempt_id for attempt in attempts if attempt.began_at > now} - gone
    return ConfirmResult(now=now, early=early, gone=gone, expired=expired - early)
