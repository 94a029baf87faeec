"""Queues of stages: an entity waits in the queue of each stage that is to see it.

Stages are pure, so nothing is marked as running: a queue row stays until a commit removes it, and
whoever owns the shard after a crash simply does it again. The fences are the shard's lease, the
entity's (epoch, version), the state's version, and the queue row's `seq`.

The way of a change: `changed_entities` gives the owner of the shard what changed, `route` stores
which stages want it, `lane_head` claims it for a stage, and `commit` or `give_back` ends the claim.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from enum import IntEnum, StrEnum
from typing import NamedTuple, Protocol
from uuid import UUID

from gnomon.contracts.store.batches import bytes_of
from gnomon.contracts.store.entities import ChangeNote, Entity, StageState, StateWrite
from gnomon.contracts.store.tokens import LOCAL
from gnomon.contracts.store.value import Value
from gnomon.contracts.store.work import HeldShard


class StageLane(IntEnum):
    """Which of a stage's two lanes: fresh changes, or the backfill of all entities."""

    MAIN = 0
    BACKGROUND = 1


class RowStatus(StrEnum):
    """What a queue row is. `running` and `orphan` are not stored: the owner knows the one, the
    register of stages the other. `undelivered` is not in the queue, but shown beside it."""

    SLEEPING = "sleeping"  # only a timer
    READY = "ready"
    QUARANTINED = "quarantined"
    LOOPING = "looping"
    UNDELIVERED = "undelivered"  # saves that `after_save` did not take: `OutboxStore.quarantine`


class QueueRow(Value, frozen=True):
    """An entity in a stage's queue, or its undelivered saves: then it tells of the first of them
    (since when, attempts, root, error; the reason is `save v<version>`)."""

    entity_key: str
    stage: str
    lane: StageLane
    status: RowStatus
    ready_at: datetime | None
    timer_at: datetime | None
    first_at: datetime
    seq: int  # begins anywhere: a row that comes again must not be taken for the one that went
    attempts: int
    reasons: tuple[str, ...]
    root: UUID
    depth: int
    error: str | None = None
    note: str | None = None


class Enqueue(Value, frozen=True):
    """Put an entity into a stage's queue, or only arm its timer (`ready` False). The rule and its
    numbers are `model.stage.queue_merge`.

    Merged into a row that is ready: seq + 1, reasons joined to the `REASONS_MAX` newest, root and
    depth are the new ones, ready_at the earlier (in backoff, which is attempts > 0 and not yet due,
    no sooner than `BACKOFF_FLOOR` from now), lane the better; a row that changes lane is not ready
    before now, so that it goes to the end of its new lane. With `debounce` a row that is not due
    yet is then moved on, to `debounce` from now, but to no later than `DEBOUNCES_MAX` times that
    after its `first_at`; what is due stays so. A sleeping row becomes ready as if new, its timer
    stays. A parked row is freed only if `frees` (a looping one only at depth 0 besides): as if new,
    attempts 0, reasons joined. With `looping` the row is parked so, unless it is ready (whatever
    readied it is not lost). A timer alone changes nothing but `timer_at`. Entities that do not live
    get no rows.
    """

    stage: str
    reason: str
    root: UUID
    depth: int = 0
    ready: bool = True
    lane: StageLane = StageLane.MAIN
    wake: datetime | None = None  # arm the timer at the earlier of the two
    delay: timedelta = timedelta(0)  # ready so much after the present
    debounce: timedelta = timedelta(0)  # likewise, and no sooner than so long after the last one
    frees: bool = False  # a quarantined row too; a looping one if `depth` is 0
    looping: str | None = None  # park the row as looping, with this proof, instead of readying it

    @property
    def is_at_once(self) -> bool:
        """Whether it readies the entity in the main lane, now, and nothing else."""
        return (
            self.ready
            and self.looping is None
            and self.wake is None
            and not self.lane  # the main one is 0
            and not self.delay
            and not self.debounce
        )


class ChangedEntity(Value, frozen=True):
    """An entity with changes that the stages were not asked about, and all they need to answer."""

    entity: Entity
    seq: int
    changes: tuple[ChangeNote, ...]  # since the last time it was asked about
    states: Mapping[str, StageState]
    waiting: Mapping[str, QueueRow]


def size_of(entity: Entity, states: Mapping[str, StageState]) -> int:
    """Bytes of the document and the states: what bounds a batch."""
    size = bytes_of(entity.doc)
    return size + sum(len(state.body) for state in states.values()) if states else size


class NewRow(NamedTuple):
    """A queue row that an `Enqueue` made where there was none, so it says what that one says."""

    stage: str
    seq: int
    at: datetime  # when


