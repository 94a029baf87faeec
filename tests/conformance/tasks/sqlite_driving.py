"""The same as `driving`, on a SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, Self
from uuid import UUID

from gnomon.clock import SystemClock
from gnomon.contracts.task_table import TaskFinishResult, TaskSession, TaskTable
from gnomon.model.task import DueTask, GroupKey, Task
from gnomon.tasks.sqlite import SqliteTaskTable
from gnomon.tasks.sqlite.rows import moment_of, text_of
from tests.conformance.tasks.driving import LEASE, acquire

MIB = 1024 * 1024
Row = dict[str, Any]
MOMENTS = ("plan", "start", "stop", "until")
FLAGS = ("delete", "drift", "header", "save", "string")


class Bench(Protocol):
    """A table under test: its owner's side, and a user who inserts and looks."""

    lease_guid: UUID
    endless: str  # an input that does not end by itself

    @property
    def table(self) -> TaskTable: ...

    def another(self, *, result_bytes_max: int = 64 * MIB) -> TaskTable: ...

    def insert(self, task_input: str, **columns: object) -> int: ...

    def row(self, task_id: int, /) -> Row | None: ...

    def rows(self, text: str, /) -> list[Row]: ...

    def do(self, text: str, /) -> None: ...

    async def window(self, key: GroupKey, /, *, limit: int = 100) -> Sequence[DueTask]: ...

    async def expire(self) -> int: ...

    async def open(self, key: GroupKey, /) -> TaskSession: ...

    async def take(
        self, task_id: int, session: TaskSession | None = None, /
    ) -> tuple[TaskSession, Task]: ...

    async def perform(
        self, task_id: int, session: TaskSession | None = None, /
    ) -> TaskFinishResult: ...

    async def finish(
        self, session: TaskSession, task: Task, /, *, then: int | None = None
    ) -> TaskFinishResult: ...

    async def performed(self, task_input: str, **columns: object) -> Row | None: ...


class SqliteDriver:
    """A prepared table with a lease, and a user beside it."""

    endless = (
        "WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r"
    )

    def __init__(self, path: Path, *, result_bytes_max: int = 64 * MIB) -> None:
        self.path = path
        self.table = self.another(result_bytes_max=result_bytes_max)
        self.lease_guid = UUID(int=0)
        self.user: sqlite3.Connection
        self._stack = AsyncExitStack()

    def another(self, *, result_bytes_max: int = 64 * MIB) -> SqliteTaskTable:
        """The same table as another process has it."""
        return SqliteTaskTable(
            self.path,
            clock=SystemClock(),
            result_bytes_max=result_bytes_max,
        )

    async def __aenter__(self) -> Self:
        self._stack.push_async_callback(self.table.close)
        await self.table.prepare()
        self.user = sqlite3.connect(self.path, isolation_level=None, timeout=10)
        self.user.row_factory = sqlite3.Row
        self._stack.callback(self.user.close)
        lease_guid = await acquire(self.table, lease_for=LEASE)
        assert lease_guid is not None
        self.lease_guid = lease_guid
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        await self._stack.aclose()

    # -- the user ---------------------------------------------------------------------------------

    def insert(self, task_input: str, **columns: object) -> int:
        """A new row, as a user writes it; its id."""
        given = {**columns, "input": task_input}
        names = ", ".join(f'"{name}"' for name in given)
        marks = ", ".join("?" for _ in given)
        values = [text_of(v) if isinstance(v, datetime) else v for v in given.values()]
        cursor = self.user.execute(f"INSERT INTO task ({names}) VALUES ({marks})", values)
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def row(self, task_id: int, /) -> Row | None:
        found = self.rows("SELECT * FROM task WHERE id = ?", [task_id])
        return found[0] if found else None

    def rows(self, text: str, /, params: Sequence[object] | Mapping[str, object] = ()) -> list[Row]:
        return [_values(row) for row in self.user.execute(text, params)]

    def do(self, text: str, /) -> None:
        self.user.execute(text)

    # -- the owner --------------------------------------------------------------------------------

    async def window(self, key: GroupKey, /, *, limit: int = 100) -> Sequence[DueTask]:
        """The first rows of a group."""
        found = await self.table.window(key, limit=limit, lease_guid=self.lease_guid)
        return found.rows

    async def expire(self) -> int:
        """How many rows were beyond their time."""
        return (await self.table.expire(lease_guid=self.lease_guid)).count

    async def open(self, key: GroupKey, /) -> TaskSession:
        session = await self.table.open(key)
        self._stack.push_async_callback(session.close)
        return session

    async def take(
        self, task_id: int, session: TaskSession | None = None, /
    ) -> tuple[TaskSession, Task]:
        """The task in WORK, on a session of its group."""
        if session is None:
            row = self.row(task_id)
            assert row is not None
            session = await self.open(GroupKey(row["group"]))
        task = await session.take(task_id, lease_guid=self.lease_guid)
        assert task is not None, f"task {task_id} was not to be had"
        return session, task

    async def perform(
        self, task_id: int, session: TaskSession | None = None, /
    ) -> TaskFinishResult:
        """Take, perform and finish one row."""
        session, task = await self.take(task_id, session)
        return await self.finish(session, task)

    async def finish(
        self, session: TaskSession, task: Task, /, *, then: int | None = None
    ) -> TaskFinishResult:
        outcome = await session.perform(task)
        return await session.finish(task, outcome, then=then, lease_guid=self.lease_guid)

    async def performed(self, task_input: str, **columns: object) -> Row | None:
        """Insert a row and perform it; what became of it."""
        task_id = self.insert(task_input, **columns)
        await self.perform(task_id)
        return self.row(task_id)


def _values(row: sqlite3.Row) -> Row:
    found = dict(row)
    for name in MOMENTS:
        if found.get(name) is not None:
            found[name] = moment_of(found[name])
    for name in FLAGS:
        if name in found:
            found[name] = bool(found[name])
    return found
