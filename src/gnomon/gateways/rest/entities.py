"""The routes of entities and their stages: each reads a request, calls one verb, and answers."""

from __future__ import annotations

import re
from typing import Any

import litestar
import msgspec
from litestar.datastructures import State
from litestar.params import FromPath

from gnomon.gateways.bodies import read_object
from gnomon.gateways.entities import (
    DOCUMENTS_BYTES_MAX,
    STATE_BODY_BYTES_MAX,
    EntityAnswer,
    StateSwap,
    after_of,
    conflict_of,
    next_of,
    read_document,
    read_documents,
    read_json_patch,
    read_json_state,
    read_merge_patch,
    read_message,
    show_entity,
    show_state,
    stage_name,
    swap_state,
)
from gnomon.gateways.rest.answers import Bytes, answer_json
from gnomon.gateways.rest.guards import FOR_OPERATORS, principal_of
from gnomon.gateways.rest.request_fields import AnyRequest, QueryFields, one_header, read_body
from gnomon.model.errors import InvalidSpec
from gnomon.model.stage.json_patch import DOCUMENT_BYTES_MAX
from gnomon.model.stage.patch import Patch
from gnomon.stages.entities import Entities

MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STATE_FIELDS = ("version", "state", "type", "message", "epoch", "revision", "wake")
COUNT_MAX = 2**53  # what every JSON reader can hold

_TAG = re.compile(r'"(?:([0-9]{1,15})\.)?([0-9]{1,15})"', re.ASCII)


def entities_of(state: State) -> Entities:
    found: Entities = state.entities
    return found


class AllEntities(litestar.Controller):
    """All entities, and those that wait for a person."""

    path = "/v1"

    @litestar.get("/entities")
    async def list(self, request: AnyRequest, state: State) -> Bytes:
        """A page of entities in order of id."""
        query = QueryFields(request, known=("id_prefix", "limit", "after"))
        page = await entities_of(state).page(
            after=query.one("after"),
            prefix=query.one("id_prefix") or "",
            limit=query.number("limit", 100),
        )
        shown = [show_entity(entity) for entity in page.entities]
        return answer_json({"entities": shown, "next": page.next})

    @litestar.post("/entities:bulk", request_max_body_size=DOCUMENTS_BYTES_MAX, status_code=200)
    async def put_many(self, request: AnyRequest, state: State) -> Bytes:
        """Create or replace many; how many were changed by it."""
        QueryFields(request, known=())
        documents = read_documents(await read_body(request))
        changed = await entities_of(state).put_many(documents, by=principal_of(request).name)
        return answer_json({"changed": changed})

    @litestar.get("/parked")
    async def parked(self, request: AnyRequest, state: State) -> Bytes:
        """A page of entities that a stage gave up, in order of entity and stage."""
        query = QueryFields(request, known=("stage", "limit", "after"))
        stage, limit = query.one("stage"), query.number("limit", 100)
        rows = await entities_of(state).parked(
            stage=None if stage is None else stage_name(stage),
            after=after_of(query.one("after")),
            limit=limit,
        )
        return answer_json({"parked": rows, "next": next_of(rows, limit)})


class OneEntity(litestar.Controller):
    """One entity: look, change, remove; why it is where it is; what stages remember of it."""

    path = "/v1/entities/{id:str}"

    @litestar.get()
    async def get(self, id: FromPath[str], request: AnyRequest, state: State) -> Bytes:
        """The entity."""
        QueryFields(request, known=())
        return _answer(show_entity(await entities_of(state).get(id)))

    @litestar.put(request_max_body_size=DOCUMENT_BYTES_MAX)
    async def put(self, id: FromPath[str], request: AnyRequest, state: State) -> Bytes:
        """Create it, or give it a new document."""
        QueryFields(request, known=())
        if_epoch, if_version = read_tag(request)
        document = read_document(await read_body(request))
        entity = await entities_of(state).put(
            id, document, if_version=if_version, if_epoch=if_epoch, by=principal_of(request).name
        )
        return _answer(show_entity(entity))

    @litestar.patch(request_max_body_size=DOCUMENT_BYTES_MAX)
    async def patch(self, id: FromPath[str], request: AnyRequest, state: State) -> Bytes:
        """Change some of its document."""
        QueryFields(request, known=())
        if_epoch, if_version = read_tag(request)
        patch = await read_patch(request)
        entity = await entities_of(state).patch(
            id, patch, if_version=if_version, if_epoch=if_epoch, by=principal_of(request).name
        )
        return _answer(show_entity(entity))

    @litestar.delete(status_code=204)
    async def delete(self, id: FromPath[str], request: AnyRequest, state: State) -> None:
        """Remove it from all queues, with its timers."""
        QueryFields(request, known=())
        if_epoch, if_version = read_tag(request)
        await entities_of(state).delete(
            id, if_version=if_version, if_epoch=if_epoch, by=principal_of(request).name
        )

    @litestar.get("/explain")
    async def explain(self, id: FromPath[str], request: AnyRequest, state: State) -> Bytes:
        """Why it is in which queue, by what chain, waiting for what."""
        QueryFields(request, known=())
        return answer_json(await entities_of(state).explain(id))

    @litestar.post("/release")
    async def release(self, id: FromPath[str], request: AnyRequest, state: State) -> Bytes:
        """Let stages that gave it up look at it again."""
        stage = QueryFields(request, known=("stage",)).one("stage")
        wanted = None if stage is None else stage_name(stage)
        released = await entities_of(state).release(id, wanted, by=principal_of(request).name)
        return answer_json({"released": released})

    @litestar.get("/states/{stage:str}")
    async def get_state(
        self, id: FromPath[str], stage: FromPath[str], request: AnyRequest, state: State
    ) -> Bytes:
        """What a stage remembers of it."""
        QueryFields(request, known=())
        entity, found = await entities_of(state).state(stage_name(stage), id)
        return answer_json(show_state(entity, stage, found))

    @litestar.put("/states/{stage:str}", request_max_body_size=STATE_BODY_BYTES_MAX)
    async def put_state(
        self, id: FromPath[str], stage: FromPath[str], request: AnyRequest, state: State
    ) -> Bytes:
        """Compare and set what a stage remembers of it."""
        QueryFields(request, known=())
        swap = read_swap(await read_body(request), id, stage)
        by = principal_of(request).name
        entity, current, is_stored = await swap_state(entities_of(state), swap, by=by)
        if not is_stored:
            raise conflict_of(swap, entity, current)
        return answer_json(show_state(entity, stage, current))


