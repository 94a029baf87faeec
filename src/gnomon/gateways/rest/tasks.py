"""The routes of task tables: look at rows, add one, stop one, let it be performed again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import litestar
import msgspec
from litestar.datastructures import State
from litestar.params import FromPath

from gnomon.clock import SystemEntropy
from gnomon.contracts.task_rows import TaskDetail, TaskDraft, TaskRows
from gnomon.gateways.auth import RECOUNT_S, check_table
from gnomon.gateways.bodies import read_object
from gnomon.gateways.rest.actions import scheduler_of
from gnomon.gateways.rest.answers import Bytes, answer_json
from gnomon.gateways.rest.guards import principal_of
from gnomon.gateways.rest.request_fields import AnyRequest, QueryFields, read_body
from gnomon.model.errors import Exhausted, FailedPrecondition, InvalidSpec, NotFound
from gnomon.scheduler.scheduler import PAGE_MAX

INPUT_BYTES_MAX = 1024 * 1024
ID_MAX = 2**63 - 1
STATES = ("PLAN", "GONE", "TAKE", "WORK", "DONE", "FAIL", "STOP")
LIST_FIELDS = ("state", "group", "limit", "after")
DRAFT_FIELDS = TaskDraft.__struct_fields__

T = TypeVar("T")


def _rows(state: State, name: str) -> TaskRows:
    tables: Mapping[str, TaskRows] = state.task_tables
    if name not in tables:
        raise NotFound("task table", name)
    return tables[name]


class TaskTables(litestar.Controller):
    """All task tables, and the rows of one."""

    path = "/v1/task-tables"

    @litestar.get()
    async def list(self, request: AnyRequest, state: State) -> Bytes:
        """The tables that this server knows."""
        QueryFields(request, known=())
        return answer_json({"tables": [{"name": name} for name in sorted(state.task_tables)]})

    @litestar.get("/{name:str}/tasks")
    async def page(self, name: FromPath[str], request: AnyRequest, state: State) -> Bytes:
        """A page of rows in order of id."""
        query = QueryFields(request, known=LIST_FIELDS)
        limit = query.number("limit", 100)
        if not 1 <= limit <= PAGE_MAX:
            raise InvalidSpec("query.limit", f"must be between 1 and {PAGE_MAX}", got=limit)
        found = await _rows(state, name).page(
            states=[_state(text) for text in query.all("state")],
            group=query.one("group"),
            after=_task_id(query.one("after") or "0", "query.after"),
            limit=limit,
        )
        next_id = str(found[-1].id) if len(found) == limit else None
        return answer_json({"tasks": found, "next": next_id})

    @litestar.post("/{name:str}/tasks", request_max_body_size=INPUT_BYTES_MAX)
    async def insert(self, name: FromPath[str], request: AnyRequest, state: State) -> Bytes:
        """Insert a row."""
        QueryFields(request, known=())
        rows = _rows(state, name)
        check_table(principal_of(request), name)
        draft = read_draft(await read_body(request))
        await _admit(request, rows)
        await _note(request, state, "insert task", name)
        task = await rows.insert(draft)
        place = {"Location": f"/v1/task-tables/{name}/tasks/{task.id}"}
        return answer_json(task, status=201, headers=place)


class OneTask(litestar.Controller):
    """One row of a task table."""

    path = "/v1/task-tables/{name:str}/tasks/{id:str}"

    @litestar.get()
    async def get(
        self, name: FromPath[str], id: FromPath[str], request: AnyRequest, state: State
    ) -> Bytes:
        """The row with its result, and why it waits."""
        QueryFields(request, known=())
        return answer_json(_found(await _rows(state, name).get(_task_id(id)), id))

    @litestar.post("/stop")
    async def stop(
        self, name: FromPath[str], id: FromPath[str], request: AnyRequest, state: State
    ) -> Bytes:
        """Let it not be performed, or not again."""
        QueryFields(request, known=())
        rows = _rows(state, name)
        check_table(principal_of(request), name)
        await _note(request, state, "stop task", f"{name}/{_task_id(id)}")
        return answer_json(_became("STOP", _found(await rows.stop(_task_id(id)), id)))

    @litestar.post("/plan")
    async def plan(
        self, name: FromPath[str], id: FromPath[str], request: AnyRequest, state: State
    ) -> Bytes:
        """Let it be performed, or performed again."""
        QueryFields(request, known=())
        rows = _rows(state, name)
        check_table(principal_of(request), name)
        await _admit(request, rows)
        await _note(request, state, "plan task", f"{name}/{_task_id(id)}")
        return answer_json(_became("PLAN", _found(await rows.plan(_task_id(id)), id)))


async def _admit(request: AnyRequest, rows: TaskRows) -> None:
    """A table knows no creators: its rows are counted all. Errors: Exhausted."""
    most = principal_of(request).live_max
    if most is not None and await rows.live_count(limit=most) >= most:
        raise Exhausted("token.live_max", value=most, retry_after_s=RECOUNT_S)


async def _note(request: AnyRequest, state: State, verb: str, id: str) -> None:
    """The table may lie in another database than the audit: the entry is committed first."""
    await scheduler_of(state).store.tokens.write_audit(
        actor=principal_of(request).name, verb=verb, id=id, guid=SystemEntropy().guid()
    )


def read_draft(body: bytes) -> TaskDraft:
    """A row to be inserted. Errors: InvalidSpec, UnknownField."""
    value = read_object(body, DRAFT_FIELDS)
    try:
        draft = msgspec.convert(value, TaskDraft)
    except msgspec.ValidationError as exc:
        raise InvalidSpec("body", str(exc)) from None
    if draft.plan is not None and draft.plan.tzinfo is None:
        raise InvalidSpec("plan", "must be a time with a zone such as 2030-01-31T12:00:00Z")
    return draft


def _task_id(text: str, path: str = "id") -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) > ID_MAX:
        raise InvalidSpec(path, "must be the number of a task", got=text)
    return int(text)


def _state(text: str) -> str:
    if text not in STATES:
        raise InvalidSpec("query.state", f"must be one of {', '.join(STATES)}", got=text)
    return text


def _found(task: TaskDetail | None, id: str) -> TaskDetail:
    if task is None:
        raise NotFound("task", id)
    return task


def _became(state: str, task: TaskDetail) -> TaskDetail:
    if task.state != state:
        wanted = "PLAN, TAKE or WORK" if state == "STOP" else "STOP, DONE, FAIL or GONE"
        raise FailedPrecondition(str(task.id), state=task.state, wanted=wanted, kind="task")
    return task
