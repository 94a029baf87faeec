"""Entities from anywhere: the verbs, values and errors of the API in process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from types import NoneType
from typing import Any, Protocol, TypeVar
from urllib.parse import quote

import msgspec

from gnomon.contracts.store.entities import Entity, StageState, StateWrite
from gnomon.contracts.store.register import StageRecord
from gnomon.model.errors import Conflict, InvalidRequest
from gnomon.model.ids import NAME_PATTERN, EntityKey, action_id, entity_kind
from gnomon.model.stage.patch import Patch
from gnomon.stages.entities import EntityPage
from gnomon.stages.explain import Explanation, ParkedRow

MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
DOCUMENTS_MAX = 1_000  # in one call
DOCUMENTS_BYTES_MAX = 4 * 1024 * 1024  # half of what a server takes: there is more around them

T = TypeVar("T")


class Send(Protocol):
    """One call of the REST API."""

    async def __call__(
        self,
        method: str,
        path: str,
        answer: type[T],
        *,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        query: Sequence[tuple[str, str]] = (),
    ) -> T: ...


class _EntityAnswer(msgspec.Struct):
    kind: str
    id: str
    epoch: int
    version: int
    shard: int
    changed_at: datetime
    document: msgspec.Raw

    def entity(self) -> Entity:
        return Entity(
            key=str(EntityKey(self.kind, self.id)),
            shard=self.shard,
            epoch=self.epoch,
            version=self.version,
            doc=bytes(self.document).decode(),
            changed_at=self.changed_at,
        )


class _EntitiesAnswer(msgspec.Struct):
    entities: list[_EntityAnswer]
    next: str | None = None


class _StateAnswer(msgspec.Struct):
    version: int
    revision: int | None = None
    state: msgspec.Raw = msgspec.Raw(b"")
    type: str | None = None
    message: bytes | None = None

    def stored(self) -> StageState | None:
        if not self.version:
            return None
        body = bytes(self.state) if self.message is None else self.message
        return StageState(
            version=self.version, revision=self.revision or 1, body=body, type=self.type
        )


class _ParkedAnswer(msgspec.Struct):
    parked: list[ParkedRow]


class _StagesAnswer(msgspec.Struct):
    stages: list[StageRecord]


class EntityClient:
    """Entities of the installation that a server is of."""

    def __init__(self, call: Send) -> None:
        self._call = call

    # -- change -----------------------------------------------------------------------------------

    async def put(
        self,
        kind: str,
        entity_id: str,
        document: object,
        *,
        if_version: int | None = None,
        if_epoch: int | None = None,
    ) -> Entity:
        """Create or replace. `if_version` 0: only create. Errors: Conflict."""
        headers = _expected(if_version, if_epoch)
        answer = await self._call(
            "PUT", _path(kind, entity_id), _EntityAnswer, body=document, headers=headers
        )
        return answer.entity()

    async def put_many(self, kind: str, documents: Mapping[str, object]) -> int:
        """Create or replace many of one kind, in as many calls as they need; how many were changed
        by it."""
        changed = 0
        for some in _calls(documents):
            answer = await self._call(
                "POST", f"{_kind_path(kind)}:bulk", dict[str, int], body={"entities": some}
            )
            changed += answer["changed"]
        return changed

    async def patch(
        self,
        kind: str,
        entity_id: str,
        patch: Patch,
        *,
        if_version: int | None = None,
        if_epoch: int | None = None,
    ) -> Entity:
        """Apply a merge patch (a mapping) or a JSON patch (a list). Errors: NotFound, Conflict."""
        content_type = MERGE_PATCH if isinstance(patch, Mapping) else JSON_PATCH
        headers = {**_expected(if_version, if_epoch), "Content-Type": content_type}
        answer = await self._call(
            "PATCH", _path(kind, entity_id), _EntityAnswer, body=patch, headers=headers
        )
        return answer.entity()

    async def delete(
        self,
        kind: str,
        entity_id: str,
        *,
        if_version: int | None = None,
        if_epoch: int | None = None,
    ) -> None:
        """Remove it with all its rows and timers. Errors: NotFound, Conflict."""
        headers = _expected(if_version, if_epoch)
        await self._call("DELETE", _path(kind, entity_id), NoneType, headers=headers)

    async def release(self, kind: str, entity_id: str, stage: str | None = None) -> int:
        """Let stages that gave it up look at it again; how many."""
        query = [] if stage is None else [("stage", _name(stage))]
        path = f"{_path(kind, entity_id)}/release"
        return (await self._call("POST", path, dict[str, int], query=query))["released"]

    # -- look -------------------------------------------------------------------------------------

    async def get(self, kind: str, entity_id: str) -> Entity:
        """The entity. Errors: NotFound."""
        return (await self._call("GET", _path(kind, entity_id), _EntityAnswer)).entity()

    async def page(
        self, kind: str, *, after: str | None = None, prefix: str = "", limit: int = 100
    ) -> EntityPage:
        """Entities of a kind in order of id."""
        query = [("limit", str(limit)), *([("after", after)] if after is not None else [])]
        if prefix:
            query.append(("id_prefix", prefix))
        answer = await self._call("GET", _kind_path(kind), _EntitiesAnswer, query=query)
        entities = [item.entity() for item in answer.entities]
        return EntityPage(entities=entities, next=answer.next)

    async def explain(self, kind: str, entity_id: str) -> Explanation:
        """Why it is in which queue, by what chain, waiting for what. Errors: NotFound."""
        return await self._call("GET", f"{_path(kind, entity_id)}/explain", Explanation)

    async def parked(
        self,
        *,
        kind: str | None = None,
        stage: str | None = None,
        after: tuple[str, str] | None = None,
        limit: int = 100,
    ) -> Sequence[ParkedRow]:
        """What waits for a person, in order of (entity, stage)."""
        query = [("limit", str(limit))]
        if kind is not None:
            query.append(("kind", entity_kind(kind)))
        if stage is not None:
            query.append(("stage", _name(stage)))
        if after is not None:
            query.append(("after", "/".join(after)))
        return (await self._call("GET", "/v1/parked", _ParkedAnswer, query=query)).parked

    # -- states -----------------------------------------------------------------------------------

    async def state(self, kind: str, entity_id: str, stage: str) -> StageState | None:
        """What a stage remembers of an entity; None: nothing. Errors: NotFound."""
        answer = await self._call("GET", _state_path(kind, entity_id, stage), _StateAnswer)
        return answer.stored()

    async def swap_state(
        self,
        kind: str,
        entity_id: str,
        stage: str,
        state: StateWrite,
        *,
        version: int,
        epoch: int | None = None,
        wake: bool = True,
    ) -> StageState | None:
        """Compare-and-set; None if the version (or the entity's epoch) is another one by now.
        Errors: NotFound."""
        body: dict[str, Any] = {"version": version, "revision": state.revision, "wake": wake}
        if epoch is not None:
            body["epoch"] = epoch
        if state.type is None:
            body["state"] = msgspec.Raw(state.body)
        else:
            body |= {"type": state.type, "message": state.body}
        try:
            answer = await self._call(
                "PUT", _state_path(kind, entity_id, stage), _StateAnswer, body=body
            )
        except Conflict:
            return None
        return answer.stored()

    # -- stages -----------------------------------------------------------------------------------

    async def stages(self) -> Sequence[StageRecord]:
        """All stages, with what is in their queues."""
        return (await self._call("GET", "/v1/stages", _StagesAnswer)).stages

    async def backfill_stage(self, stage: str) -> None:
        """Show a stage all entities of its kind once, in the background. Errors: NotFound."""
        await self._call("POST", f"/v1/stages/{_name(stage)}/backfill", dict[str, str])

    async def forget_stage(self, stage: str) -> int:
        """Remove a stage's queue, timers and states; how many rows. Errors: NotFound."""
        answer = await self._call("DELETE", f"/v1/stages/{_name(stage)}", dict[str, int])
        return answer["removed"]


def _expected(version: int | None, epoch: int | None) -> dict[str, str]:
    """The headers by which a write is refused unless the entity has this version; 0: unless there
    is none."""
    if version is None:
        if epoch is not None:
            raise InvalidRequest("if_epoch: needs if_version, too")
        return {}
    if version == 0:
        return {"If-None-Match": "*"}
    if epoch is None:
        return {"If-Match": f'"{version}"'}
    return {"If-Match": f'"{epoch}.{version}"'}


def _calls(documents: Mapping[str, object]) -> Iterator[dict[str, msgspec.Raw]]:
    """The documents by what one call may carry; one that is larger goes alone."""
    some: dict[str, msgspec.Raw] = {}
    size = 0
    for entity_id, document in documents.items():
        text = msgspec.json.encode(document)
        is_full = len(some) >= DOCUMENTS_MAX or size + len(text) > DOCUMENTS_BYTES_MAX
        if some and is_full:
            yield some
            some, size = {}, 0
        some[entity_id] = msgspec.Raw(text)
        size += len(text)
    if some:
        yield some


def _kind_path(kind: str) -> str:
    return f"/v1/entities/{entity_kind(kind)}"


def _path(kind: str, entity_id: str) -> str:
    return f"{_kind_path(kind)}/{quote(action_id(entity_id), safe='')}"


def _state_path(kind: str, entity_id: str, stage: str) -> str:
    return f"{_path(kind, entity_id)}/states/{_name(stage)}"


def _name(stage: str) -> str:
    if not NAME_PATTERN.fullmatch(stage) or stage in (".", ".."):
        raise InvalidRequest("stage: must be 1 to 64 characters out of A-Z a-z 0-9 . _ -")
    return stage