class Routing(Value, frozen=True):
    """All stages were asked about a changed entity: the fence, and which want it."""

    entity_key: str
    shard: int
    lease_guid: UUID
    seq: int
    epoch: int
    version: int  # asked about up to this one
    enqueues: tuple[Enqueue, ...]


class ClaimedEntity(Value, frozen=True):
    """An entity at the head of a stage's queue, with all that its run needs."""

    entity: Entity
    row: QueueRow
    states: Mapping[str, StageState]  # of all stages that have one
    waiting: frozenset[str]  # the other stages in whose queue it is ready, and due
    now: datetime
    held_back: frozenset[str] = frozenset()  # likewise, but it is put off there, or parked
    ahead: frozenset[str] = frozenset()  # of `waiting`, those whose (ready_at, stage) is before it


class LaneHead(NamedTuple):
    """The head of a stage's lane."""

    claims: Sequence[ClaimedEntity]
    next_at: datetime | None  # when the lane has something beyond these; None: it has not


class Unchanged(StrEnum):
    """Leave it as it is."""

    KEEP = "keep"


class Commit(Value, frozen=True):
    """What a stage made of a claim."""

    shard: int
    lease_guid: UUID
    entity_key: str
    stage: str
    seq: int  # of the claimed row
    epoch: int
    version: int  # that the document below is based on
    doc: str | None  # None: unchanged
    paths: tuple[str, ...]  # what changed
    state_version: int  # as loaded; 0: there was none
    root: UUID
    depth: int  # of the change this makes
    state: StateWrite | Unchanged = Unchanged.KEEP
    wake: datetime | Unchanged | None = Unchanged.KEEP
    note: str = ""
    enqueues: tuple[Enqueue, ...] = ()  # for stages that were asked about exactly this document
    unrouted: bool = False  # they were not asked: the shard's owner will, by `changed_entities`
    after_save: bool = False  # an outbox row for this stage's own `after_save`
    # What other stages, each once, made of it then and there, without a row of theirs: saved with
    # it or not at all, one on top of the other, as if each had been claimed. Of these `seq` and
    # `enqueues` are empty; the enqueues above are made after the last.
    then: tuple[Commit, ...] = ()

    @property
    def parts(self) -> tuple[Commit, ...]:
        """All of it, stage by stage."""
        return (self, *self.then) if self.then else (self,)


class CommitKind(StrEnum):
    """What became of a commit."""

    SAVED = "saved"
    MOVED = "moved"  # the entity has another version: nothing was written
    STATE_MOVED = "state_moved"  # the state, or one of those of `then`: nothing was written
    GONE = "gone"  # entity deleted or of another epoch; the row is gone too
    LOST = "lost"  # the lease is another's
    HELD = "held"  # somebody's open transaction holds the entity: nothing was written; try again


class CommitResult(Value, frozen=True):
    """The answer to a commit; with MOVED, what is there now and what changed since, oldest first.

    Notes over an hour old may be missing from `since`: then it has fewer of them than versions.
    With SAVED, the rows that its enqueues made; not those that they were merged into.
    """

    kind: CommitKind
    entity: Entity | None = None
    since: tuple[ChangeNote, ...] = ()
    made: tuple[NewRow, ...] = ()


class ReturnedClaim(Value, frozen=True):
    """A claim that did not come to a commit: what its row shall be. Fenced by lease and `seq`.

    If `seq` has moved meanwhile, the row stays ready as it is, and only `attempts` and the error
    are written.
    """

    shard: int
    lease_guid: UUID
    entity_key: str
    stage: str
    seq: int
    status: RowStatus | None  # None: the run is not wanted: drop the row, keep its timer
    delay: timedelta = timedelta(0)
    counts: bool = False  # whether it is a failure of this entity
    error: str | None = None
    wake: datetime | None = None  # arm the timer at the earlier of the two


class ReturnedKind(StrEnum):
    """What became of a returned claim."""

    WRITTEN = "written"
    STALE = "stale"  # lease or `seq` did not hold
    HELD = "held"  # as of a commit


class BackfillPage(Value, frozen=True):
    """The next entities of a backfill of one shard."""

    entities: Sequence[ChangedEntity]  # `changes` is empty
    cursor: str | None  # None: the backfill has reached the end
    reason: str
    started_at: datetime  # which backfill it is: no two of a stage have the same


class NextDue(NamedTuple):
    """When a stage's lane has something next."""

    stage: str
    lane: StageLane
    at: datetime


class NextWork(Value, frozen=True):
    """What the held shards have to do: the earliest of each kind."""

    now: datetime
    ready: Sequence[NextDue]
    timer_at: datetime | None
    has_changes: bool  # for `changed_entities`
    backfills: Sequence[tuple[str, int]]  # (stage, shard) of held shards with an unfinished one


