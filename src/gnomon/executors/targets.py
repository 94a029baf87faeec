"""Targets: the places outside that an operator has named, by kind.

Users name a target in an effect and never give an address or a password. Each kind's dataclass is
in its executor's module, which is loaded when a target of the kind is configured.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, TypeVar

from gnomon.extras import EXTRAS, require
from gnomon.model.errors import ConfigurationError, short

KINDS: Mapping[str, str] = MappingProxyType(
    {
        "http": "HttpTarget",
        "rabbitmq": "RabbitmqTarget",
        "kafka": "KafkaTarget",
        "sql": "SqlTarget",
        "grpc": "GrpcTarget",
        "push": "PushTarget",
    }
)

T = TypeVar("T")


class Targets:
    """All targets of a worker, with their secrets."""

    def __init__(self, targets: Iterable[Any] = ()) -> None:
        self._by_class: dict[type[Any], dict[str, Any]] = {}
        for target in targets:
            self._by_class.setdefault(type(target), {})[target.name] = target

    def of(self, kind: type[T]) -> Mapping[str, T]:
        """The targets of one kind, by name."""
        return MappingProxyType(self._by_class.get(kind, {}))

    def of_kind(self, kind: str) -> Mapping[str, Any]:
        """The same, without loading the module of a kind that has no targets."""
        of_class = (
            targets for cls, targets in self._by_class.items() if cls.__name__ == KINDS[kind]
        )
        return MappingProxyType(next(of_class, {}))

    def __repr__(self) -> str:
        names = sorted(name for targets in self._by_class.values() for name in targets)
        return f"Targets({', '.join(names)})"


def target_class(kind: object, *, path: str) -> type[Any]:
    """The dataclass of a kind. Errors: ConfigurationError."""
    if not isinstance(kind, str) or kind not in KINDS:
        close = get_close_matches(str(kind), KINDS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(KINDS)}"
        raise ConfigurationError(path, f"there is no kind {short(kind)} of targets{hint}")
    if kind in EXTRAS:
        require(kind)
    module = importlib.import_module(_module_of(kind))
    cls: type[Any] = getattr(module, KINDS[kind])
    return cls


def executor_class(kind: str) -> type[Any]:
    """The executor of a kind: made with its targets by name, a clock and an observer."""
    module = importlib.import_module(_module_of(kind))
    cls: type[Any] = getattr(module, KINDS[kind].replace("Target", "Executor"))
    return cls


def _module_of(kind: str) -> str:
    return f"gnomon.executors.{kind}"
