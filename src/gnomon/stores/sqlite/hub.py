"""Hints inside this process: from those who wrote to those who listen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress

Callback = Callable[[frozenset[int]], None]


class Hub:
    """Hands hints to all listeners; several hints between two turns of a loop become one."""

    def __init__(self) -> None:
        self._listeners: list[_Listener] = []

    def hint(self, shards: Collection[int]) -> None:
        for listener in tuple(self._listeners):
            listener.hint(shards)

    @contextmanager
    def listening(self, callback: Callback) -> Iterator[None]:
        """Call back in the present loop, as long as the block lasts."""
        listener = _Listener(asyncio.get_running_loop(), callback)
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)


class _Listener:
    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callback) -> None:
        self._loop = loop
        self._callback = callback
        self._pending: set[int] = set()

    def hint(self, shards: Collection[int]) -> None:
        is_first = not self._pending
        self._pending.update(shards)
        if is_first and self._pending:
            with suppress(RuntimeError):  # its loop is closed: nobody listens any more
                self._loop.call_soon_threadsafe(self._flush)

    def _flush(self) -> None:
        shards, self._pending = frozenset(self._pending), set()
        self._callback(shards)
