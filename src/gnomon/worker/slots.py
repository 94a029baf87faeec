"""Performs begun attempts, each queue within its own number of slots.

A slot is a coroutine that lives while its queue has attempts waiting: under load it takes one
after the other without the cost of a new asyncio task each; idle queues have none.
A few attempts more than there are slots may be begun ahead, as many as the recent pace finishes
in a moment, so that a slot never waits for the database.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from types import MappingProxyType

from gnomon.contracts.clock import Clock
from gnomon.contracts.store import Begun, Finish
from gnomon.model.outcome import Abandoned, Interrupted, Outcome
from gnomon.worker.attempt import Guard, Performer, finish_of
from gnomon.worker.gates import QueueGate

AHEAD_FOR_S = 0.3  # begin ahead what is finished in this time: slots and database overlap
AHEAD_MAX = 4_000
PACE_OVER_S = 0.1
SHUT_DOWN = "the worker was shut down"
BREATH_EVERY = 64  # attempts that never waited, before the loop gets its turn
NO_GATES: Mapping[str, QueueGate] = MappingProxyType({})


class QueueSlots:
    """One queue's slots, its attempts in hand, and its pace."""

    def __init__(self, name: str, limit: int) -> None:
        self.name = name
        self.limit = limit
        self.promised = 0  # to attempts that are being begun
        self.waiting: deque[tuple[Begun, float]] = deque()
        self.slots = 0
        self.performing: dict[asyncio.Task[None], tuple[Begun, float]] = {}
        self.pace = 0.0  # attempts ended a second, smoothed
        self._ended = 0
        self._counted_at = 0.0

    @property
    def free(self) -> int:
        """How many more attempts may be begun now."""
        if self.limit <= 0:
            return 0
        ahead = min(AHEAD_MAX, int(self.pace * AHEAD_FOR_S))
        return max(0, self.limit + ahead - len(self.waiting) - self.slots - self.promised)

    @property
    def in_hand(self) -> int:
        """Attempts begun and not ended."""
        return len(self.waiting) + len(self.performing)

    def count_end(self, now: float) -> None:
        self._ended += 1
        elapsed = now - self._counted_at
        if elapsed >= PACE_OVER_S:
            self.pace = 0.5 * self.pace + 0.5 * self._ended / elapsed
            self._ended = 0
            self._counted_at = now


class Promise:
    """Room for attempts that are being begun, until they are in hand or it is known that they are
    fewer."""

    def __init__(self, parts: list[tuple[QueueSlots, int]]) -> None:
        self._parts = parts
        for queue, count in parts:
            queue.promised += count

    def close(self) -> None:
        """Give the room back. Safe to repeat."""
        for queue, count in self._parts:
            queue.promised -= count
        self._parts = []


