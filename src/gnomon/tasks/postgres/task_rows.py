"""The rows of a task table in PostgreSQL, for those who look at them from outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from gnomon.contracts.task_rows import TEXT_CHARS_SHOWN, TaskDetail, TaskDraft, TaskSummary
from gnomon.model.errors import InvalidSpec, Unavailable
from gnomon.tasks.postgres.conninfo import conninfo_shown
from gnomon.tasks.postgres.control import ControlConnection, StatementRefused, rows_of
from gnomon.tasks.postgres.queries import QUERIES, TableNames, render
from gnomon.tasks.postgres.wire import Statement

T = TypeVar("T", TaskSummary, TaskDetail)

# Of what a value, a type or a rule of the table refuses; all else is not the caller's doing.
_CALLERS = ("22", "23", "42804", "42846")
_VERBS = (
    "task_page", "task_detail", "live_tasks", "insert_task", "fill_task", "stop_task", "plan_task",
)  # fmt: skip


class PostgresTaskRows:
    """The `TaskRows` of this engine, over one connection."""

    def __init__(
        self, options: Callable[[], Mapping[str, str]], *, schema: str, table: str
    ) -> None:
        names = TableNames(schema=schema, table=table, state_type="text")
        self._control = ControlConnection(options)
        self._statements = {
            verb: Statement(f"gnomon {verb}".encode(), render(QUERIES[verb].sql, names).encode())
            for verb in _VERBS
        }

    async def page(
        self, *, states: Sequence[str], group: str | None, after: int, limit: int
    ) -> Sequence[TaskSummary]:
        [texts] = await self._together(
            ("task_page", after, ",".join(states) or None, group, limit, TEXT_CHARS_SHOWN)
        )
        return [_shown(msgspec.json.decode(text, type=TaskSummary)) for text in texts]

    async def get(self, task_id: int) -> TaskDetail | None:
        [texts] = await self._together(("task_detail", task_id))
        return _detail(texts)

    async def live_count(self, *, limit: int) -> int:
        [texts] = await self._together(("live_tasks", limit))
        return int(texts[0])

    async def insert(self, draft: TaskDraft) -> TaskDetail:
        text = msgspec.json.encode(draft).decode()
        *_, texts = await self._together(
            ("insert_task", text), ("fill_task", text), ("task_detail", None)
        )
        detail = _detail(texts)
        assert detail is not None
        return detail

    async def stop(self, task_id: int) -> TaskDetail | None:
        *_, texts = await self._together(("stop_task", task_id), ("task_detail", task_id))
        return _detail(texts)

    async def plan(self, task_id: int) -> TaskDetail | None:
        *_, texts = await self._together(("plan_task", task_id), ("task_detail", task_id))
        return _detail(texts)

    async def close(self) -> None:
        self._control.close()

    async def _together(self, *calls: tuple[object, ...]) -> list[list[bytes]]:
        """Verbs with their parameters, in one transaction; the first column of each one's rows."""
        steps = [
            (self._statements[str(verb)], [_parameter(value) for value in values])
            for verb, *values in calls
        ]
        try:
            results = await self._control.together(steps)
        except StatementRefused as exc:
            if exc.sqlstate.startswith(_CALLERS):
                raise InvalidSpec("task", exc.words) from None
            raise Unavailable(f"the task table cannot be used: {exc.words}") from None
        return [
            [value or b"" for row in rows_of(result) for value in row.values()]
            for result in results
        ]


def _parameter(value: object) -> bytes | None:
    return None if value is None else str(value).encode()


def _detail(texts: Sequence[bytes]) -> TaskDetail | None:
    return _shown(msgspec.json.decode(texts[0], type=TaskDetail)) if texts else None


def _shown(task: T) -> T:
    """Without the password of its `remote`."""
    if task.remote is None:
        return task
    return msgspec.structs.replace(task, remote=conninfo_shown(task.remote))
