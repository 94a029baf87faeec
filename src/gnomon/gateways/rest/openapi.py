"""The API as an OpenAPI 3.1 document: schemas out of the types themselves, statuses out of the one
table of errors. Tests send thousands of requests made from it, and compare what comes back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import msgspec

from gnomon import __version__
from gnomon.contracts.task_rows import TaskDetail, TaskDraft, TaskSummary
from gnomon.gateways.errors import TABLE
from gnomon.gateways.rest.answers import PROBLEM_JSON, ActionAnswer
from gnomon.gateways.rest.constraints import (
    CONSTRAINTS,
    DURATION,
    ID,
    KEY,
    LIMIT_FIELDS,
    LIMIT_KIND,
    LIMIT_NAME,
    LIMIT_NEEDS,
    MOMENT_NAMES,
)
from gnomon.gateways.rest.limits import LimitAnswer
from gnomon.gateways.rest.openapi_entities import ANSWERS, entity_paths, entity_schemas
from gnomon.gateways.rest.openapi_parts import (
    BODY,
    LIMIT,
    REF,
    TEXT,
    Json,
    answer,
    body,
    closed,
    header,
    list_of,
    opened,
    operation,
    problems,
    query,
    ref,
)
from gnomon.gateways.rest.tasks import STATES
from gnomon.model.action import Attempt, State
from gnomon.model.spec import Spec
from gnomon.scheduler.scheduler import BULK_MAX

SCHEMES = {"bearer": {"type": "http", "scheme": "bearer"}}
EVENT_STREAM = "text/event-stream"


@cache
def openapi_document(*, is_required: bool = True) -> Json:
    """The document; `is_required` says whether calls need a token on this server."""
    bearer: Json = {"bearer": []}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Gnomon",
            "version": __version__,
            "description": "Runs actions at their time, durably. Unknown fields are refused.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [bearer] if is_required else [{}, bearer],
        "paths": {
            **_paths_of_all(),
            **_paths_of_one(),
            **_paths_of_limits(),
            **_paths_of_tasks(),
            **entity_paths(),
            **_paths_of_server(),
        },
        "components": {
            "schemas": _schemas(),
            "securitySchemes": SCHEMES,
            "responses": {f"Problem{status}": _problem(status) for status in _statuses()},
        },
    }


# -- schemas --------------------------------------------------------------------------------------


def _schemas() -> Json:
    types = [Spec, ActionAnswer, Attempt, LimitAnswer, TaskSummary, TaskDetail, TaskDraft]
    _, found = msgspec.json.schema_components([*types, *ANSWERS], ref_template=REF)
    schemas: Json = {name: _mended(name, schema) for name, schema in found.items()}
    create = {"id": ID, "spec": ref("Spec")}
    item = {**create, "key": KEY}
    problem: Json = {"type": {"type": "string"}, "title": {"type": "string"}}
    problem |= {"status": {"type": "integer"}, "detail": {"type": "string"}}
    problem |= {"code": {"enum": sorted(TABLE)}, "request_id": {"type": "string"}}
    durability = {"enum": ["replicated", "local", "none"]}
    schemas["Action"] = schemas.pop("ActionAnswer")
    schemas["Limit"] = schemas.pop("LimitAnswer")
    schemas |= entity_schemas(schemas)
    schemas["TaskDraft"]["additionalProperties"] = False
    schemas |= {
        "Duration": DURATION,
        "Create": closed(create, ["spec"]),
        "Replace": closed({"spec": ref("Spec")}, ["spec"]),
        "BulkItem": closed(item, ["spec"]),
        "Bulk": closed({"actions": list_of("BulkItem", maxItems=BULK_MAX)}, ["actions"]),
        "BulkAnswer": opened({"items": list_of("BulkResult"), "durability": durability}),
        "BulkResult": {
            "oneOf": [closed({"action": ref("Action")}, ["action"]),
                      closed({"problem": ref("Problem")}, ["problem"])],
        },
        "Page": opened({"actions": list_of("Action"), "durability": durability,
                       "next": {"type": ["string", "null"]}}),
        "Attempts": opened({"attempts": list_of("Attempt")}),
        "LimitBody": {**closed(LIMIT_FIELDS, []), "anyOf": LIMIT_NEEDS},
        "Limits": opened({"limits": list_of("Limit")}),
        "TaskTables": opened({"tables": {"type": "array", "items": opened({"name": TEXT})}}),
        "TaskPage": opened({"tasks": list_of("TaskSummary"), "next": {"type": ["string", "null"]}}),
        "Problem": {"type": "object", "properties": problem,
                    "required": ["type", "title", "status", "detail", "code"]},
        "Health": {"type": "object", "required": ["status", "version", "engine", "durability"]},
    }  # fmt: skip
    return schemas


def _mended(owner: str, value: Any, name: str = "") -> Any:
    """What the types cannot say: formats, bounds, and the forms in which durations may come."""
    if isinstance(value, list):
        return [_mended(owner, item, name) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get("format") == "duration":
        return ref("Duration")
    found = {key: _mended(owner, item, name) for key, item in value.items() if key != "properties"}
    if "properties" in value:
        bounds = CONSTRAINTS.get(owner, {})
        found["properties"] = {
            field: _mended(owner, schema, field) | bounds.get(field, {})
            for field, schema in value["properties"].items()
        }
    if found == {"type": "string"} and name in MOMENT_NAMES:
        found["format"] = "date-time"
    # A default says what happens when the field is left out; ours are in the reference.
    found.pop("default", None)
    return found


# -- answers --------------------------------------------------------------------------------------


def _statuses() -> set[int]:
    return {row.http for row in TABLE.values()}


def _problem(status: int) -> Json:
    codes = sorted(row.code for row in TABLE.values() if row.http == status)
    found: Json = {
        "description": ", ".join(codes),
        "content": {PROBLEM_JSON: {"schema": ref("Problem")}},
    }
    if status in (429, 503):
        found["headers"] = {"Retry-After": header({"type": "string", "pattern": "^[0-9]+$"})}
    if status == 401:
        found["headers"] = {"WWW-Authenticate": header({"type": "string"})}
    return found


def _action(description: str) -> Json:
    tag = header({"type": "string"}, required=True)
    return {**answer(description, "Action"), "headers": {"ETag": tag}}


# -- operations -----------------------------------------------------------------------------------


_TASK_ID: Json = {"type": "string", "pattern": "^[0-9]{1,18}$"}
_BARRIER = query("barrier", {"type": "boolean"})
_IDEMPOTENCY = {"name": "Idempotency-Key", "in": "header", "schema": KEY}
_IF_MATCH = {
    "name": "If-Match",
    "in": "header",
    "schema": {"type": "string", "pattern": '^"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"$'},
}
_PATH_ID = {"name": "id", "in": "path", "required": True, "schema": ID}
_VERBS = {
    "run": ("run_now", "Make it due at once."),
    "pause": ("pause", "Let nothing begin until it is resumed."),
    "resume": ("resume", "Let it go on."),
    "retry": ("retry", "Arm a finished action once more."),
}


def _paths_of_all() -> Json:
    created = _action("It is stored.")
    created["headers"] |= {"Location": header({"type": "string"}, required=True)}
    created["links"] = dict(_links())
    again = _action("The same had been stored before: nothing was changed.")
    again["headers"] |= {"Location": header({"type": "string"}, required=True)}
    create = operation(
        "create", "Store a new action.",
        {"201": created, "200": again, **problems(400, 409, *BODY)},
        requestBody=body("Create"), parameters=[_IDEMPOTENCY],
    )  # fmt: skip
    bulk = operation(
        "create_many", "Store many; one answer each, in order.",
        {"200": answer("What became of each.", "BulkAnswer"), **problems(400, *BODY)},
        requestBody=body("Bulk"),
    )  # fmt: skip
    return {
        "/v1/actions": {"get": _listing(), "post": create},
        "/v1/actions:bulk": {"post": bulk},
    }


def _listing() -> Json:
    text = {"type": "string"}
    states = {"type": "array", "items": {"enum": [str(state) for state in State]}}
    labels = {"type": "array", "items": {"type": "string", "pattern": "^[^=]+=.*$"}}
    parameters = [
        query("state", states), query("label", labels), query("queue", text),
        query("id_prefix", text), query("due_before", {"type": "string", "format": "date-time"}),
        LIMIT, query("after", text, description="`next` of the page before"),
    ]  # fmt: skip
    page = answer("A page in order of id.", "Page")
    return operation("list", "List actions.", {"200": page, **problems(400)}, parameters=parameters)


def _links() -> Iterator[tuple[str, Json]]:
    """An action that was created can be used by all that take its id."""
    named = {"id": "$response.body#/meta/id"}
    verbs = [name for name, _ in _VERBS.values()]
    for name in ("get", "replace", "delete", "attempts", *verbs):
        yield name, {"operationId": name, "parameters": named}


def _paths_of_one() -> Json:
    path = "/v1/actions/{id}"
    changed = _action("As it is now.")
    change = {"200": changed, **problems(400, 404, 412)}
    paths: Json = {
        path: {
            "parameters": [_PATH_ID],
            "get": operation(
                "get", "The action, live or the latest finished one.",
                {"200": _action("The action."), **problems(400, 404)},
            ),
            "put": operation(
                "replace", "Give it a new spec, or create it.",
                {"200": changed, **problems(400, 404, 412, *BODY)},
                requestBody=body("Replace"), parameters=[_IDEMPOTENCY, _IF_MATCH, _BARRIER],
            ),
            "delete": operation("delete", "Cancel it.", change, parameters=[_IF_MATCH, _BARRIER]),
        },
        f"{path}/attempts": _look(
            "attempts", "What was attempted, newest first.",
            {"200": answer("The attempts.", "Attempts"), **problems(400)}, [LIMIT],
        ),
        f"{path}/events": _look(
            "events", "The action now, and after every change until it has ended.",
            {"200": answer("Server-sent events named `action`.", None, kind=EVENT_STREAM),
             **problems(400, 404)}, [],
        ),
    }  # fmt: skip
    for verb, (name, summary) in _VERBS.items():
        statuses = {"200": changed, **problems(400, 404, 409, 412)}
        matches = [] if verb == "retry" else [_IF_MATCH]
        done = operation(name, summary, statuses, parameters=matches)
        paths[f"{path}/{verb}"] = {"parameters": [_PATH_ID], "post": done}
    return paths


def _paths_of_limits() -> Json:
    limit, path = answer("The limit, and how much of it is in use.", "Limit"), "/v1/limits"
    kind = {"name": "kind", "in": "path", "required": True, "schema": LIMIT_KIND}
    name = {"name": "name", "in": "path", "required": True, "schema": LIMIT_NAME}
    every = {"200": answer("All limits.", "Limits"), **problems(400)}
    return {
        path: {"get": operation("list_limits", "All limits.", every)},
        f"{path}/{{kind}}/{{name}}": {
            "parameters": [kind, name],
            "get": operation("get_limit", "A limit.", {"200": limit, **problems(400, 404)}),
            "put": operation(
                "set_limit", "Set a limit, or change it. Needs the scope `admin`.",
                {"200": limit, **problems(400, *BODY)}, requestBody=body("LimitBody"),
            ),
            "delete": operation(
                "drop_limit", "Have no such limit any more. Needs the scope `admin`.",
                {"200": limit, **problems(400, 404)},
            ),
        },
    }  # fmt: skip


def _look(name: str, summary: str, responses: Json, parameters: list[Mapping[str, Any]]) -> Json:
    found = operation(name, summary, responses, parameters=parameters)
    return {"parameters": [_PATH_ID], "get": found}


def _paths_of_tasks() -> Json:
    name = {"name": "name", "in": "path", "required": True, "schema": TEXT}
    number = {"name": "id", "in": "path", "required": True, "schema": _TASK_ID}
    states = {"type": "array", "items": {"enum": list(STATES)}}
    listed = [query("state", states), query("group", TEXT), LIMIT, query("after", _TASK_ID)]
    changed = {"200": answer("As it is now.", "TaskDetail"), **problems(400, 404, 409)}
    tasks = {
        "parameters": [name],
        "get": operation(
            "list_tasks", "Rows of a task table.",
            {"200": answer("A page in order of id.", "TaskPage"), **problems(400, 404)},
            parameters=listed,
        ),
        "post": operation(
            "insert_task", "Insert a row; needs the scope table:NAME, too.",
            {"201": answer("It is stored.", "TaskDetail"), **problems(400, 404, *BODY)},
            requestBody=body("TaskDraft"),
        ),
    }  # fmt: skip
    one = operation(
        "get_task", "A row with its result, and why it waits.",
        {"200": answer("The row.", "TaskDetail"), **problems(400, 404)},
    )  # fmt: skip
    stop = operation("stop_task", "Let it not be performed, or not again.", changed)
    plan = operation("plan_task", "Let it be performed, or performed again.", changed)
    tables = {"200": answer("Those that this server knows.", "TaskTables"), **problems(400)}
    path = "/v1/task-tables/{name}/tasks"
    return {
        "/v1/task-tables": {"get": operation("list_task_tables", "The task tables.", tables)},
        path: tasks,
        f"{path}/{{id}}": {"parameters": [name, number], "get": one},
        f"{path}/{{id}}/stop": {"parameters": [name, number], "post": stop},
        f"{path}/{{id}}/plan": {"parameters": [name, number], "post": plan},
    }


def _paths_of_server() -> Json:
    health = {"200": answer("The store answers.", "Health"), **problems()}
    metrics = {"200": answer("For Prometheus.", None, kind="text/plain"), **problems()}
    document = {"200": answer("This document.", None), **problems()}
    return {
        "/health": {"get": operation("health", "Whether the store answers.", health, security=[])},
        "/metrics": {"get": operation("metrics", "What is counted.", metrics)},
        "/openapi.json": {"get": operation("openapi", "This API.", document)},
    }
