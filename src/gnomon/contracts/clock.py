"""Time and chance, injected, so that a simulation can own both."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID


class Clock(Protocol):
    """The process's own clock: `now` for people, `monotonic` for durations."""

    def now(self) -> datetime:
        """The present in UTC, as this machine believes it."""
        ...

    def monotonic(self) -> float:
        """Seconds that never jump; only differences mean anything."""
        ...


class Entropy(Protocol):
    """Where random ids come from. Ids that fence are 128 bits, never counters."""

    def guid(self) -> UUID:
        """A UUIDv7: sorts by time for the index's sake, 74 random bits for the fence's."""
        ...

    def guids(self, count: int) -> Sequence[UUID]:
        """So many, for less than one by one."""
        ...

    def token(self) -> UUID:
        """A UUIDv4 for leases and batches of attempts."""
        ...

    def fraction(self) -> float:
        """A number in [0, 1), for spreading things out in time."""
        ...