class QueueStore(Protocol):
    """The queues of all stages. Verbs of a shard's owner take holdings or a lease as their fence.

    Somebody's open transaction may hold an entity, for as long as he likes. The owner never waits
    for him: what is about that entity is not written, and he is told so; all else is.

    What loads many ends a batch with the entity by which documents and states reach
    `BATCH_BYTES_MAX`, whatever `limit` is: `changed_entities`, `lane_head`, `backfill_page`."""

    # -- what people see and do -------------------------------------------------------------------

    async def rows(self, entity_key: str, *, shard: int) -> Sequence[QueueRow]:
        """The entity in all queues, and its undelivered saves."""
        ...

    async def parked(
        self, *, prefix: str, stage: str | None, after: tuple[str, str] | None, limit: int
    ) -> Sequence[QueueRow]:
        """Quarantined and looping rows and undelivered saves of entities whose key begins so, in
        order of (entity, stage), which may have one of each: those of so many (entity, stage) as
        `limit` says."""
        ...

    async def release(
        self, entity_key: str, stage: str | None, *, shard: int, actor: str = LOCAL
    ) -> int:
        """Free parked rows by hand: ready now in the main lane, attempts 0, depth 0, new root,
        reason `by hand` joined; undelivered saves are due now, in their order, attempts 0. How many
        of those that `parked` lists. If any, the audit has an entry."""
        ...

    # -- what the owner of shards does ------------------------------------------------------------

    async def next_work(self, holdings: Sequence[HeldShard]) -> NextWork:
        """What the held shards have to do next, and when."""
        ...

    async def fire_timers(self, holdings: Sequence[HeldShard], *, limit: int) -> int:
        """Timers that are due become ready rows (reason `timer`, depth 0, new root), consumed by
        the same statement. Parked rows keep theirs. How many; 0 if none is due or held."""
        ...

    async def changed_entities(
        self, holdings: Sequence[HeldShard], *, limit: int, skip: Collection[str]
    ) -> Sequence[ChangedEntity]:
        """Entities with changes that the stages were not asked about, oldest first; their changes
        likewise. `waiting` has all their rows, whatever their status. There may be more if `limit`
        or `BATCH_BYTES_MAX` is reached."""
        ...

    async def route(self, routings: Sequence[Routing]) -> Sequence[tuple[NewRow, ...] | None]:
        """Store what the stages want of changed entities, each whole or not at all. An entity is
        not given by `changed_entities` again if its `seq` is the one read. The rows that were made
        (see `CommitResult`); None where the lease is lost or the entity held (nothing was written).
        If it is gone or of another epoch, nothing is written either: there is nothing left to ask.
        """
        ...

    async def lane_head(
        self,
        holdings: Sequence[HeldShard],
        stage: str,
        lane: StageLane,
        *,
        limit: int,
        skip: Collection[str],
    ) -> LaneHead:
        """The first due rows of a lane by `ready_at`, with entity and states, and when there will
        be more. `skip`: entities."""
        ...

    async def claim(self, holding: HeldShard, entity_key: str, stage: str) -> ClaimedEntity | None:
        """One row anew, for another run of it; None if it is not ready any more."""
        ...

    async def commit(self, commits: Sequence[Commit]) -> Sequence[CommitResult]:
        """Save runs, each whole or not at all, all fenced, as if one after the other.

        Saved: document with version + 1 and its change note (if `doc`), state with version + 1, the
        timer, the enqueues (see `Enqueue`), the entity among the changed ones (if `doc` and
        `unrouted`), outbox rows for the relay if the register knows one, and for the stage itself
        if `after_save` (both if document or state changed; with the document and this stage's state
        as they are then), and the claimed row: removed if its `seq` is the one claimed and no timer
        is left, sleeping if one is; left ready if `seq` moved, with attempts 0; made anew,
        sleeping, if it is gone and `wake` is a moment. Then the same of each part of `then`, in
        their order, and after the last the enqueues. Repeated, a commit is MOVED or STATE_MOVED, or
        harmless.
        """
        ...

    async def give_back(self, claims: Sequence[ReturnedClaim]) -> Sequence[ReturnedKind]:
        """Write what became of claims without a commit."""
        ...

    async def backfill_page(
        self, holding: HeldShard, stage: str, *, limit: int, backlog_max: int
    ) -> BackfillPage | None:
        """The next entities of an unfinished backfill, of the stage's kind alone; None if there is
        none, or while the stage's background lane of this shard holds more than `backlog_max` ready
        rows."""
        ...

    async def advance_backfill(
        self,
        holding: HeldShard,
        stage: str,
        *,
        started_at: datetime,
        cursor: str | None,
        routings: Sequence[Routing],
    ) -> bool:
        """Store the enqueues of a page (their `seq` is 0) and move the backfill on; without a
        cursor it ends. False, and nothing was written, if the lease is lost, the backfill has been
        started again, or one of the entities is held: it would be passed over for good."""
        ...
