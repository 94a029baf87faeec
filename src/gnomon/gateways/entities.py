"""Entities for callers from outside: what they send, what they are shown, the same over REST and
gRPC. The rules are those of `stages.entities`."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from gnomon.clock import SystemEntropy
from gnomon.contracts.store.entities import Entity, StageState, StateWrite
from gnomon.model.codec import parse_json
from gnomon.model.errors import InvalidSpec, VersionConflict
from gnomon.model.ids import NAME_PATTERN, EntityKey, action_id, entity_key
from gnomon.model.stage.json_patch import DOCUMENT_BYTES_MAX, JsonPatch
from gnomon.model.stage.patch import MergePatch
from gnomon.scheduler import Scheduler
from gnomon.stages.codec import (
    STATE_BYTES_MAX,
    canonical_json,
    check_type_name,
    is_document,
    is_json_text,
)
from gnomon.stages.entities import Entities
from gnomon.stages.explain import ParkedRow

DOCUMENT_KEYS_MAX = 50_000
DOCUMENTS_MAX = 1_000  # in one call
DOCUMENTS_BYTES_MAX = 8 * 1024 * 1024
DOCUMENTS_KEYS_MAX = 500_000
# The base64 of a state, and what is around it.
STATE_BODY_BYTES_MAX = STATE_BYTES_MAX * 4 // 3 + 4096
REVISION_MAX = 2**31 - 1


# -- what is shown --------------------------------------------------------------------------------


class EntityAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An entity as it is shown."""

    kind: str
    id: str
    epoch: int
    version: int
    shard: int
    changed_at: datetime
    document: msgspec.Raw  # null: what is stored cannot be read; put it whole, or delete it

    @property
    def etag(self) -> str:
        """Which life of the id, and which version in it."""
        return f'"{self.epoch}.{self.version}"'


class StateAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A stage's state beside an entity: JSON, or bytes in base64: those of a protobuf message, or,
    without a type, what is stored and cannot be read."""

    kind: str
    entity_id: str
    stage: str
    entity_epoch: int
    entity_version: int
    version: int  # 0: there is none
    revision: int | None = None
    state: msgspec.Raw | None = None
    type: str | None = None
    message: bytes | None = None


def show_entity(entity: Entity) -> EntityAnswer:
    assert entity.doc is not None
    is_readable = is_document(entity.doc)
    return EntityAnswer(
        kind=entity.kind,
        id=entity.id,
        epoch=entity.epoch,
        version=entity.version,
        shard=entity.shard,
        changed_at=entity.changed_at,
        document=msgspec.Raw(entity.doc if is_readable else "null"),
    )


def show_state(entity: Entity, stage: str, state: StageState | None) -> StateAnswer:
    is_json = state is not None and state.type is None and is_json_text(state.body)
    return StateAnswer(
        kind=entity.kind,
        entity_id=entity.id,
        stage=stage,
        entity_epoch=entity.epoch,
        entity_version=entity.version,
        version=0 if state is None else state.version,
        revision=None if state is None else state.revision,
        state=msgspec.Raw(state.body) if state is not None and is_json else None,
        type=None if state is None else state.type,
        message=state.body if state is not None and not is_json else None,
    )


# -- what is sent ---------------------------------------------------------------------------------


def read_document(body: bytes) -> dict[str, Any]:
    """An entity's document. Errors: InvalidRequest."""
    value = parse_json(body, bytes_max=DOCUMENT_BYTES_MAX, keys_max=DOCUMENT_KEYS_MAX)
    if not isinstance(value, dict):
        raise InvalidSpec("document", "must be a JSON object")
    return value


def read_documents(body: bytes) -> dict[str, dict[str, Any]]:
    """`{"entities": {"<id>": {…}, …}}`; a bad one names itself. Errors: InvalidRequest."""
    value = parse_json(body, bytes_max=DOCUMENTS_BYTES_MAX, keys_max=DOCUMENTS_KEYS_MAX)
    documents = value.get("entities") if isinstance(value, dict) and len(value) == 1 else None
    if not isinstance(documents, dict):
        raise InvalidSpec("body", 'must be an object with one field: {"entities": {"<id>": {…}}}')
    return check_documents(documents)


