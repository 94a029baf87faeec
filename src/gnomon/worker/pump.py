"""The owner's loop: move what arrived, begin what is due, settle what lapsed, then sleep.

It sleeps until the next due time, exactly, or until a hint, a freed slot or a poll wakes it.
Nothing here is needed for safety: whatever it does too early, too late or twice, the store's
fences answer for. It is all about doing it at the right time.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from uuid import UUID

from gnomon.boundary import Round
from gnomon.clock import DatabaseClock, wait_set
from gnomon.contracts.env import Env
from gnomon.contracts.store import (
    BeginRequest,
    BeginResult,
    HeldShard,
    Lane,
    MoveResult,
    WorkStore,
)
from gnomon.model.errors import Unavailable
from gnomon.worker.attempt_tally import AttemptTally
from gnomon.worker.begin_calls import BeginCalls
from gnomon.worker.burst import Arming
from gnomon.worker.config import WorkerConfig
from gnomon.worker.flood import Flood
from gnomon.worker.late_commits import EARLIEST, LateCommits, ShardsToRescan
from gnomon.worker.leases import WorkerLeases
from gnomon.worker.recorder import POSTPONED_FOR_S, ResultRecorder
from gnomon.worker.reservations import Reservations
from gnomon.worker.settlement import Settler
from gnomon.worker.slots import Slots
from gnomon.worker.timeline import Timeline

ADMITTED_PART = 12  # of the free slots one in so many is for arrivals, while a backlog is due
QUEUE_DEFAULT = "default"
NAP_S = 0.001  # between two looks at something that should have been due
FRESH_FOR = timedelta(seconds=90)  # so long a former owner's results may come in
NEWEST_MAX = 16_000  # arrivals looked at so often, behind a flood of older ones
PACED_ARRIVALS = 8  # of each shard at least, where a round is dear: as many as come during one

MakeDemand = Callable[[Lane, int], BeginRequest]  # of a lane and a number of rows


class Pump:
    """Brings due rows of the held shards to the slots."""

    pace_s = 0.0  # a round lasts at least so long: see `Capabilities`

    def __init__(
        self,
        store: WorkStore,
        *,
        leases: WorkerLeases,
        slots: Slots,
        recorder: ResultRecorder,
        reservations: Reservations,
        config: WorkerConfig,
        env: Env,
        serves: Callable[[Lane], bool] = lambda _: True,
    ) -> None:
        self._reservations = reservations
        self._store = store
        self._leases = leases
        self._slots = slots
        self._recorder = recorder
        self._config = config
        self._clock = env.clock
        self._observer = env.observer
        self.tally = tally = AttemptTally()
        self.begins = BeginCalls(
            store, owner=leases.owner, slots=slots, config=config, env=env, tally=tally
        )
        self.timeline = Timeline(serves)
        self.time = DatabaseClock(env.clock)
        self.arming = Arming(
            store, self.begins, slots, self.timeline,
            time=self.time, config=config, env=env,
        )  # fmt: skip
        self._settler = Settler(store, reservations, self.timeline, tally=tally, env=env)
        self._late_commits = LateCommits()
        self._rescans = ShardsToRescan()
        self._arrivals: set[int] = set()
        self._lapsing: set[int] = set()
        self._unserved: set[int] = set()
        self._flood = Flood(store, env.clock)
        self._is_admitting = False  # arrivals had their part the last time
        self._is_pressed = False  # what was due took most of the free slots the last time
        self._wake = asyncio.Event()
        self._poll_at = 0.0
        self._survey_at = 0.0
        self._sweep_at = env.clock.monotonic() + config.sweep.total_seconds()

    # -- what others tell the pump ----------------------------------------------------------------

    def hint(self, shards: Collection[int]) -> None:
        """Rows may have arrived in these shards; none named: anywhere. What arrived in the shards
        of others is theirs to hear of: it wakes nobody else."""
        own = self._leases.shards
        arrived = [shard for shard in shards if shard in own] if shards else own
        if arrived:
            self._arrivals.update(arrived)
            self._wake.set()

    def wake(self) -> None:
        """Something changed: a slot is free, a time is known."""
        self._wake.set()

    def note_unserved(self, shards: Collection[int]) -> None:
        """Rows are due in these shards that this worker does not serve: they may have expired, and
        nobody but the owner of a shard passes over what has."""
        self._unserved.update(shards)
        if shards:
            self._wake.set()

    async def adopt(self, holdings: Sequence[HeldShard]) -> None:
        """Shards were taken: learn what is in them."""
        shards, asked = [held.shard for held in holdings], self.timeline.asked()
        self.timeline.replace(shards, await self._store.list_lanes(holdings), asked=asked)
        self._rescans.ask(holdings, EARLIEST)  # what came late while nobody held them
        self.hint(shards)

    def abandon(self, shards: Collection[int]) -> None:
        """Shards were lost or given back."""
        for shard in shards:
            self.timeline.forget(shard)
            self._arrivals.discard(shard)
            self._lapsing.discard(shard)
            self._unserved.discard(shard)
        self._rescans.drop(shards)

    # -- the loop ---------------------------------------------------------------------------------

    async def keep_pumping(self) -> None:
        """Pump until cancelled; an unavailable store is waited for."""
        while True:
            busy: bool | None = None
            began_at = self._clock.monotonic()
            with Round(self._observer, "pump"):
                busy = await self._step()
            self._flood.note_round(self._clock.monotonic() - began_at)
            if busy is None:
                await asyncio.sleep(self._config.poll.total_seconds())
            else:
                await (asyncio.sleep(0) if busy else self._rest())
            if self.pace_s:
                await asyncio.sleep(max(0.0, began_at + self.pace_s - self._clock.monotonic()))

    async def _step(self) -> bool:
        """One round; True if there may be more to do at once."""
        self._wake.clear()
        await self._look_around()
        try:
            await self._admit()
            await self._admit_newest()
            begun = await self._fire()
            begun = await self._begin() or begun  # before the rest: what waits longer is older
            more = await self._move()
            more = await self._arm() or more
        except Unavailable:
            await self._settle()  # what stands in the way may be just what is to be settled
            raise
        return await self._settle() or more or begun

    async def _rest(self) -> None:
        await wait_set(self._wake, self._rest_s())

    def _rest_s(self) -> float:
        now = self._clock.monotonic()
        rest_s = min(self._poll_at, self._sweep_at, self._survey_at) - now
        held = {held.shard for held in self._leases.trusted()}
        closed = self._full_queues()
        due = self.timeline.earliest(closed=closed, shards=held)
        if due is not None:
            rest_s = min(rest_s, (due - self.time.now()).total_seconds())
        look_s = self.timeline.rechecks.next_s(closed=closed, shards=held)
        if look_s is not None:
            rest_s = min(rest_s, look_s - now)
        if self._slots.is_limited:
            rest_s = min(rest_s, self._slots.reopens_s())
        armed_s = self.arming.rest_s(is_shut=self._recorder.is_behind)
        if armed_s is not None:
            rest_s = min(rest_s, armed_s)
        return max(rest_s, NAP_S)

    def _full_queues(self) -> frozenset[str]:
        if self._recorder.is_behind:
            return frozenset(lane.queue for lane in self.timeline.lanes())
        queues = {lane.queue for lane in self.timeline.lanes()}
        return frozenset(queue for queue in queues if self._slots.is_full(queue))

    # -- looking ----------------------------------------------------------------------------------

    async def _look_around(self) -> None:
        """Polls and surveys: what finds everything that no hint announced."""
        now = self._clock.monotonic()
        holdings = self._leases.trusted()
        if not holdings:
            self._poll_at = self._survey_at = now + self._config.poll.total_seconds()
            self._sweep_at = max(self._sweep_at, self._poll_at)  # or the rest would be no rest
            return
        if now >= self._sweep_at:
            self._sweep_at = now + self._config.sweep.total_seconds()
            await self._sweep(holdings)
        elif now >= self._survey_at:
            await self._survey(self._leases.fresh(FRESH_FOR))
        if now >= self._poll_at:
            self._poll_at = now + self._config.poll.total_seconds()
            await self._poll(holdings)

    async def _survey(self, holdings: Sequence[HeldShard]) -> None:
        self._survey_at = self._clock.monotonic() + 1.0
        if holdings:
            shards, asked = [held.shard for held in holdings], self.timeline.asked()
            self.timeline.replace(shards, await self._store.list_lanes(holdings), asked=asked)

    async def _poll(self, holdings: Sequence[HeldShard]) -> None:
        result = await self._store.poll(holdings)
        self.time.observe(result.now)  # also when its clock was set
        self._arrivals.update(result.shards)
        since = self._late_commits.observe(result)
        if since is not None:
            self._arrivals.update(self._rescans.ask(holdings, since))

    async def _sweep(self, holdings: Sequence[HeldShard]) -> None:
        self._arrivals.update(self._rescans.ask(holdings, EARLIEST))
        await self._survey(holdings)
        self._lapsing.update(held.shard for held in holdings)

    # -- moving -----------------------------------------------------------------------------------

    async def _move(self) -> bool:
        """Bring in what arrived: the short way as far as slots are free, else by the thousand."""
        holdings = [held for held in self._leases.trusted() if held.shard in self._arrivals]
        if not holdings:
            self._arrivals.clear()
            self._flood.end()
            return False
        if not self._slots.is_open:
            return False  # soon there will be room: it is no flood
        room = self._room()
        is_flooded = await self._flood.is_to_be_moved(holdings)
        if is_flooded or (not room and (self._slots.is_limited or not self._queues())):
            self._arrivals.clear()
            room = {}
        elif room:
            holdings = holdings[: max(1, sum(room.values()))]
        else:
            self._flood.rise()
            return False
        moved = await self._moved(holdings, room)
        # What a limit may have kept from beginning on arrival is asked for at once.
        return bool(self._arrivals) or (self._slots.is_limited and bool(moved.lanes))

    async def _admit(self) -> None:
        """While a backlog is due, arrivals get a part of the free slots before it, and the next
        turn in them: order is not promised, and a burst must not hold up what comes meanwhile."""
        holdings = [held for held in self._leases.trusted() if held.shard in self._arrivals]
        if not holdings or not self._has_backlog():
            return
        room = {queue: -(-free // ADMITTED_PART) for queue, free in self._room().items()}
        if not room or self._is_admitting:
            self._is_admitting = False
            return
        self._is_admitting = sum(room.values()) < ADMITTED_PART  # of so few not all, every time
        await self._moved(holdings[: sum(room.values())], room, first=True)

    def _has_backlog(self) -> bool:
        if self.pace_s and not self._is_pressed:
            return False  # there is room for all: one look at arrivals a round is dear enough
        now = self.time.now()
        return self.arming.is_due(now) or bool(self.timeline.due(now, self._clock.monotonic()))

    async def _admit_newest(self) -> None:
        """While more waits than one step moves, look at what came last, too: an import of a million
        actions for next month must not hold up one that is due now."""
        if not self._flood.is_newest_due:
            return
        holdings = [held for held in self._leases.trusted() if held.shard in self._arrivals]
        room = {queue: -(-free // ADMITTED_PART) for queue, free in self._room().items()}
        if not holdings or not room or not self._slots.is_open:
            return
        limit = max(1, NEWEST_MAX // len(holdings))
        now = self._clock.monotonic()
        self._note_rows(await self.begins.begin_newest(holdings, room=room, limit=limit))
        self._flood.note_newest(now)

    async def _moved(
        self, holdings: Sequence[HeldShard], room: Mapping[str, int], *, first: bool = False
    ) -> MoveResult:
        self._arrivals.difference_update(held.shard for held in holdings)
        are_left = bool(self._arrivals)  # of those that had arrived before, some are not looked at
        lowered = [self._rescans.lowered(held) for held in holdings]
        try:
            if room:
                moved = await self._arrive(lowered, room, first=first)
            else:
                limit = max(1, self._config.move_batch // len(lowered))
                moved = await self._store.move(lowered, limit=limit)
        except Unavailable:
            # It may be looking back that takes too long: it must not be all that is tried.
            self._rescans.drop([held.shard for held in holdings])
            raise
        self.time.observe(moved.now)
        marks = self._rescans.noted(holdings, moved)
        self._leases.mark((shard, self._late_commits.bound(mark)) for shard, mark in marks.items())
        self._note_rows(moved)
        if moved.more:
            self._arrivals.update(held.shard for held in holdings)
        self._flood.note(moved, is_more=moved.more or are_left)
        return moved

    def _note_rows(self, moved: MoveResult) -> None:
        for lane, at in moved.lanes.items():
            self.timeline.note(lane, at)
        if moved.count:
            self._observer.count("actions_moved", moved.count)

    def _room(self) -> dict[str, int]:
        """Free slots for what is due on arrival."""
        if self._recorder.is_behind:
            return {}
        return self._slots.share(self._queues(), self._slots.free)

    def _queues(self) -> set[str]:
        """Queues that it serves, as far as they are known; a worker need not serve `default`."""
        named = {QUEUE_DEFAULT, *self._config.only_queues}
        served = {name for name in named if self._config.concurrency_of(name)}
        return served.union(lane.queue for lane in self.timeline.lanes())

    async def _arrive(
        self, holdings: Sequence[HeldShard], room: Mapping[str, int], *, first: bool
    ) -> MoveResult:
        """The short way: move and begin in one step."""
        total = min(sum(room.values()), self._config.begin_batch)
        limit = max(PACED_ARRIVALS if self.pace_s else 1, total // len(holdings))
        try:
            return await self.begins.move_and_begin(holdings, room=room, limit=limit, first=first)
        except Unavailable:
            self._arrivals.update(held.shard for held in holdings)
            raise

    # -- bursts -----------------------------------------------------------------------------------

    async def _fire(self) -> bool:
        """Perform what was armed. What is due besides gets its part of the slots, too."""
        if self._recorder.is_behind:
            return False
        now = self.time.now()
        is_more = bool(self.timeline.due(now, self._clock.monotonic()))
        count = await self.arming.fire(spared=ADMITTED_PART if is_more else 0)
        self._recorder.note_burst(goes_on=self.arming.is_soon_over(now, POSTPONED_FOR_S))
        self._flood.note_begun(count)
        return count > 0

    async def _arm(self) -> bool:
        """Begin ahead of its time what is due soon, or some of a burst; whether there was any."""
        ahead = await self.arming.lanes_ahead(self._is_held)
        if ahead is None:
            return False
        demands = [self._demand(lane, limit) for lane, limit in ahead.limits.items()]
        asked = self.timeline.asked()
        result = await self.arming.arm(demands, ahead.until)
        self._note(demands, result, asked)
        return bool(result.begun)

    # -- beginning --------------------------------------------------------------------------------

    async def _begin(self) -> bool:
        demands = self._demands()
        if not demands:
            self._is_pressed = False
            return False
        asked = self.timeline.asked()
        try:
            result = await self.begins.begin(demands)
        except Unavailable:
            self._lapsing.update(demand.lane.shard for demand in demands)
            raise
        self._note(demands, result, asked)
        self._flood.note_begun(len(result.begun))
        self._is_pressed = 2 * len(result.begun) >= sum(demand.limit for demand in demands)
        return bool(result.begun)

    def _demands(self) -> list[BeginRequest]:
        """Which lanes to begin from, and how much."""
        if self._recorder.is_behind:
            return []
        due = self.timeline.due(self.time.now(), self._clock.monotonic())
        return self._share_out([lane for lane in due if self._is_held(lane)], self._demand)

    async def begin_in(self, lanes: Collection[Lane], demand_of: MakeDemand) -> int:
        """Begin in lanes of shards that others hold; how many. One priority after the other, while
        there is room: rows of the first may be held."""
        if lanes and await self._reservations.are_in_doubt():
            return 0
        left = sorted(lanes, key=lambda lane: lane.priority)
        begun = 0
        while demands := self._share_out(left, demand_of):
            asked = {demand.lane for demand in demands}
            left = [lane for lane in left if lane not in asked]
            begun += len((await self.begins.begin(demands)).begun)
            self.wake()  # it may have found no room because of this
        return begun

    def _share_out(self, lanes: Sequence[Lane], demand_of: MakeDemand) -> list[BeginRequest]:
        """Give the free slots of each queue to its lanes: those of its first priority only.

        The lanes come in order of priority.
        """
        demands: list[BeginRequest] = []
        by_queue: dict[str, list[Lane]] = {}
        for lane in lanes:
            by_queue.setdefault(lane.queue, []).append(lane)
        for queue, free in self._slots.share(by_queue, self._slots.ask).items():
            batch = min(free, self._config.begin_batch)
            demands += self._shared(by_queue[queue], batch, demand_of)
        return demands

    def _shared(self, lanes: list[Lane], free: int, demand_of: MakeDemand) -> list[BeginRequest]:
        first = self.timeline.rechecks.first(lanes, free, self._clock.monotonic())
        share, rest = divmod(free, len(first))
        limits = [share + (index < rest) for index in range(len(first))]
        return [demand_of(lane, limit) for lane, limit in zip(first, limits, strict=True)]

    def _demand(self, lane: Lane, limit: int) -> BeginRequest:
        """From where the lane's live rows begin, or from where rows were passed over."""
        rechecks, lease_guid = self.timeline.rechecks, self._lease_of(lane)
        if rechecks.is_due(lane, self._clock.monotonic()):
            return BeginRequest(
                lane=lane, lease_guid=lease_guid, limit=limit, since=rechecks.place(lane)
            )
        since = self.timeline.since(lane)
        return BeginRequest(lane=lane, lease_guid=lease_guid, limit=limit, since=since, hasty=True)

    def _note(self, demands: Sequence[BeginRequest], result: BeginResult, asked: int) -> None:
        self.time.observe(result.now)
        given = Counter(attempt.lane for attempt in result.begun)
        for demand in demands:
            if demand.lane in result.next_due:
                is_full = given[demand.lane] >= demand.limit and demand.lane not in result.refused
                self._note_lane(demand, result, asked, is_full=is_full)
        self._lapsing.update(lane.shard for lane in result.refused)  # see why

    def _note_lane(
        self, demand: BeginRequest, result: BeginResult, asked: int, *, is_full: bool
    ) -> None:
        """When the lane is due next, and whether rows of it were passed over."""
        lane, at = demand.lane, result.next_due[demand.lane]
        timeline, now_s = self.timeline, self._clock.monotonic()
        if not demand.hasty and is_full and at is not None and timeline.is_passed(lane, at):
            timeline.rechecks.put(lane, at, now_s, reached=at)
            return
        timeline.settle(lane, at, asked=asked)
        if lane in result.refused:
            reached = result.reached.get(lane)
            timeline.rechecks.put(lane, result.refused[lane], now_s, reached=reached)
        elif not demand.hasty:
            timeline.rechecks.end(lane, now_s)
        elif is_full and at != demand.since:
            timeline.rechecks.put(lane, demand.since, now_s)

    def _is_held(self, lane: Lane) -> bool:
        return self._leases.holding(lane.shard) is not None

    def _lease_of(self, lane: Lane) -> UUID | None:
        held = self._leases.holding(lane.shard)
        return None if held is None else held.lease_guid

    # -- settling ---------------------------------------------------------------------------------

    async def _settle(self) -> bool:
        """Close interrupted attempts, pass over expired occurrences, drop what old generations
        left; True if there may be more of it at once."""
        await self._settle_unserved()
        holdings = [held for held in self._leases.trusted() if held.shard in self._lapsing]
        if not holdings or self._settler.is_one_by_one:
            self._lapsing.clear()  # what cannot be written even so has its next turn in a while
        if not holdings:
            return False
        more = await self._settler.settle(holdings) or await self._settler.drop_stale(holdings)
        await self._survey(holdings)
        self._lapsing = {held.shard for held in holdings} if more else set()
        return more

    async def _settle_unserved(self) -> None:
        """These shards are looked at about once a second, so nothing is done that walks over rows
        which wait."""
        shards = self._unserved - self._lapsing
        self._unserved.clear()
        holdings = [held for held in self._leases.trusted() if held.shard in shards]
        if holdings and await self._settler.settle(holdings):
            self.note_unserved({held.shard for held in holdings})
