"""Executors do what an action says: one protocol, one conformance suite."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Protocol
from uuid import UUID

import msgspec

from gnomon.model.outcome import Outcome
from gnomon.model.spec import Effect


class AttemptRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
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

    @property
    def key(self) -> str:
        """The same for all attempts of one occurrence: the receiver's idempotency key."""
        return self.key_of()


class Executor(Protocol):
    """Performs one kind of effect."""

    async def execute(self, order: AttemptRequest) -> Outcome:
        """Do it once. Never raises but for cancellation; never retries by itself; ends by itself
        within `timeout_s` where it can (the worker cancels it otherwise)."""
        ...

    async def close(self) -> None:
        """Give back connections and threads."""
        ...
