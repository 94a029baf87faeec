"""Work: what the owner of a shard does with its queues, and how results are recorded.

A *lane* is one (shard, queue, priority, need): what is due in it is begun in order of its time.

Most rows have no need: any worker may begin them. A row that was handed back (`Unserved`) has the
need that its worker did not serve, until its generation ends. Lanes with a need are begun by those
who serve it, as owners, or as guests in the shards of others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple, Protocol
from uuid import UUID

import msgspec

from gnomon.contracts.store.actions import DecideResume
from gnomon.contracts.store.value import Value
from gnomon.model.action import Action, Attempt, Status
from gnomon.model.spec import Spec
from gnomon.model.transition import Verdict


class Lane(NamedTuple):
    """What is begun in order of time: one priority of one queue in one shard; what was handed back
    is in a lane of its need."""

    shard: int
    queue: str
    priority: int
    need: str = ""


class HeldShard(Value, frozen=True):
    """A shard held: the right to move and begin in it, and where its live rows start."""

    shard: int
    lease_guid: UUID
    incoming_mark: datetime | None = None  # no unmoved row is older, but for late committers


class MoveResult(Value, frozen=True):
    """What a move brought: lanes that got rows, with the earliest time in each."""

    count: int
    lanes: Mapping[Lane, datetime]
    marks: Mapping[int, datetime]  # new incoming marks by shard
    more: bool  # there may be more to move at once
    now: datetime


class OpenTransactions(Value, frozen=True):
    """The transactions in progress, by their numbers, which only grow: all of `ids`, and maybe any
    from `start` to before `stop`, which is the next one's number."""

    ids: Collection[int] = ()
    start: int = 0
    stop: int = 0


class PollResult(Value, frozen=True):
    """What a poll found."""

    shards: Collection[int]  # with incoming rows behind their marks
    now: datetime
    open: OpenTransactions | None  # None: the engine cannot tell


class ArrivalResult(Value, frozen=True):
    """What a move brought, and what of it was begun at once; the lanes are of the rest."""

    moved: MoveResult
    begun: Sequence[BegunAttempt]


class BeginRequest(Value, frozen=True):
    """Begin up to `limit` due rows of a lane."""

    lane: Lane
    lease_guid: UUID | None  # None: as a helper or a guest, see `begin`
    limit: int
    since: datetime | None = None  # older rows of the lane need not be looked at
    # If the lane gives all that is asked, do not look at what is left in it: see `begin`.
    hasty: bool = False
    is_guest: bool = False  # the owner may live: it does not serve this lane


class BegunAttempt(msgspec.Struct, frozen=True, gc=False):
    """A right to execute: one attempt, fenced by its id. Nothing else may be executed."""

    shard: int
    id: str
    guid: UUID
    attempt_id: UUID
    spec: Spec
    status: Status  # as it was when the attempt began; attempts includes this one
    scheduled_at: datetime  # when this attempt was due
    began_at: datetime
    deadline: datetime  # began_at + timeout
    series: UUID | None = None  # what keys are made of, if the guid changed: see `delivery_key`
    need: str = ""  # of its lane
    waited: timedelta = timedelta(0)  # an armed one: from its begin to its confirmation

    @property
    def lane(self) -> Lane:
        """The lane that its row waits in."""
        return Lane(self.shard, self.spec.queue, self.spec.priority, self.need)


class ReservedAttempt(Protocol):
    """An attempt under way: begun, or ended and not recorded yet."""

    @property
    def shard(self) -> int: ...
    @property
    def guid(self) -> UUID: ...
    @property
    def attempt_id(self) -> UUID: ...


class BeginResult(Value, frozen=True):
    """What was begun, and when each demanded lane has its next row (None: no row left).

    A lane that gave less than was asked although rows of it are due is in `refused`, with the time
    of the first of those: they are locked, expired, of an old generation, or run past their
    reservation. Its `next_due` is then of the rows behind them. If more of them stand there than
    were looked at, `reached` says where the next look goes on: a demand with this `since`.
    """

    begun: Sequence[BegunAttempt]
    next_due: Mapping[Lane, datetime | None]
    now: datetime
    refused: Mapping[Lane, datetime] = MappingProxyType({})
    reached: Mapping[Lane, datetime] = MappingProxyType({})


