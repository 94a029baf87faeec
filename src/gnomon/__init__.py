"""Gnomon runs actions at their time, durably, and never loses one."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"  # first: modules below read it

from gnomon.model.action import Action, State, Status
from gnomon.model.errors import GnomonError
from gnomon.model.limits import Limit, LimitKind
from gnomon.model.outcome import Cancel, Fail
from gnomon.model.spec import (
    CatchUp,
    Cron,
    Grpc,
    Http,
    Kafka,
    Mock,
    Once,
    Periodic,
    Push,
    Python,
    Rabbitmq,
    Retry,
    Spec,
    Sql,
)

if TYPE_CHECKING:
    from gnomon.app import App
    from gnomon.executors.python import AttemptContext as Attempt
    from gnomon.scheduler import Request

__all__ = [
    "Action",
    "App",
    "Attempt",
    "Cancel",
    "CatchUp",
    "Cron",
    "Fail",
    "GnomonError",
    "Grpc",
    "Http",
    "Kafka",
    "Limit",
    "LimitKind",
    "Mock",
    "Once",
    "Periodic",
    "Push",
    "Python",
    "Rabbitmq",
    "Request",
    "Retry",
    "Spec",
    "Sql",
    "State",
    "Status",
    "__version__",
]

# The model is loaded with the package; what runs it is loaded when its name is used.
_LATE = {
    "App": ("gnomon.app", "App"),
    "Attempt": ("gnomon.executors.python", "AttemptContext"),
    "Request": ("gnomon.scheduler", "Request"),
}


def __getattr__(name: str) -> object:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _LATE[name]
    value = globals()[name] = getattr(import_module(module), attribute)
    return value
