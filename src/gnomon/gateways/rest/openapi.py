"""A table of routes as an OpenAPI 3.1 document: schemas out of the types themselves, statuses out
of the one table of errors. Tests send thousands of requests made from it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from gnomon import __version__
from gnomon.gateways.auth import OPERATE
from gnomon.gateways.errors import TABLE
from gnomon.gateways.rest.constraints import (
    CONSTRAINTS,
    DURATION,
    MOMENT_NAMES,
    NEEDS,
    TEXT,
    VARIABLES,
)
from gnomon.gateways.rest.responses import PROBLEM_JSON
from gnomon.gateways.rest.route import OPEN, Json, Parameter, Route

ANY_CALL = (401, 403, 429, 500, 503)  # problems that every call may get
WITH_BODY = (408, 413, 415)  # and every call with a body
SCHEMA = "#/components/schemas/{name}"
CREATED = "It is stored."
REPEATED = "The same had been stored before: nothing was changed."


class Problem(msgspec.Struct):
    """A problem document (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    code: Annotated[str, msgspec.Meta(extra_json_schema={"enum": sorted(TABLE)})]
    request_id: str | msgspec.UnsetType = msgspec.UNSET


def describe(routes: Sequence[Route], *, is_required: bool) -> Json:
    """The document; `is_required` says whether calls need a token."""
    bearer: Json = {"bearer": []}
    types = _types_of(routes)
    schemas, components = msgspec.json.schema_components(types, ref_template=SCHEMA)
    schema_of = dict(zip(types, schemas, strict=True))
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
        "paths": _paths(routes, schema_of),
        "components": {
            "schemas": {
                "Duration": DURATION,
                **{name: _amend(name, schema) for name, schema in components.items()},
            },
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "responses": {
                f"Problem{status}": _problem(status)
                for status in sorted({row.http for row in TABLE.values()})
            },
        },
    }


# -- schemas --------------------------------------------------------------------------------------


def _types_of(routes: Sequence[Route]) -> list[Any]:
    """The types of all bodies and answers, each once."""
    types: dict[Any, None] = {Problem: None}
    for route in routes:
        types.update(dict.fromkeys(route.bodies.values()))
        if route.answer is not None:
            types[route.answer] = None
    return list(types)


def _amend(name: str, schema: Json) -> Json:
    """Add to a schema what its type cannot say."""
    amended: Json = _amend_part(name, schema)
    return amended | NEEDS.get(name, {})


def _amend_part(owner: str, part: Any, field: str = "") -> Any:
    """Add formats, bounds, and the forms in which durations may come."""
    if isinstance(part, list):
        return [_amend_part(owner, item, field) for item in part]
    if not isinstance(part, dict):
        return part
    if part.get("format") == "duration":
        return {"$ref": SCHEMA.format(name="Duration")}
    amended = {
        key: _amend_part(owner, item, field) for key, item in part.items() if key != "properties"
    }
    if "properties" in part:
        bounds = CONSTRAINTS.get(owner, {})
        amended["properties"] = {
            name: _amend_part(owner, schema, name) | bounds.get(name, {})
            for name, schema in part["properties"].items()
        }
    if amended == TEXT and field in MOMENT_NAMES:
        amended["format"] = "date-time"
    # A default says what happens when the field is left out; ours are in the reference.
    amended.pop("default", None)
    return amended


# -- operations -----------------------------------------------------------------------------------


def _paths(routes: Sequence[Route], schema_of: Json) -> Json:
    paths: Json = {}
    for route in routes:
        if route.path not in paths:
            names = re.findall(r"{(\w+)}", route.path)
            variables = [_parameter("path", Parameter(name, VARIABLES[name])) for name in names]
            paths[route.path] = {"parameters": variables} if variables else {}
        operation = _operation(route, schema_of)
        if route.operation == "create":
            operation["responses"] |= _responses_of_create(operation["responses"]["201"], routes)
        paths[route.path][route.method.lower()] = operation
    return paths


def _operation(route: Route, schema_of: Json) -> Json:
    statuses = {*ANY_CALL, *route.errors}
    parameters = [_parameter("header", header) for header in route.headers]
    parameters += [_parameter("query", field) for field in route.query or ()]
    operation: Json = {"operationId": route.operation, "summary": _summary(route)}
    if parameters:
        operation["parameters"] = parameters
    if route.query is not None:
        statuses.add(400)
    if route.bodies:
        statuses.update(WITH_BODY)
        contents = {kind: {"schema": schema_of[body]} for kind, body in route.bodies.items()}
        operation["requestBody"] = {"required": True, "content": contents}
    if route.scope == OPEN:
        operation["security"] = []
    problems = {
        str(status): {"$ref": f"#/components/responses/Problem{status}"}
        for status in sorted(statuses)
    }
    operation["responses"] = {str(route.status): _answer(route, schema_of), **problems}
    return operation


def _summary(route: Route) -> str:
    needs = " Needs the scope `admin`." if route.scope == OPERATE else ""
    return _first_line(route.handler) + needs


def _first_line(documented: Any) -> str:
    return str(documented.__doc__).partition("\n")[0]


def _parameter(place: str, parameter: Parameter) -> Json:
    shown: Json = {"name": parameter.name, "in": place, "schema": parameter.schema}
    if place == "path":
        shown["required"] = True
    if parameter.description:
        shown["description"] = parameter.description
    return shown


# -- answers --------------------------------------------------------------------------------------


def _answer(route: Route, schema_of: Json) -> Json:
    """The answer of a call that went well."""
    response: Json = {"description": _first_line(route.handler)}
    if route.status == 204:
        return response
    response["content"] = {route.content_type: {}}
    if route.answer is not None:
        response["description"] = _first_line(route.answer)
        response["content"][route.content_type] = {"schema": schema_of[route.answer]}
    headers = {"ETag": hasattr(route.answer, "etag"), "Location": route.status == 201}
    sent = [name for name, is_sent in headers.items() if is_sent]
    if sent:
        response["headers"] = {name: {"schema": TEXT, "required": True} for name in sent}
    return response


def _responses_of_create(response: Json, routes: Sequence[Route]) -> Json:
    """A new action, which all that take its id may use; and a repeat of the same request."""
    links = {
        route.operation: {
            "operationId": route.operation,
            "parameters": {"id": "$response.body#/meta/id"},
        }
        for route in routes
        if route.path.startswith("/v1/actions/{id}") and route.answer is not None
    }
    return {
        "201": {**response, "description": CREATED, "links": links},
        "200": {**response, "description": REPEATED},
    }


def _problem(status: int) -> Json:
    codes = sorted(row.code for row in TABLE.values() if row.http == status)
    response: Json = {
        "description": ", ".join(codes),
        "content": {PROBLEM_JSON: {"schema": {"$ref": SCHEMA.format(name="Problem")}}},
    }
    if status in (429, 503):
        response["headers"] = {"Retry-After": {"schema": {**TEXT, "pattern": "^[0-9]+$"}}}
    if status == 401:
        response["headers"] = {"WWW-Authenticate": {"schema": TEXT}}
    return response