class ConfirmResult(Value, frozen=True):
    """Which armed attempts must not be performed now; all others may."""

    now: datetime
    early: Collection[UUID] = ()  # their time has not come: ask again
    gone: Collection[UUID] = ()  # the action was changed, or somebody else has the row: never
    expired: Collection[UUID] = ()  # they stand, but are too late: to be taken back


class LapsedRow(Value, frozen=True):
    """A due row that `begin` refuses: its attempt outlived its reservation, or it expired."""

    shard: int
    id: str
    guid: UUID
    spec: Spec
    status: Status
    attempt: Attempt | None  # of the attempt that ran, if `running`
    running: bool
    scheduled_at: datetime  # as read: part of the fence
    now: datetime


class FinishRequest(msgspec.Struct, frozen=True, gc=False):
    """How an attempt ended and what follows from it."""

    shard: int
    id: str
    guid: UUID
    attempt_id: UUID
    attempt_no: int
    occurrence_no: int
    began_at: datetime
    outcome: str  # succeeded, failed, cancelled, interrupted, abandoned, unserved
    verdict: Verdict
    error: str | None = None
    answer: str | None = None
    ended_at: datetime | None = None  # the verdict counts from here; None, or later: when recorded
    need: str = ""  # if it is `unserved`: whoever serves this may begin it


class SettleRequest(Value, frozen=True):
    """What follows for a lapsed row; fenced by everything that was read of it."""

    lapsed: LapsedRow
    verdict: Verdict
    reason: str  # of the interruption, for the attempt log


class Recorded(StrEnum):
    """What became of a result."""

    APPLIED = "applied"
    REPEATED = "repeated"  # it had been recorded before: the answer was lost
    LATE = "late"  # a newer attempt or generation exists; kept in the attempt log only
    HELD = "held"  # not recorded: a user's transaction holds the action; to be tried again


class PausePlace(NamedTuple):
    """A paused action in the order in which pauses of a shard end."""

    until: datetime
    id: str


class PauseEnds(Value, frozen=True):
    """Actions whose pauses have ended, as they are now. Shards that may have more at once are in
    `reached`, with the place behind which to look for them."""

    actions: Sequence[Action] = ()
    reached: Mapping[int, PausePlace] = MappingProxyType({})


NO_PLACES: Mapping[int, PausePlace] = MappingProxyType({})


