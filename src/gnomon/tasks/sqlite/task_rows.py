"""The rows of a task table in a SQLite file, for those who look at them from outside."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gnomon.contracts.clock import Clock
from gnomon.contracts.task_rows import (
    TEXT_CHARS_MAX,
    TEXT_CHARS_SHOWN,
    TaskDetail,
    TaskDraft,
    TaskSummary,
)
from gnomon.model.errors import InvalidSpec, StoreUnavailable
from gnomon.tasks.sqlite.queries import queries_for
from gnomon.tasks.sqlite.rows import moment_of, text_of
from gnomon.tasks.sqlite.thread import OwnThread

T = TypeVar("T")
LOCK_S = 5.0
_MOMENTS = ("plan", "start", "stop", "until")
_FLAGS = ("delete", "drift")
_NUMBERS = ("id", "parent", "pid", "count", "max", "retry", "retried")


class SqliteTaskRows:
    """The `TaskRows` of this engine; each call has a connection of its own. Who reads does not wait
    behind those who wait for the file."""

    def __init__(self, path: Path, *, table: str, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._sql = queries_for(table)
        self._reader = OwnThread("gnomon-task-rows")
        self._writer = OwnThread("gnomon-task-changes")

    async def page(
        self,
        *,
        states: Sequence[str],
        group: str | None,
        after: int,
        limit: int,
        until: int | None = None,
    ) -> Sequence[TaskSummary]:
        values = {
            "states": ",".join(states) or None,
            "group": group,
            "after": after,
            "limit": limit,
            "until": until,
            "chars": TEXT_CHARS_SHOWN,
        }

        def call(connection: sqlite3.Connection) -> list[TaskSummary]:
            rows = connection.execute(self._sql["task_page"], values).fetchall()
            return [msgspec.convert(_values(row), TaskSummary) for row in rows]

        return await self._read(call)

    async def page_end(self, after: int, *, looks: int) -> int | None:
        def call(connection: sqlite3.Connection) -> int | None:
            bounds = {"after": after, "looks": looks}
            row = connection.execute(self._sql["task_page_end"], bounds).fetchone()
            return None if row is None else int(row["id"])

        return await self._read(call)

    async def get(self, task_id: int) -> TaskDetail | None:
        return await self._read(lambda connection: self._detail(connection, task_id))

    async def live_count(self, *, limit: int) -> int:
        def call(connection: sqlite3.Connection) -> int:
            return int(connection.execute(self._sql["live_tasks"], {"limit": limit}).fetchone()[0])

        return await self._read(call)

    async def insert(self, draft: TaskDraft) -> TaskDetail:
        given = msgspec.structs.asdict(draft)
        given["plan"] = None if draft.plan is None else text_of(draft.plan)

        def call(connection: sqlite3.Connection) -> TaskDetail:
            task_id = connection.execute(self._sql["insert_task"], given).lastrowid
            assert task_id is not None
            connection.execute(self._sql["fill_task"], {**given, "id": task_id})
            detail = self._detail(connection, task_id)
            assert detail is not None
            return detail

        return await self._write(call)

    async def stop(self, task_id: int) -> TaskDetail | None:
        return await self._change("stop_task", task_id)

    async def plan(self, task_id: int) -> TaskDetail | None:
        return await self._change("plan_task", task_id)

    async def close(self) -> None:
        self._reader.close()
        self._writer.close()

    async def _change(self, verb: str, task_id: int) -> TaskDetail | None:
        def call(connection: sqlite3.Connection) -> TaskDetail | None:
            connection.execute(self._sql[verb], {"id": task_id})
            return self._detail(connection, task_id)

        return await self._write(call)

    def _detail(self, connection: sqlite3.Connection, task_id: int) -> TaskDetail | None:
        row = connection.execute(self._sql["task_detail"], {"id": task_id}).fetchone()
        return None if row is None else msgspec.convert(_values(row), TaskDetail)

    async def _read(self, call: Callable[[sqlite3.Connection], T]) -> T:
        return await self._reader.call(lambda: self._in_transaction(call, LOCK_S))

    async def _write(self, call: Callable[[sqlite3.Connection], T]) -> T:
        """The time that one waits behind others counts."""
        until = self._clock.monotonic() + LOCK_S

        def written() -> T:
            return self._in_transaction(call, max(0.0, until - self._clock.monotonic()))

        return await self._writer.call(written)

    def _in_transaction(self, call: Callable[[sqlite3.Connection], T], timeout_s: float) -> T:
        try:
            connection = sqlite3.connect(self._path, timeout=timeout_s)
            connection.row_factory = sqlite3.Row
            connection.text_factory = _text
            try:
                with connection:
                    return call(connection)
            finally:
                connection.close()
        except sqlite3.IntegrityError as exc:
            raise InvalidSpec("task", str(exc)) from None
        except sqlite3.Error as exc:
            raise StoreUnavailable(f"SQLite: {exc}; safe to repeat") from exc


def _text(stored: bytes) -> str:
    """SQLite takes any bytes for a text."""
    return stored.decode("utf-8", "replace")


def _values(row: sqlite3.Row) -> Mapping[str, Any]:
    """A row that can be shown: any column may hold anything, whatever its type says."""
    return {name: _value(name, value) for name, value in dict(row).items()}


def _value(name: str, value: object) -> object:
    if value is None:
        return None
    if name in _FLAGS:
        return bool(value)
    if name in _NUMBERS:
        return value if isinstance(value, int) else None
    if name in _MOMENTS:
        return _moment(value)
    text = _text(value) if isinstance(value, bytes) else str(value)
    if len(text) > TEXT_CHARS_MAX:
        return f"{text[:TEXT_CHARS_MAX]}… ({len(text)} characters)"
    return text


def _moment(value: object) -> datetime | None:
    """A time; None where there is none."""
    try:
        return moment_of(str(value))
    except ValueError:
        return None
