"""Hints that something arrived: at once inside the process, by polling from other processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from gnomon.model.errors import StoreUnavailable
from gnomon.stores.sqlite.connection import Runner

POLL_S = 0.05  # how long a write of another process may stay unnoticed


class SqliteWakeups:
    """SQLite cannot notify, but says cheaply whether somebody else committed."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def hint(self, shards: Collection[int]) -> None:
        self._runner.hub.hint(shards)

    async def listen(self, callback: Callable[[frozenset[int]], None]) -> None:
        with self._runner.hub.listening(callback):
            version = await self._foreign_version()
            if version is None:
                await asyncio.Event().wait()
            while True:
                await asyncio.sleep(POLL_S)
                present = await self._foreign_version()
                if present != version:
                    version = present
                    callback(frozenset())

    async def _foreign_version(self) -> int | None:
        try:
            return await self._runner.foreign_version()
        except StoreUnavailable:
            return -1  # differs from what comes when it is back: anything may have come
