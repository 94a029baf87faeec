"""The rows of a task table in PostgreSQL, for those who look at them from outside."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from gnomon.contracts.task_rows import TEXT_CHARS_SHOWN, TaskDetail, TaskDraft, TaskSummary
from gnomon.model.errors import GnomonError, InvalidSpec, Unavailable
from gnomon.tasks.postgres.conninfo import CHARS_MAX, conninfo_shown
from gnomon.tasks.postgres.control import (
    NO_PARAMS,
    ControlConnection,
    StatementRefused,
    rows_of,
)
from gnomon.tasks.postgres.queries import QUERIES, TableNames, plain, render
from gnomon.tasks.postgres.table_access import LOCKED_STATE
from gnomon.tasks.postgres.wire import Result, Statement, Step, Wire

T = TypeVar("T", TaskSummary, TaskDetail)
HELD_WAITS_S = (0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0)
REMOTE_CHARS = CHARS_MAX + 1  # what is longer than it may be is seen to be so, and hidden

# Of what a value, a type or a rule of the table refuses; all else is not the caller's doing.
_CALLERS = ("22", "23", "42804", "42846")
_VERBS = (
    "task_page", "task_page_end", "task_detail", "live_tasks", "insert_task", "fill_task",
    "hold_task", "stop_task", "plan_task",
)  # fmt: skip


class PostgresTaskRows:
    """The `TaskRows` of this engine, over one connection."""

    def __init__(
        self, options: Callable[[], Mapping[str, str]], *, schema: str, table: str
    ) -> None:
        names = TableNames(schema=schema, table=table, state_type="text")
        self._control = ControlConnection(options, on_connect=_take_bytes)
        self._statements = {
            verb: Statement(f"gnomon {verb}".encode(), render(QUERIES[verb].sql, names).encode())
            for verb in _VERBS
        }

    async def page(
        self,
        *,
        states: Sequence[str],
        group: str | None,
        after: int,
        limit: int,
        until: int | None = None,
    ) -> Sequence[TaskSummary]:
        shown = (TEXT_CHARS_SHOWN, REMOTE_CHARS)
        wanted = (after, ",".join(states) or None, group, limit, *shown, until)
        [texts] = await self._together(("task_page", *wanted))
        return [_shown(_read(text, TaskSummary)) for text in texts]

    async def page_end(self, after: int, *, looks: int) -> int | None:
        [texts] = await self._together(("task_page_end", after, looks))
        return int(texts[0]) if texts else None

    async def get(self, task_id: int) -> TaskDetail | None:
        [texts] = await self._together(("task_detail", task_id, REMOTE_CHARS))
        return _detail(texts)

    async def live_count(self, *, limit: int) -> int:
        [texts] = await self._together(("live_tasks", limit))
        return int(texts[0])

    async def insert(self, draft: TaskDraft) -> TaskDetail:
        text = msgspec.json.encode(draft).decode()
        *_, texts = await self._together(
            ("insert_task", text), ("fill_task", text), ("task_detail", None, REMOTE_CHARS)
        )
        detail = _detail(texts)
        assert detail is not None
        return detail

    async def stop(self, task_id: int) -> TaskDetail | None:
        return await self._change("stop_task", task_id)

    async def plan(self, task_id: int) -> TaskDetail | None:
        return await self._change("plan_task", task_id)

    async def _change(self, verb: str, task_id: int) -> TaskDetail | None:
        *_, texts = await self._together(
            ("hold_task", task_id), (verb, task_id), ("task_detail", task_id, REMOTE_CHARS)
        )
        return _detail(texts)

    async def close(self) -> None:
        self._control.close()

    async def _together(self, *calls: tuple[object, ...]) -> list[list[bytes]]:
        """Verbs with their parameters, in one transaction; the first column of each one's rows."""
        steps = [
            (self._statements[str(verb)], [_parameter(value) for value in values])
            for verb, *values in calls
        ]
        results = await self._insist(steps)
        return [
            [value or b"" for row in rows_of(result) for value in row.values()]
            for result in results
        ]

    async def _insist(self, steps: Sequence[Step]) -> Sequence[Result]:
        """Again while somebody holds what is asked for; others have the connection meanwhile."""
        for wait_s in (*HELD_WAITS_S, None):
            try:
                return await self._control.together(steps)
            except StatementRefused as exc:
                if wait_s is None or exc.sqlstate != LOCKED_STATE:
                    raise _refusal(exc) from None
            await asyncio.sleep(wait_s)
        raise AssertionError("the last try has ended")


async def _take_bytes(wire: Wire) -> None:
    if wire.parameter("server_encoding") == "SQL_ASCII":
        await wire.pipeline([(plain("take_bytes"), NO_PARAMS)])


def _refusal(refused: StatementRefused) -> GnomonError:
    if refused.sqlstate.startswith(_CALLERS):
        return InvalidSpec("task", refused.words)
    if refused.sqlstate == LOCKED_STATE:
        return Unavailable("another transaction holds the task at the moment; safe to repeat")
    return Unavailable(f"the task table cannot be used: {refused.words}")


def _parameter(value: object) -> bytes | None:
    return None if value is None else str(value).encode()


def _detail(texts: Sequence[bytes]) -> TaskDetail | None:
    return _shown(_read(texts[0], TaskDetail)) if texts else None


def _read(text: bytes, form: type[T]) -> T:
    """A row; a database without an encoding takes any bytes for a text."""
    return msgspec.json.decode(text.decode("utf-8", "replace"), type=form)


def _shown(task: T) -> T:
    """Without the password of its `remote`."""
    if task.remote is None:
        return task
    return msgspec.structs.replace(task, remote=conninfo_shown(task.remote))
