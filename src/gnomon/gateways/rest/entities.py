"""The handlers of entities and their stages: each reads a call, uses one verb, and answers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from gnomon.contracts.store.entities import Entity
from gnomon.contracts.store.register import StageRecord
from gnomon.gateways.bodies import read_struct
from gnomon.gateways.entities import (
    DOCUMENTS_MAX,
    STATE_BODY_BYTES_MAX,
    EntityAnswer,
    StateAnswer,
    StateSwap,
    conflict_of,
    page_of_parked,
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
from gnomon.gateways.rest.call import Call
from gnomon.gateways.rest.constraints import ID
from gnomon.model.errors import InvalidSpec
from gnomon.model.ids import EntityKey, entity_key
from gnomon.model.stage.patch import Patch
from gnomon.stages.explain import Explanation, ParkedRow

MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"

_TAG = re.compile(r'"(?:([0-9]{1,15})\.)?([0-9]{1,15})"', re.ASCII)

# -- what is sent ---------------------------------------------------------------------------------

Document = dict[str, Any]
# At most what every JSON reader can hold.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class DocumentsBody(msgspec.Struct, forbid_unknown_fields=True):
    """Documents of entities by id."""

    entities: Annotated[
        dict[str, Document],
        msgspec.Meta(extra_json_schema={"propertyNames": ID, "maxProperties": DOCUMENTS_MAX}),
    ]


class PatchStep(msgspec.Struct):
    """An operation of a JSON patch (RFC 6902)."""

    op: Annotated[
        str,
        msgspec.Meta(
            extra_json_schema={"enum": ["add", "remove", "replace", "move", "copy", "test"]}
        ),
    ]
    path: str
    source: str | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="from")
    value: Any = msgspec.UNSET


class StateBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A new state of a stage beside an entity: `state`, or `type` and `message`."""

    version: Count  # expected; 0: there is no state yet
    state: Any = msgspec.UNSET
    type: str | msgspec.UnsetType = msgspec.UNSET
    message: Annotated[str, msgspec.Meta(extra_json_schema={"contentEncoding": "base64"})] | (
        msgspec.UnsetType
    ) = msgspec.UNSET
    epoch: Count | msgspec.UnsetType = msgspec.UNSET
    revision: Count | msgspec.UnsetType = msgspec.UNSET
    wake: bool = True


# -- what is answered -----------------------------------------------------------------------------


class EntityList(msgspec.Struct):
    """A page of entities in order of id."""

    entities: list[EntityAnswer]
    next: str | None


class ParkedList(msgspec.Struct):
    """A page in order of entity and stage."""

    parked: Sequence[ParkedRow]
    next: str | None


class StageList(msgspec.Struct):
    """The stages."""

    stages: Sequence[StageRecord]


class ChangedCount(msgspec.Struct):
    """How many entities were changed by it."""

    changed: Count


class ReleasedCount(msgspec.Struct):
    """How many rows were released."""

    released: Count


class RemovedCount(msgspec.Struct):
    """How many rows went."""

    removed: Count


class BackfillAnswer(msgspec.Struct):
    """The stage will see all entities of its kind."""

    stage: str


# -- entities -------------------------------------------------------------------------------------


async def list_entities(call: Call, kind: str) -> EntityList:
    """A page of the entities of one kind, in order of id."""
    query = call.query
    page = await call.services.entities.page(
        kind,
        after=query.one("after"),
        prefix=query.one("id_prefix") or "",
        limit=query.number("limit", 100),
    )
    return EntityList([_seen(call, entity) for entity in page.entities], page.next)


async def put_entities(call: Call, kind: str) -> ChangedCount:
    """Create or replace many entities of one kind, all or none of them if one is not valid."""
    documents = read_documents(await call.body())
    for document in documents.values():
        call.sight.check_document(document)
    return ChangedCount(await call.services.entities.put_many(kind, documents, by=call.actor))


async def get_entity(call: Call, kind: str, id: str) -> EntityAnswer:
    """The entity."""
    return _seen(call, await call.services.entities.get(kind, id))


async def put_entity(call: Call, kind: str, id: str) -> EntityAnswer:
    """Create it, or give it a new document."""
    if_epoch, if_version = read_tag(call)
    document = read_document(await call.body())
    call.sight.check_document(document)
    entity = await call.services.entities.put(
        kind, id, document, if_version=if_version, if_epoch=if_epoch, by=call.actor
    )
    return _seen(call, entity)


async def patch_entity(call: Call, kind: str, id: str) -> EntityAnswer:
    """Change some of its document."""
    if_epoch, if_version = read_tag(call)
    patch = await read_patch(call)
    call.sight.check_patch(patch)
    entity = await call.services.entities.patch(
        kind, id, patch, if_version=if_version, if_epoch=if_epoch, by=call.actor
    )
    return _seen(call, entity)


