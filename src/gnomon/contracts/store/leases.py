"""Leases: who owns which shard."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from gnomon.contracts.store.value import Value
from gnomon.contracts.store.work import Holding


class ShardLock(Value, frozen=True):
    """A shard's lock as seen by somebody who may want it. Ages are by the database's clock."""

    shard: int
    lease_guid: UUID | None
    owner: str | None
    beat: int
    silent_for: timedelta | None  # since the last heartbeat; None if free
    started_at: datetime | None  # last_processing_start_at


class Pulse(Value, frozen=True):
    """The answer to a heartbeat: what is still held, and who else is alive."""

    held: frozenset[int]
    workers_alive: int  # including this one
    now: datetime
    shards_held: int = 0  # by all of them
    limits_version: int = 0  # see `LimitTable`


class LeaseStore(Protocol):
    """Who owns which shard. A lease is a means against contention; the rows are the fence."""

    async def locks(self) -> Sequence[ShardLock]:
        """All shard locks, smallest last_processing_start_at first."""
        ...

    async def acquire(
        self, shard: int, lease_guid: UUID, *, owner: str, seen: ShardLock, lease_for: timedelta
    ) -> Holding | None:
        """Take a shard: compare-and-set on the lock as seen.

        Succeeds if the lock is still as `seen` (lease_guid and beat) and is free or its heartbeat
        is older than `lease_for` by the database's clock. The caller must itself have watched a
        held lock unchanged for that long. Repeating it with the same lease_guid succeeds again.
        None if somebody else has it.
        """
        ...

    async def heartbeat(
        self, worker: UUID, *, owner: str, holdings: Sequence[Holding], alive_for: timedelta
    ) -> Pulse:
        """Say that this worker lives and keeps its shards; saves the incoming marks.

        Only locks whose lease_guid is the holding's are prolonged; the others are not in `held`.
        A worker counts as alive for `alive_for` after its last heartbeat.
        """
        ...

    async def release(self, holdings: Sequence[Holding]) -> None:
        """Give shards back; those no longer held are left alone."""
        ...

    async def leave(self, worker: UUID) -> None:
        """Remove the worker from the living, so that the others need not wait for its silence."""
        ...
