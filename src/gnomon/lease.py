"""The one rule of leasing, for the shards of an installation and for task tables.

A lease is taken by compare-and-set with a new random guid, and kept by beats. Its owner trusts it
until a moment that is counted from when the last beat that succeeded was *sent*, less a margin:
it has stopped before anybody else may begin. Another's lease is free when both clocks agree: the
database's says that its beat is too old, and this process has itself seen the lock unchanged for
that long. It is free sooner if its owner's death is proved by two witnesses: the machine says that
the process has ended, and beats were missed. One that beats lives, whatever the machine says, for
instance because a whole machine was copied while it ran.

Where the lock is kept, and what may be done under a lease, is the caller's business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol
from uuid import UUID

from gnomon.contracts.processes import Processes

BEATS_MISSED = 2  # by whom it is worth asking for


class Lock(Protocol):
    """A lock as somebody reads it who may want it."""

    @property
    def lease_guid(self) -> UUID | None:
        """Of the lease that is on it; None: it is free."""
        ...

    @property
    def beat(self) -> int:
        """Counts the beats of this lease."""
        ...

    @property
    def silent_for(self) -> timedelta | None:
        """Since the last beat, by the database's clock; None if it is free."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTerms:
    """How long a lease holds without a beat, how often it beats, and the margin before its end."""

    lease: timedelta
    beat: timedelta
    step_down: timedelta

    def trusted_until(self, sent_at: float) -> float:
        """Until when a lease is trusted whose last good beat was sent then, on our own clock."""
        return sent_at + (self.lease - self.step_down).total_seconds()

    def is_dead(
        self, process: str | None, silent_for: timedelta | None, processes: Processes
    ) -> bool:
        """Whether the owner is dead beyond doubt."""
        return (
            process is not None
            and silent_for is not None
            and silent_for >= self.beat * BEATS_MISSED
            and processes.has_ended(process)
        )


class LockWatch:
    """What one process knows of one lock: since when it looks the way it does, and which lease the
    process itself has asked for."""

    def __init__(self) -> None:
        self._sighting: tuple[UUID | None, int] | None = None
        self._since = 0.0
        self._asked: UUID | None = None

    def see(self, lock: Lock, now: float) -> None:
        """Note how the lock looks."""
        sighting = (lock.lease_guid, lock.beat)
        if sighting != self._sighting:
            self._sighting, self._since = sighting, now

    def is_free(self, lock: Lock, lease: timedelta, now: float) -> bool:
        """Whether the lock, which was just seen, may be asked for."""
        if lock.lease_guid is None or self.is_ours(lock):
            return True
        if lock.silent_for is None or lock.silent_for < lease:
            return False
        return now - self._since >= lease.total_seconds()

    def is_ours(self, lock: Lock) -> bool:
        """Whether it carries the lease that was asked for last: then only the answer was lost, or
        the trust in it."""
        return lock.lease_guid is not None and lock.lease_guid == self._asked

    def ask(self, lock: Lock, token: Callable[[], UUID]) -> UUID:
        """The guid to ask with: a new one, or, where the lock carries ours, the same again."""
        if self._asked is None or not self.is_ours(lock):
            self._asked = token()
        return self._asked

    def forget(self) -> None:
        """What was asked for is settled: it was refused, or is known to be held."""
        self._asked = None