class AllStages(litestar.Controller):
    """The stages that were ever served and not forgotten."""

    path = "/v1/stages"

    @litestar.get()
    async def list(self, request: AnyRequest, state: State) -> Bytes:
        """All of them, with what is in their queues."""
        QueryFields(request, known=())
        found = await entities_of(state).stages()
        return answer_json({"stages": found})

    @litestar.post("/{name:str}/backfill", status_code=202)
    async def backfill(self, name: FromPath[str], request: AnyRequest, state: State) -> Bytes:
        """Let it walk over all entities, in the background."""
        QueryFields(request, known=())
        await entities_of(state).backfill_stage(stage_name(name), by=principal_of(request).name)
        return answer_json({"stage": name}, status=202)

    @litestar.delete("/{name:str}", status_code=200, opt=FOR_OPERATORS)
    async def forget(self, name: FromPath[str], request: AnyRequest, state: State) -> Bytes:
        """Remove all that is stored of it."""
        QueryFields(request, known=())
        by = principal_of(request).name
        removed = await entities_of(state).forget_stage(stage_name(name), by=by)
        return answer_json({"removed": removed})


def _answer(shown: EntityAnswer) -> Bytes:
    return answer_json(shown, headers={"ETag": shown.tag})


# -- requests -------------------------------------------------------------------------------------


def read_tag(request: AnyRequest) -> tuple[int | None, int | None]:
    """(epoch, version) that the caller has seen: the ETag of a former answer, or the version alone;
    `If-None-Match: *` is for those who have seen nothing."""
    text, none = one_header(request, "If-Match"), one_header(request, "If-None-Match")
    if none is not None:
        if none != "*" or text is not None:
            raise InvalidSpec("header.If-None-Match", "must be *, and without If-Match", got=none)
        return None, 0
    if text is None:
        return None, None
    found = _TAG.fullmatch(text)
    if found is None:
        raise InvalidSpec("header.If-Match", 'must be one ETag: "<epoch>.<version>"', got=text)
    return None if found[1] is None else int(found[1]), int(found[2])


async def read_patch(request: AnyRequest) -> Patch:
    """A patch of the kind that the content type says."""
    body = await read_body(request, kinds=(MERGE_PATCH, JSON_PATCH))
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return read_merge_patch(body) if kind == MERGE_PATCH else read_json_patch(body)


def read_swap(body: bytes, entity_id: str, stage: str) -> StateSwap:
    """`{"version", "state"}` or `{"version", "type", "message"}`, and more if wanted."""
    value = read_object(body, STATE_FIELDS, bytes_max=STATE_BODY_BYTES_MAX)
    has_message = "type" in value or "message" in value
    if has_message == ("state" in value):
        raise InvalidSpec("state", "give either state, or type and message")
    if has_message:
        write = read_message(_text(value, "type"), _text(value, "message"))
    else:
        write = read_json_state(value["state"])
    version = _count(value, "version")
    if version is None:
        raise InvalidSpec("version", "is required; 0: there is no state yet")
    if not isinstance(value.get("wake", True), bool):
        raise InvalidSpec("wake", "must be true or false", got=value["wake"])
    return StateSwap(
        stage=stage,
        entity_id=entity_id,
        version=version,
        write=msgspec.structs.replace(write, revision=_count(value, "revision") or 0),
        epoch=_count(value, "epoch"),
        wake=value.get("wake", True),
    )


def _text(value: dict[str, Any], name: str) -> str:
    found = value.get(name)
    if not isinstance(found, str):
        raise InvalidSpec(name, "must be a string", got=found)
    return found


def _count(value: dict[str, Any], name: str) -> int | None:
    found = value.get(name)
    if found is None and name not in value:
        return None
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= COUNT_MAX:
        raise InvalidSpec(name, "must be a whole number, and not negative", got=found)
    return found