class WorkStore(Protocol):
    """Moves, begins and records. The processing queue is written here and nowhere else."""

    async def move(self, holdings: Sequence[HeldShard], *, limit: int) -> MoveResult:
        """Move rows of the held shards from the incoming to the processing queue.

        At most `limit` rows a shard, oldest first; a row is moved whole or not at all, and never
        twice. Rows of shards whose lease is not the given one stay. Rows whose guid is not its
        action's any more are dropped. A mark that the database's clock has not come to, because it
        was set back, counts as a mark of the present; without a mark all rows are looked at. New
        marks lag behind the present, but pass rows of transactions that are open for longer: see
        `poll`.
        """
        ...

    async def move_silent(
        self, shards: Sequence[int], *, limit: int, silent: timedelta
    ) -> MoveResult:
        """As a helper, see `begin`: move rows of shards that nobody holds, or whose owner has been
        silent for `silent`, at most `limit` a shard. Rows younger than a second are left to the
        owner. Whoever moves a row takes it away from all others, so an owner that comes back does
        no harm. No marks are given: it looks from the owner's last saved one on.
        """
        ...

    async def move_and_begin(
        self,
        holdings: Sequence[HeldShard],
        *,
        limit: int,
        room: Mapping[str, int],
        batch: UUID,
        owner: str,
        grace: timedelta,
        window: timedelta,
        newest: bool = False,
    ) -> ArrivalResult:
        """Move, and begin at once what is due on arrival: an immediate action's short way.

        Moves like `move`; of each queue in `room` up to that many of the rows taken are begun, by
        the rules of `begin`, in the same transaction where the engine can. The others are moved
        only; so may those be that were attempted before. An engine may begin a row where it is:
        then `next_due` and `list_lanes` do not tell of it, but everything else does. An unknown
        outcome is found out by `find_begun`, as for `begin`.

        `newest`: of the last `limit` rows of each shard what is due is taken, as far as there is
        room, and the rest stays (but for rows of the same moment, perhaps); neither marks nor
        `more` are told. It is for who has a long backlog of arrivals to move, which may be for next
        month.
        """
        ...

    async def is_mixed(self, holdings: Sequence[HeldShard], *, limit: int) -> bool:
        """Whether incoming rows of the held shards are of several queues or priorities, as far as a
        look at the oldest `limit` of each shard tells. If they are not, nothing comes earlier by
        being moved."""
        ...

    async def begin(
        self,
        demands: Sequence[BeginRequest],
        *,
        batch: UUID,
        owner: str,
        grace: timedelta,
        window: timedelta,
        silent: timedelta,
        until: datetime | None = None,
    ) -> BeginResult:
        """Begin due attempts: the only way to obtain the right to execute.

        For each demand up to `limit` rows in order of scheduled_at that are due by the database's
        clock, not running, of the action's current generation, and not expired. Each gets a new
        attempt id (derived from the random `batch` and the guid) and a reservation:
        scheduled_at = now + min(timeout, window) + grace. One row is begun by one caller only.
        Rows of a lane whose lease is not the given one are left alone; with lease_guid None
        (helper) rows must be overdue by over a second and the owner silent for `silent`, or absent.
        A guest (`is_guest`) has no lease either, and asks neither for that: it begins in lanes that
        the owner does not serve, and should the owner, too, one of them begins each row.
        `next_due` counts running rows too, by their reservation. For a `hasty` demand that gave
        all it was asked for it may be the time of the last row begun: rows passed over before it,
        because they were locked, are then not told of.

        Nothing is waited for: an action that somebody holds is passed over. What cannot be begun
        (expired, held, left behind) is looked at in a bounded number only; where it fills the head
        of a lane, the newest due rows of that lane are begun instead, and the rows between are
        found by going on from where the look ended (`reached`), demand by demand.

        With `until`, which only the owner of a shard gives, rows that will be due by that moment
        are *armed*: begun as of their due time, from which their deadline and their reservation
        count. An armed attempt is no right to execute: `confirm` makes it one.
        """
        ...

    async def confirm(self, attempts: Sequence[BegunAttempt]) -> ConfirmResult:
        """Whether armed attempts may be performed now: their time has come by the database's clock,
        the row carries them, they run, their generation is current, active and not expired.

        Reads only. A change that commits later finds the attempt begun, as it finds any other; one
        that was committed before is seen here. What is not performed is handed back by `finish`.
        """
        ...

    async def find_begun(self, shards: Collection[int], *, batch: UUID) -> Sequence[BegunAttempt]:
        """What a `begin` or `move_and_begin` with this batch began in these shards, when its answer
        was lost. Slow; changes nothing."""
        ...

    async def extend(
        self, attempts: Sequence[ReservedAttempt], *, window: timedelta, grace: timedelta
    ) -> Collection[UUID]:
        """Prolong the reservations of running attempts to now + window + grace, also ones that
        have run out.

        Returns the attempt ids that are still the current running ones; the rest are lost: ended,
        superseded, or called interrupted by another process. A row that somebody holds is not
        waited for: it counts as running, and is prolonged next time.
        """
        ...

    async def finish(self, finishes: Sequence[FinishRequest], *, owner: str) -> Sequence[Recorded]:
        """Record results, all in one transaction; one answer per result, in order.

        Accepted (APPLIED) if the row still carries the attempt id and the attempt runs, or was
        swept as interrupted and no newer attempt began (then the interruption is taken back).
        The lease plays no part. Accepted results change counters, occurrence and due time as the
        verdict says, or end the action and move it to the finished ones for its retention (0:
        remove). Otherwise REPEATED if this very attempt was recorded already, else LATE: written
        to the attempt log as `late_<outcome>` and nothing else, and a row that an old generation
        left goes; of an attempt that was asked to end and did, it is `cancelled`. Nobody is waited
        for: where a user's transaction holds the action the answer is HELD. Nothing is written then
        but a longer reservation, so that the attempt is not taken for interrupted meanwhile; the
        caller tries again.

        An `unserved` attempt was not made: if the row carries it and it runs, the begin is taken
        back. The row is due as before, in the lane of the result's need, and keeps the need until
        its generation ends; no counter, no attempt in the log tells of it. It is REPEATED until
        another attempt begins; otherwise LATE, which leaves no trace: one that was swept stays an
        interruption.
        """
        ...

    async def list_cancelling(
        self, shards: Collection[int], *, owner: str, since: datetime
    ) -> Collection[UUID]:
        """Attempts of this owner that were asked to end and have not, as far as is recorded: those
        that began at `since` or later in one of these shards, and perhaps others. Cheap: every
        worker asks while it has attempts in hand, and most often there is none. Changes nothing:
        who has heard of one hears of it again until its end is recorded.
        """
        ...

    async def list_lapsed(
        self, holdings: Sequence[HeldShard], *, limit: int
    ) -> Sequence[LapsedRow]:
        """Due rows of the held shards that `begin` refuses: running past their reservation, or
        expired. Not those whose action somebody holds just now: they are found again."""
        ...

    async def delete_stale(self, holdings: Sequence[HeldShard], *, limit: int) -> int:
        """Remove due rows of old generations from the held shards, up to about `limit`; how many.

        A change takes its own row away, so there are few: rows that were being moved when their
        generation ended, attempts of old generations that never answered.
        """
        ...

    async def list_orphans(
        self, owners: Collection[str], *, shards: Sequence[int], after: UUID | None, limit: int
    ) -> Sequence[LapsedRow]:
        """Running attempts that these owners began, in order of guid, from behind `after` on.

        At most `limit`, in the given shards; of current generations only. Changes nothing: who
        has proof that an owner's process ended decides what follows and calls `settle`, whose
        fence is the attempt as read here. The reservation plays no part.
        """
        ...

    async def settle(self, settlements: Sequence[SettleRequest]) -> int:
        """Write what was decided about lapsed rows and orphans.

        Each is fenced by (guid, attempt id, running, scheduled_at) as read; those that changed
        meanwhile, or that somebody holds, are skipped. An interrupted attempt goes to the attempt
        log; the row remembers that it was swept, so that a late result can take it back. Returns
        how many were applied.
        """
        ...

    async def end_pauses(
        self,
        holdings: Sequence[HeldShard],
        *,
        batch: UUID,
        decide: DecideResume,
        limit: int,
        places: Mapping[int, PausePlace] = NO_PLACES,
        silent: timedelta | None = None,
    ) -> PauseEnds:
        """Let paused actions go on whose end has come by the database's clock, as `resume` does:
        under new guids (derived from the random `batch` and the old ones), due as `decide` says,
        appended to the incoming queue. The audit has each as `end_pause`.

        At most `limit` of all these shards, in each the earliest ends first, from behind its place
        in `places` on. Shards whose lease is not the given one are left alone; with `silent`
        (helper) those of which somebody is the owner who was heard of since. Nobody is waited for:
        an action that somebody holds stays paused, and is found again by a look from the beginning.
        Cheap where no pause ends: every worker asks about twice a second.
        """
        ...

    async def list_needs(self, *, limit: int) -> Sequence[str]:
        """The needs that rows of all shards have, in order, up to `limit`. Cheap: every worker asks
        about once a second, and most often there is none."""
        ...

    async def list_need_lanes(self, needs: Sequence[str]) -> Mapping[Lane, datetime]:
        """Every lane with one of these needs, in any shard, and its earliest time."""
        ...

    async def count_due(
        self, lanes: Sequence[Lane], *, limit: int, until: datetime | None = None
    ) -> int:
        """How many rows of these lanes are due, or will be by `until`, and do not run; counted up
        to `limit` only. Whoever holds their shards."""
        ...

    async def list_lanes(self, holdings: Sequence[HeldShard]) -> Mapping[Lane, datetime]:
        """Every lane with rows in the held shards' processing queues and its earliest time."""
        ...

    async def poll(self, holdings: Sequence[HeldShard]) -> PollResult:
        """Which of the held shards have incoming rows behind their mark: a cheap poll.

        With it, which transactions are in progress: all that may have written rows that are not to
        be seen yet. Once one of them is not named any more, its rows are to be seen; they may be
        older than a mark. An engine that looks at all rows, whatever the mark, need name none.
        """
        ...
