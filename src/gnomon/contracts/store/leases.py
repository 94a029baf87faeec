"""Leases: who owns which shard."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from gnomon.contracts.store.value import Value
from gnomon.contracts.store.work import HeldShard
from gnomon.model.offer import ALL_QUEUES, Offer


class ShardLock(Value, frozen=True):
    """A shard's lock as seen by somebody who may want it. Ages are by the database's clock."""

    shard: int
    lease_guid: UUID | None
    owner: str | None
    beat: int
    silent_for: timedelta | None  # since the last heartbeat; None if free
    started_at: datetime | None  # last_processing_start_at
    part: int | None = None  # shards of one part cost less together; None: no matter


class LeaseRequest(Value, frozen=True):
    """A shard that somebody wants: its lock as seen, and the lease that is to be on it."""

    seen: ShardLock
    lease_guid: UUID


class HeartbeatResult(Value, frozen=True):
    """The answer to a heartbeat: what is still held, and who else is alive."""

    held: frozenset[int]
    workers_alive: int  # including this one
    now: datetime
    shards_held: int = 0  # by all of them
    shards_fresh: int = 0  # by those that are not silent
    limits_version: int = 0  # see `LimitTable`


class WorkerRow(Value, frozen=True):
    """A worker as it told of itself with its last heartbeat, and did not take back."""

    worker: UUID
    owner: str  # of its leases and attempts; no other worker has the same
    process: str | None  # by which its end can be proved, see `contracts.processes`
    silent_for: timedelta  # since its last heartbeat, by the database's clock
    offer: Offer = ALL_QUEUES


class LeaseStore(Protocol):
    """Who owns which shard. A lease is a means against contention; the rows are the fence."""

    async def list_locks(self, *, silent: timedelta | None = None) -> Sequence[ShardLock]:
        """All shard locks, smallest last_processing_start_at first; or only those that are free or
        whose owner did not beat for `silent`."""
        ...

    async def acquire(
        self, requests: Sequence[LeaseRequest], *, owner: str, lease_for: timedelta
    ) -> Sequence[HeldShard]:
        """Take shards: compare-and-set on each lock as seen. Those that were taken.

        A shard is taken if its lock is still as `seen` (lease_guid and beat) and is free or its
        heartbeat is older than `lease_for` by the database's clock. The caller must itself have
        watched a held lock unchanged for that long. Repeating it with the same lease_guid succeeds
        again. A lock that somebody else has, or is just changing, is passed over.
        """
        ...

    async def heartbeat(
        self,
        worker: UUID,
        *,
        owner: str,
        holdings: Sequence[HeldShard],
        alive_for: timedelta,
        silent: timedelta | None = None,
        process: str | None = None,
        offer: Offer = ALL_QUEUES,
    ) -> HeartbeatResult:
        """Say that this worker lives and keeps its shards; saves the incoming marks.

        `process` is kept for the others: by it they can tell that the worker's process ended; and
        so is `offer`: what nobody serves waits, and is shown.

        Only locks whose lease_guid is the holding's are prolonged; the others are not in `held`.
        A worker counts as alive for `alive_for` after its last heartbeat, and is silent `silent`
        after it; without that, when it is no more alive.
        """
        ...

    async def release(self, holdings: Sequence[HeldShard]) -> None:
        """Give shards back; those no longer held are left alone.

        Also for the shards of a worker whose process has provably ended, by the locks as read:
        a lease that was taken or given back meanwhile has another guid.
        """
        ...

    async def remove_worker(self, worker: UUID) -> None:
        """Remove the worker from the living, so that the others need not wait for its silence.

        Of a worker whose process has provably ended this is the last step: until then anybody
        else finds it and begins again. Repeating it changes nothing.
        """
        ...

    async def list_workers(self) -> Sequence[WorkerRow]:
        """All workers that said they live and did not leave, also those silent for long."""
        ...

    async def end_frozen_sessions(self, *, after: timedelta) -> int:
        """End the sessions of Gnomon at the database whose processes stopped, frozen or cut off,
        in the middle of a statement, `after` ago or longer; how many.

        No time-out of the server's ends such a session, and until it ends it keeps the rows that
        its transaction has locked. Nothing of it was committed, so its process, should it go on,
        meets a lost connection. An engine without sessions has none to end.
        """
        ...
