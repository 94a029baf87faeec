"""Which shards this worker holds, and for how long it may trust that.

How a lease is taken, kept, trusted and lost is the rule of `gnomon.lease`. Here it is kept for many
locks at once: one heartbeat prolongs them all.

Shares are fair: with n workers alive each holds about 1/n of the shards. A worker that has more
gives some back at its next heartbeat, one that has less takes what is free, longest-waiting
first. Where several want some, each draws among as many as all of them may take: who asks for the
same lock as another asks in vain.

A look at all locks or at all workers costs the more the more there are, and every worker looks. A
crowd of workers therefore looks about as often as `CROWD` of them would, unless a heartbeat tells
that a shard is free or its owner silent; and then only such locks are read.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar
from uuid import UUID

import msgspec

from gnomon.contracts.env import Env
from gnomon.contracts.store import (
    HeartbeatResult,
    HeldShard,
    LeaseRequest,
    LeaseStore,
    ShardLock,
)
from gnomon.lease import LockWatch
from gnomon.worker.config import WorkerConfig
from gnomon.worker.part_order import PartOrder

T = TypeVar("T")

SHARDS_SHOWN = 8  # in a line of the log
CROWD = 16  # so many workers may each look as if it were alone
NEWCOMER_S = 0.02
YOUNG_S = 10.0  # a newcomer looks for its share, which others are about to give back


@dataclass(slots=True)
class _Held:
    """A shard held. The heartbeat's thread writes into it too: into a dropped one without harm."""

    holding: HeldShard
    trusted_until: float
    taken_at: float


