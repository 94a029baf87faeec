"""A stage as the reconciler uses it, whether its code is here or behind gRPC."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeAlias, runtime_checkable

import msgspec

from gnomon.contracts.observer import Observer
from gnomon.contracts.store.entities import StageState, StateWrite
from gnomon.contracts.store.outbox import OutboxRow
from gnomon.model.errors import ConfigurationError, InvalidRequest
from gnomon.model.ids import NAME_PATTERN
from gnomon.model.stage.graph import Reach
from gnomon.model.stage.patch import Patch
from gnomon.stages.answers import WrongAnswerError, check_ask, check_done
from gnomon.stages.codec import EntityCodec, StateCodec, UndecodableError, declared_types
from gnomon.stages.delivery import deliver_in_order
from gnomon.stages.stage import KEEP, EntityView, Keep, SavedVersion, Stage, Update, Wake
from gnomon.telemetry.watchdog import Holder, watched

BATCH_MAX = 1_000
DEBOUNCE_MAX = timedelta(days=1)
SPREAD_MAX = timedelta(days=366)
BACKFILL_EVERY_MIN = timedelta(minutes=1)

_RATE = re.compile(r"(\d+(?:\.\d+)?)/(s|min|h)")
_UNIT_S = {"s": 1.0, "min": 60.0, "h": 3600.0}


class StageInput(msgspec.Struct, gc=False):
    """An entity in front of a stage, still as stored."""

    entity_id: str
    epoch: int
    version: int
    text: str
    states: Mapping[str, StageState]
    now: datetime
    reasons: frozenset[str]
    attempt: int = 1
    decoded: dict[int, Any] = msgspec.field(default_factory=dict)  # by codec: stages share a type


class StageResult(msgspec.Struct, frozen=True, gc=False):
    """What a stage made of a view, ready for storing."""

    patch: Patch
    state: StateWrite | None = None  # None: keep
    wake: datetime | Keep | None = KEEP
    note: str = ""


class OutageError(Exception):
    """The stage itself is not there: nothing is wrong with the entity."""

    def __init__(self, why: str, *, after: timedelta | None = None) -> None:
        super().__init__(why)
        self.after = after  # leave it alone at least so long, it says


Answer: TypeAlias = StageResult | Exception


@dataclass(frozen=True, slots=True, kw_only=True)
class StageInfo:
    """What the reconciler needs to know of a stage before it calls it."""

    name: str
    reach: Reach
    revision: int = 1  # 0: elsewhere, and has not described itself yet
    parallel: int = 16
    rate: float | None = None  # calls a second
    batch: int = 1
    alongside: bool = False
    fuse: bool = False  # it may follow another stage before that one's work is saved
    backfill: bool = True
    formerly: str | None = None
    debounce: timedelta = timedelta(0)
    spread: timedelta = timedelta(0)
    backfill_every: timedelta | None = None
    latest: bool = False
    wants_saves: bool = False  # it has an `after_save`


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

    def __init__(self, stage: Stage[Any, Any], entity: Any = None) -> None:
        self.info = info_of(stage)
        self._stage = stage
        entity_type, state_type = declared_types(type(stage))
        self._entities = EntityCodec(entity if entity_type is Any and entity else entity_type)
        self._states = StateCodec(state_type, stage.revision)
        self._batched = type(stage).process_many is not Stage.process_many

    def __repr__(self) -> str:
        return f"LocalStage({self.info.name!r})"

    @watched(_holder_of)
    def ask(self, view: StageInput) -> bool | Wake:
        return check_ask(self._stage.should_process(self._item(view)))

    async def ask_many(self, views: Sequence[StageInput]) -> Sequence[bool | Wake | Exception]:
        answers: list[bool | Wake | Exception] = []
        for view in views:
            try:
                answers.append(self.ask(view))
            except Exception as exc:  # noqa: BLE001 - the attempt boundary
                answers.append(exc)
        return answers

    @watched(_holder_of)
    async def process(self, views: Sequence[StageInput]) -> Sequence[Answer]:
        items: list[EntityView[Any, Any] | Exception] = []
        for view in views:
            try:
                items.append(self._item(view))
            except Exception as exc:  # noqa: BLE001 - the attempt boundary: `migrate` is the user's
                items.append(exc)
        good = [item for item in items if isinstance(item, EntityView)]
        answers = iter(await self._call(good))
        return [item if isinstance(item, Exception) else self._ran(next(answers)) for item in items]

    async def _call(
        self, items: list[EntityView[Any, Any]]
    ) -> Sequence[Update[Any] | Exception | None]:
        if not items:
            return []
        if not self._batched and len(items) == 1:
            try:
                return [await self._stage.process(items[0])]
            except Exception as exc:  # noqa: BLE001 - the attempt boundary
                return [exc]
        answers: object = await self._stage.process_many(items)
        if not isinstance(answers, Sequence) or len(answers) != len(items):
            told = len(answers) if isinstance(answers, Sequence) else type(answers).__name__
            raise ValueError(f"process_many answered {told} for {len(items)} entities")
        return answers

    def _ran(self, answer: object) -> Answer:
        try:
            done = check_done(answer)
            if isinstance(done, Exception):
                return done
            if done is None:
                return StageResult(patch={})
            state = None if done.state is KEEP else self._states.encode(done.state)
        except InvalidRequest as exc:
            return WrongAnswerError(str(exc))
        except Exception as exc:  # noqa: BLE001 - the attempt boundary
            return exc
        return StageResult(patch=done.patch, state=state, wake=done.wake, note=done.note)

    async def after_save(self, rows: Sequence[OutboxRow]) -> Sequence[Exception | None]:
        @watched(_holder_of)
        async def tell(row: OutboxRow) -> None:
            await self._stage.after_save(self._saved(row))

        return await deliver_in_order(rows, tell, at_once=self._stage.parallel)

    def _saved(self, row: OutboxRow) -> SavedVersion[Any, Any]:
        state = row.state
        return SavedVersion(
            id=row.entity_id,
            version=row.version,
            entity=None if row.doc is None else self._entities.decode(row.doc),
            state=None if state is None else self._states.decode(state, self._stage.migrate),
            author=row.author,
            changed=row.paths,
            key=row.key,
            root=row.root,
        )

    def _item(self, view: StageInput) -> EntityView[Any, Any]:
        codec = self._entities
        entity = view.decoded.get(id(codec.kind))
        if entity is None:
            entity = view.decoded[id(codec.kind)] = codec.decode(view.text)
        state = view.states.get(self.info.name)
        return EntityView(
            id=view.entity_id,
            version=view.version,
            entity=entity,
            state=None if state is None else self._states.decode(state, self._stage.migrate),
            now=view.now,
            reasons=view.reasons,
            attempt=view.attempt,
        )


def info_of(stage: Stage[Any, Any]) -> StageInfo:
    """Check a stage's declaration. Errors: ConfigurationError."""
    check_is_stage(stage)
    name = getattr(stage, "name", None)
    if not isinstance(name, str) or not NAME_PATTERN.fullmatch(name):
        raise ConfigurationError(
            f"stage {type(stage).__name__}.name",
            "must be 1 to 64 characters out of A-Z a-z 0-9 . _ -",
        )
    kind = type(stage)
    path = f"stage {name}"
    _check(
        kind.process is not Stage.process or kind.process_many is not Stage.process_many,
        path,
        "has neither process nor process_many",
    )
    _check_methods(kind, path)
    for option in ("revision", "parallel", "batch"):
        value = getattr(stage, option)
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        _check(is_whole, f"{path}.{option}", f"must be a whole number (got {value!r})")
        _check(value >= 1, f"{path}.{option}", "must be at least 1")
    for option in ("alongside", "fuse", "backfill", "latest"):
        value = getattr(stage, option)
        _check(
            isinstance(value, bool), f"{path}.{option}", f"must be True or False (got {value!r})"
        )
    _check(not (stage.fuse and stage.alongside), f"{path}.fuse", "does not go with alongside")
    _check(not (stage.fuse and stage.debounce), f"{path}.fuse", "does not go with debounce")
    _check(stage.batch <= BATCH_MAX, f"{path}.batch", f"must be 1 to {BATCH_MAX}")
    check_debounce(stage.debounce, f"{path}.debounce")
    spread: object = stage.spread
    holds = isinstance(spread, timedelta) and timedelta(0) <= spread <= SPREAD_MAX
    _check(holds, f"{path}.spread", f"must be a timedelta of 0 to {SPREAD_MAX.days} days")
    every: object = stage.backfill_every
    holds = every is None or (isinstance(every, timedelta) and every >= BACKFILL_EVERY_MIN)
    _check(holds, f"{path}.backfill_every", "must be a timedelta of at least a minute")
    for option in ("watch", "writes"):
        value = getattr(stage, option)
        holds = isinstance(value, tuple) and all(isinstance(each, str) for each in value)
        _check(holds, f"{path}.{option}", f"must be a tuple of paths (got {value!r})")
    return StageInfo(
        name=name,
        reach=stage.reach(),
        revision=stage.revision,
        parallel=stage.parallel,
        rate=None if stage.rate is None else parse_rate(stage.rate, f"{path}.rate"),
        batch=stage.batch,
        alongside=stage.alongside,
        fuse=stage.fuse,
        backfill=stage.backfill,
        formerly=stage.formerly,
        debounce=stage.debounce,
        spread=stage.spread,
        backfill_every=stage.backfill_every,
        latest=stage.latest,
        wants_saves=kind.after_save is not Stage.after_save,
    )


