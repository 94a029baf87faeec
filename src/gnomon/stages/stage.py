"""What a user writes: a stage. Five words: should_process, process, Update, Wake, after_save."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar, Generic, TypeVar
from uuid import UUID

import msgspec

from gnomon.contracts.store.queues import Unchanged as Keep
from gnomon.model.attempt_boundary import AttemptBoundary
from gnomon.model.stage.patch import Patch

E = TypeVar("E")
S = TypeVar("S")

__all__ = [
    "KEEP",
    "EntityView",
    "Keep",
    "Quarantine",
    "RetryLater",
    "SavedVersion",
    "Stage",
    "Update",
    "Wake",
]


KEEP = Keep.KEEP  # leave it as it was


class EntityView(msgspec.Struct, Generic[E, S], frozen=True):
    """An entity as a stage sees it."""

    kind: str
    id: str
    version: int
    entity: E
    state: S | None  # private to this stage
    now: datetime  # the store's clock; a stage never asks the system for the time
    reasons: frozenset[str]  # why it is here
    attempt: int


@dataclass(frozen=True, slots=True)
class Wake:
    """An answer of `should_process`: not now, but at this time at the latest; None: no.

    It never postpones or cancels a timer: an earlier one may have been set by `process`, for a
    reason that `should_process` does not know. `Update(wake=…)` replaces and cancels.
    """

    at: datetime | None


class Update(msgspec.Struct, Generic[S], frozen=True):
    """What a stage made of an entity."""

    patch: Patch = msgspec.field(default_factory=dict)  # JSON merge patch, or a list: JSON patch
    state: S | Keep = KEEP
    wake: datetime | Keep | None = KEEP  # a moment: replace; None: cancel; KEEP: as it was
    note: str = ""  # one line for the history


@dataclass(frozen=True, slots=True)
class SavedVersion(Generic[E, S]):
    """A saved version, for `after_save`. It may come more than once, with the same key."""

    kind: str
    id: str
    version: int
    entity: E | None  # None: deleted
    state: S | None
    author: str
    changed: tuple[str, ...]
    key: str
    root: UUID  # of the chain that it belongs to: `explain` shows the same

    @property
    def deleted(self) -> bool:
        """Whether the entity is gone."""
        return self.entity is None


class RetryLater(Exception):  # noqa: N818 - an answer with a name, not a fault
    """Raised by `process`: not possible now; again after a while."""

    def __init__(self, why: str, *, after: timedelta | None = None) -> None:
        if after is not None and not isinstance(after, timedelta):
            raise TypeError(f"RetryLater(after=…) must be a timedelta, got {after!r:.100}")
        super().__init__(why)
        self.after = after


class Quarantine(Exception):  # noqa: N818 - likewise
    """Raised by `process`: this entity needs a person; leave it until it changes."""


class Stage(Generic[E, S]):
    """A pure function over entities of one kind: it may be called again at will.

    `process` may read the outside world but not change it; what must happen outside is done in
    `after_save`, from what was saved.
    """

    name: ClassVar[str]
    watch: ClassVar[tuple[str, ...]] = ()  # paths it reads; empty: everything
    writes: ClassVar[tuple[str, ...]] = ()  # paths it may change; `*`: everything
    revision: ClassVar[int] = 1  # raise it to see all entities again
    parallel: ClassVar[int] = 16  # calls at once, whole installation
    rate: ClassVar[str | None] = None  # "50/s", whole installation
    batch: ClassVar[int] = 1  # > 1: process_many gets up to this many
    alongside: ClassVar[bool] = False  # may run while another stage works on the same entity
    fuse: ClassVar[bool] = False  # quick: may be called with what another stage has just made
    backfill: ClassVar[bool] = True  # a new stage sees all entities once
    formerly: ClassVar[str | None] = None  # the name it had before
    debounce: ClassVar[timedelta] = timedelta(0)  # after a change: wait until it is quiet so long
    spread: ClassVar[timedelta] = timedelta(0)  # timers get a stable delay of up to this
    backfill_every: ClassVar[timedelta | None] = None  # see all of them again, so often
    latest: ClassVar[bool] = False  # after_save: only the newest of several saves

    def should_process(self, it: EntityView[E, S]) -> bool | Wake:  # noqa: ARG002 - for those who override
        """Whether it wants the entity now, or later. Must be very fast; asked after changes."""
        return True

    async def process(self, it: EntityView[E, S]) -> Update[S] | None:
        """Look at the entity and say what to change; None: nothing."""
        raise NotImplementedError(f"{type(self).__name__} has neither process nor process_many")

    async def process_many(
        self, its: Sequence[EntityView[E, S]]
    ) -> Sequence[Update[S] | Exception | None]:
        """Several at once, answers by position; an exception in a place fails that entity alone."""
        answers: list[Update[S] | Exception | None] = []
        attempt = AttemptBoundary(Exception)
        for it in its:
            with attempt:
                answers.append(await self.process(it))
            if attempt.error is not None:
                answers.append(attempt.error)
        return answers

    async def after_save(self, saved: SavedVersion[E, S]) -> None:
        """Act outside, on what was saved; at least once, with a stable key."""

    def migrate(self, state: S, from_revision: int) -> S:  # noqa: ARG002 - likewise
        """Bring a state that an older revision wrote up to date."""
        return state
