"""The situations that tests of entities start from, made by the contract's own verbs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from gnomon.contracts.store import HeldShard, Store
from gnomon.contracts.store.entities import (
    Entity,
    EntityWrite,
    StageState,
    StateWrite,
)
from gnomon.contracts.store.outbox import OutboxRow, SinkQueue
from gnomon.contracts.store.queues import (
    ChangedEntity,
    ClaimedEntity,
    Commit,
    CommitKind,
    CommitResult,
    Enqueue,
    QueueRow,
    ReturnedClaim,
    ReturnedKind,
    Routing,
    RowStatus,
    StageLane,
)
from gnomon.contracts.store.register import RELAY_DECLARATION, StageDeclaration
from gnomon.model.stage.graph import Reach
from tests.conformance.store.suite.given import Given, polls

DOC = '{"price": 1}'
OTHER_DOC = '{"price": 2}'
KIND = "ad"
STAGE = "photos"
OTHER_STAGE = "price"
LIMIT = 100


class GivenEntities:
    """Builds situations. The stage is `STAGE` unless said; everything is due and held by us.

    A name is the whole key of an entity. Most of what a store does knows of no kinds, and so do
    the names here.
    """

    def __init__(self, given: Given) -> None:
        self.given = given
        self.store: Store = given.store
        self._names = 0

    # -- from outside -----------------------------------------------------------------------------

    def write_of(self, name: str, **fields: Any) -> EntityWrite:
        """A change of an entity that there is not yet, unless a base is given."""
        values: dict[str, Any] = {
            "doc": DOC,
            "base": None,
            "paths": ("price",),
            "author": "user",
            "root": self.given.entropy.token(),
        }
        return EntityWrite(key=name, shard=self.given.shard_of(name), **values | fields)

    async def has_relay(self) -> None:
        """From now on there is a relay."""
        await self.store.register.declare([RELAY_DECLARATION])

    async def written(
        self, name: str | None = None, *, relay: bool = False, **fields: Any
    ) -> Entity:
        """A new entity; the stages have not been asked about it."""
        if relay:
            await self.has_relay()
        self._names += name is None
        write = self.write_of(name or f"entity-{self._names}", **fields)
        (entity,) = await self.store.entities.write([write])
        assert entity is not None, f"{write.key} was there already"
        return entity

    async def changed(self, entity: Entity, **fields: Any) -> Entity:
        base = (entity.epoch, entity.version)
        return await self.written(entity.key, **{"base": base, "doc": OTHER_DOC} | fields)

    async def deleted(self, entity: Entity, **fields: Any) -> Entity:
        return await self.changed(entity, doc=None, **fields)

    async def entity(self, name: str) -> Entity:
        found = await self.store.entities.get(name, shard=self.given.shard_of(name))
        assert found is not None, f"{name} is gone"
        return found

    async def versions_of(self, entity: Entity) -> list[int]:
        """Of the change notes that are kept, newest first."""
        notes = await self.store.entities.changes(entity.key, shard=entity.shard, limit=LIMIT)
        return [note.version for note in notes]

    async def state(self, name: str, stage: str = STAGE) -> StageState | None:
        _, state = await self.store.entities.state(name, stage, shard=self.given.shard_of(name))
        return state

    async def swapped(
        self, entity: Entity, body: bytes = b"1", *, version: int = 0, **fields: Any
    ) -> StageState | None:
        """The state, stored from outside."""
        values: dict[str, Any] = {"stage": STAGE, "epoch": entity.epoch, "enqueue": None} | fields
        return await self.store.entities.swap_state(
            entity.key, values.pop("stage"), shard=entity.shard, version=version,
            state=StateWrite(body=body, revision=1), **values,
        )  # fmt: skip

    # -- the queue --------------------------------------------------------------------------------

    def offer(self, stage: str = STAGE, *, reason: str = "change", **fields: Any) -> Enqueue:
        values: dict[str, Any] = {"root": self.given.entropy.token()} | fields
        return Enqueue(stage=stage, reason=reason, **values)

    async def fed(self, *, limit: int = LIMIT, skip: Sequence[str] = ()) -> Sequence[ChangedEntity]:
        return await self.store.queues.changed_entities(
            await self.given.holdings(), limit=limit, skip=frozenset(skip)
        )

    async def fed_of(self, name: str) -> ChangedEntity:
        return next(fed for fed in await self.fed() if fed.entity.key == name)

    async def answer_of(self, fed: ChangedEntity, *offers: Enqueue) -> Routing:
        return Routing(
            entity_key=fed.entity.key,
            shard=fed.entity.shard,
            lease_guid=(await self.given.holding(fed.entity.shard)).lease_guid,
            seq=fed.seq,
            epoch=fed.entity.epoch,
            version=fed.entity.version,
            enqueues=offers,
        )

    async def asked(self, name: str, *offers: Enqueue) -> None:
        """The stages have been asked about all changes, and want this."""
        fed = await self.fed_of(name)
        assert None not in await self.store.queues.route([await self.answer_of(fed, *offers)])

    async def offered(self, name: str, *offers: Enqueue) -> None:
        """The same, for an entity that nothing was to be asked about: no fence but the lease."""
        entity = await self.entity(name)
        fed = ChangedEntity(entity=entity, seq=0, changes=(), states={}, waiting={})
        answer = msgspec.structs.replace(await self.answer_of(fed, *offers), version=0)
        assert None not in await self.store.queues.route([answer])

    async def queued(
        self, name: str | None = None, stage: str = STAGE, **offer: Any
    ) -> ClaimedEntity:
        """A new entity that waits in a stage's queue, as its owner gets it."""
        entity = await self.written(name)
        await self.asked(entity.key, self.offer(stage, **offer))
        return await self.claim(entity.key, stage)

    async def sleeping(self, name: str, *, wake: datetime | None = None) -> QueueRow:
        """A new entity that has nothing but a timer."""
        await self.written(name)
        wake = wake or await self.later()
        await self.asked(name, self.offer(ready=False, wake=wake))
        return await self.row(name)

    async def parked(self, name: str, status: RowStatus = RowStatus.QUARANTINED) -> QueueRow:
        claim = await self.queued(name)
        assert await self.set_back(claim, status, error="no", counts=True)
        return await self.row(name)

    async def rows(self, name: str) -> dict[str, QueueRow]:
        found = await self.store.queues.rows(name, shard=self.given.shard_of(name))
        return {row.stage: row for row in found}

    async def row(self, name: str, stage: str = STAGE) -> QueueRow:
        rows = await self.rows(name)
        assert stage in rows, f"{name} is not in the queue of {stage}"
        return rows[stage]

    async def peeked(
        self,
        stage: str = STAGE,
        lane: StageLane = StageLane.MAIN,
        *,
        limit: int = LIMIT,
        skip: Sequence[str] = (),
        holdings: Sequence[HeldShard] | None = None,
    ) -> list[str]:
        """The ids at the head of a lane."""
        peeked = await self.store.queues.lane_head(
            await self.given.holdings() if holdings is None else holdings,
            stage, lane, limit=limit, skip=frozenset(skip),
        )  # fmt: skip
        return [claim.entity.key for claim in peeked.claims]

    async def claim(self, name: str, stage: str = STAGE) -> ClaimedEntity:
        holding = await self.given.holding(self.given.shard_of(name))
        claim = await self.store.queues.claim(holding, name, stage)
        assert claim is not None, f"{name} is not ready for {stage}"
        return claim

    async def fire(self, *, limit: int = LIMIT) -> int:
        return await self.store.queues.fire_timers(await self.given.holdings(), limit=limit)

    async def backfill_begun(self, stage: str = STAGE, **options: Any) -> bool:
        """Of a stage of the kind `KIND`, which is declared."""
        declaration = StageDeclaration(name=stage, revision=1, reach=Reach(KIND, (), ()))
        await self.store.register.declare([declaration])
        return await self.store.register.begin_backfill(stage, **{"reason": "backfill"} | options)

    def key_in(self, shard: int) -> str:
        """An unused key of the kind `KIND` that lives in the shard."""
        return self.given.name_in(shard, prefix=f"{KIND}/in")

    # -- what becomes of claims -------------------------------------------------------------------

    async def commit_of(
        self, claim: ClaimedEntity, *, relay: bool = False, **fields: Any
    ) -> Commit:
        """A claim as it was loaded, with nothing new unless said."""
        if relay:
            await self.has_relay()
        entity, row = claim.entity, claim.row
        state = claim.states.get(row.stage)
        values: dict[str, Any] = {
            "lease_guid": (await self.given.holding(entity.shard)).lease_guid,
            "seq": row.seq,
            "epoch": entity.epoch,
            "version": entity.version,
            "doc": None,
            "paths": () if fields.get("doc") is None else ("price",),
            "state_version": 0 if state is None else state.version,
            "root": row.root,
            "depth": row.depth + 1,
        }
        return Commit(
            shard=entity.shard, entity_key=entity.key, stage=row.stage, **values | fields
        )  # fmt: skip

    async def committed(self, claim: ClaimedEntity, **fields: Any) -> CommitResult:
        commit = await self.commit_of(claim, **fields)
        return (await self.store.queues.commit([commit]))[0]

    async def set_back_of(
        self, claim: ClaimedEntity, status: RowStatus | None, **fields: Any
    ) -> ReturnedClaim:
        holding = await self.given.holding(claim.entity.shard)
        values: dict[str, Any] = {"lease_guid": holding.lease_guid, "seq": claim.row.seq} | fields
        return ReturnedClaim(
            shard=claim.entity.shard,
            entity_key=claim.entity.key,
            stage=claim.row.stage,
            status=status,
            **values,
        )

    async def set_back(self, claim: ClaimedEntity, status: RowStatus | None, **fields: Any) -> bool:
        row = await self.set_back_of(claim, status, **fields)
        (kind,) = await self.store.queues.give_back([row])
        return kind is ReturnedKind.WRITTEN

    async def published(self, name: str) -> Entity:
        return await self.written(name, relay=True)

    async def kept(self, name: str, stage: str, **fields: Any) -> Entity:
        """A new entity with a state of the stage."""
        entity = await self.written(name, **fields)
        await self.swapped(entity, stage=stage)
        return entity

    async def saved_by(self, name: str, stage: str = STAGE) -> None:
        """The stage saves it once more, and wants to be told."""
        await self.offered(name, self.offer(stage))
        state = StateWrite(body=b"1", revision=1)
        claim = await self.claim(name, stage)
        done = await self.committed(claim, doc=OTHER_DOC, state=state, after_save=True)
        assert CommitKind.SAVED is done.kind

    async def undelivered(self, name: str, stage: str = STAGE) -> OutboxRow:
        """A new entity with a save that the stage did not take."""
        await self.written(name)
        await self.saved_by(name, stage)
        (row,) = [row for row in await self.outgoing(stage) if row.entity_key == name]
        await self.store.outbox.quarantine(row, error="no")
        return row

    async def outgoing_soon(self, *, limit: int = LIMIT) -> Sequence[OutboxRow]:
        """What is due to leave, as soon as something is."""
        async for _ in polls():
            if rows := await self.outgoing(limit=limit):
                return rows
        raise AssertionError("nothing came due")

    async def outgoing(self, sink: str | None = None, *, limit: int = LIMIT) -> Sequence[OutboxRow]:
        """What is due to leave, to one sink or to all of them, one after the other."""
        holdings = await self.given.holdings()
        sinks = [each.sink for each in await self.waiting()] if sink is None else [sink]
        found: list[OutboxRow] = []
        for each in sinks:
            found += await self.store.outbox.due_saves(holdings, each, limit=limit)
        return found

    async def waiting(self) -> Sequence[SinkQueue]:
        return await self.store.outbox.waiting_sinks(await self.given.holdings())

    async def root_of(self, entity: Entity) -> UUID:
        """Of the chain that its last change belongs to."""
        (note,) = await self.store.entities.changes(entity.key, shard=entity.shard, limit=1)
        return note.root

    # -- time -------------------------------------------------------------------------------------

    async def later(self, delay: timedelta = timedelta(hours=1)) -> datetime:
        return await self.given.now() + delay

    async def earlier(self, ago: timedelta = timedelta(hours=1)) -> datetime:
        return await self.given.now() - ago

    async def past(self, moment: datetime) -> None:
        """The database's clock has gone past the moment."""
        async for _ in polls():
            if await self.given.now() > moment:
                return
        raise AssertionError(f"{moment} did not pass")

    async def age(self, table: str, column: str, by: timedelta) -> None:
        """Make what is stored look old, on any engine: the time comes out of an action's row."""
        action = await self.given.created(due_in=-by)
        ((at,),) = await self.given.execute_raw(
            f"SELECT occurrence_at FROM scheduled_action WHERE id = '{action.meta.id}'"
        )
        await self.given.execute_raw(f"UPDATE {table} SET {column} = '{at}'")
        await self.given.execute_raw("DELETE FROM incoming_queue")
        await self.given.execute_raw(f"DELETE FROM scheduled_action WHERE id = '{action.meta.id}'")
