"""A table of SQL tasks: what its owner asks of an engine.

The owner's memory is only a hint of what is due; each row is its own fence. Whoever holds the
table's lease may take tasks, and a session may end only the task that its own row says it works on.
Every call is one transaction, except `TaskSession.perform`, which is the user's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from gnomon.contracts.store.value import Value
from gnomon.model.task import DueTask, GroupKey, Outcome, Task


class TableLock(Value, frozen=True):
    """Whose a table is, as somebody sees it who may want it. Ages are by the database's clock."""

    lease_guid: UUID | None = None
    owner: str | None = None
    process: str | None = None  # the owner's, by which its end can be proved
    beat: int = 0
    silent_for: timedelta | None = None  # since the last beat; None if free


class PollMark(Value, frozen=True):
    """How far a poll has seen: the highest id, and the plan up to which rows have come due."""

    id: int
    plan: datetime


class TaskPoll(Value, frozen=True):
    """What a poll found."""

    now: datetime
    groups: frozenset[GroupKey]  # these have due rows that the mark had not seen
    next_plan: datetime | None  # the earliest row that is not yet due
    next_expiry: datetime | None  # the earliest end of `active` of all rows that wait
    mark: PollMark
    is_cut: bool = False  # there was more than one poll looks at: look at everything
    rest: str | None = None  # where the next page of a look at everything begins


class GroupWindow(Value, frozen=True):
    """The first rows of a group that may be begun."""

    rows: Sequence[DueTask]
    has_more: bool  # the group may have more of them


class ExpiryResult(Value, frozen=True):
    """What an expiry came to."""

    count: int
    has_more: bool = False  # it was as many as one call takes
    troubles: Mapping[int, str] = {}  # rows that could not be changed, and why


class TaskFinishResult(Value, frozen=True):
    """What became of a finish: whether it counted, and the task taken with it."""

    recorded: bool  # False: the row is no longer this attempt's (deleted, stopped, taken over)
    next: Task | None


class RescueResult(Value, frozen=True):
    """What a rescue found: how many rows went back, and what others' backends still perform."""

    count: int
    others: Mapping[GroupKey, int]  # local WORK rows by group: alive, but no session of this table
    held: frozenset[int] = frozenset()  # rows to go back that could not: somebody has them locked


class TaskSession(Protocol):
    """One connection that performs tasks of one group, one after the other."""

    @property
    def pid(self) -> int:
        """The process number of the backend that performs the tasks, as in the column `pid`."""
        ...

    async def take(self, task_id: int, *, lease_guid: UUID) -> Task | None:
        """TAKE or due PLAN becomes WORK, with `start` and `pid`; None if the row is not to be
        taken any more (deleted, stopped, planned for later, expired, or the lease is lost).

        Errors: SessionLost; RowRefused if the server does not let this row be taken.
        """
        ...

    async def perform(self, task: Task) -> Outcome:
        """Send the input and wait for its end, at most `task.timeout`; errors are in the outcome.

        Where the input may share a transaction with its result, that transaction is left open for
        `finish`. Errors: SessionLost when the connection broke, so that nothing is known.
        """
        ...

    async def finish(
        self, task: Task, outcome: Outcome, *, then: int | None = None, lease_guid: UUID
    ) -> TaskFinishResult:
        """Record the outcome if the row is still this attempt's (WORK, this pid, this start).

        In the same transaction: the next repeat or the retry, the pauses of the group, the removal
        of an empty result. If nothing was recorded, the input's own transaction is rolled back
        where that is still possible. `then` is taken as by `take`, in the same round trip, after
        the session was reset (unless `task.save`); its input may then be on its way before
        `perform` asks for its end. Errors: SessionLost.
        """
        ...

    async def cancel(self) -> None:
        """Ask the server to stop what is performed now; `perform` then returns its error."""
        ...

    async def close(self) -> None:
        """End the connection, whatever it does. Never raises."""
        ...


