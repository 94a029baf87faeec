"""What no worker serves waits, and is shown: by the doctor, a metric and a line in the log."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from gnomon.boundary import Round
from gnomon.contracts.env import Env
from gnomon.contracts.store import HeldShard, Lane, Store
from gnomon.model.offer import Offer
from gnomon.worker.leases import WorkerLeases

LOOK_EVERY_S = 15.0
TELL_EVERY_S = 60.0
NEEDS_MAX = 1_000  # of so many it is asked whether they are served
TOLD_MAX = 20  # needs and queues: users name them, and a metric has a series for each
COUNT_MAX = 1_000
# Longer ago than a guest needs to come, and its offer to be told.
OVERDUE = timedelta(seconds=10)
ALIVE_FOR = timedelta(seconds=30)
NOBODY = UUID(int=0)


@dataclass(frozen=True, slots=True)
class UnservedActions:
    """Actions that are due, and that no living worker serves."""

    need: str  # `function welcome`; or `queue reports`
    count: int  # up to COUNT_MAX
    since: datetime  # when the first of them was due

    @property
    def count_text(self) -> str:
        return f"{self.count} or more" if self.count >= COUNT_MAX else str(self.count)


async def find_unserved(store: Store, shards: Sequence[int]) -> list[UnservedActions]:
    """By need or by queue; the longest waiting first, and no more than TOLD_MAX of them."""
    workers = await store.leases.list_workers()
    offers = [row.offer for row in workers if row.silent_for < ALIVE_FOR]
    until = await store.installation.now() - OVERDUE
    lanes = {**await _need_lanes(store), **await _queue_lanes(store, offers, shards)}
    lanes = {lane: at for lane, at in lanes.items() if not _is_served(lane, offers)}
    by_name: dict[str, dict[Lane, datetime]] = {}
    for lane in sorted(lanes, key=lanes.__getitem__):
        by_name.setdefault(_name_of(lane), {})[lane] = lanes[lane]
    overdue = [name for name in by_name if min(by_name[name].values()) <= until]
    counted = [await _counted(store, name, by_name[name]) for name in overdue[:TOLD_MAX]]
    return [one for one in counted if one.count]


async def _need_lanes(store: Store) -> Mapping[Lane, datetime]:
    needs = await store.work.list_needs(limit=NEEDS_MAX)
    return await store.work.list_need_lanes(needs) if needs else {}


async def _queue_lanes(
    store: Store, offers: Sequence[Offer], shards: Sequence[int]
) -> Mapping[Lane, datetime]:
    """Only where every worker refuses something. Without a worker everything waits: that is no
    matter of queues."""
    if not offers or not all(offer.is_choosy for offer in offers):
        return {}
    holdings = [HeldShard(shard=shard, lease_guid=NOBODY) for shard in shards]
    lanes = await store.work.list_lanes(holdings)
    return {lane: at for lane, at in lanes.items() if not lane.need}


def _is_served(lane: Lane, offers: Iterable[Offer]) -> bool:
    """Whether somebody serves both, the need and the queue."""
    return any(
        offer.has_queue(lane.queue) and (not lane.need or lane.need in offer.needs)
        for offer in offers
    )


def _name_of(lane: Lane) -> str:
    return lane.need or f"queue {lane.queue}"


async def _counted(store: Store, name: str, lanes: Mapping[Lane, datetime]) -> UnservedActions:
    count = await store.work.count_due(list(lanes), limit=COUNT_MAX)
    return UnservedActions(name, count, min(lanes.values()))


class UnservedTeller:
    """Tells of them, if they are found by two looks in a row. One worker is enough."""

    def __init__(self, store: Store, leases: WorkerLeases, env: Env) -> None:
        self._store = store
        self._leases = leases
        self._clock = env.clock
        self._observer = env.observer
        self._suspects: frozenset[str] = frozenset()
        self._shown: frozenset[str] = frozenset()
        self._tell_at = 0.0

    async def keep_telling(self) -> None:
        """Look until cancelled; an unavailable store is waited for."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            with Round(self._observer, "unserved"):
                await self.look()

    async def look(self) -> None:
        """Once."""
        unserved: list[UnservedActions] = []
        if self._leases.holding(0) is not None:
            unserved = await find_unserved(self._store, self._leases.all_shards)
        sure = [one for one in unserved if one.need in self._suspects]
        self._suspects = frozenset(one.need for one in unserved)
        self._show(sure)

    def _show(self, unserved: Sequence[UnservedActions]) -> None:
        present = frozenset(one.need for one in unserved)
        for need in self._shown - present:
            self._observer.gauge("actions_unserved", 0, need=need)
        for one in unserved:
            self._observer.gauge("actions_unserved", one.count, need=one.need)
        self._shown = present
        if unserved and self._clock.monotonic() >= self._tell_at:
            self._tell_at = self._clock.monotonic() + TELL_EVERY_S
            waiting = ", ".join(f"{one.need}: {one.count_text}" for one in unserved)
            since = min(one.since for one in unserved)
            self._observer.event("actions_unserved", waiting=waiting, since=since.isoformat())
