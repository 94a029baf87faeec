"""The rpcs of entities and states: each reads a request, calls one verb, and answers."""

from __future__ import annotations

from typing import Any

import msgspec

from gnomon.contracts.store.entities import Entity
from gnomon.gateways.entities import (
    StateSwap,
    check_documents,
    page_of_parked,
    read_document,
    read_json_patch,
    read_merge_patch,
    show_entity,
    stage_name,
    swap_state,
)
from gnomon.gateways.grpc.boundary import Caller
from gnomon.gateways.grpc.conversion import read_text, write_fields
from gnomon.gateways.redaction import Sight
from gnomon.model.errors import InvalidSpec
from gnomon.model.ids import entity_key
from gnomon.model.stage.patch import Patch
from gnomon.stages.entities import Entities
from gnomon.stages.wire import read_state, write_state
from gnomon.v1 import entity_pb2 as pb
from gnomon.v1 import stage_pb2

LIMIT_DEFAULT = 100


class EntityRpcs:
    """`gnomon.v1.EntityService`; one method for each rpc, of the same name."""

    def __init__(self, entities: Entities) -> None:
        self._entities = entities

    # -- change -----------------------------------------------------------------------------------

    async def put_entity(
        self, request: pb.PutEntityRequest, caller: Caller
    ) -> pb.PutEntityResponse:
        document = read_document(request.document)
        caller.sight.check_document(document)
        entity = await self._entities.put(
            request.kind, request.id, document, **_expected(request), by=caller.name
        )
        return pb.PutEntityResponse(entity=write_entity(entity, caller.sight))

    async def put_entities(
        self, request: pb.PutEntitiesRequest, caller: Caller
    ) -> pb.PutEntitiesResponse:
        documents: dict[str, Any] = {}
        for item in request.entities:
            if item.id in documents:
                raise InvalidSpec("entities", "has an id twice", got=item.id)
            documents[item.id] = read_document(item.document)
            caller.sight.check_document(documents[item.id])
        changed = await self._entities.put_many(
            request.kind, check_documents(documents), by=caller.name
        )
        return pb.PutEntitiesResponse(changed=changed)

    async def patch_entity(
        self, request: pb.PatchEntityRequest, caller: Caller
    ) -> pb.PatchEntityResponse:
        patch = read_patch(request)
        caller.sight.check_patch(patch)
        entity = await self._entities.patch(
            request.kind, request.id, patch, **_expected(request), by=caller.name
        )
        return pb.PatchEntityResponse(entity=write_entity(entity, caller.sight))

    async def delete_entity(
        self, request: pb.DeleteEntityRequest, caller: Caller
    ) -> pb.DeleteEntityResponse:
        await self._entities.delete(request.kind, request.id, **_expected(request), by=caller.name)
        return pb.DeleteEntityResponse()

    async def release_entity(
        self, request: pb.ReleaseEntityRequest, caller: Caller
    ) -> pb.ReleaseEntityResponse:
        stage = stage_name(request.stage) if request.HasField("stage") else None
        released = await self._entities.release(request.kind, request.id, stage, by=caller.name)
        return pb.ReleaseEntityResponse(released=released)

    async def backfill_stage(
        self, request: pb.BackfillStageRequest, caller: Caller
    ) -> pb.BackfillStageResponse:
        await self._entities.backfill_stage(stage_name(request.stage), by=caller.name)
        return pb.BackfillStageResponse()

    async def forget_stage(
        self, request: pb.ForgetStageRequest, caller: Caller
    ) -> pb.ForgetStageResponse:
        removed = await self._entities.forget_stage(stage_name(request.stage), by=caller.name)
        return pb.ForgetStageResponse(removed=removed)

    # -- look -------------------------------------------------------------------------------------

    async def get_entity(
        self, request: pb.GetEntityRequest, caller: Caller
    ) -> pb.GetEntityResponse:
        entity = await self._entities.get(request.kind, request.id)
        return pb.GetEntityResponse(entity=write_entity(entity, caller.sight))

    async def list_entities(
        self, request: pb.ListEntitiesRequest, caller: Caller
    ) -> pb.ListEntitiesResponse:
        page = await self._entities.page(
            request.kind,
            after=_text_or_none(request, "after"),
            prefix=_text_or_none(request, "id_prefix") or "",
            limit=_limit(request),
        )
        entities = [write_entity(entity, caller.sight) for entity in page.entities]
        return pb.ListEntitiesResponse(entities=entities, next=page.next)

    async def explain_entity(
        self, request: pb.ExplainEntityRequest, caller: Caller
    ) -> pb.ExplainEntityResponse:
        answer = pb.ExplainEntityResponse()
        explanation = await self._entities.explain(request.kind, request.id)
        explanation = caller.sight.see_explanation(explanation)
        write_fields(answer.explanation, msgspec.structs.asdict(explanation))
        return answer

    async def list_parked(
        self, request: pb.ListParkedRequest, caller: Caller
    ) -> pb.ListParkedResponse:
        stage = _text_or_none(request, "stage")
        rows, next_page = await page_of_parked(
            self._entities,
            kind=_text_or_none(request, "kind"),
            stage=None if stage is None else stage_name(stage),
            after=_text_or_none(request, "after"),
            limit=_limit(request),
        )
        answer = pb.ListParkedResponse(next=next_page)
        write_fields(answer, {"rows": list(caller.sight.see_parked(rows))})
        return answer

    async def list_stages(
        self, _request: pb.ListStagesRequest, _caller: Caller
    ) -> pb.ListStagesResponse:
        answer = pb.ListStagesResponse()
        records = await self._entities.stages()
        write_fields(answer, {"stages": list(records)})
        return answer


