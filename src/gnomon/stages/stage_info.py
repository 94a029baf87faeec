"""The options of a stage: one struct, whoever gives them, and the one place that checks them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypedDict

from gnomon.contracts.store.register import StageDeclaration
from gnomon.model.errors import ConfigurationError
from gnomon.model.ids import NAME_PATTERN
from gnomon.model.stage.graph import Reach
from gnomon.model.stage.paths import normal
from gnomon.stages.stage import Stage

BATCH_MAX = 1_000
DEBOUNCE_MAX = timedelta(days=1)
SPREAD_MAX = timedelta(days=366)
BACKFILL_EVERY_MIN = timedelta(minutes=1)

_RATE = re.compile(r"(\d+(?:\.\d+)?)/(s|min|h)")
_UNIT_S = {"s": 1.0, "min": 60.0, "h": 3600.0}


class StageOptions(TypedDict, total=False):
    """What may be said of any stage, here or remote; `Stage` explains each of them."""

    parallel: int
    rate: str | None
    alongside: bool
    backfill: bool
    formerly: str | None
    debounce: timedelta
    spread: timedelta
    backfill_every: timedelta | None
    latest: bool


# Only a stage whose code is here has these; a remote one says revision and batch itself.
LOCAL_OPTIONS = ("revision", "batch", "fuse", *StageOptions.__annotations__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageInfo:
    """What the reconciler knows of a stage before it calls it. Errors: ConfigurationError."""

    name: str
    reach: Reach
    revision: int = 1  # 0: remote, and has not described itself yet
    parallel: int = 16
    rate: float | None = None  # entities a second
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

    def __post_init__(self) -> None:
        for option in ("revision", "parallel", "batch"):
            value = getattr(self, option)
            is_whole = isinstance(value, int) and not isinstance(value, bool)
            self._check(option, is_whole, f"must be a whole number (got {value!r})")
        self._check("parallel", self.parallel >= 1, "must be at least 1")
        self._check("batch", 1 <= self.batch <= BATCH_MAX, f"must be 1 to {BATCH_MAX}")
        for option in ("alongside", "fuse", "backfill", "latest"):
            value = getattr(self, option)
            is_flag = isinstance(value, bool)
            self._check(option, is_flag, f"must be True or False (got {value!r})")
        self._check("fuse", not (self.fuse and self.alongside), "does not go with alongside")
        self._check("fuse", not (self.fuse and self.debounce), "does not go with debounce")
        self._check_span("debounce", DEBOUNCE_MAX, "1 day")
        self._check_span("spread", SPREAD_MAX, f"{SPREAD_MAX.days} days")
        every: object = self.backfill_every
        is_span = every is None or (isinstance(every, timedelta) and every >= BACKFILL_EVERY_MIN)
        self._check("backfill_every", is_span, "must be a timedelta of at least a minute")

    def declaration(self) -> StageDeclaration:
        """What the register is told of it."""
        return StageDeclaration(
            name=self.name,
            revision=self.revision,
            reach=self.reach,
            formerly=self.formerly,
            backfill=self.backfill,
            debounce=self.debounce,
        )

    def _check_span(self, option: str, longest: timedelta, shown: str) -> None:
        value = getattr(self, option)
        is_span = isinstance(value, timedelta) and timedelta(0) <= value <= longest
        self._check(option, is_span, f"must be a timedelta of 0 to {shown}")

    def _check(self, option: str, holds: object, problem: str) -> None:
        if not holds:
            raise ConfigurationError(f"stage {self.name}.{option}", problem)


def info_of(kind: str, stage: Stage[Any, Any]) -> StageInfo:
    """Check the declaration of a stage over entities of a kind, and read its options.

    Errors: ConfigurationError.
    """
    check_is_stage(stage)
    name, cls = getattr(stage, "name", None), type(stage)
    if not isinstance(name, str) or not NAME_PATTERN.fullmatch(name):
        raise ConfigurationError(
            f"stage {cls.__name__}.name", "must be 1 to 64 characters out of A-Z a-z 0-9 . _ -"
        )
    _check_methods(cls, f"stage {name}")
    info = make_info(
        name,
        Reach(kind, _paths_of(stage, "watch"), _paths_of(stage, "writes")),
        {option: getattr(stage, option) for option in LOCAL_OPTIONS},
        wants_saves=cls.after_save is not Stage.after_save,
    )
    if info.revision < 1:
        raise ConfigurationError(f"stage {name}.revision", "must be at least 1")
    return info


def make_info(
    name: str, reach: Reach, options: Mapping[str, Any], *, wants_saves: bool = False
) -> StageInfo:
    """A stage's info from options as users write them. Errors: ConfigurationError."""
    given, rate = dict(options), options.get("rate")
    given["rate"] = None if rate is None else parse_rate(rate, f"stage {name}.rate")
    return StageInfo(name=name, reach=reach, wants_saves=wants_saves, **given)


def check_is_stage(stage: object) -> None:
    """Errors: ConfigurationError, for a class and for anything else that is no `Stage`."""
    if isinstance(stage, type) and issubclass(stage, Stage):
        raise ConfigurationError("stage", f"is the class: write {stage.__name__}()")
    if not isinstance(stage, Stage):
        raise ConfigurationError("stage", f"must be a gnomon.stages.Stage (got {stage!r:.100})")


def parse_rate(text: object, path: str = "rate") -> float:
    """`50/s`, `100/min` or `1000/h` as entities a second. Errors: ConfigurationError."""
    parts = _RATE.fullmatch(text.replace(" ", "")) if isinstance(text, str) else None
    if not parts or float(parts[1]) <= 0:
        raise ConfigurationError(path, f"must be like 50/s, 100/min or 1000/h (got {text!r})")
    return float(parts[1]) / _UNIT_S[parts[2]]


def _paths_of(stage: Stage[Any, Any], option: str) -> tuple[str, ...]:
    paths = getattr(stage, option)
    if not isinstance(paths, tuple) or not all(isinstance(path, str) for path in paths):
        raise ConfigurationError(
            f"stage {stage.name}.{option}", f"must be a tuple of paths (got {paths!r})"
        )
    return tuple(map(normal, paths))


def _check_methods(cls: type[Stage[Any, Any]], path: str) -> None:
    """What is awaited is a coroutine function, and what is not is none."""
    if cls.process is Stage.process and cls.process_many is Stage.process_many:
        raise ConfigurationError(path, "has neither process nor process_many")
    for name in ("process", "process_many", "after_save"):
        if not inspect.iscoroutinefunction(getattr(cls, name)):
            raise ConfigurationError(f"{path}.{name}", "must be `async def`")
    for name in ("should_process", "migrate"):
        if inspect.iscoroutinefunction(getattr(cls, name)):
            raise ConfigurationError(f"{path}.{name}", "must be a plain `def`: it is not awaited")
