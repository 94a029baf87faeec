"""Executors do what an action says: one protocol, one conformance suite."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Protocol
from uuid import UUID

import msgspec

from gnomon.model.outcome import Outcome
from gnomon.model.spec import Effect

NOTHING: Mapping[str, str] = MappingProxyType({})


class AttemptReport(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a function says of its attempt while it runs."""

    id: str
    guid: UUID
    attempt_id: UUID
    fraction: float
    text: str


class AttemptReports(Protocol):
    """Where reports go. It is cheap, and may be called from any thread."""

    @property
    def has_any(self) -> bool:
        """Whether anybody reported anything that is not forgotten yet."""
        ...

    def note(self, report: AttemptReport) -> None:
        """An attempt says how far it is."""
        ...

    def forget(self, attempt_id: UUID) -> None:
        """An attempt has ended."""
        ...


class SilentReports:
    """Where nobody looks."""

    has_any = False

    def note(self, report: AttemptReport) -> None: ...

    def forget(self, attempt_id: UUID) -> None: ...


class AttemptError(msgspec.Struct):
    """What the called function raised, for the log: an executor puts it here, and whoever asked
    takes it out. What comes later is not kept: nobody would take it out."""

    error: BaseException | None = None
    is_over: bool = False

    def put(self, error: BaseException) -> None:
        if not self.is_over:
            self.error = error

    def take(self) -> BaseException | None:
        error, self.error, self.is_over = self.error, None, True
        return error


class AttemptRequest(msgspec.Struct, frozen=True, gc=False):
    """One attempt, as its executor sees it."""

    id: str
    guid: UUID
    key_of: Callable[[], str]  # makes the `key`: not every effect asks for it
    attempt_id: UUID
    attempt_no: int
    occurrence_no: int
    scheduled_at: datetime  # the planned time of the occurrence
    deadline: datetime  # wall clock; the receiver may refuse what comes later
    timeout_s: float  # what is left of the attempt's time: the executor must end within it
    effect: Effect
    # True once it was asked to end: its coroutine is cancelled, and may be told before it notices.
    is_ending: Callable[[], object] = bool
    carrier: Mapping[str, str] = NOTHING  # headers that tell its receiver of the trace
    raised: AttemptError = msgspec.field(default_factory=AttemptError)

    @property
    def key(self) -> str:
        """The same for all attempts of one occurrence: the receiver's idempotency key."""
        return self.key_of()


ASKED_TO_END = "the action was cancelled"  # what the cancellation of such an attempt says


class Executor(Protocol):
    """Performs one kind of effect."""

    def serves(self, need: str) -> bool:
        """Whether it can perform effects with this need, see `gnomon.model.need`. What it does not
        serve `execute` hands back as `Unserved`, and what it serves it never does."""
        ...

    async def execute(self, order: AttemptRequest) -> Outcome:
        """Do it once. Never raises but for cancellation; never retries by itself; ends by itself
        within `timeout_s` where it can (the worker cancels it otherwise).

        If its action was cancelled meanwhile, the worker cancels it, too, and says so:
        `CancelledError(ASKED_TO_END)`. An effect that can be ended ends; what cannot goes on, and
        tells how it ended."""
        ...

    async def close(self) -> None:
        """Give back connections and threads."""
        ...
