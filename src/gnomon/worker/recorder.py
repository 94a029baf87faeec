"""Records how attempts ended, in batches, and does not rest until it is done.

A result is worth its attempt: it is kept in memory and tried again until the store answers.
An answer that was lost is no harm, because the store recognises a repeated result.

While a burst is being performed that is over in a moment, the results of its own attempts wait for
that: to write them takes longer than to perform them, and would make the last of it late. It is two
seconds at most, for what a worker that is killed has not written is performed again.

An action may be held by a transaction of its user's, for as long as he likes. Its result waits
apart, with growing pauses, and holds up no other. So does one that the store goes on refusing as if
it were unavailable, while it takes others.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from typing import NamedTuple
from uuid import UUID

from gnomon.boundary import tell_bug
from gnomon.contracts.observer import Observer
from gnomon.contracts.store import FinishRequest, Recorded, WorkStore
from gnomon.model.attempt_boundary import AttemptBoundary
from gnomon.model.errors import Unavailable

FLUSH_AFTER_S = 0.002  # results of a few milliseconds share a transaction
FLUSH_AFTER_PACES = 3  # where statements are dear: nobody's time depends on it
FLUSHES_MAX = 2  # at once: one is written while the next is prepared
RETRY_FIRST_S = 0.05
RETRY_MAX_S = 2.0
BACKLOG_MAX = 20_000  # unrecorded results beyond which nothing more is begun
POSTPONED_FOR_S = 2.0
POSTPONED_MAX = 100_000  # as many as are armed
TOGETHER_MAX = 5  # tries of a batch, before it is asked whether one of it is the reason


class HeldResult(NamedTuple):
    """A result whose action somebody holds."""

    retry_at: float
    place: int  # in the order of arrival: results themselves cannot be compared
    finish: FinishRequest


class ResultRecorder:
    """A queue of results and the coroutines that write them."""

    def __init__(
        self,
        store: WorkStore,
        *,
        owner: str,
        batch: int,
        observer: Observer,
        pace_s: float = 0.0,
        recorded: Callable[[FinishRequest, Recorded], None],
        dropped: Callable[[FinishRequest], None] = lambda _: None,
    ) -> None:
        self._store = store
        self._owner = owner
        self._batch = batch
        self._flush_after_s = max(FLUSH_AFTER_S, FLUSH_AFTER_PACES * pace_s)
        self._observer = observer
        self._recorded = recorded
        self._dropped = dropped
        self._waiting: deque[FinishRequest] = deque()
        self._postponed: deque[FinishRequest] = deque()
        self._postponing: asyncio.TimerHandle | None = None  # set while it is
        self._is_burst = False
        self._arrived = asyncio.Event()
        self._unwritten: dict[UUID, FinishRequest] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self._held: list[HeldResult] = []  # a heap
        self._held_count = 0
        self._pauses: dict[UUID, float] = {}  # the last pause of each, by attempt
        self._was_held = asyncio.Event()

    @property
    def backlog(self) -> int:
        """Results not yet known to be written."""
        return len(self._unwritten)

    @property
    def is_behind(self) -> bool:
        """Whether so much is left to write that nothing more should begin. What was postponed is
        bounded by itself."""
        return len(self._unwritten) - len(self._postponed) >= BACKLOG_MAX

    @property
    def ready(self) -> int:
        """How many results may be written now."""
        return len(self._waiting) + (0 if self._is_postponing else len(self._postponed))

    def unwritten(self) -> Mapping[UUID, FinishRequest]:
        """Results not yet known to be written, by attempt."""
        return self._unwritten

    def put(self, finish: FinishRequest, *, may_wait: bool = False) -> None:
        """Take a result; it will be written. `may_wait`: until the burst is performed."""
        self._unwritten[finish.attempt_id] = finish
        self._idle.clear()
        if may_wait and self._postponing and len(self._postponed) < POSTPONED_MAX:
            self._postponed.append(finish)
            return
        self._waiting.append(finish)
        self._arrived.set()

    def note_burst(self, *, goes_on: bool) -> None:
        """Whether a burst is being performed: its results may wait for its end, for a moment."""
        if goes_on and not self._is_burst:
            loop = asyncio.get_running_loop()
            self._postponing = loop.call_later(POSTPONED_FOR_S, self._stop_postponing)
        elif self._is_burst and not goes_on:
            self._stop_postponing()
        self._is_burst = goes_on

    @property
    def _is_postponing(self) -> bool:
        return self._postponing is not None

    def _stop_postponing(self) -> None:
        if self._postponing is not None:
            self._postponing.cancel()
            self._postponing = None
            self._arrived.set()

    async def idle(self) -> None:
        """Wait until everything taken is written."""
        await self._idle.wait()

    async def keep_writing(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number in range(FLUSHES_MAX):
                group.create_task(self._write(), name=f"recorder-{number}")
            group.create_task(self._write_held(), name="recorder-held")

    async def _write(self) -> None:
        while True:
            await self._arrived.wait()
            if self.ready < self._batch:
                await asyncio.sleep(self._flush_after_s)
            batch = self._take()
            if batch:
                await self._flush(batch)

    def _take(self) -> list[FinishRequest]:
        """If both wait, half of it is of those that were postponed."""
        late = 0 if self._is_postponing else len(self._postponed)
        room = self._batch - min(late, self._batch // 2)
        batch = [self._waiting.popleft() for _ in range(min(room, len(self._waiting)))]
        late = min(late, self._batch - len(batch))
        batch += [self._postponed.popleft() for _ in range(late)]
        if not self.ready:
            self._arrived.clear()
        return batch

    async def _write_held(self) -> None:
        """Try again what was held, by itself."""
        while True:
            await self._was_held.wait()
            await asyncio.sleep(max(0.0, self._held[0].retry_at - self._now()))
            due: list[FinishRequest] = []
            while self._held and len(due) < self._batch and self._held[0].retry_at <= self._now():
                due.append(heappop(self._held).finish)
            if not self._held:
                self._was_held.clear()
            if due:
                await self._flush(due)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    async def _flush(self, batch: list[FinishRequest]) -> None:
        results: Sequence[Recorded] | None = None
        with AttemptBoundary(Exception) as attempt:  # one result may be lost, never all
            results = await self._written(batch)
        if attempt.error is not None:
            await self._flush_apart(batch, attempt.error)
        elif results is not None:
            self._observer.observe("finish_batch", len(batch))
            self._note(batch, results)
        elif len(batch) == 1:
            self._put_off(batch[0])
        else:  # at once: what is refused in one half holds up nothing of the other
            async with asyncio.TaskGroup() as group:
                for half in (batch[: len(batch) // 2], batch[len(batch) // 2 :]):
                    group.create_task(self._flush(half))

    async def _flush_apart(self, batch: list[FinishRequest], exc: Exception) -> None:
        """The store cannot write one of these: find it. Its attempt will count as interrupted."""
        if len(batch) > 1:
            await self._flush(batch[: len(batch) // 2])
            await self._flush(batch[len(batch) // 2 :])
            return
        tell_bug(self._observer, "recorder", exc)
        self._observer.event("result_dropped", action=batch[0].id, outcome=batch[0].outcome)
        self._pauses.pop(batch[0].attempt_id, None)
        self._dropped(batch[0])
        self._forget(batch)

    async def _written(self, batch: list[FinishRequest]) -> Sequence[Recorded] | None:
        """What became of each; None if the store refuses them, but not all others. What it takes
        alone leaves the batch."""
        delay_s = RETRY_FIRST_S
        tries = 1
        while (results := await self._try(batch)) is None:
            if tries >= TOGETHER_MAX and (len(batch) == 1 or await self._is_one_taken(batch)):
                return None
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, RETRY_MAX_S)
            tries += 1
        return results

    async def _is_one_taken(self, batch: list[FinishRequest]) -> bool:
        """Whether the store takes the first of them by itself. If not, another one is asked about
        the next time: this one may be the reason."""
        results = await self._try(batch[:1])
        first = batch.pop(0)
        if results is None:
            batch.append(first)
            return False
        self._note([first], results)
        return True

    async def _try(self, batch: list[FinishRequest]) -> Sequence[Recorded] | None:
        try:
            return await self._store.finish(batch, owner=self._owner)
        except Unavailable as exc:
            self._observer.count("store_errors", operation="finish")
            self._observer.event("finish_failed", count=len(batch), error=str(exc))
            return None

    def _note(self, batch: Sequence[FinishRequest], results: Sequence[Recorded]) -> None:
        for finish, result in zip(batch, results, strict=True):
            if result is Recorded.HELD:
                self._tell_held(finish)
                self._put_off(finish)
            else:
                if self._pauses:
                    self._pauses.pop(finish.attempt_id, None)
                self._recorded(finish, result)
        self._forget(
            [one for one, result in zip(batch, results, strict=True) if result is not Recorded.HELD]
        )
        for result, count in Counter(results).items():
            if result is not Recorded.HELD:  # told once, when it was held first
                self._observer.count("results", count, recorded=result.value)

    def _forget(self, batch: Sequence[FinishRequest]) -> None:
        for finish in batch:
            del self._unwritten[finish.attempt_id]
        if not self._unwritten:
            self._idle.set()

    def _tell_held(self, finish: FinishRequest) -> None:
        if finish.attempt_id not in self._pauses:
            self._observer.count("results", recorded=Recorded.HELD.value)
            self._observer.event("result_held", action=finish.id)

    def _put_off(self, finish: FinishRequest) -> None:
        before_s = self._pauses.get(finish.attempt_id)
        pause_s = RETRY_FIRST_S if before_s is None else min(before_s * 2, RETRY_MAX_S)
        self._pauses[finish.attempt_id] = pause_s
        self._held_count += 1
        heappush(self._held, HeldResult(self._now() + pause_s, self._held_count, finish))
        self._was_held.set()
