"""Reports: what people look at when they ask how it goes. Nothing is ever decided by them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from gnomon.contracts.store.leases import ShardLock, WorkerRow
from gnomon.contracts.store.limits import LimitUse
from gnomon.contracts.store.value import Value
from gnomon.model.action import Action
from gnomon.model.spec import Spec

BEHIND_MAX = 1_000  # counted so far, and no further


class WaitFacts(Value, frozen=True):
    """An action, and all that can keep it from beginning, at one moment."""

    now: datetime
    action: Action
    lock: ShardLock
    workers: Sequence[WorkerRow]
    limits: Sequence[LimitUse]
    behind: int = 0  # due actions that come before it in its shard and queue, up to BEHIND_MAX


class FailedAction(Value, frozen=True):
    """An action that is dead, or that failed and is to be tried again."""

    id: str
    queue: str
    is_dead: bool
    at: datetime  # its end, or that of its last attempt
    need: str  # what it does, as a need: `function welcome`, `kind http`
    error: str


class FailedActions(Value, frozen=True):
    """Some of them; `partial`: there are more than were looked at."""

    at: datetime
    actions: Sequence[FailedAction]
    partial: bool = False


class HistoryRow(Value, frozen=True):
    """What was counted in a minute, or in an hour; see `model.history`. The empty queue is all of
    them."""

    at: datetime  # its beginning
    queue: str
    counts: Sequence[int]
    span: timedelta = timedelta(minutes=1)


class DueBucket(Value, frozen=True):
    """What is due within a time, and its fullest second."""

    count: int = 0
    herd_at: datetime | None = None
    herd_count: int = 0


class DueLoad(Value, frozen=True):
    """What the queues hold for later; an action that comes again is there once."""

    at: datetime
    buckets: Sequence[DueBucket]
    is_estimated: bool = False  # there was more than may be looked at: a part stands for all


class RecurringAction(Value, frozen=True):
    """An active action that comes again."""

    id: str
    spec: Spec
    occurrence_at: datetime  # of its next occurrence, or of the one under way


class ReportStore(Protocol):
    """Reads what is stored, by indexes and in bounded steps however much there is."""

    async def why(self, id: str) -> WaitFacts | None:
        """What decides whether this action begins, on one state of the database; None if there is
        no such action. Of a finished action `behind` is not counted."""
        ...

    async def failures(self, *, queue: str | None, limit: int) -> FailedActions:
        """Dead actions, those that are kept the longest first, and live ones whose last attempt
        failed; of one queue or of all. Of an id that lives again or ended once more, its earlier
        generations are none of them. About `limit` of each kind are looked at, an equal part in
        every queue."""
        ...

    async def record_minute(self, worker: UUID, rows: Sequence[HistoryRow]) -> None:
        """Store what a worker has counted in a minute, by queue. Who says it again replaces what he
        said of this minute before."""
        ...

    async def list_history(
        self, queue: str, *, since: datetime, until: datetime, limit: int
    ) -> Sequence[HistoryRow]:
        """What was counted of a queue, or under the empty name of all, in order of time; several
        rows of one time are to be added up. Rows that begin before `until`, and not before
        `since`: of an hour this is its beginning."""
        ...

    async def thin_history(self, worker: UUID, *, limit: int) -> int:
        """Put the rows of several workers together some minutes after, and minutes to hours two
        days after; remove what is thirty days old. Up to `limit` rows of each; how many went.
        `worker` is who does it: rows that he made are his alone to change."""
        ...

    async def load(self, times: Sequence[datetime], *, lanes: int) -> DueLoad:
        """How many actions are due in each bucket, of which `times` are the beginnings, and the end
        of the last. So many lanes are looked at. What they hold is counted, as far as it is little;
        else it is estimated from some lanes and from what is due first in each bucket."""
        ...

    async def herd(
        self, since: datetime, until: datetime, *, lanes: int, limit: int
    ) -> Sequence[str]:
        """The ids of some actions that are due within a time; none that has just arrived."""
        ...

    async def list_recurring(self, *, limit: int) -> Sequence[RecurringAction]:
        """Active actions that come again, up to `limit` of them. One whose spec cannot be read is
        left out."""
        ...
