"""The API as an OpenAPI 3.1 document: schemas out of the types themselves, statuses out of the one
table of errors. Tests send thousands of requests made from it, and compare what comes back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import msgspec

from gnomon import __version__
from gnomon.gateways.errors import TABLE
from gnomon.gateways.rest.answers import JSON, PROBLEM_JSON, ActionAnswer
from gnomon.gateways.rest.constraints import (
    CONSTRAINTS,
    DURATION,
    ID,
    KEY,
    MOMENT_NAMES,
)
from gnomon.model.action import Attempt, State
from gnomon.model.spec import Spec
from gnomon.scheduler.scheduler import BULK_MAX, PAGE_MAX

REF = "#/components/schemas/{name}"
SCHEMES = {"bearer": {"type": "http", "scheme": "bearer"}}
ANY_TIME = (401, 403, 429, 500, 503)  # what every call with a token may be answered with
BODY = (408, 413, 415)  # what every call with a body may be
EVENT_STREAM = "text/event-stream"

Json = dict[str, Any]


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
        "paths": {**_paths_of_all(), **_paths_of_one(), **_paths_of_server()},
        "components": {
            "schemas": _schemas(),
            "securitySchemes": SCHEMES,
            "responses": {f"Problem{status}": _problem(status) for status in _statuses()},
        },
    }


# -- schemas --------------------------------------------------------------------------------------


def _schemas() -> Json:
    types = [Spec, ActionAnswer, Attempt]
    _, found = msgspec.json.schema_components(types, ref_template=REF)
    schemas: Json = {name: _mended(name, schema) for name, schema in found.items()}
    create = {"id": ID, "spec": _ref("Spec")}
    item = {**create, "key": KEY}
    problem: Json = {"type": {"type": "string"}, "title": {"type": "string"}}
    problem |= {"status": {"type": "integer"}, "detail": {"type": "string"}}
    problem |= {"code": {"enum": sorted(TABLE)}, "request_id": {"type": "string"}}
    durability = {"enum": ["replicated", "local", "none"]}
    schemas["Action"] = schemas.pop("ActionAnswer")
    schemas |= {
        "Duration": DURATION,
        "Create": _object(create, ["spec"]),
        "Replace": _object({"spec": _ref("Spec")}, ["spec"]),
        "BulkItem": _object(item, ["spec"]),
        "Bulk": _object({"actions": _list("BulkItem", maxItems=BULK_MAX)}, ["actions"]),
        "BulkAnswer": _open({"items": _list("BulkResult"), "durability": durability}),
        "BulkResult": {
            "oneOf": [_object({"action": _ref("Action")}, ["action"]),
                      _object({"problem": _ref("Problem")}, ["problem"])],
        },
        "Page": _open({"actions": _list("Action"), "durability": durability,
                       "next": {"type": ["string", "null"]}}),
        "Attempts": _open({"attempts": _list("Attempt")}),
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
        return _ref("Duration")
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


def _ref(name: str) -> Json:
    return {"$ref": REF.format(name=name)}


def _list(name: str, **bounds: object) -> Json:
    return {"type": "array", "items": _ref(name), **bounds}


def _object(properties: Json, required: list[str]) -> Json:
    return {**_open(properties), "required": required, "additionalProperties": False}


def _open(properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": list(properties)}


# -- answers --------------------------------------------------------------------------------------


def _statuses() -> set[int]:
    return {row.http for row in TABLE.values()}


def _problem(status: int) -> Json:
    codes = sorted(row.code for row in TABLE.values() if row.http == status)
    found: Json = {
        "description": ", ".join(codes),
        "content": {PROBLEM_JSON: {"schema": _ref("Problem")}},
    }
    if status in (429, 503):
        found["headers"] = {"Retry-After": _header({"type": "string", "pattern": "^[0-9]+$"})}
    if status == 401:
        found["headers"] = {"WWW-Authenticate": _header({"type": "string"})}
    return found


def _problems(*statuses: int) -> Json:
    return {
        str(status): {"$ref": f"#/components/responses/Problem{status}"}
        for status in sorted({*statuses, *ANY_TIME})
    }


def _answer(description: str, schema: str | None, *, kind: str = JSON) -> Json:
    body = {} if schema is None else {"schema": _ref(schema)}
    return {"description": description, "content": {kind: body}}


def _action(description: str) -> Json:
    tag = _header({"type": "string"}, required=True)
    return {**_answer(description, "Action"), "headers": {"ETag": tag}}


def _header(schema: Json, **more: object) -> Json:
    return {"schema": schema, **more}


# -- operations -----------------------------------------------------------------------------------


def _operation(name: str, summary: str, responses: Json, **more: object) -> Json:
    return {"operationId": name, "summary": summary, "responses": responses, **more}


def _body(schema: str) -> Json:
    return {"required": True, "content": {JSON: {"schema": _ref(schema)}}}


def _query(name: str, schema: Json, **more: object) -> Json:
    return {"name": name, "in": "query", "schema": schema, **more}


_LIMIT = _query("limit", {"type": "integer", "minimum": 1, "maximum": PAGE_MAX})
_BARRIER = _query("barrier", {"type": "boolean"})
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
    created["headers"] |= {"Location": _header({"type": "string"}, required=True)}
    created["links"] = dict(_links())
    again = _action("The same had been stored before: nothing was changed.")
    again["headers"] |= {"Location": _header({"type": "string"}, required=True)}
    create = _operation(
        "create", "Store a new action.",
        {"201": created, "200": again, **_problems(400, 409, *BODY)},
        requestBody=_body("Create"), parameters=[_IDEMPOTENCY],
    )  # fmt: skip
    bulk = _operation(
        "create_many", "Store many; one answer each, in order.",
        {"200": _answer("What became of each.", "BulkAnswer"), **_problems(400, *BODY)},
        requestBody=_body("Bulk"),
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
        _query("state", states), _query("label", labels), _query("queue", text),
        _query("id_prefix", text), _query("due_before", {"type": "string", "format": "date-time"}),
        _LIMIT, _query("after", text, description="`next` of the page before"),
    ]  # fmt: skip
    page = _answer("A page in order of id.", "Page")
    return _operation(
        "list", "List actions.", {"200": page, **_problems(400)}, parameters=parameters
    )


def _links() -> Iterator[tuple[str, Json]]:
    """An action that was created can be used by all that take its id."""
    named = {"id": "$response.body#/meta/id"}
    verbs = [name for name, _ in _VERBS.values()]
    for name in ("get", "replace", "delete", "attempts", *verbs):
        yield name, {"operationId": name, "parameters": named}


def _paths_of_one() -> Json:
    path = "/v1/actions/{id}"
    changed = _action("As it is now.")
    change = {"200": changed, **_problems(400, 404, 412)}
    paths: Json = {
        path: {
            "parameters": [_PATH_ID],
            "get": _operation(
                "get", "The action, live or the latest finished one.",
                {"200": _action("The action."), **_problems(400, 404)},
            ),
            "put": _operation(
                "replace", "Give it a new spec, or create it.",
                {"200": changed, **_problems(400, 404, 412, *BODY)},
                requestBody=_body("Replace"), parameters=[_IDEMPOTENCY, _IF_MATCH, _BARRIER],
            ),
            "delete": _operation("delete", "Cancel it.", change, parameters=[_IF_MATCH, _BARRIER]),
        },
        f"{path}/attempts": _look(
            "attempts", "What was attempted, newest first.",
            {"200": _answer("The attempts.", "Attempts"), **_problems(400)}, [_LIMIT],
        ),
        f"{path}/events": _look(
            "events", "The action now, and after every change until it has ended.",
            {"200": _answer("Server-sent events named `action`.", None, kind=EVENT_STREAM),
             **_problems(400, 404)}, [],
        ),
    }  # fmt: skip
    for verb, (name, summary) in _VERBS.items():
        statuses = {"200": changed, **_problems(400, 404, 409, 412)}
        matches = [] if verb == "retry" else [_IF_MATCH]
        done = _operation(name, summary, statuses, parameters=matches)
        paths[f"{path}/{verb}"] = {"parameters": [_PATH_ID], "post": done}
    return paths


def _look(name: str, summary: str, responses: Json, parameters: list[Mapping[str, Any]]) -> Json:
    found = _operation(name, summary, responses, parameters=parameters)
    return {"parameters": [_PATH_ID], "get": found}


def _paths_of_server() -> Json:
    health = {"200": _answer("The store answers.", "Health"), **_problems()}
    metrics = {"200": _answer("For Prometheus.", None, kind="text/plain"), **_problems()}
    document = {"200": _answer("This document.", None), **_problems()}
    return {
        "/health": {"get": _operation("health", "Whether the store answers.", health, security=[])},
        "/metrics": {"get": _operation("metrics", "What is counted.", metrics)},
        "/openapi.json": {"get": _operation("openapi", "This API.", document)},
    }
