"""The part of the OpenAPI document about entities and stages."""

from __future__ import annotations

from gnomon.contracts.store.register import StageRecord
from gnomon.gateways.entities import DOCUMENTS_MAX, EntityAnswer, StateAnswer
from gnomon.gateways.rest.constraints import ID, LIMIT_NAME
from gnomon.gateways.rest.openapi_parts import (
    BODY,
    LIMIT,
    NEXT,
    TEXT,
    Json,
    answer,
    body,
    closed,
    header,
    in_path,
    list_of,
    opened,
    operation,
    problems,
    query,
    ref,
)
from gnomon.stages.explain import Explanation, ParkedRow

ANSWERS = (EntityAnswer, StateAnswer, ParkedRow, StageRecord, Explanation)

_PATH_ID = in_path("id", ID)
_STAGE = LIMIT_NAME  # names are written alike
_AFTER = query("after", TEXT, description="`next` of the page before")
_COUNT: Json = {"type": "integer", "minimum": 0, "maximum": 2**53}
_IF_MATCH = {
    "name": "If-Match",
    "in": "header",
    "schema": {"type": "string", "pattern": r'^"([0-9]{1,15}\.)?[0-9]{1,15}"$'},
}
_IF_NONE_MATCH = {"name": "If-None-Match", "in": "header", "schema": {"const": "*"}}


def entity_schemas(found: Json) -> Json:
    """The schemas by their names outside, out of those of the types."""
    schemas = {"Entity": found.pop("EntityAnswer"), "StageState": found.pop("StateAnswer")}
    schemas["Entity"]["properties"]["document"] = ref("Document")
    swapped = {"version": _COUNT, "epoch": _COUNT, "revision": _COUNT, "wake": {"type": "boolean"}}
    message: Json = {"type": TEXT, "message": {"type": "string", "contentEncoding": "base64"}}
    operations = ["add", "remove", "replace", "move", "copy", "test"]
    step = {"op": {"enum": operations}, "path": TEXT, "from": TEXT, "value": {}}
    return {
        **schemas,
        "Document": {"type": "object"},
        "Documents": closed(
            {
                "entities": {
                    "type": "object",
                    "additionalProperties": ref("Document"),
                    "propertyNames": ID,
                    "maxProperties": DOCUMENTS_MAX,
                }
            },
            ["entities"],
        ),
        "PutMany": opened({"changed": _COUNT}),
        "JsonPatch": {
            "type": "array",
            "items": {"type": "object", "properties": step, "required": ["op", "path"]},
        },
        "StateSwap": {
            "type": "object",
            "properties": {**swapped, "state": {}, **message},
            "required": ["version"],
            "oneOf": [{"required": ["state"]}, {"required": ["type", "message"]}],
            "additionalProperties": False,
        },
        "EntityPage": opened({"entities": list_of("Entity"), "next": NEXT}),
        "ParkedPage": opened({"parked": list_of("ParkedRow"), "next": NEXT}),
        "Stages": opened({"stages": list_of("StageRecord")}),
        "Released": opened({"released": _COUNT}),
        "Removed": opened({"removed": _COUNT}),
        "Swept": opened({"stage": TEXT}),
    }


def entity_paths() -> Json:
    """All paths of entities and stages."""
    return {**_all_paths(), **_entity_paths(), **_stage_paths()}


def _all_paths() -> Json:
    listing = operation(
        "list_entities", "A page of entities in order of id.",
        {"200": answer("The page.", "EntityPage"), **problems(400)},
        parameters=[query("id_prefix", TEXT), LIMIT, _AFTER],
    )  # fmt: skip
    parked = operation(
        "list_parked", "Entities that a stage gave up, and saves that it did not take.",
        {"200": answer("A page in order of entity and stage.", "ParkedPage"), **problems(400)},
        parameters=[query("stage", _STAGE), LIMIT, _AFTER],
    )  # fmt: skip
    bulk = operation(
        "put_entities", "Create or replace many entities, all or none of them if one is not valid.",
        {"200": answer("How many were changed by it.", "PutMany"), **problems(400, *BODY)},
        requestBody=body("Documents"),
    )  # fmt: skip
    return {
        "/v1/entities": {"get": listing},
        "/v1/entities:bulk": {"post": bulk},
        "/v1/parked": {"get": parked},
    }


def _entity(description: str) -> Json:
    tag = header({"type": "string"}, required=True)
    return {**answer(description, "Entity"), "headers": {"ETag": tag}}


def _entity_paths() -> Json:
    path = "/v1/entities/{id}"
    changed = {"200": _entity("As it is now."), **problems(400, 404, 412, *BODY)}
    expected = [_IF_MATCH, _IF_NONE_MATCH]
    patches = {
        "application/merge-patch+json": {"schema": ref("Document")},
        "application/json-patch+json": {"schema": ref("JsonPatch")},
    }
    return {
        path: {
            "parameters": [_PATH_ID],
            "get": operation(
                "get_entity", "The entity.", {"200": _entity("It."), **problems(400, 404)}
            ),
            "put": operation(
                "put_entity", "Create it, or give it a new document.",
                {"200": _entity("As it is now."), **problems(400, 412, *BODY)},
                requestBody=body("Document"), parameters=expected,
            ),
            "patch": operation(
                "patch_entity", "Change some of its document.", changed,
                requestBody={"required": True, "content": patches}, parameters=expected,
            ),
            "delete": operation(
                "delete_entity", "Remove it from all queues, with its timers.",
                {"204": {"description": "It is gone."}, **problems(400, 404, 412)},
                parameters=expected,
            ),
        },
        f"{path}/explain": {
            "parameters": [_PATH_ID],
            "get": operation(
                "explain_entity", "Why it is in which queue, by what chain, waiting for what.",
                {"200": answer("Why.", "Explanation"), **problems(400, 404)},
            ),
        },
        f"{path}/release": {
            "parameters": [_PATH_ID],
            "post": operation(
                "release_entity", "Let stages that gave it up look at it again.",
                {"200": answer("How many.", "Released"), **problems(400)},
                parameters=[query("stage", _STAGE)],
            ),
        },
        f"{path}/states/{{stage}}": _state_path(),
    }  # fmt: skip


def _state_path() -> Json:
    return {
        "parameters": [_PATH_ID, in_path("stage", _STAGE)],
        "get": operation(
            "get_state", "What a stage remembers of it.",
            {"200": answer("The state; version 0: none.", "StageState"), **problems(400, 404)},
        ),
        "put": operation(
            "put_state", "Compare and set what a stage remembers of it.",
            {"200": answer("As it is now.", "StageState"), **problems(400, 404, 412, *BODY)},
            requestBody=body("StateSwap"),
        ),
    }  # fmt: skip


def _stage_paths() -> Json:
    named = {"parameters": [in_path("name", _STAGE)]}
    return {
        "/v1/stages": {
            "get": operation(
                "list_stages", "All stages, with what is in their queues.",
                {"200": answer("The stages.", "Stages"), **problems(400)},
            )
        },
        "/v1/stages/{name}": {
            **named,
            "delete": operation(
                "forget_stage",
                "Remove queue, timers and states of a stage. Needs the scope `admin`.",
                {"200": answer("How many rows went.", "Removed"), **problems(400, 404)},
            ),
        },
        "/v1/stages/{name}/backfill": {
            **named,
            "post": operation(
                "backfill_stage", "Let it walk over all entities, in the background.",
                {"202": answer("It will.", "Swept"), **problems(400, 404)},
            ),
        },
    }  # fmt: skip
