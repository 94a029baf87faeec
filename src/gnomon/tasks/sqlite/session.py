"""A session on a SQLite file: a thread with a connection, which takes its turn to write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import UUID

from gnomon.contracts.task_table import TaskFinishResult
from gnomon.model.errors import StoreUnavailable
from gnomon.model.task import Outcome, SessionLost, Task
from gnomon.sqlite_box import BoxRefusal
from gnomon.tasks.sqlite.runner import TaskRunner
from gnomon.tasks.sqlite.sandbox import WriteWanted
from gnomon.tasks.sqlite.thread import OwnThread


class SqliteTaskSession:
    """The `TaskSession` of this engine.

    `turn` is the right to write among the sessions of one process: SQLite itself has no queue.
    """

    def __init__(
        self, performer: TaskRunner, turn: asyncio.Lock, *, on_close: Callable[[], None]
    ) -> None:
        self._performer = performer
        self._turn = turn
        self._has_turn = False
        self._on_close = on_close
        self._thread = OwnThread("gnomon-task")
        self._pid = 0
        self._task: Task | None = None
        self._cancelled: asyncio.Event | None = None  # while something is performed
        self._is_closed = False

    # -- what the table asks ----------------------------------------------------------------------

    async def connect(self) -> None:
        """Errors: StoreUnavailable."""
        try:
            self._pid = await self._thread.call(self._performer.open)
        except BoxRefusal as refusal:
            await self.close()
            raise StoreUnavailable(f"SQLite: {refusal.message}") from refusal

    @property
    def task(self) -> Task | None:
        """What it has taken and not ended."""
        return self._task

    def is_in_charge(self, lease_guid: UUID) -> bool:
        """Whether this lease cannot be lost, because nobody but this session can write."""
        return self._performer.in_charge_of == lease_guid

    # -- TaskSession ------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        return self._pid

    async def take(self, task_id: int, *, lease_guid: UUID) -> Task | None:
        self._check_open()
        async with self._turn:
            self._task = await self._thread.call(lambda: self._performer.take(task_id, lease_guid))
        return self._task

    async def perform(self, task: Task) -> Outcome:
        self._check_open()
        self._cancelled = cancelled = asyncio.Event()
        try:
            return await self._perform(task, cancelled)
        except asyncio.CancelledError:
            self._performer.stop()
            raise
        except SessionLost:
            self._task = None
            self._give_turn_back()
            raise
        finally:
            self._cancelled = None

    async def _perform(self, task: Task, cancelled: asyncio.Event) -> Outcome:
        performer = self._performer
        await self._thread.call(lambda: performer.start(task))
        if cancelled.is_set():  # before the clock was set
            performer.stop()
        try:
            return await self._thread.call(lambda: performer.perform(task, writes=False))
        except WriteWanted:
            await self._take_turn(cancelled)
        # Without the turn the time is over, or it was cancelled: so says the performer.
        return await self._thread.call(lambda: performer.perform(task, writes=True))

    async def _take_turn(self, cancelled: asyncio.Event) -> None:
        left_s = self._performer.left_s
        acquiring = asyncio.ensure_future(self._turn.acquire())
        stopping = asyncio.ensure_future(cancelled.wait())
        try:
            await asyncio.wait(
                (acquiring, stopping),
                timeout=None if left_s == float("inf") else max(0.0, left_s),
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            stopping.cancel()
            self._has_turn = acquiring.done() or not acquiring.cancel()

    async def finish(
        self, task: Task, outcome: Outcome, *, then: int | None = None, lease_guid: UUID
    ) -> TaskFinishResult:
        self._check_open()
        if not self._has_turn:
            await self._turn.acquire()
            self._has_turn = True
        self._task = None  # whatever happens: if it is not ended, it is to be rescued
        try:
            finished = await self._thread.call(
                lambda: self._performer.finish(task, outcome, then=then, lease_guid=lease_guid)
            )
            self._task = finished.next
        finally:
            self._give_turn_back()
        return finished

    def _give_turn_back(self) -> None:
        if self._has_turn:
            self._has_turn = False
            self._turn.release()

    async def cancel(self) -> None:
        if self._cancelled is not None:
            self._cancelled.set()
            self._performer.stop()

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._performer.stop()
        closing = self._thread.call(self._performer.close)
        self._thread.close()
        try:
            await asyncio.shield(closing)
        finally:
            self._task = None
            self._give_turn_back()
            self._on_close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise SessionLost("ERROR:  the session is closed")
