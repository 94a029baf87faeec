"""The stages of a program, and the life of their reconciler and relay beside the actions."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, Unpack

from gnomon.contracts.env import Env
from gnomon.contracts.leased_service import Ownership
from gnomon.contracts.store import Installation, Store
from gnomon.contracts.store.entities import Entity
from gnomon.contracts.store.outbox import RELAY_SINK
from gnomon.contracts.store.queues import Commit, Unchanged
from gnomon.contracts.store.register import StageRecord
from gnomon.extras import require
from gnomon.model.errors import ConfigurationError, Unavailable
from gnomon.model.ids import EntityKey, entity_kind
from gnomon.model.stage.patch import Patch
from gnomon.model.upkeep import rest_after
from gnomon.stages.bound_stage import BoundStage, LocalStage, RemoteStage
from gnomon.stages.codec import StateCodec, declared_types
from gnomon.stages.config import StagesConfig
from gnomon.stages.entities import USER, Entities, document_of
from gnomon.stages.explain import Explanation, ParkedRow
from gnomon.stages.limits import StageLimits
from gnomon.stages.reconciler import Reconciler
from gnomon.stages.relay import Relay, RelayTarget
from gnomon.stages.stage import Stage

if TYPE_CHECKING:
    from gnomon.stages.remote import RemoteOptions

E = TypeVar("E")
STAGES_MAX = 256
PURGE_EVERY_S = 60.0
PURGE_LIMIT = 5_000


class StageHost(Protocol):
    """Where stages live: an open app."""

    @property
    def store(self) -> Store: ...

    @property
    def installation(self) -> Installation: ...

    @property
    def env(self) -> Env: ...

    @property
    def stages_config(self) -> StagesConfig:
        """What was configured for its stages."""
        ...

    @property
    def attached(self) -> list[Stages[Any]]:
        """What its worker serves, kind by kind; `Stages(app, …)` adds itself."""
        ...


class Stages(Generic[E]):
    """Entities of one kind and the stages that look after them.

    `async with App(url) as app: ads = Stages(app, "ad", entity=Ad); ads.add(Expire(), …)`; the
    stages work while `app.work(stop)` does. The verbs work without it, too. Errors: InvalidSpec,
    for a kind that cannot be; ConfigurationError.
    """

    def __init__(
        self,
        home: StageHost,
        kind: str,
        *,
        entity: type[E] | None = None,
        relay: RelayTarget | None = None,
    ) -> None:
        self.kind = entity_kind(kind)
        self.relay = relay  # of all kinds: one of them may have it
        self.served: dict[str, BoundStage] = {}
        self._entity = entity
        self._codecs: dict[str, StateCodec] = {}
        self._verbs: Entities | None = None
        self.move_to(home)

    def __repr__(self) -> str:
        return f"Stages({self.kind}: {', '.join(self.served)})"

    def add(self, *stages: Stage[Any, Any]) -> None:
        """Serve these stages here. Errors: ConfigurationError."""
        for stage in stages:
            self.serve(LocalStage(self.kind, stage, self._entity))
            _, state_type = declared_types(type(stage))
            self._codecs[stage.name] = StateCodec(state_type, stage.revision)

    def serve(self, stage: BoundStage) -> None:
        """Serve a stage that is already bound: a remote one."""
        name = stage.info.name
        everywhere = [name for stages in self._home.attached for name in stages.served]
        if name in everywhere:
            raise ConfigurationError(f"stage {name}", "is there twice")
        if len(everywhere) >= STAGES_MAX:
            raise ConfigurationError("stages", f"are more than {STAGES_MAX}")
        self.served[name] = stage

    def remote(self, name: str, address: str, **options: Unpack[RemoteOptions]) -> None:
        """Serve a stage that another service is; it describes itself when there is a worker.

        Errors: ConfigurationError.
        """
        require("grpc")
        from gnomon.stages.remote import GrpcStage  # gRPC is large

        deadline_max = self._home.stages_config.call_timeout * 0.9
        self.serve(GrpcStage(self.kind, name, address, deadline_max=deadline_max, **options))

    def move_to(self, home: StageHost) -> None:
        """Live in an app; in another one, if it was made by a command and not by the program."""
        for other in home.attached:
            if other.kind == self.kind:
                raise ConfigurationError("stages", f"of the kind {self.kind!r} are there twice")
            if other.relay is not None and self.relay is not None:
                raise ConfigurationError("stages", "have two relays: all kinds go to one")
        self._home = home
        home.attached.append(self)

    # -- verbs ------------------------------------------------------------------------------------

    @property
    def entities(self) -> Entities:
        """The verbs, untyped."""
        if self._verbs is None or not self._verbs.is_of(self._home.store):
            self._verbs = Entities(
                self._home.store,
                self._home.installation,
                entropy=self._home.env.entropy,
                has_relay=_relay_of(self._home) is not None
                or self._home.stages_config.relay is not None,
            )
        return self._verbs

    async def put(
        self, entity_id: str, document: E, *, if_version: int | None = None, by: str = USER
    ) -> Entity:
        """Create or replace an entity."""
        return await self.entities.put(self.kind, entity_id, document, if_version=if_version, by=by)

    async def patch(
        self, entity_id: str, patch: Patch, *, if_version: int | None = None, by: str = USER
    ) -> Entity:
        """Change some of an entity's fields."""
        return await self.entities.patch(self.kind, entity_id, patch, if_version=if_version, by=by)

    async def delete(self, entity_id: str, *, if_version: int | None = None) -> None:
        """Remove an entity."""
        await self.entities.delete(self.kind, entity_id, if_version=if_version)

    async def get(self, entity_id: str) -> E:
        """An entity's document, as the declared type."""
        document, _ = await self.read(entity_id)
        return document

    async def read(self, entity_id: str) -> tuple[E, int]:
        """An entity's document and its version, for a change with `if_version`."""
        entity = await self.entities.get(self.kind, entity_id)
        return document_of(entity, self._entity), entity.version

    async def put_many(self, documents: Mapping[str, E]) -> int:
        """Create or replace many; how many were changed by it."""
        return await self.entities.put_many(self.kind, documents)

    def state(self, stage: str, entity_id: str) -> StateHandle:
        """A stage's private state, to read and to compare and set."""
        codec = self._codecs.get(stage) or StateCodec(Any, 1)
        return StateHandle(self.entities, EntityKey(self.kind, entity_id), stage, codec)

    async def backfill(self, stage: str) -> bool:
        """Walk all entities of this kind for a stage, in the background lane."""
        return await self.entities.backfill_stage(stage)

    async def explain(self, entity_id: str) -> Explanation:
        """Why it is in which queue, by what chain, waiting for what."""
        return await self.entities.explain(self.kind, entity_id)

    async def stages(self) -> Sequence[StageRecord]:
        """What the register knows of the stages of this kind."""
        return [record for record in await self.entities.stages() if record.kind == self.kind]

    async def parked(self, stage: str | None = None) -> Sequence[ParkedRow]:
        """What waits for a person."""
        return await self.entities.parked(kind=self.kind, stage=stage)