def check_is_stage(stage: object) -> None:
    """Errors: ConfigurationError."""
    if isinstance(stage, type) and issubclass(stage, Stage):
        raise ConfigurationError("stage", f"is the class: write {stage.__name__}()")
    if not isinstance(stage, Stage):
        raise ConfigurationError("stage", f"must be a gnomon.stages.Stage (got {stage!r:.100})")


def _check_methods(kind: type[Stage[Any, Any]], path: str) -> None:
    """What is awaited is a coroutine function, and what is not is none."""
    for name in ("process", "process_many", "after_save"):
        is_async = inspect.iscoroutinefunction(getattr(kind, name))
        _check(is_async, f"{path}.{name}", "must be `async def`")
    for name in ("should_process", "migrate"):
        is_async = inspect.iscoroutinefunction(getattr(kind, name))
        _check(not is_async, f"{path}.{name}", "must be a plain `def`: it is not awaited")


def parse_rate(text: object, path: str = "rate") -> float:
    """`50/s`, `100/min` or `1000/h` as entities a second."""
    found = _RATE.fullmatch(text.replace(" ", "")) if isinstance(text, str) else None
    if not found or float(found[1]) <= 0:
        raise ConfigurationError(path, f"must be like 50/s, 100/min or 1000/h (got {text!r})")
    return float(found[1]) / _UNIT_S[found[2]]


def check_debounce(debounce: object, path: str) -> None:
    """Errors: ConfigurationError."""
    holds = isinstance(debounce, timedelta) and timedelta(0) <= debounce <= DEBOUNCE_MAX
    _check(holds, path, f"must be a timedelta of 0 to {DEBOUNCE_MAX.days} day")


def _check(holds: object, path: str, problem: str) -> None:
    if not holds:
        raise ConfigurationError(path, problem)


__all__ = [
    "BATCH_MAX",
    "DEBOUNCE_MAX",
    "Answer",
    "BoundStage",
    "LocalStage",
    "OutageError",
    "RemoteStage",
    "StageInfo",
    "StageInput",
    "StageResult",
    "UndecodableError",
    "check_debounce",
    "info_of",
    "parse_rate",
]
