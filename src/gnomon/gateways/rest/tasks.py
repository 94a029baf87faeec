"""The handlers of task tables: look at rows, add one, stop one, let it be performed again."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from starlette.responses import Response

from gnomon.clock import SystemEntropy
from gnomon.contracts.task_rows import TaskDetail, TaskDraft, TaskRows, TaskSummary
from gnomon.gateways.auth import RECOUNT_S, check_table
from gnomon.gateways.bodies import read_struct
from gnomon.gateways.rest.call import Call
from gnomon.gateways.rest.responses import json_response
from gnomon.model.errors import Exhausted, FailedPrecondition, InvalidSpec, NotFound
from gnomon.model.why import Why
from gnomon.scheduler.scheduler import PAGE_MAX
from gnomon.tasks import wait_reason

INPUT_BYTES_MAX = 1024 * 1024
ID_MAX = 2**63 - 1
LOOKED_AT_MAX = 20_000  # rows for one page with a filter
STATES = ("PLAN", "GONE", "TAKE", "WORK", "DONE", "FAIL", "STOP")


class TaskTableAnswer(msgspec.Struct):
    """A task table."""

    name: str


class TaskTableList(msgspec.Struct):
    """The task tables that this server knows."""

    tables: list[TaskTableAnswer]


class TaskList(msgspec.Struct):
    """A page of rows in order of id. `looked_at`: it ended before it was full, for so many rows
    were looked at; `next` goes on."""

    tasks: Sequence[TaskSummary]
    next: str | None
    looked_at: int | None = None


async def list_task_tables(call: Call) -> TaskTableList:
    """The task tables."""
    return TaskTableList([TaskTableAnswer(name) for name in sorted(call.services.task_tables)])


async def list_tasks(call: Call, table: str) -> TaskList:
    """Rows of a task table."""
    query = call.query
    limit = query.number("limit", 100)
    if not 1 <= limit <= PAGE_MAX:
        raise InvalidSpec("query.limit", f"must be between 1 and {PAGE_MAX}", got=limit)
    rows = _rows(call, table)
    states, group = [_state(text) for text in query.all("state")], query.one("group")
    after = _task_id(query.one("after") or "0", "query.after")
    is_filtered = bool(states) or group is not None
    end = await rows.page_end(after, looks=LOOKED_AT_MAX) if is_filtered else None
    whole = await rows.page(states=states, group=group, after=after, limit=limit, until=end)
    tasks = [call.sight.see_task(task) for task in whole]
    if len(tasks) == limit:
        return TaskList(tasks, str(tasks[-1].id))
    return TaskList(tasks, None) if end is None else TaskList(tasks, str(end), LOOKED_AT_MAX)


async def get_task(call: Call, table: str, task_id: str) -> TaskDetail:
    """A row with its result, and why it waits."""
    return call.sight.see_task(_existing(await _rows(call, table).get(_task_id(task_id)), task_id))


async def explain_task(call: Call, table: str, task_id: str) -> Why:
    """Why it waits, in a sentence; or that it does not."""
    task = await get_task(call, table, task_id)
    return wait_reason.explain_task(task, at=await call.services.store_time.now())


async def insert_task(call: Call, table: str) -> Response:
    """Insert a row; needs the scope table:TABLE, too."""
    rows = _writable_rows(call, table)
    draft = read_draft(await call.body())
    call.sight.check_task(draft)
    await _admit(call, rows)
    await _record(call, "insert task", table)
    task = call.sight.see_task(await rows.insert(draft))
    place = {"Location": f"/v1/task-tables/{table}/tasks/{task.id}"}
    return json_response(task, status=201, headers=place)


async def stop_task(call: Call, table: str, task_id: str) -> TaskDetail:
    """Let it not be performed, or not again."""
    rows, number = _writable_rows(call, table), _task_id(task_id)
    await _record(call, "stop task", f"{table}/{number}")
    task = _existing(await rows.stop(number), task_id)
    return _in_state("STOP", call.sight.see_task(task), wanted="PLAN, TAKE or WORK")


async def plan_task(call: Call, table: str, task_id: str) -> TaskDetail:
    """Let it be performed, or performed again."""
    rows = _writable_rows(call, table)
    await _admit(call, rows)
    number = _task_id(task_id)
    await _record(call, "plan task", f"{table}/{number}")
    task = _existing(await rows.plan(number), task_id)
    return _in_state("PLAN", call.sight.see_task(task), wanted="STOP, DONE, FAIL or GONE")


def _rows(call: Call, table: str) -> TaskRows:
    tables = call.services.task_tables
    if table not in tables:
        raise NotFound("task table", table)
    return tables[table]


def _writable_rows(call: Call, table: str) -> TaskRows:
    """Errors: NotFound, Forbidden."""
    rows = _rows(call, table)
    check_table(call.principal, table)
    return rows


async def _admit(call: Call, rows: TaskRows) -> None:
    """A table knows no creators: its rows are counted all. Errors: Exhausted."""
    live_max = call.principal.live_max
    if live_max is not None and await rows.live_count(limit=live_max) >= live_max:
        raise Exhausted("token.live_max", value=live_max, retry_after_s=RECOUNT_S)


async def _record(call: Call, verb: str, id: str) -> None:
    """Write the audit entry first: the table may lie in another database."""
    tokens = call.services.scheduler.store.tokens
    await tokens.write_audit(actor=call.actor, verb=verb, id=id, guid=SystemEntropy().guid())


def read_draft(body: bytes) -> TaskDraft:
    """A row to be inserted. Errors: InvalidSpec, UnknownField."""
    draft = read_struct(body, TaskDraft)
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


def _existing(task: TaskDetail | None, id: str) -> TaskDetail:
    if task is None:
        raise NotFound("task", id)
    return task


def _in_state(state: str, task: TaskDetail, *, wanted: str) -> TaskDetail:
    if task.state != state:
        raise FailedPrecondition(str(task.id), state=task.state, wanted=wanted, kind="task")
    return task
