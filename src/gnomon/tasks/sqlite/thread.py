"""A thread of one's own: what it is asked to do it does one after the other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

from gnomon.boundary import performed

T = TypeVar("T")


class _AwaitedCall(NamedTuple):
    """Something to do, and who waits for it where."""

    function: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


class OwnThread:
    """A daemon thread: the interpreter does not wait at its exit for what never ends."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[_AwaitedCall | None] = SimpleQueue()
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    def call(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """What the function returns or raises. It is called even if nobody waits any more."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._calls.put(_AwaitedCall(function, loop, future))
        return future

    def close(self) -> None:
        """End when all that was asked for is done."""
        self._calls.put(None)

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            result, error = performed(call.function)
            with suppress(RuntimeError):  # the loop was closed: nobody waits any more
                call.loop.call_soon_threadsafe(_resolve, call.future, result, error)
            del call, result, error  # none is to live on until the next call


def _resolve(future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
