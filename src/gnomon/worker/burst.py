"""Begins ahead of its time what is known before, so that at its time little is left to do.

Thousands of rows that are due at one instant, a burst, cannot all be begun at that instant: each of
them is written, and all of them wait for that. They are known before, though. So they are *armed*
in the seconds before: begun as of their time. A single row waits for one write, which is most of
its lateness where nothing else goes on: it is armed some milliseconds before.

When the time has come, one look by the hundred confirms which of them still stand, and those are
performed. What a user changed meanwhile is not, and what finds no slot soon is handed back as if it
had never been begun.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from heapq import heappop, heappush
from typing import NamedTuple

import msgspec

from gnomon.clock import DatabaseClock
from gnomon.contracts.env import Env
from gnomon.contracts.store import (
    BeginRequest,
    BeginResult,
    BegunAttempt,
    ConfirmResult,
    Lane,
    WorkStore,
)
from gnomon.model.outcome import Abandoned, Outcome, Unserved
from gnomon.worker.begin_calls import BeginCalls
from gnomon.worker.config import WorkerConfig
from gnomon.worker.slots import Slots
from gnomon.worker.timeline import Timeline

AHEAD = timedelta(seconds=5)  # about the time that it takes to arm as many as may be
LEAST_AHEAD = timedelta(milliseconds=100)  # then be ready: what is due must not wait for this
SPAN = timedelta(milliseconds=50)  # what is due within it is one burst
SOON_SPAN = timedelta(milliseconds=20)  # what is due within it, and soon, is armed together
ARMED_MAX = 100_000  # by one process: some 60 MB
PERFORMED_WITHIN_S = 6.0  # arm what the slots are likely to perform in this: well within PATIENCE
CONFIRMED_MAX = 500
LOOK_EVERY_S = 0.5
RESTED_MAX = timedelta(seconds=30)  # a pump rests for less
PATIENCE = timedelta(seconds=10)  # so long after its time it may still be confirmed
CHANGED = Abandoned(reason="its action was changed before its time")


class Ahead(NamedTuple):
    """What to arm: so many rows of these lanes, due by then."""

    limits: Mapping[Lane, int]
    until: datetime


class ArmedQueue:
    """The armed attempts of one queue, in order of their times."""

    def __init__(self) -> None:
        self._at: dict[datetime, deque[BegunAttempt]] = {}
        self._times: list[datetime] = []  # a heap
        self.count = 0

    @property
    def earliest(self) -> datetime | None:
        return self._times[0] if self._times else None

    def put(self, begun: BegunAttempt) -> None:
        at = begun.began_at
        if at not in self._at:
            self._at[at] = deque()
            heappush(self._times, at)
        self._at[at].append(begun)
        self.count += 1

    def pop(self, until: datetime, limit: int) -> list[BegunAttempt]:
        """The first ones whose time is up to then."""
        first: list[BegunAttempt] = []
        while self._times and self._times[0] <= until and len(first) < limit:
            waiting = self._at[self._times[0]]
            while waiting and len(first) < limit:
                first.append(waiting.popleft())
            if not waiting:
                del self._at[heappop(self._times)]
        self.count -= len(first)
        return first


class Arming:
    """What one worker has armed."""

    def __init__(
        self,
        store: WorkStore,
        begins: BeginCalls,
        slots: Slots,
        timeline: Timeline,
        *,
        time: DatabaseClock,
        config: WorkerConfig,
        env: Env,
    ) -> None:
        self._store = store
        self._begins = begins
        self._slots = slots
        self._timeline = timeline
        self._time = time
        self._clock = env.clock
        self._observer = env.observer
        self._batch = config.begin_batch
        self._least = config.burst_least
        self._queues: dict[str, ArmedQueue] = {}
        self._soon = config.soon
        self._until: datetime | None = None  # the burst that is being armed
        self._look_at = 0.0
        self._soon_at = 0.0  # before, what is due soon is left to its time
        self._is_sparing = False

    @property
    def count(self) -> int:
        """Attempts that are armed."""
        return sum(queue.count for queue in self._queues.values())

    def is_due(self, now: datetime) -> bool:
        """Whether the time of some has come."""
        return any(queue.earliest and queue.earliest <= now for queue in self._queues.values())

    def is_soon_over(self, now: datetime, within_s: float) -> bool:
        """Whether more was due by then than could be performed at once, and all of it is likely to
        be performed within this time."""
        due = {
            name: queue.count
            for name, queue in self._queues.items()
            if queue.earliest and queue.earliest <= now
        }
        return bool(due) and all(
            self._slots.capacity(name, within_s) >= count for name, count in due.items()
        )

    def rest_s(self, *, is_shut: bool) -> float | None:
        """How long nothing is to be done here, if nothing happens; `is_shut`: nothing is begun."""
        now = self._time.now()
        waits = []
        for name, queue in self._queues.items():
            if queue.earliest is not None and not is_shut:
                is_full = self._slots.is_full(name)
                at = queue.earliest + PATIENCE if is_full else queue.earliest
                waits.append((at - now).total_seconds())
        ahead = self._timeline.ahead(now + LEAST_AHEAD, now + AHEAD + RESTED_MAX)
        if ahead:  # or nobody would look before the burst is due
            wait_s = (min(ahead.values()) - AHEAD - now).total_seconds()
            waits.append(max(wait_s, self._look_at - self._clock.monotonic()))
        soon = self._timeline.ahead(now, now + RESTED_MAX) if self._soon and not is_shut else {}
        if soon:
            wait_s = (min(soon.values()) - self._soon - now).total_seconds()
            waits.append(max(wait_s, self._soon_at - self._clock.monotonic()))
        return min(waits, default=None)

    # -- ahead ------------------------------------------------------------------------------------

    async def lanes_ahead(self, is_held: Callable[[Lane], bool]) -> Ahead | None:
        """What to arm next: what is due soon, or some of the burst that comes next."""
        return self._lanes_soon(is_held) or await self._lanes_of_burst(is_held)

    def _lanes_soon(self, is_held: Callable[[Lane], bool]) -> Ahead | None:
        """What is due soon, if there are slots for it."""
        now, now_s = self._time.now(), self._clock.monotonic()
        if not self._soon or now_s < self._soon_at:
            return None
        if not self._timeline.ahead(now, now + self._soon):
            return None
        until = now + self._soon + SOON_SPAN
        free = {lane.queue: self._free(lane.queue) for lane in self._timeline.ahead(now, until)}
        lanes = [
            lane
            for lane in self._timeline.ahead(now, until)
            if not lane.need and free[lane.queue] > 0 and is_held(lane)
        ]
        if not lanes:
            self._leave_to_their_time()
            return None
        return Ahead(self._shared(lanes, free), until)

    def _leave_to_their_time(self) -> None:
        """Nobody can arm what is due soon: do not ask again and again."""
        self._soon_at = self._clock.monotonic() + (self._soon + SOON_SPAN).total_seconds()

    def _free(self, queue: str) -> int:
        """Slots that nobody needs at the moment, nor anything that is armed."""
        if self._slots.has_limit(queue):
            return 0
        armed = self._queues.get(queue)
        return self._slots.free(queue) - (0 if armed is None else armed.count)

    async def _lanes_of_burst(self, is_held: Callable[[Lane], bool]) -> Ahead | None:
        now = self._time.now()
        if self._clock.monotonic() < self._look_at:
            return None
        ahead = {
            lane: at
            for lane, at in self._timeline.ahead(now + LEAST_AHEAD, now + AHEAD).items()
            if not lane.need and is_held(lane) and self._room(lane.queue) > 0
        }
        first = min(ahead.values(), default=now)
        lanes = [lane for lane, at in ahead.items() if at <= first + SPAN]
        if self._until is None or first > self._until:
            self._until = None
            if lanes and await self._is_burst(lanes, first + SPAN):
                self._until = first + SPAN
        if not lanes or self._until is None:
            self._look_later()
            return None
        room = {lane.queue: self._room(lane.queue) for lane in lanes}
        return Ahead(self._shared(lanes, room), self._until)

    async def _is_burst(self, lanes: Sequence[Lane], until: datetime) -> bool:
        count = await self._store.count_due(lanes, limit=self._least, until=until)
        return count >= self._least

    def _look_later(self) -> None:
        self._until = None
        self._look_at = self._clock.monotonic() + LOOK_EVERY_S

    def _shared(self, lanes: Sequence[Lane], room: Mapping[str, int]) -> dict[Lane, int]:
        sizes = Counter(lane.queue for lane in lanes)
        return {
            lane: max(1, min(room[lane.queue], self._batch) // sizes[lane.queue]) for lane in lanes
        }

    def _room(self, queue: str) -> int:
        """What may be armed: no more than is soon performed, and nothing that waits for limits."""
        if self._slots.has_limit(queue):
            return 0
        armed = self._queues.get(queue)
        most = min(self._slots.capacity(queue, PERFORMED_WITHIN_S), ARMED_MAX)
        return most - (0 if armed is None else armed.count)

    async def arm(self, demands: Sequence[BeginRequest], until: datetime) -> BeginResult:
        """Begin rows ahead of their time."""
        # They may wait for a slot for so long, and then have all of their time.
        call = self._begins.arm(demands, until=until, wait=PATIENCE, put=self._put_new)
        result = await call
        if not result.begun:  # somebody holds them: leave them to their time
            self._leave_to_their_time()
            self._look_later()
        return result

    def _put_new(self, armed: Sequence[BegunAttempt]) -> None:
        self._put(armed)
        for queue, count in Counter(begun.spec.queue for begun in armed).items():
            self._observer.count("attempts_armed", count, queue=queue)

    def _put(self, armed: Iterable[BegunAttempt]) -> None:
        for begun in armed:
            self._queues.setdefault(begun.spec.queue, ArmedQueue()).put(begun)

    # -- at the time ------------------------------------------------------------------------------

    async def fire(self, *, spared: int) -> int:
        """Perform what is armed and due, as far as there are slots; how many. One in `spared` of
        them is left to others (0: none)."""
        now = self._time.now()
        due = [
            name for name, queue in self._queues.items() if queue.earliest and queue.earliest <= now
        ]
        armed: list[BegunAttempt] = []
        for name, free in self._slots.share(due, self._slots.ask).items():
            armed += self._queues[name].pop(now, min(self._part(free, spared), CONFIRMED_MAX))
        if due:
            self._give_up(now)
        if armed:
            await self._confirm(armed)
        return len(armed)

    def _part(self, free: int, spared: int) -> int:
        """What is not left to others; of few slots they get all, every other time."""
        if not spared:
            return free
        if free >= spared:
            return free - free // spared
        self._is_sparing = not self._is_sparing
        return 0 if self._is_sparing else free

    async def _confirm(self, armed: Sequence[BegunAttempt]) -> None:
        asked_at = self._clock.monotonic()
        promise = self._slots.promise(Counter(begun.spec.queue for begun in armed))
        try:
            result = await self._store.confirm(armed)
        except BaseException:
            self._put(armed)  # whether they stand is not known
            raise
        finally:
            promise.close()
        self._time.observe(result.now)
        self._slots.take(self._standing(armed, result), asked_at)

    def _standing(self, armed: Sequence[BegunAttempt], result: ConfirmResult) -> list[BegunAttempt]:
        """Those that may be performed; the others wait on, or are handed back."""
        refused = {*result.gone, *result.early, *result.expired}  # mostly nothing
        ready: list[BegunAttempt] = []
        for begun in armed:
            if result.now - begun.began_at > PATIENCE and begun.attempt_id not in result.gone:
                self._hand_back(begun, Unserved(begun.need))
            elif begun.attempt_id not in refused:
                ready.append(confirmed_at(begun, result.now))
            elif begun.attempt_id in result.gone:
                self._hand_back(begun, CHANGED)
            elif begun.attempt_id in result.early:
                self._put([begun])
            else:
                self._hand_back(begun, Unserved(begun.need))
        return ready

    def _give_up(self, now: datetime) -> None:
        """Hand back what waited for too long: others may begin it, or this worker later."""
        for name, queue in list(self._queues.items()):
            while queue.earliest is not None and now - queue.earliest > PATIENCE:
                for begun in queue.pop(queue.earliest, queue.count):
                    self._hand_back(begun, Unserved(begun.need))
            if not queue.count:
                del self._queues[name]

    def disarm(self) -> None:
        """The worker leaves: hand all of it back."""
        for queue in self._queues.values():
            while queue.earliest is not None:
                for begun in queue.pop(queue.earliest, queue.count):
                    self._hand_back(begun, Unserved(begun.need))
        self._queues.clear()

    def _hand_back(self, begun: BegunAttempt, outcome: Outcome) -> None:
        self._observer.count("attempts_disarmed", queue=begun.spec.queue)
        self._slots.hand_back(begun, outcome)


def confirmed_at(begun: BegunAttempt, now: datetime) -> BegunAttempt:
    """The right to execute: its time counts from now on."""
    waited = now - begun.began_at
    return msgspec.structs.replace(begun, waited=waited, deadline=begun.deadline + waited)
