"""Performs begun attempts, each queue within its own number of slots.

A slot is a coroutine that lives while its queue has attempts waiting: under load it takes one
after the other without the cost of a new asyncio task each; idle queues have none.
A few attempts more than there are slots may be begun ahead, as many as the recent pace finishes
in a moment, so that a slot never waits for the database.
"""

from __future__ import annotations

import asyncio
import math
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import timedelta
from types import MappingProxyType
from uuid import UUID

from gnomon.boundary import tell_bug
from gnomon.contracts.clock import Clock
from gnomon.contracts.observer import Observer, SilentObserver
from gnomon.contracts.store import BegunAttempt, FinishRequest
from gnomon.model.outcome import Abandoned, Interrupted, Outcome, Unserved
from gnomon.worker.attempt import (
    ENDED_BEFORE,
    AttemptRunner,
    DeadlineGuard,
    finish_of,
    lateness_of,
)
from gnomon.worker.gates import QueueGate
from gnomon.worker.loop_turn import LoopTurn

AHEAD_FOR_S = 0.3  # begin ahead what is finished in this time: slots and database overlap
AHEAD_MAX = 4_000
ATTEMPTS_MAX = 1_000  # at once, of all queues; see WorkerConfig
PACE_OVER_S = 0.1
FIRST_PACE_OVER_S = 0.01  # until it is known at all, no more is begun than there are slots
HICCUP = 3.0  # an attempt that takes so many times the usual says no more than that
TOOK_WEIGHT = 0.05  # of the latest attempt in the smoothed duration
TOOK_MIN_S = 1e-6
SHUT_DOWN = "the worker was shut down"
PACES_MAX = 1_000  # queues whose pace is remembered
STARTED_AT_FIRST = 4  # slots, see `_start`
UNSENT = ("abandoned", "unserved")
NO_GATES: Mapping[str, QueueGate] = MappingProxyType({})


class TotalSlots:
    """What all queues together may have under way, and have."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    @property
    def left(self) -> int:
        return max(0, self.limit - self.used)


class QueueSlots:
    """One queue's slots, its attempts in hand, and its pace."""

    def __init__(self, name: str, limit: int, total: TotalSlots) -> None:
        self.name = name
        self.limit = limit
        self.promised = 0  # to attempts that are being begun
        self.waiting: deque[tuple[BegunAttempt, float]] = deque()
        self.slots = 0
        self.is_starting = False  # more slots may be started in the next turn of the loop
        self.resting = 0  # slots that let the loop turn, and go on then
        self.performing: dict[asyncio.Task[None], tuple[BegunAttempt, float]] = {}
        self._total = total
        self._used = 0  # of the total
        self._pace = 0.0  # attempts performed a second, smoothed
        self._took_s = 0.0  # one attempt, smoothed
        self.each_s = 0.0  # the same, as a part of the time that all of them take; 0: not known
        self._ended = 0
        self._counted_at = 0.0

    def free(self, now: float) -> int:
        """How many more attempts may be begun now.

        Those that would wait for a slot are no part of the total: they are not performed yet.
        """
        if self.limit <= 0:
            return 0
        ahead = min(AHEAD_MAX, int(self.pace(now) * AHEAD_FOR_S))
        free = self.limit + ahead - len(self.waiting) - self.slots - self.promised
        left = self._total.left
        return max(0, free if self.unfilled <= left else min(free, left))

    @property
    def unfilled(self) -> int:
        """Slots that nobody has or is promised."""
        return max(0, self.limit - self.in_hand - self.promised)

    @property
    def in_hand(self) -> int:
        """Attempts begun and not ended."""
        return len(self.waiting) + len(self.performing)

    @property
    def is_idle(self) -> bool:
        """Nothing is in hand or on its way: the queue may be forgotten."""
        return not (self.waiting or self.performing or self.slots or self.promised)

    def recount(self) -> None:
        """Attempts were promised, taken or ended."""
        used = len(self.waiting) + len(self.performing) + self.promised
        used = min(used, self.limit)
        if used != self._used:
            self._total.used += used - self._used
            self._used = used

    def pace(self, now: float) -> float:
        """Attempts performed a second: less and less while none ends, and never more than the slots
        can do, for many slow ones may end in one moment."""
        pace = min(self._pace, self.limit / max(self._took_s, TOOK_MIN_S))
        elapsed = now - self._counted_at
        return pace if elapsed <= PACE_OVER_S else min(pace, (self._ended + 1) / elapsed)

    def count_end(self, started: float, now: float, *, is_alone: bool) -> None:
        """An attempt was performed; `is_alone`: it never waited, so no other could start. One that
        was handed back unsent says nothing about the pace."""
        self._ended += 1
        took_s = now - started
        self._took_s += TOOK_WEIGHT * (took_s - self._took_s)
        each_s = took_s if is_alone else took_s / self.limit
        if self.each_s:
            each_s = min(each_s, HICCUP * self.each_s)
        self.each_s += (TOOK_WEIGHT if self.each_s else 1.0) * (each_s - self.each_s)
        if not self._counted_at:
            self._counted_at = started
        elapsed = now - self._counted_at
        if elapsed >= (PACE_OVER_S if self._pace else FIRST_PACE_OVER_S):
            # Of what was: the less, the longer ago.
            weight = 0.5 ** (elapsed / PACE_OVER_S) if self._pace else 0.0
            self._pace = weight * self._pace + (1 - weight) * self._ended / elapsed
            self._ended = 0
            self._counted_at = now


