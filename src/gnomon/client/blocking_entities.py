"""Entities for programs without an event loop."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from gnomon.client.entities import EntityClient
from gnomon.contracts.store.entities import Entity, StageState, StateWrite
from gnomon.contracts.store.register import StageRecord
from gnomon.model.stage.patch import Patch
from gnomon.stages.entities import EntityPage
from gnomon.stages.explain import Explanation, ParkedRow

Wait = Callable[[Coroutine[Any, Any, Any]], Any]


class BlockingEntities:
    """The verbs of `EntityClient`; each waits for its answer."""

    def __init__(self, entities: EntityClient, wait: Wait) -> None:
        self._entities = entities
        self._wait = wait

    def put(
        self,
        entity_id: str,
        document: object,
        *,
        if_version: int | None = None,
        if_epoch: int | None = None,
    ) -> Entity:
        """Create or replace. `if_version` 0: only create. Errors: Conflict."""
        found: Entity = self._wait(
            self._entities.put(entity_id, document, if_version=if_version, if_epoch=if_epoch)
        )
        return found

    def patch(
        self,
        entity_id: str,
        patch: Patch,
        *,
        if_version: int | None = None,
        if_epoch: int | None = None,
    ) -> Entity:
        """Apply a merge patch (a mapping) or a JSON patch (a list). Errors: NotFound, Conflict."""
        found: Entity = self._wait(
            self._entities.patch(entity_id, patch, if_version=if_version, if_epoch=if_epoch)
        )
        return found

    def delete(
        self, entity_id: str, *, if_version: int | None = None, if_epoch: int | None = None
    ) -> None:
        """Remove it with all its rows and timers. Errors: NotFound, Conflict."""
        self._wait(self._entities.delete(entity_id, if_version=if_version, if_epoch=if_epoch))

    def release(self, entity_id: str, stage: str | None = None) -> int:
        """Let stages that gave it up look at it again; how many."""
        found: int = self._wait(self._entities.release(entity_id, stage))
        return found

    def get(self, entity_id: str) -> Entity:
        """The entity. Errors: NotFound."""
        found: Entity = self._wait(self._entities.get(entity_id))
        return found

    def page(self, *, after: str | None = None, prefix: str = "", limit: int = 100) -> EntityPage:
        """Entities in order of id."""
        found: EntityPage = self._wait(self._entities.page(after=after, prefix=prefix, limit=limit))
        return found

    def explain(self, entity_id: str) -> Explanation:
        """Why it is in which queue, by what chain, waiting for what. Errors: NotFound."""
        found: Explanation = self._wait(self._entities.explain(entity_id))
        return found

    def parked(
        self, *, stage: str | None = None, after: tuple[str, str] | None = None, limit: int = 100
    ) -> Sequence[ParkedRow]:
        """What waits for a person, in order of (entity, stage)."""
        found: Sequence[ParkedRow] = self._wait(
            self._entities.parked(stage=stage, after=after, limit=limit)
        )
        return found

    def state(self, stage: str, entity_id: str) -> StageState | None:
        """What a stage remembers of an entity; None: nothing. Errors: NotFound."""
        found: StageState | None = self._wait(self._entities.state(stage, entity_id))
        return found

    def swap_state(
        self,
        stage: str,
        entity_id: str,
        state: StateWrite,
        *,
        version: int,
        epoch: int | None = None,
        wake: bool = True,
    ) -> StageState | None:
        """Compare-and-set; None if the version (or the entity's epoch) is another one by now."""
        found: StageState | None = self._wait(
            self._entities.swap_state(
                stage, entity_id, state, version=version, epoch=epoch, wake=wake
            )
        )
        return found

    def stages(self) -> Sequence[StageRecord]:
        """All stages, with what is in their queues."""
        found: Sequence[StageRecord] = self._wait(self._entities.stages())
        return found

    def backfill_stage(self, stage: str) -> None:
        """Let a stage walk over all entities, in the background. Errors: NotFound."""
        self._wait(self._entities.backfill_stage(stage))

    def forget_stage(self, stage: str) -> int:
        """Remove a stage's queue, timers and states; how many rows. Errors: NotFound."""
        found: int = self._wait(self._entities.forget_stage(stage))
        return found