class Slots:
    """All queues' slots."""

    def __init__(
        self,
        performer: Performer,
        *,
        clock: Clock,
        concurrency_of: Callable[[str], int],
        ended: Callable[[Begun, Finish], None],
        gates: Mapping[str, QueueGate] = NO_GATES,
        is_open: bool = True,
    ) -> None:
        self._gates = gates  # of queues that have a limit
        self._is_open = is_open
        self._performer = performer
        self._clock = clock
        self._concurrency_of = concurrency_of
        self._ended = ended
        self._queues: dict[str, QueueSlots] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._freed = asyncio.Event()

    @property
    def in_hand(self) -> int:
        """Attempts begun and not ended."""
        return sum(queue.in_hand for queue in self._queues.values())

    def in_use(self, queue: str) -> int:
        """Attempts of a queue that are begun and not ended, or are being begun."""
        found = self._queue(queue)
        return found.in_hand + found.promised

    def open(self) -> None:
        """The limits are known: attempts may be begun."""
        if not self._is_open:
            self._is_open = True
            self._freed.set()

    def free(self, queue: str) -> int:
        """How many more attempts of a queue may be begun now."""
        if not self._is_open:
            return 0
        found = self._queue(queue)
        gate = self._gates.get(queue)
        return found.free if gate is None else min(found.free, gate.room(found.promised))

    def ask(self, queue: str) -> int:
        """The same, for something that is due."""
        free = self.free(queue)
        gate = self._gates.get(queue)
        if gate is not None and not free and self._queue(queue).free:
            gate.starve()
        return free

    def is_full(self, queue: str) -> bool:
        """Whether it is of no use to ask: something has to end, or a limit was asked already."""
        if self.free(queue):
            return False
        gate = self._gates.get(queue)
        return gate is None or gate.is_starving or not self._queue(queue).free

    @property
    def is_limited(self) -> bool:
        """Whether any queue has a limit."""
        return bool(self._gates)

    def reopens_s(self) -> float:
        """How long until a rate lets something begin that is due and waits for it."""
        waits = [gate.reopens_s() for gate in self._gates.values() if gate.is_starving]
        return min(waits, default=math.inf)

    def promise(self, counts: Mapping[str, int]) -> Promise:
        """So many attempts of these queues are being begun: nobody else may count on their room."""
        return Promise([(self._queue(name), count) for name, count in counts.items()])

    def attempts(self) -> Iterable[Begun]:
        """Everything in hand, for prolonging reservations."""
        yield from self.performing()
        for queue in self._queues.values():
            yield from (begun for begun, _ in queue.waiting)

    def performing(self) -> Iterable[Begun]:
        """What has a slot."""
        for queue in self._queues.values():
            yield from (begun for begun, _ in queue.performing.values())

    def take(self, begun: Begun, asked_at: float) -> None:
        """Perform this attempt as soon as a slot is free."""
        queue = self._queue(begun.spec.queue)
        queue.waiting.append((begun, asked_at))
        if self._gates and queue.name in self._gates:
            self._gates[queue.name].took()
        if queue.slots < queue.limit:
            queue.slots += 1
            task = asyncio.create_task(self._slot(queue), name=f"slot-{begun.spec.queue}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def freed(self) -> None:
        """Wait until an attempt ends."""
        self._freed.clear()
        await self._freed.wait()

    async def drain(self, within: timedelta) -> None:
        """Let attempts end; what is not done in time is recorded as interrupted."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=within.total_seconds())
        for queue in self._queues.values():
            while queue.waiting:
                self._cut_short(queue, *queue.waiting.popleft(), Abandoned(reason=SHUT_DOWN))
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _queue(self, name: str) -> QueueSlots:
        found = self._queues.get(name)
        if found is None:
            found = self._queues[name] = QueueSlots(name, self._concurrency_of(name))
        return found

    async def _slot(self, queue: QueueSlots) -> None:
        task = asyncio.current_task()
        assert task is not None
        guard = Guard(task)
        performed = 0
        try:
            while queue.waiting:
                begun, asked_at = queue.performing[task] = queue.waiting.popleft()
                finish = await self._performer.perform(begun, asked_at, guard)
                del queue.performing[task]
                self._end(queue, begun, finish)
                performed += 1
                if performed % BREATH_EVERY == 0:
                    await asyncio.sleep(0)
        finally:
            guard.close()
            queue.slots -= 1
            if task in queue.performing:  # nobody else will say how it ended
                self._cut_short(queue, *queue.performing.pop(task), _cut_by(guard))
            self._freed.set()

    def _end(self, queue: QueueSlots, begun: Begun, finish: Finish) -> None:
        queue.count_end(self._clock.monotonic())
        self._ended(begun, finish)
        if self._gates and queue.name in self._gates:
            self._gates[queue.name].ended()
        self._freed.set()

    def _cut_short(
        self, queue: QueueSlots, begun: Begun, asked_at: float, outcome: Outcome
    ) -> None:
        elapsed = timedelta(seconds=self._clock.monotonic() - asked_at)
        self._end(queue, begun, finish_of(begun, outcome, ended_after=elapsed))


def _cut_by(guard: Guard) -> Interrupted:
    """Only a shutdown is planned: what is not counts, or a bug would repeat its effect for ever."""
    if guard.is_cancelled:
        return Interrupted(reason=SHUT_DOWN, planned=True)
    return Interrupted(reason="the worker has a bug")
