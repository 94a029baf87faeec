"""Begins, in the shards of others, what their owners do not serve.

An owner that lacks a function or a target hands the action back by its need, and leaves lanes of
that need alone; and so it does with queues that it does not serve, as it says with its heartbeats.
Who serves them looks for such lanes about once a second, and begins there as a guest: without the
lease, for the row is the fence. What a guest has begun is an attempt like any other; when it is due
again, or what it saw there is, the guest comes back at that time.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from datetime import datetime, timedelta

from gnomon.boundary import Round
from gnomon.clock import wait_set
from gnomon.contracts.env import Env
from gnomon.contracts.executor import Executor
from gnomon.contracts.store import BeginRequest, HeldShard, Lane, Store
from gnomon.model.offer import Offer
from gnomon.model.spec import Effect
from gnomon.worker.config import WorkerConfig
from gnomon.worker.leases import WorkerLeases
from gnomon.worker.pump import Pump
from gnomon.worker.unserved import NEEDS_MAX, NOBODY

VISIT_EVERY_S = 1.0
VISIT_PAUSE_S = 0.1  # between two visits at least, however much comes due
# An owner that serves the lane, too, begins at the due time: it is the one who knows the next.
LEFT_TO_THE_OWNER = timedelta(milliseconds=100)


class Served:
    """What this worker serves: by its executors, and by its number of slots for a queue."""

    def __init__(self, executors: Mapping[type[Effect], Executor], config: WorkerConfig) -> None:
        self._executors = executors
        self._config = config

    def serves_need(self, need: str) -> bool:
        """Whether it can perform what has this need; what has none it may begin."""
        return not need or any(one.serves(need) for one in self._executors.values())

    def serves_lane(self, lane: Lane) -> bool:
        """Whether it begins what is due in such a lane."""
        return self.serves_need(lane.need) and self._config.concurrency_of(lane.queue) > 0


class Guest:
    """One worker in the shards that it does not hold."""

    def __init__(
        self, store: Store, leases: WorkerLeases, pump: Pump, *, served: Served, env: Env
    ) -> None:
        self._store = store
        self._leases = leases
        self._pump = pump
        self._served = served
        self._clock = env.clock
        self._entropy = env.entropy
        self._observer = env.observer
        self._due_at: datetime | None = None  # when it is to come back, if that is known
        self._is_asked = asyncio.Event()
        self._choosy: dict[str | None, Offer] = {}  # who refuses queues, when it was asked last
        self._asked_at = -math.inf

    def note(self, at: datetime) -> None:
        """Something is due then that it may begin, in the shard of another."""
        if self._due_at is None or at < self._due_at:
            self._due_at = at
            self._is_asked.set()

    async def keep_visiting(self) -> None:
        """Visit until cancelled; an unavailable store is waited for."""
        while True:
            await asyncio.sleep(VISIT_PAUSE_S)
            await self._rest()
            with Round(self._observer, "guest"):
                await self.visit()

    async def _rest(self) -> None:
        """Until the next visit: for about a second, or until something is due that is known."""
        rest_s = VISIT_EVERY_S * (0.5 + self._entropy.fraction()) - VISIT_PAUSE_S
        while not self._is_due_within(rest_s):
            self._is_asked.clear()
            before = self._clock.monotonic()
            if not await wait_set(self._is_asked, rest_s):
                return
            rest_s = max(0.0, rest_s - (self._clock.monotonic() - before))
        await asyncio.sleep(self._due_in_s())

    def _is_due_within(self, rest_s: float) -> bool:
        return self._due_at is not None and self._due_in_s() <= rest_s

    def _due_in_s(self) -> float:
        """How long until it may begin what is due then."""
        assert self._due_at is not None
        until = self._due_at + LEFT_TO_THE_OWNER - self._pump.time.now()
        return max(0.0, until.total_seconds())

    async def visit(self) -> None:
        """Begin what is due, waits for somebody like this worker, and is not its own anyway."""
        self._due_at = None
        lanes = {**await self._need_lanes(), **await self._queue_lanes()}
        welcome = {lane: at for lane, at in lanes.items() if self._is_welcome(lane)}
        until = self._pump.time.now() - LEFT_TO_THE_OWNER
        self._pump.note_unserved(
            {lane.shard for lane, at in lanes.items() if at < until and self._is_left_alone(lane)}
        )
        # What may begin for a second only would be missed for good by a look about once a second.
        for at in (at for at in welcome.values() if at >= until):
            self.note(at)
        due = [lane for lane, at in welcome.items() if at < until]
        begun = await self._pump.begin_in(due, guest_demand)
        if begun:
            self._observer.count("guest_begun", begun)

    async def _need_lanes(self) -> Mapping[Lane, datetime]:
        """Lanes of all needs. The others are told which of them it serves, that they may know what
        is served by nobody."""
        needs = await self._store.work.list_needs(limit=NEEDS_MAX)
        self._leases.tell_needs(tuple(need for need in needs if self._served.serves_need(need)))
        return await self._store.work.list_need_lanes(needs) if needs else {}

    async def _queue_lanes(self) -> Mapping[Lane, datetime]:
        """Lanes of queues that the owners of their shards do not serve."""
        choosy = await self._choosy_workers()
        if not choosy:
            return {}
        offers = {
            lock.shard: choosy[lock.owner]
            for lock in await self._store.leases.list_locks()
            if lock.owner in choosy
        }
        holdings = [HeldShard(shard=shard, lease_guid=NOBODY) for shard in offers]
        lanes = await self._store.work.list_lanes(holdings)
        return {
            lane: at for lane, at in lanes.items() if not offers[lane.shard].has_queue(lane.queue)
        }

    async def _choosy_workers(self) -> dict[str | None, Offer]:
        """By owner. In a crowd they are asked about less often than visits are made."""
        now = self._clock.monotonic()
        if self._leases.crowd == 1 or now >= self._asked_at + VISIT_EVERY_S * self._leases.crowd:
            workers = await self._store.leases.list_workers()
            self._asked_at = now
            self._choosy = {row.owner: row.offer for row in workers if row.offer.is_choosy}
        return self._choosy

    def _is_welcome(self, lane: Lane) -> bool:
        return lane.shard not in self._leases.shards and self._served.serves_lane(lane)

    def _is_left_alone(self, lane: Lane) -> bool:
        """Whether it is this worker's own, for others to begin in."""
        return lane.shard in self._leases.shards and not self._served.serves_lane(lane)


def guest_demand(lane: Lane, limit: int) -> BeginRequest:
    """Whoever holds the shard."""
    return BeginRequest(lane=lane, lease_guid=None, limit=limit, hasty=True, is_guest=True)


def helper_demand(lane: Lane, limit: int) -> BeginRequest:
    """If nobody does, or keeps silent."""
    return BeginRequest(lane=lane, lease_guid=None, limit=limit, hasty=True)
