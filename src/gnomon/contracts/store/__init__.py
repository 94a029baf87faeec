"""The store, by role. An engine is one implementation of all of it.

Rules that hold for every method:

* It is one transaction and one decision: it happens whole or not at all.
* Its docstring is the contract: atomicity, order, idempotence, what it returns when there is
  nothing or when the caller is late, which errors.
* Time is the database's. Methods that need the present read it there; none takes the caller's.
* A worker's write carries its fence: the lease for moving and beginning, the attempt id for
  recording. Being late is a result, not an error.
* `StoreUnavailable` may come out of any method; then the outcome is unknown, and repeating the
  call with the same arguments is safe.

Words: a *lane* is one (shard, queue, priority, need): what is due in it is begun in order of its
time.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from gnomon.contracts.store.actions import (
    ActionDraft,
    ActionPage,
    ActionStore,
    ActionWrites,
    ChangeResult,
    DecideResume,
    SelectedCount,
    Selection,
)
from gnomon.contracts.store.entities import (
    ChangeNote,
    Entity,
    EntityStore,
    EntityWrite,
    StageState,
    StateWrite,
)
from gnomon.contracts.store.figures import InstallationFigures, QueueFigures, StageFigures
from gnomon.contracts.store.installation import (
    Finding,
    Installation,
    InstallationStore,
    Wakeups,
)
from gnomon.contracts.store.leases import (
    HeartbeatResult,
    LeaseRequest,
    LeaseStore,
    ShardLock,
    WorkerRow,
)
from gnomon.contracts.store.limits import (
    LimitRequest,
    LimitStore,
    LimitTable,
    LimitUse,
)
from gnomon.contracts.store.measures import HeldCleanup, StoreMeasures, TableMeasure
from gnomon.contracts.store.outbox import (
    RELAY_SINK,
    OutboxRow,
    OutboxStore,
    SinkBacklog,
    SinkQueue,
)
from gnomon.contracts.store.programs import ActionDeclaration, DecideRevision, ProgramStore
from gnomon.contracts.store.progress import Progress, ProgressStore
from gnomon.contracts.store.queues import (
    BackfillPage,
    ChangedEntity,
    Commit,
    CommitKind,
    CommitResult,
    Enqueue,
    NextDue,
    NextWork,
    QueueRow,
    QueueStore,
    ReturnedClaim,
    Routing,
    RowStatus,
    StageLane,
    Unchanged,
)
from gnomon.contracts.store.register import StageRecord, StageRegister
from gnomon.contracts.store.reports import (
    DueBucket,
    DueLoad,
    FailedAction,
    FailedActions,
    HistoryRow,
    RecurringAction,
    ReportStore,
    WaitFacts,
)
from gnomon.contracts.store.tokens import (
    LOCAL,
    PYTHON,
    Actor,
    AuditEntry,
    AuditSelection,
    Token,
    TokenDraft,
    TokenStore,
)
from gnomon.contracts.store.value import Capabilities, Value
from gnomon.contracts.store.work import (
    NO_PLACES,
    ArrivalResult,
    BeginRequest,
    BeginResult,
    BegunAttempt,
    ConfirmResult,
    FinishRequest,
    HeldShard,
    Lane,
    LapsedRow,
    MoveResult,
    OpenTransactions,
    PauseEnds,
    PausePlace,
    PollResult,
    Recorded,
    ReservedAttempt,
    SettleRequest,
    WorkStore,
)

__all__ = [
    "LOCAL",
    "NO_PLACES",
    "PYTHON",
    "RELAY_SINK",
    "ActionDeclaration",
    "ActionDraft",
    "ActionPage",
    "ActionStore",
    "ActionWrites",
    "Actor",
    "ArrivalResult",
    "AuditEntry",
    "AuditSelection",
    "BackfillPage",
    "BeginRequest",
    "BeginResult",
    "BegunAttempt",
    "Capabilities",
    "ChangeNote",
    "ChangeResult",
    "ChangedEntity",
    "Commit",
    "CommitKind",
    "CommitResult",
    "ConfirmResult",
    "DecideResume",
    "DecideRevision",
    "DueBucket",
    "DueLoad",
    "Enqueue",
    "Entity",
    "EntityStore",
    "EntityWrite",
    "FailedAction",
    "FailedActions",
    "Finding",
    "FinishRequest",
    "HeartbeatResult",
    "HeldCleanup",
    "HeldShard",
    "HistoryRow",
    "Installation",
    "InstallationFigures",
    "InstallationStore",
    "Lane",
    "LapsedRow",
    "LeaseRequest",
    "LeaseStore",
    "LimitRequest",
    "LimitStore",
    "LimitTable",
    "LimitUse",
    "MoveResult",
    "NextDue",
    "NextWork",
    "OpenTransactions",
    "OutboxRow",
    "OutboxStore",
    "PauseEnds",
    "PausePlace",
    "PollResult",
    "ProgramStore",
    "Progress",
    "ProgressStore",
    "QueueFigures",
    "QueueRow",
    "QueueStore",
    "Recorded",
    "RecurringAction",
    "ReportStore",
    "ReservedAttempt",
    "ReturnedClaim",
    "Routing",
    "RowStatus",
    "SelectedCount",
    "Selection",
    "SettleRequest",
    "ShardLock",
    "SinkBacklog",
    "SinkQueue",
    "StageFigures",
    "StageLane",
    "StageRecord",
    "StageRegister",
    "StageState",
    "StateWrite",
    "Store",
    "StoreMeasures",
    "TableMeasure",
    "Token",
    "TokenDraft",
    "TokenStore",
    "Unchanged",
    "WaitFacts",
    "Wakeups",
    "WorkStore",
    "WorkerRow",
]


class Store(Value, frozen=True):
    """An open engine: its roles in one record."""

    capabilities: Capabilities
    actions: ActionStore
    work: WorkStore
    leases: LeaseStore
    installation: InstallationStore
    tokens: TokenStore
    limits: LimitStore
    programs: ProgramStore
    progress: ProgressStore
    entities: EntityStore
    queues: QueueStore
    register: StageRegister
    outbox: OutboxStore
    reports: ReportStore
    wakeups: Wakeups
    close: Callable[[], Coroutine[Any, Any, None]]
    joining: Callable[[object], ActionWrites]  # NotSupported if the connection is none we know