class TaskTable(Protocol):
    """One task table and the group sessions on it."""

    @property
    def name(self) -> str:
        """`database.schema.table`, for people."""
        ...

    async def prepare(self) -> Sequence[str]:
        """Create or repair the table, its type, indexes, views and hint; what was done.

        Safe to repeat, and from several processes at once. Errors: ConfigurationError that says
        exactly what the login may not.
        """
        ...

    async def lock(self) -> TableLock:
        """Whose the table is."""
        ...

    async def acquire(
        self,
        lease_guid: UUID,
        *,
        owner: str,
        seen: TableLock,
        lease_for: timedelta,
        process: str | None = None,
    ) -> bool:
        """Take the table: compare-and-set on the lock as seen. False if somebody else has it.

        Succeeds if the lock is still as `seen` (lease_guid and beat) and is free or its beat is
        older than `lease_for` by the database's clock. The caller must itself have watched a held
        lock unchanged for that long. Repeating it with the same lease_guid succeeds again.

        Rows that nobody works on go back to PLAN: all TAKE, all remote WORK, and local WORK whose
        backend is gone.
        """
        ...

    async def beat(self, lease_guid: UUID) -> bool:
        """Keep the lease; False if it is another's now. It waits for no other call."""
        ...

    async def release(self, lease_guid: UUID) -> None:
        """Give the lease back: the next owner need not wait. Also for the lease of an owner whose
        process has provably ended, by the lock as read."""
        ...

    async def poll(self, mark: PollMark | None, *, after: str | None = None) -> TaskPoll:
        """Groups with rows that came due since `mark`; None: all groups with due rows, a page of
        them from `after` on. What one call looks at is bounded, whatever waits."""
        ...

    async def window(self, key: GroupKey, *, limit: int, lease_guid: UUID) -> GroupWindow:
        """The group's first due PLAN rows that have not expired, in order: greatest(max, 0)
        descending, then id. A row with a `cron` that was given no plan is not among them: it is
        planned for its first time."""
        ...

    async def mark_taken(self, task_ids: Sequence[int], *, lease_guid: UUID) -> Sequence[int]:
        """Due PLAN that has not expired becomes TAKE: which of them; not those that somebody has
        locked. Errors: RowRefused, if it is but one row."""
        ...

    async def untake(self, task_ids: Sequence[int], *, lease_guid: UUID) -> Sequence[int]:
        """TAKE, or WORK whose session the caller has closed, goes back to PLAN: no session could be
        had, or it was given up, through no fault of the task's. Which of them could not, because
        somebody has them locked: to be tried again."""
        ...

    async def refuse(self, task_id: int, error: str, *, lease_guid: UUID) -> bool:
        """TAKE or PLAN becomes FAIL with this error, `start` and `pid` stay empty; with the next
        repeat. False: somebody has the row locked, to be tried again. Errors: RowRefused."""
        ...

    async def expire(self, *, lease_guid: UUID) -> ExpiryResult:
        """Due PLAN rows beyond their `active` become GONE, so many at once; repeating ones get
        their next row in the same transaction. A row that cannot be changed, or that somebody has
        locked, does not hold up the others."""
        ...

    async def rescue(self, *, lease_guid: UUID, stale: bool = False) -> RescueResult:
        """Local WORK rows whose backend is gone go back to PLAN; with `stale` also TAKE rows, which
        the caller says it has none of."""
        ...

    async def listen(self, callback: Callable[[], None]) -> None:
        """Call back when something may have come, until cancelled; may miss, never raises for a
        lost connection. Returns at once where no hint could be installed."""
        ...

    async def open(self, key: GroupKey) -> TaskSession:
        """A fresh session for a group. Errors: RemoteRefused (the text is the task's error),
        Unavailable (the table's own server is away or full: nobody's fault)."""
        ...

    async def close(self) -> None:
        """End all connections."""
        ...
