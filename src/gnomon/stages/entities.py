"""The verbs of those who change entities from outside: put, patch, get, delete, list, explain."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec

from gnomon.contracts.clock import Entropy
from gnomon.contracts.store import Installation, Store
from gnomon.contracts.store.entities import (
    Entity,
    EntityWrite,
    StageState,
    StateWrite,
)
from gnomon.contracts.store.outbox import RELAY_SINK
from gnomon.contracts.store.queues import Enqueue
from gnomon.contracts.store.register import RELAY_REVISION, StageRecord, StageRegister
from gnomon.model.errors import FailedPrecondition, InvalidSpec, NotFound, VersionConflict
from gnomon.model.ids import action_id, shard_of
from gnomon.model.stage.patch import Patch, apply_patch
from gnomon.model.stage.paths import WHOLE, changed_paths
from gnomon.stages.codec import UndecodableError, decode_document, encode_document
from gnomon.stages.explain import Explanation, ParkedRow, explained, parked_row
from gnomon.stages.stage_run import STATE_CAS

TRIES_MAX = 10  # of a patch against others who change the same entity
LIST_MAX = 1_000
CHANGES_SHOWN = 50
USER = "user"
PAGE_STEP = 50
PAGE_CHARS_MAX = 512 * 1024  # of documents; they may be twice as many bytes, or more


class EntityPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some entities in order of id; `next` is where the next page begins, None at the end."""

    entities: Sequence[Entity]
    next: str | None


class ExpectedVersion(NamedTuple):
    """What a change was made for; None: whatever is there."""

    version: int | None
    epoch: int | None = None

    def check(self, entity_id: str, *, epoch: int, version: int) -> None:
        """Errors: VersionConflict."""
        if self.epoch is not None and self.epoch != epoch:
            wanted = f"{self.epoch}.{self.version or ''}"
            raise VersionConflict(entity_id, expected=wanted, found=f"{epoch}.{version}")
        if self.version is not None and self.version != version:
            raise VersionConflict(entity_id, expected=self.version, found=version)


