"""A bounded pool of daemon threads.

Not `concurrent.futures.ThreadPoolExecutor`: the interpreter joins its threads at exit, so one
function that never returns would keep a stopped process alive for ever.
"""

from __future__ import annotations

import contextvars
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Generic, TypeVar

from gnomon.boundary import hand_on

T = TypeVar("T")


class _Call(Generic[T]):
    __slots__ = ("_context", "_function", "future")

    def __init__(self, function: Callable[[], T]) -> None:
        self.future: Future[T] = Future()
        self._function = function
        self._context = contextvars.copy_context()

    def perform(self) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        hand_on(self.future, partial(self._context.run, self._function))


class DaemonThreads:
    """Up to `thread_count` threads, started as they are needed. Used from one event loop."""

    def __init__(self, thread_count: int) -> None:
        self._calls: queue.SimpleQueue[_Call[Any] | None] = queue.SimpleQueue()
        self._thread_count = thread_count
        self._started = 0
        self._idle = threading.Semaphore(0)

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Call the function in a thread, when one is free. Cancelling works until it began."""
        call = _Call(function)
        self._calls.put(call)
        if not self._idle.acquire(blocking=False) and self._started < self._thread_count:
            self._started += 1
            name = f"gnomon-function-{self._started}"
            threading.Thread(target=self._serve, name=name, daemon=True).start()
        return call.future

    def close(self) -> None:
        """Let the threads end once they are idle; none is waited for."""
        for _ in range(self._started):
            self._calls.put(None)

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            call.perform()
            del call  # a result must not live on until the next call
            self._idle.release()