def check_documents(documents: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Errors: InvalidRequest."""
    if len(documents) > DOCUMENTS_MAX:
        raise InvalidSpec("entities", f"has {len(documents)}; at most {DOCUMENTS_MAX} a call")
    for entity_id, document in documents.items():
        action_id(entity_id)
        if not isinstance(document, dict):
            raise InvalidSpec(f"entities.{entity_id}", "must be a JSON object")
    return documents


def read_merge_patch(body: bytes) -> MergePatch:
    """Errors: InvalidRequest."""
    value = parse_json(body, bytes_max=DOCUMENT_BYTES_MAX, keys_max=DOCUMENT_KEYS_MAX)
    if not isinstance(value, dict):
        raise InvalidSpec("merge_patch", "must be a JSON object")
    return value


def read_json_patch(body: bytes) -> JsonPatch:
    """Errors: InvalidRequest."""
    value = parse_json(body, bytes_max=DOCUMENT_BYTES_MAX, keys_max=DOCUMENT_KEYS_MAX)
    if not isinstance(value, list) or not all(isinstance(operation, dict) for operation in value):
        raise InvalidSpec("json_patch", "must be a JSON list of operations")
    return value


def stage_name(text: str) -> str:
    """A stage's name as callers write it. Errors: InvalidSpec."""
    if not NAME_PATTERN.fullmatch(text) or text in (".", ".."):
        raise InvalidSpec("stage", "must be 1 to 64 characters out of A-Z a-z 0-9 . _ -", got=text)
    return text


def read_message(type_name: str, text: str) -> StateWrite:
    """A protobuf message that came as base64. Errors: InvalidSpec."""
    check_type_name(type_name)
    try:
        body = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidSpec("message", "must be base64") from None
    return StateWrite(body=body, revision=0, type=type_name)


def read_json_state(value: object) -> StateWrite:
    """A state that came as JSON."""
    return StateWrite(body=canonical_json(msgspec.json.encode(value)), revision=0)


async def page_of_parked(
    entities: Entities, *, kind: str | None, stage: str | None, after: str | None, limit: int
) -> tuple[Sequence[ParkedRow], str | None]:
    """A page of parked rows, and where the next one begins: `kind/id/stage`, or None at the end.
    Errors: InvalidSpec."""
    rows = await entities.parked(kind=kind, stage=stage, after=_parked_place(after), limit=limit)
    places = list(dict.fromkeys((row.kind, row.entity_id, row.stage) for row in rows))
    return rows, "/".join(places[-1]) if len(places) == limit else None


def _parked_place(text: str | None) -> tuple[str, str] | None:
    """The entity's key and the stage after which a page begins."""
    if text is None:
        return None
    if text.count("/") != 2:
        raise InvalidSpec("after", "must be the `next` of a page", got=text)
    kind, entity_id, stage = text.split("/")
    return str(entity_key(kind, entity_id)), stage_name(stage)


def entities_of(scheduler: Scheduler) -> Entities:
    """The verbs over a scheduler's store, for a process that knows of no relay."""
    return Entities(scheduler.store, scheduler.installation, entropy=SystemEntropy())


# -- compare and set ------------------------------------------------------------------------------


class StateSwap(msgspec.Struct, frozen=True, kw_only=True):
    """A new state of a stage, if the stored one has the expected version."""

    stage: str
    key: EntityKey
    version: int  # expected; 0: there is none
    write: StateWrite  # revision 0: that of the stored one, or of the stage
    epoch: int | None = None  # of the entity; None: the present one
    wake: bool = True


async def swap_state(
    entities: Entities, swap: StateSwap, *, by: str
) -> tuple[Entity, StageState | None, bool]:
    """The entity, the state that is there now, and whether it is the new one. Errors: NotFound."""
    stage, write = stage_name(swap.stage), swap.write
    entity, before = await entities.state(*swap.key, stage)
    if not 0 <= write.revision <= REVISION_MAX:
        raise InvalidSpec("revision", "must be at least 1", got=write.revision)
    if len(write.body) > STATE_BYTES_MAX:
        raise InvalidSpec("state", f"must have at most {STATE_BYTES_MAX} bytes")
    if not write.revision:
        revision = before.revision if before else (await entities.registered(stage)).revision
        write = msgspec.structs.replace(write, revision=revision)
    stored = await entities.swap_state(
        *swap.key, stage, write, version=swap.version, epoch=swap.epoch, wake=swap.wake, by=by
    )
    if stored is not None:
        return entity, stored, True
    return *await entities.state(*swap.key, stage), False


def conflict_of(swap: StateSwap, entity: Entity, current: StageState | None) -> VersionConflict:
    """Why a state was not stored."""
    version = 0 if current is None else current.version
    if swap.epoch is not None and swap.epoch != entity.epoch:
        return VersionConflict(str(swap.key), expected=f"{swap.epoch}.", found=f"{entity.epoch}.")
    return VersionConflict(swap.stage, expected=swap.version, found=version, kind="state of")