class StateRpcs:
    """`gnomon.v1.StateService`."""

    def __init__(self, entities: Entities) -> None:
        self._entities = entities

    async def read(self, request: pb.ReadRequest, caller: Caller) -> pb.ReadResponse:
        entity, state = await self._entities.state(
            request.kind, request.entity_id, stage_name(request.stage)
        )
        state = caller.sight.see_state(state)
        return pb.ReadResponse(
            entity_epoch=entity.epoch,
            entity_version=entity.version,
            state=None if state is None else write_state(state),
        )

    async def compare_and_set(
        self, request: pb.CompareAndSetRequest, caller: Caller
    ) -> pb.CompareAndSetResponse:
        if request.expected_version < 0:
            raise InvalidSpec("expected_version", "must not be negative")
        swap = StateSwap(
            stage=request.stage,
            key=entity_key(request.kind, request.entity_id),
            version=request.expected_version,
            write=read_state(request.state, revision=request.state.revision),
            epoch=request.entity_epoch if request.HasField("entity_epoch") else None,
            wake=not request.leave_asleep,
        )
        caller.sight.check_state(swap.write.body)
        _, current, is_stored = await swap_state(self._entities, swap, by=caller.name)
        current = caller.sight.see_state(current)
        return pb.CompareAndSetResponse(
            stored=is_stored, current=None if current is None else write_state(current)
        )


# -- messages -------------------------------------------------------------------------------------


def write_entity(entity: Entity, sight: Sight) -> stage_pb2.Entity:
    message = stage_pb2.Entity()
    write_fields(message, msgspec.structs.asdict(sight.see_entity(show_entity(entity))))
    return message


def read_patch(message: pb.PatchEntityRequest) -> Patch:
    """Errors: InvalidSpec, InvalidRequest."""
    match message.WhichOneof("patch"):
        case "merge_patch":
            return read_merge_patch(message.merge_patch)
        case "json_patch":
            return read_json_patch(message.json_patch)
    raise InvalidSpec("update", "give merge_patch or json_patch")


def _expected(message: Any) -> dict[str, int | None]:
    return {
        name: getattr(message, name) if message.HasField(name) else None
        for name in ("if_version", "if_epoch")
    }


def _limit(message: Any) -> int:
    limit: int = message.limit if message.HasField("limit") else LIMIT_DEFAULT
    return limit


def _text_or_none(message: Any, name: str) -> str | None:
    return read_text(getattr(message, name), name) if message.HasField(name) else None
