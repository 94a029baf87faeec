"""An event loop in a thread of its own, for programs that have none: they wait for its answers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from gnomon.model.errors import InvalidRequest

T = TypeVar("T")


class LoopThread:
    """The thread in which asynchronous things live that are used from other threads."""

    def __init__(self, name: str, *, closed: str) -> None:
        self._closed = closed  # what is said to who comes too late
        self._lock = threading.Lock()  # nothing is sent to a loop that ends
        self._is_ended = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    @property
    def is_ended(self) -> bool:
        """Whether nothing can be called any more."""
        return self._is_ended

    @property
    def is_left_behind(self) -> bool:
        """Whether this is the child of a fork: its parent has the thread."""
        return not self._is_ended and not self._thread.is_alive()

    def wait(self, call: Coroutine[Any, Any, T]) -> T:
        """Perform a call in the loop, and wait for what it gives."""
        with self._lock:
            if self._is_ended:
                call.close()
                raise InvalidRequest(self._closed)
            future = asyncio.run_coroutine_threadsafe(call, self._loop)
        try:
            return future.result()
        except CancelledError:
            if self._is_ended:  # while it was under way
                raise InvalidRequest(self._closed) from None
            raise
        except BaseException:
            future.cancel()  # Ctrl-C: nobody waits for it any more
            raise

    def end(self) -> None:
        """Cancel what is under way, stop the loop, and wait for the thread. Safe to repeat."""
        with self._lock:
            if self._is_ended:
                return
            self._is_ended = True
        asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_others() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
