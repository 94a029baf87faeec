"""Traces: which spans the core tells of. Off by default: nobody is asked, and nothing stored."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol
from uuid import UUID

from gnomon.contracts.store import BegunAttempt


class TracedAttempt(Protocol):
    """The span of an attempt that is being executed."""

    @property
    def carrier(self) -> Mapping[str, str]:
        """What its receiver is told, as headers: `traceparent`."""
        ...

    def finish(self, outcome: str, error: str | None) -> None:
        """How it ended."""
        ...


class Tracing(Protocol):
    """Makes spans: create → begin → execute → finish, each below the one before."""

    def trace_create(self, verb: str, id: str | None) -> AbstractContextManager[str | None]:
        """A span around the storing of an action; gives the `traceparent` to be stored with it, or
        None if nobody traces."""
        ...

    def trace_request(self, carrier: Mapping[str, str]) -> AbstractContextManager[None]:
        """Whatever is done within belongs to the trace of a caller, who sent these headers."""
        ...

    def trace_attempt(
        self, begun: BegunAttempt, *, kind: str, lateness_s: float
    ) -> AbstractContextManager[TracedAttempt]:
        """The spans of beginning and executing an attempt; the latter is the present one within."""
        ...

    def trace_finish(self, attempt_id: UUID, recorded: str) -> None:
        """The result of a traced attempt was recorded, or given up."""
        ...