async def delete_entity(call: Call, kind: str, id: str) -> None:
    """Remove it from all queues, with its timers."""
    if_epoch, if_version = read_tag(call)
    await call.services.entities.delete(
        kind, id, if_version=if_version, if_epoch=if_epoch, by=call.actor
    )


async def explain_entity(call: Call, kind: str, id: str) -> Explanation:
    """Why it is in which queue, by what chain, waiting for what."""
    return call.sight.see_explanation(await call.services.entities.explain(kind, id))


async def release_entity(call: Call, kind: str, id: str) -> ReleasedCount:
    """Let stages that gave it up look at it again."""
    stage = _stage_filter(call)
    return ReleasedCount(await call.services.entities.release(kind, id, stage, by=call.actor))


async def list_parked(call: Call) -> ParkedList:
    """Entities that a stage gave up, and saves that it did not take."""
    rows, next_page = await page_of_parked(
        call.services.entities,
        kind=call.query.one("kind"),
        stage=_stage_filter(call),
        after=call.query.one("after"),
        limit=call.query.number("limit", 100),
    )
    return ParkedList(call.sight.see_parked(rows), next_page)


def _seen(call: Call, entity: Entity) -> EntityAnswer:
    return call.sight.see_entity(show_entity(entity))


def _stage_filter(call: Call) -> str | None:
    stage = call.query.one("stage")
    return None if stage is None else stage_name(stage)


# -- states ---------------------------------------------------------------------------------------


async def get_state(call: Call, kind: str, id: str, stage: str) -> StateAnswer:
    """What a stage remembers of it."""
    entity, state = await call.services.entities.state(kind, id, stage_name(stage))
    return show_state(entity, stage, call.sight.see_state(state))


async def put_state(call: Call, kind: str, id: str, stage: str) -> StateAnswer:
    """Compare and set what a stage remembers of it."""
    swap = read_swap(await call.body(), entity_key(kind, id), stage)
    call.sight.check_state(swap.write.body)
    entity, state, is_stored = await swap_state(call.services.entities, swap, by=call.actor)
    if not is_stored:
        raise conflict_of(swap, entity, state)
    return show_state(entity, stage, call.sight.see_state(state))


# -- stages ---------------------------------------------------------------------------------------


async def list_stages(call: Call) -> StageList:
    """All stages, with what is in their queues."""
    return StageList(await call.services.entities.stages())


async def backfill_stage(call: Call, name: str) -> BackfillAnswer:
    """Show it every entity of its kind once more, in the background."""
    await call.services.entities.backfill_stage(stage_name(name), by=call.actor)
    return BackfillAnswer(name)


async def forget_stage(call: Call, name: str) -> RemovedCount:
    """Remove queue, timers and states of a stage."""
    stage = stage_name(name)
    return RemovedCount(await call.services.entities.forget_stage(stage, by=call.actor))


# -- reading --------------------------------------------------------------------------------------


def read_tag(call: Call) -> tuple[int | None, int | None]:
    """(epoch, version) that the caller has seen: the ETag of a former answer, or the version alone;
    `If-None-Match: *` is for those who have seen nothing."""
    text, none = call.header("If-Match"), call.header("If-None-Match")
    if none is not None:
        if none != "*" or text is not None:
            raise InvalidSpec("header.If-None-Match", "must be *, and without If-Match", got=none)
        return None, 0
    if text is None:
        return None, None
    tag = _TAG.fullmatch(text)
    if tag is None:
        raise InvalidSpec("header.If-Match", 'must be one ETag: "<epoch>.<version>"', got=text)
    return None if tag[1] is None else int(tag[1]), int(tag[2])


async def read_patch(call: Call) -> Patch:
    """A patch of the kind that the content type says."""
    body = await call.body()
    return read_merge_patch(body) if call.content_type == MERGE_PATCH else read_json_patch(body)


def read_swap(text: bytes, key: EntityKey, stage: str) -> StateSwap:
    """The body of `put_state`. Errors: InvalidSpec, UnknownField."""
    body = read_struct(text, StateBody, bytes_max=STATE_BODY_BYTES_MAX)
    has_message = not (body.type is body.message is msgspec.UNSET)
    if has_message == (body.state is not msgspec.UNSET):
        raise InvalidSpec("state", "give either state, or type and message")
    if not has_message:
        write = read_json_state(body.state)
    elif isinstance(body.type, str) and isinstance(body.message, str):
        write = read_message(body.type, body.message)
    else:
        raise InvalidSpec("type" if body.message else "message", "is required")
    return StateSwap(
        stage=stage,
        key=key,
        version=body.version,
        write=msgspec.structs.replace(write, revision=body.revision or 0),
        epoch=None if body.epoch is msgspec.UNSET else body.epoch,
        wake=body.wake,
    )
