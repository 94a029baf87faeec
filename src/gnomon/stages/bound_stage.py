"""A stage as the reconciler uses it, whether its code is here or behind gRPC."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeAlias, runtime_checkable

import msgspec

from gnomon.contracts.observer import Observer
from gnomon.contracts.store.entities import Entity, StageState, StateWrite
from gnomon.contracts.store.outbox import OutboxRow
from gnomon.model.attempt_boundary import AttemptBoundary
from gnomon.model.errors import InvalidRequest
from gnomon.model.ids import EntityKey
from gnomon.stages.answers import WrongAnswerError, check_ask, check_done
from gnomon.stages.codec import EntityCodec, StateCodec, declared_types
from gnomon.stages.delivery import deliver_in_order, saved_version
from gnomon.stages.documents import LoadedDocument
from gnomon.stages.stage import KEEP, EntityView, SavedVersion, Stage, Update, Wake
from gnomon.stages.stage_info import StageInfo, info_of
from gnomon.telemetry.watchdog import Holder, watched


class StageInput(msgspec.Struct, gc=False):
    """An entity as it is brought before a stage, which may be elsewhere."""

    entity: Entity
    loaded: LoadedDocument
    states: Mapping[str, StageState]
    now: datetime
    reasons: frozenset[str] = frozenset()
    attempt: int = 1


StageResult: TypeAlias = Update[StateWrite]  # what a stage made of an entity, ready for storing
Answer: TypeAlias = StageResult | Exception


class OutageError(Exception):
    """The stage itself is not there: nothing is wrong with the entity."""

    def __init__(self, why: str, *, after: timedelta | None = None) -> None:
        super().__init__(why)
        self.after = after  # leave it alone at least so long, it says


class BoundStage(Protocol):
    """A stage that can be asked and called."""

    @property
    def info(self) -> StageInfo: ...

    @property
    def asks_here(self) -> bool:
        """Whether `ask` is a function call; if not, it is asked in batches when its turn comes."""
        ...

    def ask(self, view: StageInput) -> bool | Wake:
        """`should_process`. May raise anything."""
        ...

    async def ask_many(self, views: Sequence[StageInput]) -> Sequence[bool | Wake | Exception]:
        """`should_process` of several; an exception in a place is that one's failure."""
        ...

    async def process(self, views: Sequence[StageInput]) -> Sequence[Answer]:
        """One answer per view, in order. Errors: anything, for the whole batch; OutageError if the
        stage is away."""
        ...

    async def after_save(self, rows: Sequence[OutboxRow]) -> Sequence[Exception | None]:
        """Tell it of saves: None where it has accepted."""
        ...


@runtime_checkable
class RemoteStage(Protocol):
    """A stage that is elsewhere: what it is, it says itself, now and then anew."""

    async def keep_described(self, observer: Observer, changed: Callable[[str], None]) -> None:
        """Learn what it is, until cancelled; `changed` is told its name when its `info` is another
        one, or when it is there again."""
        ...

    async def close(self) -> None:
        """Hang up; the next call connects again."""
        ...


def _holder_of(names: Mapping[str, Any]) -> Holder:
    """Whom to name if a stage's code holds the event loop."""
    return Holder(f"stage {names['self'].info.name}")


class LocalStage:
    """A stage whose code is in this process."""

    asks_here = True

    def __init__(self, kind: str, stage: Stage[Any, Any], entity: Any = None) -> None:
        self.info = info_of(kind, stage)
        self._stage = stage
        entity_type, state_type = declared_types(type(stage))
        self._entities = EntityCodec(entity if entity_type is Any and entity else entity_type)
        self._states = StateCodec(state_type, stage.revision)
        self._batched = type(stage).process_many is not Stage.process_many
        self.has_ask = type(stage).should_process is not Stage.should_process

    def __repr__(self) -> str:
        return f"LocalStage({self.info.name!r})"

    @watched(_holder_of)
    def ask(self, view: StageInput) -> bool | Wake:
        if not self.has_ask:
            return True
        entity = view.loaded.to_ask(self.info.name, self._entities)
        return check_ask(self._stage.should_process(self._view(view, entity)))

    async def ask_many(self, views: Sequence[StageInput]) -> Sequence[bool | Wake | Exception]:
        answers: list[bool | Wake | Exception] = []
        for view in views:
            with AttemptBoundary(Exception) as attempt:
                answers.append(self.ask(view))
            if attempt.error is not None:
                answers.append(attempt.error)
        return answers

    @watched(_holder_of)
    async def process(self, views: Sequence[StageInput]) -> Sequence[Answer]:
        items: list[EntityView[Any, Any] | Exception] = []
        attempt = AttemptBoundary(Exception)
        for view in views:
            with attempt:  # `migrate` is the user's
                entity = view.loaded.to_process(self.info.name, self._entities)
                items.append(self._view(view, entity))
            if attempt.error is not None:
                items.append(attempt.error)
        good = [item for item in items if isinstance(item, EntityView)]
        answers = iter(await self._call(good))
        return [
            item if isinstance(item, Exception) else self._result_of(next(answers), attempt)
            for item in items
        ]

    async def _call(
        self, items: list[EntityView[Any, Any]]
    ) -> Sequence[Update[Any] | Exception | None]:
        if not items:
            return []
        if not self._batched and len(items) == 1:
            with AttemptBoundary(Exception) as attempt:
                return [await self._stage.process(items[0])]
            return [attempt.failure]
        answers: object = await self._stage.process_many(items)
        if not isinstance(answers, Sequence) or len(answers) != len(items):
            told = len(answers) if isinstance(answers, Sequence) else type(answers).__name__
            raise ValueError(f"process_many answered {told} for {len(items)} entities")
        return answers

    def _result_of(self, answer: object, attempt: AttemptBoundary[Exception]) -> Answer:
        with attempt:
            done = check_done(answer)
            if isinstance(done, Exception):
                return done
            if done is None:
                return Update()
            if done.state is KEEP:
                return done
            state = self._states.encode(done.state)
            return Update(patch=done.patch, state=state, wake=done.wake, note=done.note)
        error = attempt.failure
        return WrongAnswerError(str(error)) if isinstance(error, InvalidRequest) else error

    async def after_save(self, rows: Sequence[OutboxRow]) -> Sequence[Exception | None]:
        @watched(_holder_of)
        async def tell(row: OutboxRow) -> None:
            await self._stage.after_save(self._saved(row))

        return await deliver_in_order(rows, tell, at_once=self._stage.parallel)

    def _saved(self, row: OutboxRow) -> SavedVersion[Any, Any]:
        entity = None if row.doc is None else self._entities.decode(row.doc)
        return saved_version(row, entity, self._state_of(row.state))

    def _state_of(self, state: StageState | None) -> Any:
        return None if state is None else self._states.decode(state, self._stage.migrate)

    def _view(self, view: StageInput, entity: Any) -> EntityView[Any, Any]:
        kind, entity_id = EntityKey.parse(view.entity.key)
        return EntityView(
            kind=kind,
            id=entity_id,
            version=view.entity.version,
            entity=entity,
            state=self._state_of(view.states.get(self.info.name)),
            now=view.now,
            reasons=view.reasons,
            attempt=view.attempt,
        )