def _relay_of(home: StageHost) -> RelayTarget | None:
    """The one that a program gave."""
    return next((stages.relay for stages in home.attached if stages.relay is not None), None)


class StateHandle:
    """One stage's state beside one entity."""

    def __init__(self, entities: Entities, key: EntityKey, stage: str, codec: StateCodec) -> None:
        self._entities = entities
        self._key = key
        self._stage = stage
        self._codec = codec

    async def read(self) -> tuple[Any, int]:
        """The state (None if there is none) and its version. Errors: NotFound."""
        _, state = await self._entities.state(*self._key, self._stage)
        if state is None:
            return None, 0
        return self._codec.decode(state, lambda value, _: value), state.version

    async def swap(self, new: Any, *, version: int, wake: bool = True) -> bool:
        """Store it if the state is still at this version; wakes the stage."""
        write = self._codec.encode(new)
        stored = await self._entities.swap_state(
            *self._key, self._stage, write, version=version, wake=wake
        )
        return stored is not None


class StageWorker:
    """Reconciler and relay of one process."""

    def __init__(
        self,
        store: Store,
        stages: Sequence[BoundStage],
        target: RelayTarget | None,
        *,
        ownership: Ownership,
        shard_count: int,
        env: Env,
        config: StagesConfig,
    ) -> None:
        self._stages = stages
        self._observer = env.observer
        self._entropy = env.entropy
        self._clock = env.clock
        self._entities = store.entities
        self._ownership = ownership
        self.reconciler = Reconciler(
            store,
            stages,
            ownership=ownership,
            shard_count=shard_count,
            env=env,
            config=config,
            has_relay=target is not None,
            saved=self._saved,
        )
        self.limits = StageLimits(
            store.limits,
            self.reconciler.pipelines,
            worker=ownership.worker,
            env=env,
            changed=self.reconciler.wake,
        )
        self.reconciler.claims.tell_starved = self.limits.wake
        self.relay = Relay(
            store.outbox,
            stages,
            target,
            ownership=self.reconciler.shards,
            guests=self.reconciler.shards.guests,
            env=env,
            config=config,
            changed=self._fell_behind_or_caught_up,
        )

    @classmethod
    def of(
        cls, home: StageHost, ownership: Ownership, relay: RelayTarget | None = None
    ) -> StageWorker:
        """That of a program, with its stages of all kinds; `relay` is the configured one. One that
        has no stages sees to it that those of others hear of changes."""
        return cls(
            home.store,
            [stage for stages in home.attached for stage in stages.served.values()],
            _relay_of(home) or relay,
            ownership=ownership,
            shard_count=home.installation.shard_count,
            env=home.env,
            config=home.stages_config,
        )

    def _saved(self, commits: Sequence[Commit]) -> None:
        """Commits were saved: wake the senders of the sinks that they go to."""
        sinks: set[str] = set()
        for commit in commits:
            if commit.doc is not None or not isinstance(commit.state, Unchanged):
                sinks.update([RELAY_SINK] + [commit.stage] * commit.after_save)
        for sink in sinks:
            self.relay.saved(sink)

    def _fell_behind_or_caught_up(self) -> None:
        self.reconciler.hold_background(held=self.relay.is_behind)

    def hint(self, shards: Collection[int]) -> None:
        self.reconciler.hint(shards)
        self.relay.wake()

    async def keep_working(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.reconciler.keep_reconciling(), name="reconciler")
            group.create_task(self.relay.keep_relaying(), name="relay")
            group.create_task(self.limits.keep_asking(), name="stage-limits")
            group.create_task(self._keep_purging(), name="entity-janitor")
            for stage in self._remote_stages():
                describing = stage.keep_described(self._observer, self.reconciler.redescribed)
                group.create_task(describing, name="describer")

    async def _keep_purging(self) -> None:
        """Remove change notes and tombstones' states past their time, at least as fast as they are
        written; not all at one moment."""
        full_rounds = 0
        while True:
            started = self._clock.monotonic()
            is_full = self._ownership.trusted() and await self._purge()
            full_rounds = full_rounds + 1 if is_full else 0
            took_s = self._clock.monotonic() - started
            rest_s = rest_after(took_s, full_rounds=full_rounds, every_s=PURGE_EVERY_S)
            await asyncio.sleep(rest_s * (0.5 + self._entropy.fraction()))

    async def _purge(self) -> bool:
        """Whether it removed as much as it may, so that more may be left."""
        try:
            return await self._entities.purge(limit=PURGE_LIMIT) >= PURGE_LIMIT
        except Unavailable as exc:
            self._observer.count("store_errors", operation="purge_entities")
            self._observer.event("round_failed", loop="purge_entities", error=str(exc))
            return False

    def _remote_stages(self) -> list[RemoteStage]:
        return [stage for stage in self._stages if isinstance(stage, RemoteStage)]

    async def drain(self, within: timedelta) -> None:
        await self.reconciler.claims.drain(within)
        await self.reconciler.attendance.leave()
        await self.limits.limiter.leave()
        for stage in self._remote_stages():
            await stage.close()