class WorkerLeases:
    """The shards held by one worker."""

    def __init__(
        self,
        store: LeaseStore,
        *,
        worker: UUID,
        owner: str,
        shard_count: int,
        config: WorkerConfig,
        env: Env,
    ) -> None:
        self._store = store
        self.worker = worker
        self.owner = owner
        self._shard_count = shard_count
        self._process = env.processes.own
        self._config = config
        self._terms = config.lease_terms
        self._clock = env.clock
        self._entropy = env.entropy
        self._observer = env.observer
        self._held: dict[int, _Held] = {}  # changed by the loop's thread only
        self._watches: dict[int, LockWatch] = {}
        self._parts = PartOrder(env.entropy)
        self._free: set[int] = set()  # at the last look for silent owners
        self._given_back: list[HeldShard] = []  # and not known to be released yet
        self._alive = 0  # as the last heartbeat said; 0: there was none yet
        self._is_complete = False  # every shard is held by somebody who beats, at the last beat
        self._looked_at = -math.inf
        self._born_at = env.clock.monotonic()
        self._left = threading.Event()  # the heartbeat looks at it from its own thread
        self._offer = config.offer
        self.ticked_at = env.clock.monotonic()  # the loop's own sign of life, see `beat`

    def __repr__(self) -> str:
        return f"WorkerLeases({len(self._held)} of {self._shard_count} shards)"

    # -- what is held ---------------------------------------------------------------------------

    @property
    def shards(self) -> Collection[int]:
        return self._held.keys()

    @property
    def all_shards(self) -> range:
        """The numbers of all shards, whoever holds them."""
        return range(self._shard_count)

    def trusted(self) -> list[HeldShard]:
        """The holdings that may be used to move and begin right now."""
        now = self._clock.monotonic()
        return [held.holding for held in self._held.values() if held.trusted_until > now]

    def holding(self, shard: int) -> HeldShard | None:
        """The trusted holding of a shard, if any."""
        held = self._held.get(shard)
        if held is None or held.trusted_until <= self._clock.monotonic():
            return None
        return held.holding

    def mark(self, marks: Iterable[tuple[int, datetime]]) -> None:
        """Remember where the live incoming rows of shards begin."""
        for shard, mark in marks:
            held = self._held.get(shard)
            if held is not None:
                held.holding = msgspec.structs.replace(held.holding, incoming_mark=mark)

    def fresh(self, within: timedelta) -> list[HeldShard]:
        """Trusted holdings taken recently: their former owner's results may still come in."""
        now = self._clock.monotonic()
        since = now - within.total_seconds()
        return [
            held.holding
            for held in self._held.values()
            if held.trusted_until > now and held.taken_at >= since
        ]

    # -- heartbeat (may be called from its own thread) ------------------------------------

    async def beat(self, store: LeaseStore) -> HeartbeatResult | None:
        """One heartbeat. None if the loop is stuck: a zombie must not keep its shards."""
        if self._left.is_set():
            return None
        started = self._clock.monotonic()
        if started - self.ticked_at > self._config.lease.total_seconds() / 3:
            self._observer.event("heartbeat_withheld", stuck_for_s=started - self.ticked_at)
            return None
        beaten = list(self._held.values())
        pulse = await store.heartbeat(
            self.worker,
            owner=self.owner,
            holdings=[held.holding for held in beaten],
            alive_for=self._config.lease,
            silent=self._config.silent,
            process=self._process,
            offer=self._offer,
        )
        if self._left.is_set():  # meanwhile: the beat has made it one of the living again
            await store.remove_worker(self.worker)
            return None
        for held in beaten:
            if held.holding.shard in pulse.held:
                self._prolong(held, started)
        return pulse

    def _prolong(self, held: _Held, started: float) -> None:
        trusted_until = self._terms.trusted_until(started)
        if trusted_until - held.trusted_until > self._config.silent.total_seconds():
            held.taken_at = started  # others may have helped: see `fresh`
        held.trusted_until = trusted_until

    def note(self, pulse: HeartbeatResult) -> list[int]:
        """Take over what a heartbeat said; returns the shards found lost. Loop thread only."""
        self._alive = max(1, pulse.workers_alive)
        self._is_complete = pulse.shards_fresh >= self._shard_count
        now = self._clock.monotonic()
        # What the pulse still holds is ours, though a slow answer may have eaten its time: the next
        # one restores the trust. What it does not know may have been taken after it was asked for.
        lost = [
            shard
            for shard, held in self._held.items()
            if shard not in pulse.held and held.trusted_until <= now
        ]
        for shard in lost:
            self._drop(shard)
        if lost:
            self._observer.count("leases_lost", len(lost))
            self._observer.event("leases_lost", count=len(lost), shards=shards_text(lost))
        return lost

    def lose(self, count: int) -> None:
        """So many of the living are dead, as is known before the next heartbeat says so."""
        self._alive = max(min(1, self._alive), self._alive - count)

    # -- looking at the others --------------------------------------------------------------------

    @property
    def crowd(self) -> float:
        """By how much less often one of so many workers looks at all of them."""
        return max(1.0, self._alive / CROWD)

    @property
    def is_wanting(self) -> bool:
        """Whether it has less than its share and may take something at once."""
        return not self._is_complete and len(self._held) < self.share

    def part(self, shards: Sequence[int]) -> Sequence[int]:
        """Of shards that every worker sees and may help with: those for this one, by chance."""
        count = math.ceil(len(shards) / self.crowd)
        return shards if count == len(shards) else self._drawn(shards, count)

    async def locks(self, every_s: float) -> Sequence[ShardLock]:
        """The locks, watched; in a crowd only those that are free or silent, and none if a look is
        not worth its cost: all are held, and the last one is not longer ago than `every_s` for
        each CROWD of workers."""
        now, is_crowded = self._clock.monotonic(), self.crowd > 1
        is_settled = self._is_complete and now >= self._born_at + YOUNG_S
        if is_crowded and is_settled and now < self._looked_at + every_s * self.crowd:
            return []
        self._looked_at = now
        locks = await self._store.list_locks(silent=self._config.silent if is_crowded else None)
        self._watch(locks)
        return locks

    # -- taking and giving back -------------------------------------------------------------------

    @property
    def share(self) -> int:
        """How many shards this worker may hold: its fair part, rounded up; none before it knows how
        many workers there are, or the first one would take what belongs to all."""
        return math.ceil(self._shard_count / self._alive) if self._alive else 0

    def rest_s(self, usual_s: float) -> float:
        """How long until it looks for shards again: a newcomer that lacks some looks often, for the
        others give them back as soon as they know of it."""
        is_young = self._clock.monotonic() < self._born_at + YOUNG_S
        if is_young and len(self._held) < self.share:
            return min(usual_s, NEWCOMER_S * self.crowd)
        return usual_s

    def surplus(self) -> list[int]:
        """Shards to give back because others have too few."""
        by_age = sorted(self._held, key=lambda shard: self._held[shard].taken_at)
        return list(self._parts.last(by_age, len(self._held) - self.share))

    async def give_back(self, shards: Sequence[int]) -> None:
        """Release shards; nothing begins in them from now on."""
        holdings = [self._held[shard].holding for shard in shards if shard in self._held]
        for held in holdings:
            self._drop(held.shard)
        self._given_back += holdings
        await self.release()

    async def release(self) -> None:
        """Release what was given back, also what failed before: nobody else may take it yet."""
        holdings = list(self._given_back)
        if holdings:
            await self._store.release(holdings)
            self._given_back = [held for held in self._given_back if held not in holdings]

    async def take(self) -> list[HeldShard]:
        """Take free and abandoned shards up to the fair share, longest-waiting first."""
        locks = await self.locks(self._config.heartbeat.total_seconds())
        free = [lock for lock in locks if lock.shard not in self._held and self._is_free(lock)]
        missing = max(0, self.share - len(self._held))
        wanted = self._parts.first(free, missing, held=self._held)
        if wanted is None:
            wanted = self._drawn(free[: missing * self._alive], missing)
        return await self._acquire(wanted) if wanted else []

    def silent(self, locks: Sequence[ShardLock]) -> list[ShardLock]:
        """Locks of others who have missed heartbeats: their overdue rows may be helped with.

        A free one must have been free at the last look, too: when shards change hands, the next
        owner is about to take them, and does more with less.
        """
        others = [lock for lock in locks if lock.shard not in self._held]
        were_free, self._free = (
            self._free,
            {lock.shard for lock in others if lock.silent_for is None},
        )
        return [
            lock
            for lock in others
            if (
                lock.shard in were_free
                if lock.silent_for is None
                else lock.silent_for > self._config.silent
            )
        ]

    def tell_needs(self, needs: tuple[str, ...]) -> None:
        """Of the needs that rows have, it serves these: its heartbeats say so."""
        self._offer = msgspec.structs.replace(self._offer, needs=needs)

    async def leave(self) -> None:
        """Give everything back and say goodbye: no more heartbeats, so the others share anew."""
        self._left.set()
        await self.give_back(list(self._held))
        await self._store.remove_worker(self.worker)

    async def _acquire(self, locks: Sequence[ShardLock]) -> list[HeldShard]:
        started = self._clock.monotonic()
        foreign = {lock.shard: lock for lock in locks if self._is_foreign(lock)}
        requests = [self._request(lock) for lock in locks]
        taken = await self._store.acquire(requests, owner=self.owner, lease_for=self._config.lease)
        for held in taken:
            self._watches[held.shard].forget()
            self._held[held.shard] = _Held(held, self._terms.trusted_until(started), started)
        self._tell_stolen([foreign[held.shard] for held in taken if held.shard in foreign])
        return list(taken)

    def _is_foreign(self, lock: ShardLock) -> bool:
        return lock.lease_guid is not None and not self._watches[lock.shard].is_ours(lock)

    def _request(self, lock: ShardLock) -> LeaseRequest:
        lease_guid = self._watches[lock.shard].ask(lock, self._entropy.token)
        return LeaseRequest(seen=lock, lease_guid=lease_guid)

    def _drawn(self, some: Sequence[T], count: int) -> Sequence[T]:
        """So many of them, by chance; all of them in their order, if they are not more."""
        if len(some) <= count:
            return some
        return sorted(some, key=lambda _: self._entropy.fraction())[:count]

    def _tell_stolen(self, stolen: Sequence[ShardLock]) -> None:
        """One line for all that were taken at once, however many shards they had."""
        if stolen:
            owners = sorted({lock.owner or "" for lock in stolen})
            shards = shards_text([lock.shard for lock in stolen])
            self._observer.count("leases_stolen", len(stolen))
            self._observer.event(
                "leases_stolen", count=len(stolen), owners=", ".join(owners), shards=shards
            )

    def _watch(self, locks: Sequence[ShardLock]) -> None:
        now = self._clock.monotonic()
        for lock in locks:
            self._watches.setdefault(lock.shard, LockWatch()).see(lock, now)
        self._parts.learn(locks)

    def _is_free(self, lock: ShardLock) -> bool:
        watch, now = self._watches[lock.shard], self._clock.monotonic()
        return watch.is_free(lock, self._config.lease, now)

    def _drop(self, shard: int) -> None:
        """This worker has the shard no more."""
        self._held.pop(shard, None)


def shards_text(shards: Sequence[int]) -> str:
    """`3, 17, 40`, and how many more."""
    shown = ", ".join(str(shard) for shard in sorted(shards)[:SHARDS_SHOWN])
    more = len(shards) - SHARDS_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
