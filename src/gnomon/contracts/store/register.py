"""The register of stages: which there are, as those who serve them say."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol
from uuid import UUID

from gnomon.contracts.store.outbox import RELAY_SINK
from gnomon.contracts.store.tokens import LOCAL
from gnomon.contracts.store.value import Value
from gnomon.contracts.store.work import HeldShard
from gnomon.model.errors import ConfigurationError
from gnomon.model.stage.graph import Reach


class StageDeclaration(Value, frozen=True):
    """What a worker says of a stage that it serves."""

    name: str
    revision: int
    reach: Reach
    formerly: str | None = None  # the name it had before
    backfill: bool = False  # show it all entities if it is new
    debounce: timedelta = timedelta(0)

    def check_kind(self, known: str) -> None:
        """Whether it is of the kind that the register has it with. Errors: ConfigurationError."""
        if known != self.reach.kind:
            raise ConfigurationError(
                f"stage {self.name}",
                f"is of the kind {self.reach.kind!r} here, and of {known!r} in the register: give"
                f" it another name, or run `gnomon stage forget {self.name}` first",
            )


# The relay stands there like a stage; it is of no kind, and never has another revision.
RELAY_DECLARATION = StageDeclaration(name=RELAY_SINK, revision=1, reach=Reach("", (), ()))


class StageRecord(Value, frozen=True):
    """A stage as the register knows it."""

    name: str
    kind: str  # of the entities that it looks after
    revision: int  # the highest ever declared
    first_seen_at: datetime
    last_seen_at: datetime
    waiting: int = 0
    background: int = 0
    parked: int = 0
    sleeping: int = 0
    debounce: timedelta = timedelta(0)  # as declared last
    own_echo: bool = False  # whether it may write what it watches
    watch: tuple[str, ...] = ()  # as the highest revision declared it last; empty: everything
    writes: tuple[str, ...] = ()  # likewise; empty: nothing


class UnservedShard(NamedTuple):
    """A shard whose owner does not serve a stage."""

    stage: str
    shard: int
    lease_guid: UUID  # of the owner


class StageAttendance(Value, frozen=True):
    """Who serves what at present."""

    now: datetime
    register: Sequence[StageRecord]  # as `registered` gives it
    servers: Mapping[str, frozenset[UUID]]  # by stage: the living workers that serve it
    openings: Sequence[UnservedShard]  # of the stages that the asking worker serves


class StageRegister(Protocol):
    """Knows which stages there are, who serves them, and starts their backfills."""

    async def declare(self, stages: Sequence[StageDeclaration]) -> Mapping[str, int | None]:
        """Say which stages are served here: the revision known before, or None for a new name. A
        higher revision is stored; a new name takes over revision, queue, timers, states, backfills
        and outbox of the name it had `formerly`. In the same transaction a backfill begins (reason
        `backfill r<revision>`) for a raised revision, and for a new name that wants a `backfill`; a
        raised revision also frees the stage's parked rows, for the same reason: ready now in the
        background lane, attempts 0, depth 0, new root; its undelivered saves are due now, attempts
        0. `debounce` is stored; so is `reach`, unless the revision is lower than what is known:
        owners who do not serve the stage go by it. A stage's kind never changes: if the register
        has it with another one, nothing is stored. Errors: ConfigurationError."""
        ...

    async def attend(
        self,
        worker: UUID,
        *,
        serves: Collection[str],
        holdings: Sequence[HeldShard],
        alive_for: timedelta,
    ) -> StageAttendance:
        """Say which stages this worker serves and which leases are its own; learn who serves what.

        A worker counts as living for `alive_for` after this; with nothing served it is not one of
        the servers. Of the leases those are noted that are still held. An opening is a shard whose
        noted lease is the current one, and whose owner does not serve the stage."""
        ...

    async def registered(self) -> Sequence[StageRecord]:
        """All stages ever declared and not forgotten; their queues are not counted."""
        ...

    async def stages(self) -> Sequence[StageRecord]:
        """The same, with what is in their queues; an entity's undelivered saves count as one that
        is parked. Reads all queues."""
        ...

    async def forget(self, stage: str, *, actor: str = LOCAL) -> int:
        """Remove a stage's queue, timers, states, backfills, outbox and register entry; how many
        rows of queue and states went."""
        ...

    async def begin_backfill(
        self,
        stage: str,
        *,
        reason: str,
        unless_within: timedelta | None = None,
        actor: str | None = None,
    ) -> bool:
        """Begin to show the stage all entities of its kind (a backfill on its way begins again);
        False, and nothing happens, if one began within that time."""
        ...
