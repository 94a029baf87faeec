"""A task table in a real PostgreSQL with its owner in this process, and a user beside it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import msgspec
import psycopg
from psycopg import conninfo, sql
from psycopg.rows import dict_row

from gnomon.clock import SystemClock, SystemEntropy
from gnomon.contracts.env import Env
from gnomon.contracts.observer import SilentObserver
from gnomon.model.task.conf import TaskEntry
from gnomon.tasks.config import TasksConfig
from gnomon.tasks.factory import opener_of
from gnomon.tasks.service import TaskService

WAIT_S = 60.0
POLL_S = 0.01
OVER = ("DONE", "FAIL", "GONE", "STOP")
USER = "gnomon_tasker"
HOLD = "SELECT pg_advisory_xact_lock_shared(7)"  # goes on as long as `held` does

Row = dict[str, Any]


class Told(SilentObserver):
    """The observer that remembers events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Mapping[str, object]]] = []

    def event(self, name: str, /, **fields: object) -> None:
        self.events.append((name, fields))


class Stand:
    """The service over one database; `entries` may be changed and reloaded."""

    def __init__(self, dsn: str, database: str, **settings: Any) -> None:
        self.dsn = dsn
        self.database = database
        self.told = Told()
        self.entries = [TaskEntry(data=database, user=USER, **settings)]
        self.config = TasksConfig(dsn=dsn)
        self.users: list[psycopg.Connection[Row]] = []
        self.stop = asyncio.Event()
        env = Env(clock=SystemClock(), entropy=SystemEntropy(), observer=self.told)
        self.service = TaskService(
            lambda: self.entries,
            opener_of(self.config, env),
            config=self.config,
            env=env,
            owner="test",
        )
        self._serving: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.service.prepare()
        self.connect()
        self._serving = asyncio.create_task(self.service.serve(self.stop))
        await self.until(lambda: self.was_told("task_table_owned"), "owner")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop.set()
        if self._serving is not None:
            await self._serving
        for user in self.users:
            user.close()

    def connect(self) -> None:
        """A new connection of the user's; an administrator is one, too."""
        dsn = conninfo.make_conninfo(self.dsn, dbname=self.database)
        self.users.append(psycopg.connect(dsn, autocommit=True, row_factory=dict_row))

    def was_told(self, name: str) -> bool:
        return self.told_count(name) > 0

    def told_count(self, name: str) -> int:
        return [event for event, _ in self.told.events].count(name)

    def change(self, **settings: Any) -> None:
        """Reload with other settings for the same table."""
        self.entries = [msgspec.structs.replace(self.entries[0], **settings)]
        self.service.reload()

    # -- the user ---------------------------------------------------------------------------------

    def insert(self, task_input: str, **columns: object) -> int:
        return self.insert_many(1, task_input, **columns)[0]

    def insert_many(self, number: int, task_input: str, **columns: object) -> list[int]:
        """So many rows that are alike, in one statement. A Composable is taken as SQL."""
        given = {**columns, "input": task_input}
        values = [
            value if isinstance(value, sql.Composable) else sql.Literal(value)
            for value in given.values()
        ]
        statement = sql.SQL(
            "INSERT INTO task ({}) SELECT {} FROM generate_series(1, {}) RETURNING id"
        ).format(sql.SQL(", ").join(map(sql.Identifier, given)), sql.SQL(", ").join(values), number)
        return [int(row["id"]) for row in self.users[-1].execute(statement).fetchall()]

    @contextmanager
    def held(self) -> Iterator[None]:
        """While the block goes on, so do tasks whose input is HOLD."""
        self.execute("SELECT pg_advisory_lock(7)")
        try:
            yield
        finally:
            self.execute("SELECT pg_advisory_unlock(7)")

    def execute(self, text: str, *params: object) -> list[Row]:
        cursor = self.users[-1].execute(text.encode(), params or None)
        return cursor.fetchall() if cursor.description else []

    def rows(self, group: str | None = None) -> list[Row]:
        """All rows, or those of a group, in order of id."""
        return self.execute(
            'SELECT * FROM task WHERE %s::text IS NULL OR "group" = %s ORDER BY id', group, group
        )

    def row(self, task_id: int) -> Row:
        [found] = self.execute("SELECT * FROM task WHERE id = %s", task_id)
        return found

    def state(self, task_id: int) -> str | None:
        found = self.execute("SELECT state FROM task WHERE id = %s", task_id)
        return str(found[0]["state"]) if found else None

    # -- waiting ----------------------------------------------------------------------------------

    async def until(
        self, condition: Callable[[], object], what: str, *, timeout_s: float = WAIT_S
    ) -> None:
        end = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < end, f"no {what} in {timeout_s} s: {self.told.events[-5:]}"
            await asyncio.sleep(POLL_S)

    async def ended(self, task_ids: Sequence[int]) -> list[Row]:
        """Wait for the end of these; rows that were deleted are left out."""
        await self.until(
            lambda: all(self.state(task_id) in (None, *OVER) for task_id in task_ids),
            f"end of {task_ids[:5]}",
        )
        return [row for row in self.rows() if row["id"] in task_ids]

    async def working(self, task_id: int) -> Row:
        await self.until(lambda: self.state(task_id) == "WORK", f"start of {task_id}")
        return self.row(task_id)

    async def sleeping(self, task_id: int) -> Row:
        """The same, and its `pg_sleep` is on its way: a cancel that comes earlier finds nothing."""
        row = await self.working(task_id)
        text = "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event = 'PgSleep'"
        await self.until(lambda: bool(self.execute(text, row["pid"])), f"sleep of {task_id}")
        return row


def at_once(rows: Sequence[Row]) -> int:
    """How many were performed at the same time, at most."""
    edges = [(row["start"], 1) for row in rows] + [(row["stop"], -1) for row in rows]
    most = now = 0
    for _, change in sorted(edges):
        now += change
        most = max(most, now)
    return most


def sessions_of(rows: Sequence[Row]) -> list[int]:
    """Which session performed each, numbered in order of appearance."""
    pids = list(dict.fromkeys(row["pid"] for row in rows))
    return [pids.index(row["pid"]) for row in rows]
