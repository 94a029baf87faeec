"""Virtual time: an event loop whose clock jumps, and processes that can be frozen and killed.

Nothing here sleeps. When no callback is ready, the clock is set to the next timer, so an hour of
waiting costs nothing, and the same seed always gives the same order of events. What a simulated
machine can do to a program, a `VirtualProcess` can do to the coroutines started in it: stop all
of them for a while, with the clock running on, or end them without a chance to clean up.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections import deque
from collections.abc import Coroutine, Generator
from contextvars import Context, ContextVar, copy_context
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from gnomon.clock import uuid7

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
TASKS_KEPT = 64  # a process forgets its ended tasks when it has this many


class Deadlock(RuntimeError):  # noqa: N818 - its name says it all
    """Nothing is ready and no timer is set: nothing would ever happen again."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """An asyncio loop without I/O whose clock jumps to the next timer when nothing is ready."""

    # What the base class has but does not declare.
    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._frozen = 0  # how many processes are
        self.rounds = 0  # what never rests makes many in no time

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now

    def create_task(
        self,
        coro: Generator[Any, None, Any] | Coroutine[Any, Any, Any],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[Any]:
        """Like the base class; the process that the task belongs to remembers it."""
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=str(name), context=context)
        process = _PROCESS.get() if context is None else context.get(_PROCESS)
        if process is not None:
            process.remember(task)
        return task

    def _run_once(self) -> None:
        """One round: what is ready now, else what the next timer brings."""
        self.rounds += 1
        scheduled, ready = self._scheduled, self._ready
        while scheduled and scheduled[0].cancelled():
            _unschedule(scheduled)
        if not ready:
            if not scheduled:
                raise Deadlock("nothing is ready and no timer is set")
            self._now = max(self._now, scheduled[0].when())
        while scheduled and scheduled[0].when() <= self._now:
            ready.append(_unschedule(scheduled))
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle.cancelled() and not (self._frozen and self._is_deferred(handle)):
                handle._run()  # noqa: SLF001

    def _write_to_self(self) -> None:
        """Nobody sleeps in a selector, so nobody needs to be woken up there."""

    def _is_deferred(self, handle: asyncio.Handle) -> bool:
        context: Context = handle._context  # type: ignore[attr-defined]  # noqa: SLF001
        process = context.get(_PROCESS)
        return process is not None and process.defer(handle)

    def _note_frozen(self, change: int) -> None:
        self._frozen += change

    def _resume(self, handles: deque[asyncio.Handle]) -> None:
        self._ready.extend(handles)


def _unschedule(scheduled: list[asyncio.TimerHandle]) -> asyncio.TimerHandle:
    handle = heapq.heappop(scheduled)
    handle._scheduled = False  # type: ignore[attr-defined]  # noqa: SLF001
    return handle


class VirtualProcess:
    """A simulated process: all tasks started in it, directly or not, freeze and die together."""

    def __init__(self, loop: VirtualLoop, name: str) -> None:
        self._loop = loop
        self.name = name
        self.dead = False
        self.frozen_until = 0.0
        self._is_frozen = False
        self._deferred: deque[asyncio.Handle] = deque()
        self._tasks: list[asyncio.Task[Any]] = []

    def __repr__(self) -> str:
        return f"VirtualProcess({self.name}{', dead' if self.dead else ''})"

    @staticmethod
    def current() -> VirtualProcess | None:
        """The process of the code that asks."""
        return _PROCESS.get()

    def start(self, coroutine: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        """Start a coroutine in this process; whatever it starts belongs to the process too."""
        context = copy_context()
        context.run(_PROCESS.set, self)
        return self._loop.create_task(coroutine, name=name, context=context)

    def freeze(self, for_s: float) -> None:
        """Stop every task of the process for a while; timers that come due wait for the thaw."""
        self.frozen_until = max(self.frozen_until, self._loop.time() + for_s)
        if not self._is_frozen:
            self._is_frozen = True
            self._loop._note_frozen(1)  # noqa: SLF001
        self._loop.call_at(self.frozen_until, self._thaw, context=Context())

    def kill(self) -> None:
        """End every task of the process. What they do on their way out must reach nobody."""
        self.dead = True
        self.frozen_until = self._loop.time()
        self._thaw()
        for task in self._tasks:
            task.cancel()

    def remember(self, task: asyncio.Task[Any]) -> None:
        """A task was started in this process."""
        if len(self._tasks) >= TASKS_KEPT:
            self._tasks = [known for known in self._tasks if not known.done()]
        self._tasks.append(task)

    def defer(self, handle: asyncio.Handle) -> bool:
        """Keep a callback until the thaw; False if the process is not frozen."""
        if self._is_frozen:
            self._deferred.append(handle)
        return self._is_frozen

    def _thaw(self) -> None:
        if self._is_frozen and self._loop.time() >= self.frozen_until:
            self._is_frozen = False
            self._loop._note_frozen(-1)  # noqa: SLF001
            self._loop._resume(self._deferred)  # noqa: SLF001
            self._deferred = deque()


_PROCESS: ContextVar[VirtualProcess | None] = ContextVar("virtual_process", default=None)


class VirtualClock:
    """A machine's clock in virtual time: its wall clock may be wrong by `skew`."""

    def __init__(
        self, loop: VirtualLoop, *, skew: timedelta = timedelta(0), booted_s: float = 0.0
    ) -> None:
        self._loop = loop
        self._zero = EPOCH + skew
        self._booted_s = booted_s  # machines do not share the origin of their monotonic clocks

    def now(self) -> datetime:
        return self._zero + timedelta(seconds=self._loop.time())

    def monotonic(self) -> float:
        return self._loop.time() + self._booted_s


class SeededEntropy:
    """Random ids that are the same for the same seed."""

    def __init__(self, source: random.Random) -> None:
        self._source = source

    def guid(self) -> UUID:
        return uuid7(self._source.getrandbits(48), self._source.randbytes(10))

    def guids(self, count: int) -> list[UUID]:
        return [self.guid() for _ in range(count)]

    def token(self) -> UUID:
        return UUID(bytes=self._source.randbytes(16), version=4)

    def fraction(self) -> float:
        return self._source.random()