class SlotHold:
    """Room for attempts that are being begun, until they are in hand or it is known that they are
    fewer."""

    def __init__(self, parts: list[tuple[QueueSlots, int]], *, first: bool = False) -> None:
        self._parts = parts
        self.first = first  # they come before all that waits for a slot
        for queue, count in parts:
            queue.promised += count
            queue.recount()

    def close(self) -> None:
        """Give the room back. Safe to repeat."""
        for queue, count in self._parts:
            queue.promised -= count
            queue.recount()
        self._parts = []


class Slots:
    """All queues' slots."""

    def __init__(
        self,
        performer: AttemptRunner,
        *,
        clock: Clock,
        concurrency_of: Callable[[str], int],
        # And how late it was, and how long it took.
        ended: Callable[[BegunAttempt, FinishRequest, float, float], None],
        attempts_max: int = ATTEMPTS_MAX,
        gates: Mapping[str, QueueGate] = NO_GATES,
        is_open: bool = True,
        observer: Observer | None = None,
    ) -> None:
        self._gates = gates  # of queues that have a limit
        self.is_open = is_open  # before, the limits are not known, and nothing is begun
        self._observer = observer or SilentObserver()
        self._performer = performer
        self._clock = clock
        self._concurrency_of = concurrency_of
        self._ended = ended
        self._total = TotalSlots(attempts_max)
        self._served = ""  # the last queue for which there was room, when there was too little
        self._queues: dict[str, QueueSlots] = {}
        self._paces: dict[str, float] = {}  # `each_s` of queues that were idle for a while
        self._starts = 0
        self._turn = LoopTurn()
        self._guards: dict[asyncio.Task[None], DeadlineGuard] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}  # in order: a simulated life is replayed
        self._freed = asyncio.Event()

    @property
    def in_hand(self) -> int:
        """Attempts begun and not ended."""
        return sum(queue.in_hand for queue in self._queues.values())

    def in_use(self, queue: str) -> int:
        """Attempts of a queue that are begun and not ended, or are being begun."""
        slots = self._queue(queue)
        return slots.in_hand + slots.promised

    def open(self) -> None:
        """The limits are known: attempts may be begun."""
        if not self.is_open:
            self.is_open = True
            self._freed.set()

    def free(self, queue: str) -> int:
        """How many more attempts of a queue may be begun now."""
        if not self.is_open:
            return 0
        slots = self._queue(queue)
        free = slots.free(self._clock.monotonic())
        gate = self._gates.get(queue)
        return free if gate is None else min(free, gate.room(slots.promised))

    def has_limit(self, queue: str) -> bool:
        """Whether its attempts are limited over all workers."""
        return queue in self._gates

    def capacity(self, queue: str, within_s: float) -> int:
        """How many attempts of a queue are likely to be performed within this time, by what they
        took before; without any, as many as there are slots."""
        slots = self._queue(queue)
        each_s = slots.each_s or self._paces.get(queue, 0.0)
        if not self.is_open or slots.limit <= 0 or not each_s:
            return slots.limit if self.is_open else 0
        return max(slots.limit, int(within_s / each_s))

    def share(self, queues: Collection[str], free_of: Callable[[str], int]) -> dict[str, int]:
        """How many more attempts of each of these queues may be begun, within the total.

        Where that is too small for all, the queues get their turn one after the other.
        """
        names = sorted(queues)
        first = bisect_right(names, self._served)
        left, room = self._total.left, dict[str, int]()
        for name in names[first:] + names[:first]:
            unfilled, free = self._queue(name).unfilled, free_of(name)
            granted = free if unfilled <= left else min(free, left)
            if granted:
                room[name] = granted
                left -= min(unfilled, granted)
                self._served = name if not left else self._served
        return room

    def ask(self, queue: str) -> int:
        """The same, for something that is due."""
        free = self.free(queue)
        gate = self._gates.get(queue)
        if gate is not None and not free and self._has_room(queue):
            gate.starve()
        return free

    def is_full(self, queue: str) -> bool:
        """Whether it is of no use to ask: something has to end, or a limit was asked already."""
        if self.free(queue):
            return False
        gate = self._gates.get(queue)
        return gate is None or gate.is_starving or not self._has_room(queue)

    def _has_room(self, queue: str) -> bool:
        """Whether there is room but for a limit of the installation."""
        return self._queue(queue).free(self._clock.monotonic()) > 0

    @property
    def is_limited(self) -> bool:
        """Whether any queue has a limit."""
        return bool(self._gates)

    def reopens_s(self) -> float:
        """How long until a rate lets something begin that is due and waits for it."""
        waits = [gate.reopens_s() for gate in self._gates.values() if gate.is_starving]
        return min(waits, default=math.inf)

    def promise(self, counts: Mapping[str, int], *, first: bool = False) -> SlotHold:
        """So many attempts of these queues are being begun: nobody else may count on their room."""
        parts = [(self._queue(name), count) for name, count in counts.items()]
        return SlotHold(parts, first=first)

    def attempts(self) -> Iterable[BegunAttempt]:
        """Everything in hand, for prolonging reservations."""
        yield from self.performing()
        for queue in self._queues.values():
            yield from (begun for begun, _ in queue.waiting)

    def performing(self) -> Iterable[BegunAttempt]:
        """Attempts that have a slot."""
        for queue in self._queues.values():
            yield from (begun for begun, _ in queue.performing.values())

    def take(
        self, attempts: Iterable[BegunAttempt], asked_at: float, *, first: bool = False
    ) -> Mapping[str, int]:
        """Perform these attempts as soon as slots are free, before all others if they are to be
        `first`; how many are of each queue."""
        taken: Counter[str] = Counter()
        for begun in attempts:
            queue = self._queue(begun.spec.queue)
            if first:
                queue.waiting.appendleft((begun, asked_at))
            else:
                queue.waiting.append((begun, asked_at))
            taken[queue.name] += 1
        for name, count in taken.items():
            self._fill(self._queue(name), count)
        return taken

    def _fill(self, queue: QueueSlots, count: int) -> None:
        """So many attempts more are waiting."""
        queue.recount()
        if self._gates and queue.name in self._gates:
            for _ in range(count):
                self._gates[queue.name].took()
        if not queue.is_starting:
            self._start(queue, STARTED_AT_FIRST)

    def _start(self, queue: QueueSlots, count: int) -> None:
        """Start so many slots, as far as they are needed; twice as many in the next turn of the
        loop, if attempts wait then and no slot is about to take them. Of those that never wait a
        slot takes one after the other, and a hundred slots would be a hundred tasks for nothing.
        """
        wanted = min(len(queue.waiting), queue.limit - queue.slots)
        if not queue.resting:
            for _ in range(min(count, wanted)):
                queue.slots += 1
                task = asyncio.create_task(self._slot(queue), name=f"slot-{queue.name}")
                self._tasks[task] = None
                task.add_done_callback(self._note_slot_end)
            count *= 2
        queue.is_starting = wanted > 0
        if queue.is_starting:
            asyncio.get_running_loop().call_soon(self._start, queue, count)

    def _note_slot_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if error is not None:  # nobody waits for a slot: it must not end unheard
            tell_bug(self._observer, "slots", error)

    def hand_back(self, begun: BegunAttempt, outcome: Outcome) -> None:
        """An attempt that was begun ahead ends without a slot."""
        finish = finish_of(begun, outcome, ended_after=timedelta(0))
        self._ended(begun, finish, lateness_of(begun, 0.0), 0.0)

    def lose(self, lost: Collection[UUID]) -> None:
        """Newer attempts took the place of these: cut them short."""
        for queue in self._queues.values():
            for task, (begun, _) in queue.performing.items():
                if begun.attempt_id in lost:
                    self._guards[task].lose()

    def end(self, cancelled: Collection[UUID]) -> None:
        """The actions of these were cancelled: those that wait for a slot get none, and the others
        are asked to end, once each."""
        for queue in self._queues.values():
            for waiting in [one for one in queue.waiting if one[0].attempt_id in cancelled]:
                queue.waiting.remove(waiting)
                self._cut_short(queue, *waiting, ENDED_BEFORE)
            for task, (begun, _) in queue.performing.items():
                if begun.attempt_id in cancelled:
                    self._guards[task].end()

    def tidy(self) -> dict[str, int]:
        """Hand back what waited too long for its slot, as if it had not been begun: it is due as it
        was, and not counted. Forget queues that are idle; returns how many attempts each queue
        performs, the last time for those forgotten."""
        running = {name: len(queue.performing) for name, queue in self._queues.items()}
        now = self._clock.monotonic()
        for queue in list(self._queues.values()):
            while queue.waiting and self._performer.is_too_late(queue.waiting[0][1], now):
                begun, asked_at = queue.waiting.popleft()
                # What was handed back before, as not served elsewhere, is not handed back twice.
                outcome = Abandoned() if begun.need else Unserved("")
                self._cut_short(queue, begun, asked_at, outcome)
            if queue.is_idle and queue.pace(now) < 1:
                del self._queues[queue.name]
                self._remember(queue)
        return running

    def _remember(self, queue: QueueSlots) -> None:
        if queue.each_s:
            if len(self._paces) >= PACES_MAX:
                self._paces.clear()
            self._paces[queue.name] = queue.each_s

    async def freed(self) -> None:
        """Wait until an attempt ends."""
        self._freed.clear()
        await self._freed.wait()

    async def drain(self, within: timedelta) -> None:
        """Let attempts end; what is not done in time is recorded as interrupted."""
        now = asyncio.get_running_loop().time
        end = now() + within.total_seconds()
        while self._tasks and now() < end:  # those that are started meanwhile have their time, too
            await asyncio.wait(self._tasks, timeout=end - now())
        for queue in self._queues.values():
            while queue.waiting:
                self._cut_short(queue, *queue.waiting.popleft(), Abandoned(reason=SHUT_DOWN))
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _queue(self, name: str) -> QueueSlots:
        queue = self._queues.get(name)
        if queue is None:
            limit = self._concurrency_of(name)
            queue = self._queues[name] = QueueSlots(name, limit, self._total)
        return queue

    async def _slot(self, queue: QueueSlots) -> None:
        task = asyncio.current_task()
        assert task is not None
        guard = self._guards[task] = DeadlineGuard(task)
        try:
            while queue.waiting:
                begun, asked_at = queue.performing[task] = queue.waiting.popleft()
                started = self._clock.monotonic()
                self._starts = place = self._starts + 1
                finish = await self._performer.perform(begun, asked_at, guard)
                del queue.performing[task]
                guard.clear()
                ended_at = guard.ended_at
                if finish.outcome not in UNSENT:
                    queue.count_end(started, ended_at, is_alone=self._starts == place)
                self._end(queue, begun, finish, guard.late_s, ended_at - guard.called_at)
                if self._turn.is_over(ended_at):
                    await self._rest(queue)
        finally:
            guard.close()
            del self._guards[task]
            queue.slots -= 1
            if task in queue.performing:  # nobody else will say how it ended
                begun, asked_at = queue.performing.pop(task)
                called_at = guard.called_at if guard.was_called else None
                self._cut_short(queue, begun, asked_at, _cut_by(guard), called_at=called_at)
            self._freed.set()

    @staticmethod
    async def _rest(queue: QueueSlots) -> None:
        """Let the loop turn."""
        queue.resting += 1
        try:
            await asyncio.sleep(0)
        finally:
            queue.resting -= 1

    def _end(
        self,
        queue: QueueSlots,
        begun: BegunAttempt,
        finish: FinishRequest,
        late_s: float,
        took_s: float,
    ) -> None:
        queue.recount()
        self._ended(begun, finish, late_s, took_s)
        if self._gates and queue.name in self._gates:
            self._gates[queue.name].ended()
        self._freed.set()

    def _cut_short(
        self,
        queue: QueueSlots,
        begun: BegunAttempt,
        asked_at: float,
        outcome: Outcome,
        *,
        called_at: float | None = None,
    ) -> None:
        """`called_at`: when its executor was called, if it was."""
        now = self._clock.monotonic()
        started = now if called_at is None else called_at
        finish = finish_of(begun, outcome, ended_after=timedelta(seconds=now - asked_at))
        self._end(queue, begun, finish, lateness_of(begun, started - asked_at), now - started)


def _cut_by(guard: DeadlineGuard) -> Interrupted:
    """Only a shutdown is planned: what is not counts, or a bug would repeat its effect for ever."""
    if guard.is_cancelled:
        return Interrupted(reason=SHUT_DOWN, planned=True)
    return Interrupted(reason="the worker has a bug")
