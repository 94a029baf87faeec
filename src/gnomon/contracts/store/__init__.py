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

Words: a *lane* is one (shard, queue, priority): what is due in it is begun in order of its time.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from gnomon.contracts.store.actions import (
    ActionStore,
    Changed,
    Draft,
    Page,
    Selection,
)
from gnomon.contracts.store.entities import (
    Asked,
    ChangeNote,
    Commit,
    CommitKind,
    Committed,
    Entity,
    EntityStore,
    EntityWrite,
    Fed,
    Keep,
    Next,
    Offer,
    QueueRow,
    RowStatus,
    SetBack,
    StageLane,
    StageState,
    StateWrite,
    Survey,
    SweepPage,
)
from gnomon.contracts.store.installation import (
    Finding,
    Installation,
    InstallationStore,
    Wakeups,
)
from gnomon.contracts.store.leases import (
    LeaseStore,
    Pulse,
    ShardLock,
    WorkerRow,
)
from gnomon.contracts.store.limits import (
    Claim,
    LimitStore,
    LimitTable,
    LimitUse,
)
from gnomon.contracts.store.outbox import (
    RELAY_SINK,
    Backlog,
    OutboxStore,
    Outgoing,
    Waiting,
)
from gnomon.contracts.store.register import StageRecord, StageRegister
from gnomon.contracts.store.tokens import (
    LOCAL,
    AuditEntry,
    AuditSelection,
    Token,
    TokenDraft,
    TokenStore,
)
from gnomon.contracts.store.value import Capabilities, Value
from gnomon.contracts.store.work import (
    Arrived,
    BeginResult,
    Begun,
    Demand,
    Finish,
    Holding,
    Incoming,
    Lane,
    Lapsed,
    Moved,
    Open,
    Recorded,
    Reserved,
    Settle,
    WorkStore,
)

__all__ = [
    "LOCAL",
    "RELAY_SINK",
    "ActionStore",
    "Arrived",
    "Asked",
    "AuditEntry",
    "AuditSelection",
    "Backlog",
    "BeginResult",
    "Begun",
    "Capabilities",
    "ChangeNote",
    "Changed",
    "Claim",
    "Commit",
    "CommitKind",
    "Committed",
    "Demand",
    "Draft",
    "Entity",
    "EntityStore",
    "EntityWrite",
    "Fed",
    "Finding",
    "Finish",
    "Holding",
    "Incoming",
    "Installation",
    "InstallationStore",
    "Keep",
    "Lane",
    "Lapsed",
    "LeaseStore",
    "LimitStore",
    "LimitTable",
    "LimitUse",
    "Moved",
    "Next",
    "Offer",
    "Open",
    "OutboxStore",
    "Outgoing",
    "Page",
    "Pulse",
    "QueueRow",
    "Recorded",
    "Reserved",
    "RowStatus",
    "Selection",
    "SetBack",
    "Settle",
    "ShardLock",
    "StageLane",
    "StageRecord",
    "StageRegister",
    "StageState",
    "StateWrite",
    "Store",
    "Survey",
    "SweepPage",
    "Token",
    "TokenDraft",
    "TokenStore",
    "Waiting",
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
    entities: EntityStore
    outbox: OutboxStore
    wakeups: Wakeups
    close: Callable[[], Coroutine[Any, Any, None]]
    joining: Callable[[object], ActionStore]  # NotSupported if the connection is none we know
