"""A task table without its owner: each test takes, performs and finishes by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any, Self
from uuid import UUID, uuid4

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from gnomon.clock import SystemClock, SystemEntropy
from gnomon.contracts.env import Env
from gnomon.contracts.task_table import TaskFinishResult, TaskSession, TaskTable
from gnomon.model.secret import Secret
from gnomon.model.task import DueTask, GroupKey, Task
from gnomon.model.task.conf import TaskEntry
from gnomon.tasks.postgres import PostgresTaskTable

LEASE = timedelta(seconds=30)
Row = dict[str, Any]


async def acquire(table: TaskTable, *, lease_for: timedelta = LEASE) -> UUID | None:
    """Take the table as it is seen; the guid of the lease, or None if it is another's."""
    lease_guid, seen = uuid4(), await table.lock()
    is_ours = await table.acquire(lease_guid, owner="test", seen=seen, lease_for=lease_for)
    return lease_guid if is_ours else None


class Driver:
    """A prepared table with a lease, and a user beside it who inserts and looks."""

    def __init__(
        self, dsn: str, entry: TaskEntry, *, result_bytes_max: int = 64 * 1024 * 1024
    ) -> None:
        self.dsn = dsn
        self.entry = entry
        self.table = self.another(result_bytes_max=result_bytes_max)
        self.lease_guid = UUID(int=0)
        self.user = psycopg.connect(dsn, autocommit=True, row_factory=dict_row)
        self._stack = AsyncExitStack()

    def another(self, *, result_bytes_max: int = 64 * 1024 * 1024) -> PostgresTaskTable:
        """The same table as another process has it."""
        env = Env(clock=SystemClock(), entropy=SystemEntropy())
        return PostgresTaskTable(
            Secret(self.dsn), self.entry, env=env, result_bytes_max=result_bytes_max
        )

    async def __aenter__(self) -> Self:
        self._stack.callback(self.user.close)
        self._stack.push_async_callback(self.table.close)
        await self.table.prepare()
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
        statement = sql.SQL("INSERT INTO {} ({}) VALUES ({}) RETURNING id").format(
            sql.Identifier(self.entry.schema, self.entry.table),
            sql.SQL(", ").join(sql.Identifier(name) for name in given),
            sql.SQL(", ").join(
                value if isinstance(value, sql.Composable) else sql.Literal(value)
                for value in given.values()
            ),
        )
        row = self.user.execute(statement).fetchone()
        assert row is not None
        return int(row["id"])

    def row(self, task_id: int) -> Row | None:
        return self.user.execute("SELECT * FROM task WHERE id = %s", [task_id]).fetchone()

    def rows(self, text: str, params: Sequence[object] | Mapping[str, object] = ()) -> list[Row]:
        return self.user.execute(text.encode(), params).fetchall()

    def value(self, text: str, params: Sequence[object] = ()) -> Any:
        (row,) = self.rows(text, params)
        (found,) = row.values()
        return found

    # -- the owner --------------------------------------------------------------------------------

    async def window(self, key: GroupKey, /, *, limit: int = 100) -> Sequence[DueTask]:
        """The first rows of a group."""
        found = await self.table.window(key, limit=limit, lease_guid=self.lease_guid)
        return found.rows

    async def expire(self) -> int:
        """How many rows were beyond their time."""
        return (await self.table.expire(lease_guid=self.lease_guid)).count

    async def open(self, key: GroupKey) -> TaskSession:
        session = await self.table.open(key)
        self._stack.push_async_callback(session.close)
        return session

    async def take(
        self, task_id: int, session: TaskSession | None = None
    ) -> tuple[TaskSession, Task]:
        """The task in WORK, on a session of its group."""
        if session is None:
            row = self.row(task_id)
            assert row is not None
            session = await self.open(GroupKey(row["group"], row["remote"]))
        task = await session.take(task_id, lease_guid=self.lease_guid)
        assert task is not None, f"task {task_id} was not to be had"
        return session, task

    async def perform(self, task_id: int, session: TaskSession | None = None) -> TaskFinishResult:
        """Take, perform and finish one row."""
        session, task = await self.take(task_id, session)
        return await self.finish(session, task)

    async def finish(
        self, session: TaskSession, task: Task, *, then: int | None = None
    ) -> TaskFinishResult:
        outcome = await session.perform(task)
        return await session.finish(task, outcome, then=then, lease_guid=self.lease_guid)

    async def performed(self, task_input: str, **columns: object) -> Row | None:
        """Insert a row and perform it; what became of it."""
        task_id = self.insert(task_input, **columns)
        await self.perform(task_id)
        return self.row(task_id)
