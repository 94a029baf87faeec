"""What an OpenAPI document is made of."""

from __future__ import annotations

from typing import Any

from gnomon.gateways.rest.answers import JSON
from gnomon.scheduler.scheduler import PAGE_MAX

REF = "#/components/schemas/{name}"
ANY_TIME = (401, 403, 429, 500, 503)  # what every call with a token may be answered with
BODY = (408, 413, 415)  # what every call with a body may be

Json = dict[str, Any]

# -- schemas --------------------------------------------------------------------------------------


def ref(name: str) -> Json:
    return {"$ref": REF.format(name=name)}


def list_of(name: str, **bounds: object) -> Json:
    return {"type": "array", "items": ref(name), **bounds}


def closed(properties: Json, required: list[str]) -> Json:
    """An object without other fields."""
    return {**opened(properties), "required": required, "additionalProperties": False}


def opened(properties: Json) -> Json:
    """An object that may get more fields; these are always there."""
    return {"type": "object", "properties": properties, "required": list(properties)}


# -- answers --------------------------------------------------------------------------------------


def problems(*statuses: int) -> Json:
    return {
        str(status): {"$ref": f"#/components/responses/Problem{status}"}
        for status in sorted({*statuses, *ANY_TIME})
    }


def answer(description: str, schema: str | None, *, kind: str = JSON) -> Json:
    body = {} if schema is None else {"schema": ref(schema)}
    return {"description": description, "content": {kind: body}}


def header(schema: Json, **more: object) -> Json:
    return {"schema": schema, **more}


# -- operations -----------------------------------------------------------------------------------


def operation(name: str, summary: str, responses: Json, **more: object) -> Json:
    return {"operationId": name, "summary": summary, "responses": responses, **more}


def body(schema: str) -> Json:
    return {"required": True, "content": {JSON: {"schema": ref(schema)}}}


def query(name: str, schema: Json, **more: object) -> Json:
    return {"name": name, "in": "query", "schema": schema, **more}


def in_path(name: str, schema: Json) -> Json:
    return {"name": name, "in": "path", "required": True, "schema": schema}


TEXT: Json = {"type": "string"}
NEXT: Json = {"type": ["string", "null"]}
LIMIT = query("limit", {"type": "integer", "minimum": 1, "maximum": PAGE_MAX})
