"""An action as stored and shown: `meta` (who), `spec` (what, when), `status` (how it goes)."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from uuid import UUID

import msgspec

from gnomon.model.spec import Spec


class State(StrEnum):
    """Where an action is in its life. All but the first two are terminal."""

    ACTIVE = "active"
    PAUSED = "paused"
    DONE = "done"
    DEAD = "dead"  # gave up: retries, failures or interruptions used up; can be armed again
    CANCELLED = "cancelled"
    EXPIRED = "expired"  # its deadline or its window passed

    @property
    def is_terminal(self) -> bool:
        return self not in (State.ACTIVE, State.PAUSED)


class Meta(msgspec.Struct, frozen=True, kw_only=True):
    """Who the action is: the user's id, and the guid that every change replaces."""

    id: str
    guid: UUID
    shard: int
    created_at: datetime
    updated_at: datetime


class Attempt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One try of one occurrence, as it is recorded."""

    attempt_id: UUID
    attempt_no: int
    occurrence_no: int
    began_at: datetime
    deadline: datetime | None = None
    ended_at: datetime | None = None
    # running, succeeded, failed, cancelled, interrupted, abandoned, or for results that came too
    # late to count: late_succeeded, late_failed, …
    outcome: str = "running"
    error: str | None = None
    answer: str | None = None
    owner: str | None = None
    progress: float | None = None  # 0 to 1, as its function said last while it runs
    progress_text: str | None = None
    progress_at: datetime | None = None


class Status(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How it goes. At every moment: attempts = succeeded + failed + interrupted + running."""

    state: State = State.ACTIVE
    scheduled_at: datetime | None = None  # when the next attempt is due; None when there is none
    occurrence_no: int = 1
    occurrence_at: datetime | None = None  # the planned time of the current occurrence
    expires_at: datetime | None = None  # no attempt begins after this
    attempts: int = 0
    succeeded: int = 0
    failed: int = 0
    interrupted: int = 0
    consecutive_failures: int = 0  # of any kind, reset by a success
    consecutive_interruptions: int = 0
    occurrence_failures: int = 0  # failed attempts of the current occurrence: the retries used
    # What a worker must have to begin it, if one came by that has it not: `function welcome`.
    need: str | None = None
    current_attempt: Attempt | None = None
    last_attempt: Attempt | None = None
    reason: str | None = None  # why it ended; or why it is paused, if that was said
    paused_until: datetime | None = None  # when it goes on by itself
    finished_at: datetime | None = None


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """An action: who it is, what the user asked for, and how it goes."""

    meta: Meta
    spec: Spec
    status: Status
