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
from gnomon.contracts.store.register import RELAY_DECLARATION, StageRecord, StageRegister
from gnomon.contracts.store.tokens import PYTHON, through
from gnomon.model.errors import FailedPrecondition, InvalidSpec, NotFound, VersionConflict
from gnomon.model.ids import EntityKey, entity_key, entity_kind, shard_of
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
    """Entities of one kind in order of id; `next`: where the next page begins, None at the end."""

    entities: Sequence[Entity]
    next: str | None


class ExpectedVersion(NamedTuple):
    """What a change was made for; None: whatever is there."""

    version: int | None
    epoch: int | None = None

    def check(self, key: EntityKey, *, epoch: int, version: int) -> None:
        """Errors: VersionConflict."""
        if self.epoch is not None and self.epoch != epoch:
            wanted = f"{self.epoch}.{self.version or ''}"
            raise VersionConflict(str(key), expected=wanted, found=f"{epoch}.{version}")
        if self.version is not None and self.version != version:
            raise VersionConflict(str(key), expected=self.version, found=version)


class Entities:
    """Entities of an installation. What is written here is asked about by the shard's owner."""

    def __init__(
        self,
        store: Store,
        installation: Installation,
        *,
        entropy: Entropy,
        has_relay: bool = False,
        face: str = PYTHON,
    ) -> None:
        self._face = face  # of callers who do not say through which one they ask
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
        kind: str,
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
        return await self._change(
            entity_key(kind, entity_id), lambda was: _replaced(was, text), expected, by=by
        )

    async def patch(
        self,
        kind: str,
        entity_id: str,
        patch: Patch,
        *,
        if_version: int | None = None,
        if_epoch: int | None = None,
        by: str = USER,
    ) -> Entity:
        """Apply a merge patch (a mapping) or a JSON patch (a list). Errors: NotFound,
        VersionConflict."""
        key, expected = entity_key(kind, entity_id), ExpectedVersion(if_version, if_epoch)

        def patched(was: str | None) -> _NewDocument:
            if was is None:
                raise NotFound("entity", str(key))
            try:
                before = decode_document(was)
            except UndecodableError:
                raise FailedPrecondition(
                    str(key), state="unreadable", wanted="put whole", kind="entity"
                ) from None
            after = apply_patch(before, patch)
            return _NewDocument(encode_document(after), changed_paths(before, after, patch))

        return await self._change(key, patched, expected, by=by)

    async def delete(
        self,
        kind: str,
        entity_id: str,
        *,
        if_version: int | None = None,
        if_epoch: int | None = None,
        by: str = USER,
    ) -> None:
        """Remove it with all its rows and timers. Errors: NotFound, VersionConflict."""
        key = entity_key(kind, entity_id)

        def removed(was: str | None) -> _NewDocument:
            if was is None:
                raise NotFound("entity", str(key))
            return _NewDocument(None, (WHOLE,))

        await self._change(key, removed, ExpectedVersion(if_version, if_epoch), by=by)

    async def put_many(self, kind: str, documents: Mapping[str, object], *, by: str = USER) -> int:
        """Create or replace many of one kind; how many were changed by it."""
        entity_kind(kind)  # also if there are no documents
        sent = {str(entity_key(kind, entity_id)): doc for entity_id, doc in documents.items()}
        left: Mapping[str, int] = {key: self._shard(key) for key in sent}
        writes: list[EntityWrite] = []
        while left:  # what is there is loaded a batch at a time: the documents may be large
            batch = await self._entities.get_many(left)
            for key in [key for key in left if key not in batch.left]:
                before = batch.entities.get(key)
                text = encode_document(sent[key])
                new = _replaced(None if before is None else before.doc, text)
                write = self._write(key, before, new, by)
                if write is not None:
                    writes.append(write)
            left = batch.left
        stored = await self._store_writes(writes)
        for write, entity in zip(writes, stored, strict=True):
            if entity is None:
                await self.put(*EntityKey.parse(write.key), sent[write.key], by=by)
        return len(writes)

    async def _change(
        self,
        key: EntityKey,
        make: Callable[[str | None], _NewDocument],
        expected: ExpectedVersion,
        *,
        by: str,
    ) -> Entity:
        version = 0
        for _ in range(TRIES_MAX):
            before = await self._base(key)
            living = before if before is not None and before.doc is not None else None
            version = 0 if living is None else living.version
            expected.check(key, epoch=0 if living is None else living.epoch, version=version)
            write = self._write(str(key), before, make(living.doc if living else None), by)
            if write is None:
                assert living is not None
                return living
            [entity] = await self._store_writes([write])
            if entity is not None:
                return entity
        raise VersionConflict(str(key), expected=version, found=version + 1)

    async def _base(self, key: EntityKey) -> Entity | None:
        return await self._entities.get(str(key), shard=self._shard(str(key)))

    def _write(
        self, key: str, before: Entity | None, new: _NewDocument, by: str
    ) -> EntityWrite | None:
        """None if it would change nothing: a write that changes nothing is not a change."""
        if not new.paths:
            return None
        living = before if before is not None and before.doc is not None else None
        return EntityWrite(
            key=key,
            shard=self._shard(key),
            doc=new.text,
            base=None if living is None else (living.epoch, living.version),
            paths=new.paths,
            author=str(by),
            face=through(self._face, by).face,
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

    async def get(self, kind: str, entity_id: str) -> Entity:
        """The living entity. Errors: NotFound."""
        key = entity_key(kind, entity_id)
        entity = await self._base(key)
        if entity is None or entity.doc is None:
            raise NotFound("entity", str(key))
        return entity

    async def list(
        self, kind: str, *, after: str | None = None, prefix: str = "", limit: int = 100
    ) -> Sequence[Entity]:
        """Living entities of a kind in order of their id, fewer if the documents are large: `page`
        says whether there are more."""
        return (await self.page(kind, after=after, prefix=prefix, limit=limit)).entities

    async def page(
        self, kind: str, *, after: str | None = None, prefix: str = "", limit: int = 100
    ) -> EntityPage:
        """The same, shorter if the documents are large, and where the next page begins."""
        _check_limit(limit)
        entities: list[Entity] = []
        size = 0
        while len(entities) < limit:
            wanted = min(PAGE_STEP, limit - len(entities))
            some = await self._entities.list(
                after=None if after is None else str(EntityKey(kind, after)),
                prefix=str(EntityKey(entity_kind(kind), prefix)),
                limit=wanted,
            )
            for entity in some:
                size += len(entity.doc or "")
                if entities and size > PAGE_CHARS_MAX:
                    return EntityPage(entities=entities, next=entities[-1].id)
                entities.append(entity)
            if len(some) < wanted:
                return EntityPage(entities=entities, next=None)
            after = entities[-1].id
        return EntityPage(entities=entities, next=after)

    async def explain(self, kind: str, entity_id: str) -> Explanation:
        """Why it is in which queue, by what chain, waiting for what, and its next timers."""
        entity = await self.get(kind, entity_id)
        rows = await self._queues.rows(entity.key, shard=entity.shard)
        changes = await self._entities.changes(entity.key, shard=entity.shard, limit=CHANGES_SHOWN)
        now = await self._store.installation.now()
        return explained(entity, rows, changes, await self._register.registered(), now=now)

    # -- states -----------------------------------------------------------------------------------

    async def state(
        self, kind: str, entity_id: str, stage: str
    ) -> tuple[Entity, StageState | None]:
        """A stage's state beside its entity. Errors: NotFound."""
        key = str(entity_key(kind, entity_id))
        entity, state = await self._entities.state(key, stage, shard=self._shard(key))
        if entity is None or entity.doc is None:
            raise NotFound("entity", key)
        return entity, state

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
        by: str = USER,
    ) -> StageState | None:
        """Compare-and-set; None if the version (or the entity's epoch) is another one by now.
        Wakes that stage alone. Errors: NotFound; InvalidSpec, if the stage is of another kind."""
        entity, _ = await self.state(kind, entity_id, stage)
        record = await self.registered(stage)
        if record.kind != kind:
            raise InvalidSpec(
                "stage", f"is one of the kind {record.kind!r}, not {kind!r}", got=stage
            )
        enqueue = Enqueue(stage=stage, reason=STATE_CAS, root=self._entropy.token(), frees=True)
        stored = await self._entities.swap_state(
            entity.key,
            stage,
            shard=entity.shard,
            epoch=entity.epoch if epoch is None else epoch,
            version=version,
            state=state,
            enqueue=enqueue if wake else None,
            actor=through(self._face, by),
        )
        if stored is not None:
            self._store.wakeups.hint({entity.shard})
        return stored

    # -- stages -----------------------------------------------------------------------------------

    async def stages(self) -> Sequence[StageRecord]:
        """All stages the register knows, with what is in their queues."""
        return [record for record in await self._register.stages() if record.name != RELAY_SINK]

    async def backfill_stage(
        self, stage: str, *, unless_within: timedelta | None = None, by: str = USER
    ) -> bool:
        """Walk all entities of a stage's kind, in the background lane. Errors: NotFound."""
        await self.registered(stage)
        return await self._register.begin_backfill(
            stage,
            reason="backfill by hand",
            unless_within=unless_within,
            actor=through(self._face, by),
        )

    async def forget_stage(self, stage: str, *, by: str = USER) -> int:
        """Remove a stage's queue, timers, states and register entry. Errors: NotFound."""
        await self.registered(stage)
        return await self._register.forget(stage, actor=through(self._face, by))

    async def parked(
        self,
        *,
        kind: str | None = None,
        stage: str | None = None,
        after: tuple[str, str] | None = None,
        limit: int = 100,
    ) -> Sequence[ParkedRow]:
        """What waits for a person: quarantined and looping rows, undelivered saves. A page of so
        many (entity, stage), behind a key and a stage."""
        _check_limit(limit)
        prefix = "" if kind is None else str(EntityKey(entity_kind(kind), ""))
        rows = await self._queues.parked(prefix=prefix, stage=stage, after=after, limit=limit)
        return [parked_row(row) for row in rows]

    async def release(
        self, kind: str, entity_id: str, stage: str | None = None, *, by: str = USER
    ) -> int:
        """Free parked rows and undelivered saves by hand; how many."""
        key = str(entity_key(kind, entity_id))
        shard = self._shard(key)
        freed = await self._queues.release(key, stage, shard=shard, actor=through(self._face, by))
        self._store.wakeups.hint({shard})
        return freed

    async def registered(self, stage: str) -> StageRecord:
        """What the register knows of a stage. Errors: NotFound."""
        for record in await self._register.registered():
            if record.name == stage:
                return record
        raise NotFound("stage", stage)

    def _shard(self, key: str) -> int:
        return shard_of(key, self._shard_count)


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
    await register.declare([RELAY_DECLARATION])


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= LIST_MAX:
        raise InvalidSpec("limit", f"must be between 1 and {LIST_MAX}", got=limit)


def document_of(entity: Entity, kind: Any = None) -> Any:
    """An entity's document, decoded into the given type or a plain dict."""
    assert entity.doc is not None
    return msgspec.json.decode(entity.doc, type=kind) if kind else decode_document(entity.doc)
