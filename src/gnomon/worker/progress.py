"""What functions report of their attempts, on its way to the store: `await ctx.report(0.4, "…")`.

A report is kept in memory, and written about once a second at most: of each attempt the latest one.
Whoever reports nothing costs nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from datetime import timedelta
from uuid import UUID

from gnomon.boundary import Round
from gnomon.contracts.env import Env
from gnomon.contracts.executor import AttemptReport
from gnomon.contracts.store import Progress, Store
from gnomon.model.ids import shard_of

WRITE_EVERY_S = 1.0
BATCH_MAX = 1_000


class ProgressWriter:
    """Takes reports from any thread, and writes them. A service of the worker."""

    def __init__(self, store: Store, shard_count: int, env: Env) -> None:
        self._store = store.progress
        self._shard_count = shard_count
        self._observer = env.observer
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wanted = asyncio.Event()
        self._new: dict[UUID, Progress] = {}  # not written yet
        self._kept: dict[UUID, Progress] = {}  # in the store
        self._ended: dict[UUID, Progress] = {}  # to be removed from there

    # -- executors --------------------------------------------------------------------------------

    @property
    def has_any(self) -> bool:
        """Whether an attempt that ends may have reported something."""
        return bool(self._new or self._kept)

    def note(self, report: AttemptReport) -> None:
        """An attempt says how far it is. From any thread."""
        self._new[report.attempt_id] = Progress(
            shard=shard_of(report.id, self._shard_count),
            id=report.id,
            guid=report.guid,
            attempt_id=report.attempt_id,
            fraction=report.fraction,
            text=report.text,
        )
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._wanted.set)

    def forget(self, attempt_id: UUID) -> None:
        """An attempt has ended: its report is of no use any more."""
        self._new.pop(attempt_id, None)
        kept = self._kept.pop(attempt_id, None)
        if kept is not None:
            self._ended[attempt_id] = kept
            self._wanted.set()

    # -- a service of the worker ------------------------------------------------------------------

    def hint(self, shards: Collection[int]) -> None:
        """Arrivals are nothing to it."""

    async def drain(self, within: timedelta) -> None:
        """What is still kept says how far an attempt was; nobody misses it."""

    async def keep_working(self) -> None:
        """Write until cancelled; what an unavailable store did not take comes with the next."""
        self._loop = asyncio.get_running_loop()
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            with Round(self._observer, "progress"):
                await self.write()
            await asyncio.sleep(WRITE_EVERY_S)
            if self._new or self._ended:
                self._wanted.set()

    async def write(self) -> None:
        """Once: the latest reports, and what has ended."""
        batch = list(self._new.values())[:BATCH_MAX]
        if batch:
            running = await self._store.report(batch)
            for one in batch:
                self._note_written(one, is_running=one.attempt_id in running)
        ended = list(self._ended.values())[:BATCH_MAX]
        if ended:
            await self._store.forget_reports(ended)
            for one in ended:
                del self._ended[one.attempt_id]

    def _note_written(self, report: Progress, *, is_running: bool) -> None:
        is_latest = self._new.get(report.attempt_id) is report
        if is_latest:
            del self._new[report.attempt_id]
        if not is_running:  # a thread that goes on after the end of its attempt
            self._kept.pop(report.attempt_id, None)
        elif is_latest or report.attempt_id in self._new:
            self._kept[report.attempt_id] = report
        else:  # it ended meanwhile
            self._ended[report.attempt_id] = report