class Entities:
    """Entities of an installation. What is written here is asked about by the shard's owner."""

    def __init__(
        self, store: Store, installation: Installation, *, entropy: Entropy, has_relay: bool = False
    ) -> None:
        self._store = store
        self._declares_relay = has_relay  # the register is to know it before the first save
        self._entities = store.entities
        self._queues = store.queues
        self._register = store.register
        self._shard_count = installation.shard_count
        self._entropy = entropy

    # -- changing ---------------------------------------------------------------------------------

    async def put(
        self,
        entity_id: str,
        document: object,
        *,
        if_version: int | None = None,
        if_epoch: int | None = None,
        by: str = USER,
    ) -> Entity:
        """Create or replace. `if_version` 0: only create. Errors: VersionConflict."""
        text = encode_document(document)
        expected = ExpectedVersion(if_version, if_epoch)
        return await self._change(entity_id, lambda was: _replaced(was, text), expected, by=by)

    async def patch(
        self,
        entity_id: str,
        patch: Patch,
        *,
        if_version: int | None = None,
        if_epoch: int | None = None,
        by: str = USER,
    ) -> Entity:
        """Apply a merge patch (a mapping) or a JSON patch (a list). Errors: NotFound,
        VersionConflict."""

        def patched(was: str | None) -> _NewDocument:
            if was is None:
                raise NotFound("entity", entity_id)
            try:
                before = decode_document(was)
            except UndecodableError:
                raise FailedPrecondition(
                    entity_id, state="unreadable", wanted="put whole", kind="entity"
                ) from None
            after = apply_patch(before, patch)
            return _NewDocument(encode_document(after), changed_paths(before, after, patch))

        return await self._change(entity_id, patched, ExpectedVersion(if_version, if_epoch), by=by)

    async def delete(
        self,
        entity_id: str,
        *,
        if_version: int | None = None,
        if_epoch: int | None = None,
        by: str = USER,
    ) -> None:
        """Remove it with all its rows and timers. Errors: NotFound, VersionConflict."""

        def removed(was: str | None) -> _NewDocument:
            if was is None:
                raise NotFound("entity", entity_id)
            return _NewDocument(None, (WHOLE,))

        await self._change(entity_id, removed, ExpectedVersion(if_version, if_epoch), by=by)

    async def put_many(self, documents: Mapping[str, object], *, by: str = USER) -> int:
        """Create or replace many; how many were changed by it."""
        left: Mapping[str, int] = {action_id(each): self._shard(each) for each in documents}
        writes: list[EntityWrite] = []
        while left:  # what is there is loaded a batch at a time: the documents may be large
            found = await self._entities.get_many(left)
            for entity_id in [each for each in left if each not in found.left]:
                before = found.entities.get(entity_id)
                text = encode_document(documents[entity_id])
                new = _replaced(None if before is None else before.doc, text)
                write = self._write(entity_id, before, new, by)
                if write is not None:
                    writes.append(write)
            left = found.left
        stored = await self._store_writes(writes)
        for write, entity in zip(writes, stored, strict=True):
            if entity is None:
                await self.put(write.id, documents[write.id], by=by)
        return len(writes)

    async def _change(
        self,
        entity_id: str,
        make: Callable[[str | None], _NewDocument],
        expected: ExpectedVersion,
        *,
        by: str,
    ) -> Entity:
        version = 0
        for _ in range(TRIES_MAX):
            before = await self._base(entity_id)
            living = before if before is not None and before.doc is not None else None
            version = 0 if living is None else living.version
            expected.check(entity_id, epoch=0 if living is None else living.epoch, version=version)
            write = self._write(entity_id, before, make(living.doc if living else None), by)
            if write is None:
                assert living is not None
                return living
            [entity] = await self._store_writes([write])
            if entity is not None:
                return entity
        raise VersionConflict(entity_id, expected=version, found=version + 1)

    async def _base(self, entity_id: str) -> Entity | None:
        action_id(entity_id)
        return await self._entities.get(entity_id, shard=self._shard(entity_id))

    def _write(
        self, entity_id: str, before: Entity | None, new: _NewDocument, by: str
    ) -> EntityWrite | None:
        """None if it would change nothing: a write that changes nothing is not a change."""
        if not new.paths:
            return None
        living = before if before is not None and before.doc is not None else None
        return EntityWrite(
            id=entity_id,
            shard=self._shard(entity_id),
            doc=new.text,
            base=None if living is None else (living.epoch, living.version),
            paths=new.paths,
            author=by,
            root=self._entropy.token(),
        )

    def is_of(self, store: Store) -> bool:
        """Whether it works on this store."""
        return self._store is store

    async def _store_writes(self, writes: Sequence[EntityWrite]) -> Sequence[Entity | None]:
        if self._declares_relay:
            await declare_relay(self._register)
            self._declares_relay = False
        stored = await self._entities.write(writes)
        self._store.wakeups.hint({write.shard for write in writes})
        return stored

    # -- reading ----------------------------------------------------------------------------------

    async def get(self, entity_id: str) -> Entity:
        """The living entity. Errors: NotFound."""
        found = await self._base(entity_id)
        if found is None or found.doc is None:
            raise NotFound("entity", entity_id)
        return found

    async def list(
        self, *, after: str | None = None, prefix: str = "", limit: int = 100
    ) -> Sequence[Entity]:
        """Living entities in order of their id, a page."""
        _check_limit(limit)
        return await self._entities.list(after=after, prefix=prefix, limit=limit)

    async def page(
        self, *, after: str | None = None, prefix: str = "", limit: int = 100
    ) -> EntityPage:
        """The same, shorter if the documents are large, and where the next page begins."""
        _check_limit(limit)
        found: list[Entity] = []
        size = 0
        while len(found) < limit:
            wanted = min(PAGE_STEP, limit - len(found))
            some = await self._entities.list(after=after, prefix=prefix, limit=wanted)
            for entity in some:
                size += len(entity.doc or "")
                if found and size > PAGE_CHARS_MAX:
                    return EntityPage(entities=found, next=found[-1].id)
                found.append(entity)
            if len(some) < wanted:
                return EntityPage(entities=found, next=None)
            after = found[-1].id
        return EntityPage(entities=found, next=after)

    async def explain(self, entity_id: str) -> Explanation:
        """Why it is in which queue, by what chain, waiting for what, and its next timers."""
        entity = await self.get(entity_id)
        shard = self._shard(entity_id)
        rows = await self._queues.rows(entity_id, shard=shard)
        changes = await self._entities.changes(entity_id, shard=shard, limit=CHANGES_SHOWN)
        now = await self._store.installation.now()
        return explained(entity, rows, changes, await self._register.registered(), now=now)

    # -- states -----------------------------------------------------------------------------------

    async def state(self, stage: str, entity_id: str) -> tuple[Entity, StageState | None]:
        """A stage's state beside its entity. Errors: NotFound."""
        entity, state = await self._entities.state(
            entity_id, stage, shard=self._shard(action_id(entity_id))
        )
        if entity is None or entity.doc is None:
            raise NotFound("entity", entity_id)
        return entity, state

    async def swap_state(
        self,
        stage: str,
        entity_id: str,
        state: StateWrite,
        *,
        version: int,
        epoch: int | None = None,
        wake: bool = True,
        by: str = USER,
    ) -> StageState | None:
        """Compare-and-set; None if the version (or the entity's epoch) is another one by now.
        Wakes that stage alone."""
        entity, _ = await self.state(stage, entity_id)
        shard = self._shard(entity_id)
        enqueue = Enqueue(stage=stage, reason=STATE_CAS, root=self._entropy.token(), frees=True)
        stored = await self._entities.swap_state(
            entity_id,
            stage,
            shard=shard,
            epoch=entity.epoch if epoch is None else epoch,
            version=version,
            state=state,
            enqueue=enqueue if wake else None,
            actor=by,
        )
        if stored is not None:
            self._store.wakeups.hint({shard})
        return stored

    # -- stages -----------------------------------------------------------------------------------

    async def stages(self) -> Sequence[StageRecord]:
        """All stages the register knows, with what is in their queues."""
        return [each for each in await self._register.stages() if each.name != RELAY_SINK]

    async def backfill_stage(
        self, stage: str, *, unless_within: timedelta | None = None, by: str = USER
    ) -> bool:
        """Walk the whole base for a stage, in the background lane. Errors: NotFound."""
        await self.registered(stage)
        began = await self._register.begin_backfill(
            stage, reason="backfill by hand", unless_within=unless_within, actor=by
        )
        self._store.wakeups.hint(())
        return began

    async def forget_stage(self, stage: str, *, by: str = USER) -> int:
        """Remove a stage's queue, timers, states and register entry. Errors: NotFound."""
        await self.registered(stage)
        return await self._register.forget(stage, actor=by)

    async def parked(
        self,
        *,
        stage: str | None = None,
        after: tuple[str, str] | None = None,
        limit: int = 100,
    ) -> Sequence[ParkedRow]:
        """What waits for a person: quarantined and looping rows, undelivered saves. A page of so
        many (entity, stage)."""
        _check_limit(limit)
        rows = await self._queues.parked(stage=stage, after=after, limit=limit)
        return [parked_row(row) for row in rows]

    async def release(self, entity_id: str, stage: str | None = None, *, by: str = USER) -> int:
        """Free parked rows and undelivered saves by hand; how many."""
        shard = self._shard(action_id(entity_id))
        freed = await self._queues.release(entity_id, stage, shard=shard, actor=by)
        self._store.wakeups.hint({shard})
        return freed

    async def registered(self, stage: str) -> StageRecord:
        """What the register knows of a stage. Errors: NotFound."""
        for record in await self._register.registered():
            if record.name == stage:
                return record
        raise NotFound("stage", stage)

    def _shard(self, entity_id: str) -> int:
        return shard_of(entity_id, self._shard_count)


class _NewDocument(NamedTuple):
    """What a change makes of an entity; without a text it is deleted, without paths the same."""

    text: str | None
    paths: tuple[str, ...]


def _replaced(was: str | None, text: str) -> _NewDocument:
    """A document instead of another; all of one that is not there, or cannot be read, changes."""
    if was is None:
        return _NewDocument(text, (WHOLE,))
    if was == text:
        return _NewDocument(text, ())
    try:
        before = decode_document(was)
    except UndecodableError:
        return _NewDocument(text, (WHOLE,))
    return _NewDocument(text, changed_paths(before, decode_document(text)))


async def declare_relay(register: StageRegister) -> None:
    """From now on every save goes to the relay, whoever makes it."""
    relay = {RELAY_SINK: RELAY_REVISION}
    await register.declare(relay, formerly={}, backfill=(), debounce={}, reach={})


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= LIST_MAX:
        raise InvalidSpec("limit", f"must be between 1 and {LIST_MAX}", got=limit)


def document_of(entity: Entity, kind: Any = None) -> Any:
    """An entity's document, decoded into the given type or a plain dict."""
    assert entity.doc is not None
    return msgspec.json.decode(entity.doc, type=kind) if kind else decode_document(entity.doc)
