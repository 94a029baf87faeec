"""A task table in a SQLite file: the lease is a row of the file, and so is the fence.

There is one writer at a time. Whoever performs a task that writes is that writer until its end, so
that others wait, and so does the beat: it needs not be written while nobody else could take over.
Tasks that only read are performed beside each other.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from gnomon.contracts.clock import Clock
from gnomon.contracts.task_table import (
    ExpiryResult,
    GroupWindow,
    PollMark,
    RescueResult,
    TableLock,
    TaskPoll,
)
from gnomon.model.errors import StoreUnavailable
from gnomon.model.task import GroupKey, RemoteRefused
from gnomon.model.task.text import plain_error
from gnomon.sqlite_box import MIB, BoxRefusal
from gnomon.tasks.sqlite.row_store import TaskRowStore
from gnomon.tasks.sqlite.runner import TaskRunner
from gnomon.tasks.sqlite.sandbox import BUSY, TaskSandbox
from gnomon.tasks.sqlite.schema import prepare
from gnomon.tasks.sqlite.session import SqliteTaskSession
from gnomon.tasks.sqlite.thread import OwnThread

T = TypeVar("T")

RESULT_BYTES_MAX = 64 * MIB
LOCK_S = 5.0  # for other processes that write to the file
TURN_S = 0.05  # how often a beat looks whether it is needed still
LISTEN_S = 0.01  # how long an insert of another process may stay unnoticed
AGAIN_S = 1.0  # to wait before a file that could not be read is looked at again
NO_REMOTE = plain_error("remote tasks need PostgreSQL", "This table is in a SQLite file.")


class SqliteTaskTable:
    """The `TaskTable` of this engine. Not for the scheduler's own file, which is refused."""

    def __init__(
        self,
        path: Path,
        *,
        table: str = "task",
        clock: Clock,
        result_bytes_max: int = RESULT_BYTES_MAX,
    ) -> None:
        self._path = path
        self._table = table
        self._clock = clock
        self._result_bytes_max = result_bytes_max
        self._store = TaskRowStore(table, clock=clock)
        self._thread = OwnThread("gnomon-task-table")
        self._box: TaskSandbox | None = None
        self._turn = asyncio.Lock()
        self._sessions: set[SqliteTaskSession] = set()
        self._is_closed = False

    def __repr__(self) -> str:
        return f"SqliteTaskTable({self.name})"

    @property
    def name(self) -> str:
        return f"{self._path.stem}.main.{self._table}"

    async def prepare(self) -> Sequence[str]:
        return await self._thread.call(lambda: prepare(self._path, self._table))

    # -- the lease --------------------------------------------------------------------------------

    async def lock(self) -> TableLock:
        return await self._read(self._store.lock)

    async def acquire(
        self,
        lease_guid: UUID,
        *,
        owner: str,
        seen: TableLock,
        lease_for: timedelta,
        process: str | None = None,
    ) -> bool:
        store = self._store

        def call(box: TaskSandbox) -> bool:
            if not _is_free(store.lock(box), lease_guid, seen, lease_for):
                return False
            store.acquire(box, lease_guid, owner, process, performed=self._performed())
            return True

        try:
            # Whoever writes now may be the silent owner, whom a long task has kept from beating:
            # so there is no waiting for the moment at which it lets go.
            within_s = LOCK_S if seen.lease_guid is None else 0.0
            return await self._write(call, within_s=within_s)
        except _FileBusyError:
            return False

    async def beat(self, lease_guid: UUID) -> bool:
        while not any(session.is_in_charge(lease_guid) for session in self._sessions):
            try:
                async with asyncio.timeout(TURN_S):
                    await self._turn.acquire()
            except TimeoutError:
                continue
            try:
                return await self._write_now(lambda box: self._store.beat(box, lease_guid), LOCK_S)
            finally:
                self._turn.release()
        return True

    async def release(self, lease_guid: UUID) -> None:
        await self._write(lambda box: self._store.release(box, lease_guid))

    # -- looking ----------------------------------------------------------------------------------

    async def poll(self, mark: PollMark | None, *, after: str | None = None) -> TaskPoll:
        return await self._read(lambda box: self._store.poll(box, mark, after))

    async def window(self, key: GroupKey, *, limit: int, lease_guid: UUID) -> GroupWindow:
        store = self._store
        if key.remote is not None:
            return GroupWindow([], has_more=False)
        window, firsts = await self._read(lambda box: store.window(box, key.group, limit))
        if firsts:
            await self._owning(lease_guid, lambda box: store.plan_first(box, firsts), None)
        return window

    async def listen(self, callback: Callable[[], None]) -> None:
        loop, stop = asyncio.get_running_loop(), threading.Event()

        def tell() -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody listens any more
                loop.call_soon_threadsafe(callback)

        thread = OwnThread("gnomon-task-listener")
        watching = thread.call(lambda: self._watch(stop, tell))
        thread.close()
        try:
            await asyncio.shield(watching)
        finally:
            stop.set()

    def _watch(self, stop: threading.Event, tell: Callable[[], None]) -> None:
        """In a thread of its own: looks whether others have committed to the file."""
        version: int | None = None
        while not stop.is_set():
            try:
                with closing(self._new_box()) as box:
                    box.open()
                    while not stop.wait(LISTEN_S):
                        seen = box.data_version()
                        if version is not None and seen != version:
                            tell()
                        version = seen
            except BoxRefusal:
                version = None
                stop.wait(AGAIN_S)
                tell()  # whatever has come meanwhile

    # -- changing rows ----------------------------------------------------------------------------

    async def mark_taken(self, task_ids: Sequence[int], *, lease_guid: UUID) -> Sequence[int]:
        return await self._owning(lease_guid, lambda box: self._store.mark_taken(box, task_ids), [])

    async def untake(self, task_ids: Sequence[int], *, lease_guid: UUID) -> Sequence[int]:
        await self._owning(lease_guid, lambda box: self._store.untake(box, task_ids), None)
        return []

    async def refuse(self, task_id: int, error: str, *, lease_guid: UUID) -> bool:
        await self._owning(lease_guid, lambda box: self._store.refuse(box, task_id, error), None)
        return True

    async def expire(self, *, lease_guid: UUID) -> ExpiryResult:
        return await self._owning(lease_guid, self._store.expire, ExpiryResult(0))

    async def rescue(self, *, lease_guid: UUID, stale: bool = False) -> RescueResult:
        def call(box: TaskSandbox) -> int:
            return self._store.free(box, self._performed(), stale=stale)

        return RescueResult(count=await self._owning(lease_guid, call, 0), others={})

    def _performed(self) -> set[tuple[int, str]]:
        """The attempts that the sessions of this process are at."""
        return {
            self._store.attempt(session.task, session.pid)
            for session in list(self._sessions)
            if session.task is not None
        }

    # -- sessions ---------------------------------------------------------------------------------

    async def open(self, key: GroupKey) -> SqliteTaskSession:
        if key.remote is not None:
            raise RemoteRefused(NO_REMOTE)
        performer = TaskRunner(
            self._path, self._store, result_bytes_max=self._result_bytes_max, clock=self._clock
        )
        session = SqliteTaskSession(
            performer, self._turn, on_close=lambda: self._sessions.discard(session)
        )
        self._sessions.add(session)
        await session.connect()
        return session

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        for session in list(self._sessions):
            await session.close()
        closing = self._thread.call(self._close_box)
        self._thread.close()
        await closing

    # -- the table's own connection ---------------------------------------------------------------

    async def _owning(self, lease_guid: UUID, call: Callable[[TaskSandbox], T], otherwise: T) -> T:
        """A change that only the owner may make."""

        def checked(box: TaskSandbox) -> T:
            return call(box) if self._store.holds(box, lease_guid) else otherwise

        return await self._write(checked)

    async def _write(self, call: Callable[[TaskSandbox], T], *, within_s: float = LOCK_S) -> T:
        async with self._turn:
            return await self._write_now(call, within_s)

    async def _write_now(self, call: Callable[[TaskSandbox], T], within_s: float) -> T:
        def in_transaction(box: TaskSandbox) -> T:
            box.begin_writing(within_s)
            result = call(box)
            box.do("COMMIT")
            return result

        return await self._call(in_transaction)

    async def _read(self, call: Callable[[TaskSandbox], T]) -> T:
        def in_transaction(box: TaskSandbox) -> T:
            box.do("BEGIN")
            return call(box)

        return await self._call(in_transaction)

    async def _call(self, call: Callable[[TaskSandbox], T]) -> T:
        if self._is_closed:
            raise StoreUnavailable("the task table is closed")
        return await self._thread.call(lambda: self._on_box(call))

    def _on_box(self, call: Callable[[TaskSandbox], T]) -> T:
        """In the thread. Whatever is left open is undone."""
        try:
            box = self._opened()
            try:
                return call(box)
            finally:
                box.rollback()
        except BoxRefusal as refusal:
            if refusal.name.startswith(BUSY):
                raise _FileBusyError(f"SQLite: {refusal.message}; safe to repeat") from refusal
            self._close_box()
            raise StoreUnavailable(f"SQLite: {refusal.message}; safe to repeat") from refusal

    def _opened(self) -> TaskSandbox:
        if self._box is None:
            box = self._new_box()
            box.open()
            self._store.open(box)
            self._box = box
        return self._box

    def _new_box(self) -> TaskSandbox:
        return TaskSandbox(self._path, clock=self._clock)

    def _close_box(self) -> None:
        box, self._box = self._box, None
        if box is not None:
            box.close()


def _is_free(lock: TableLock, lease_guid: UUID, seen: TableLock, lease_for: timedelta) -> bool:
    """Whether the table may be had by who saw the lock so."""
    if lock.lease_guid is None or lock.lease_guid == lease_guid:
        return True
    is_as_seen = (lock.lease_guid, lock.beat) == (seen.lease_guid, seen.beat)
    return is_as_seen and lock.silent_for is not None and lock.silent_for >= lease_for


class _FileBusyError(StoreUnavailable):
    """Somebody else writes to the file."""
