"""Gnomon runs actions at their time, durably, and never loses one."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"  # first: modules below read it

from gnomon.model.action import Action, State, Status
from gnomon.model.errors import (
    AlreadyExists,
    BugError,
    ConfigurationError,
    Conflict,
    Exhausted,
    FailedPrecondition,
    Forbidden,
    GnomonError,
    IdentityMismatch,
    InvalidRequest,
    InvalidSpec,
    MissingExtra,
    NoResult,
    NotFound,
    NotSupported,
    SchemaMismatch,
    StoreUnavailable,
    Unauthenticated,
    Unavailable,
    UnknownField,
    VersionConflict,
)
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
    from gnomon.contracts.store import ChangeResult, Selection
    from gnomon.executors.python import AttemptContext as Attempt
    from gnomon.scheduler import Request
    from gnomon.scheduler.preview import preview

__all__ = [
    "Action",
    "AlreadyExists",
    "App",
    "Attempt",
    "BugError",
    "Cancel",
    "CatchUp",
    "ChangeResult",
    "ConfigurationError",
    "Conflict",
    "Cron",
    "Exhausted",
    "Fail",
    "FailedPrecondition",
    "Forbidden",
    "GnomonError",
    "Grpc",
    "Http",
    "IdentityMismatch",
    "InvalidRequest",
    "InvalidSpec",
    "Kafka",
    "Limit",
    "LimitKind",
    "MissingExtra",
    "Mock",
    "NoResult",
    "NotFound",
    "NotSupported",
    "Once",
    "Periodic",
    "Push",
    "Python",
    "Rabbitmq",
    "Request",
    "Retry",
    "SchemaMismatch",
    "Selection",
    "Spec",
    "Sql",
    "State",
    "Status",
    "StoreUnavailable",
    "Unauthenticated",
    "Unavailable",
    "UnknownField",
    "VersionConflict",
    "__version__",
    "preview",
]

# The model is loaded with the package; what runs it is loaded when its name is used.
_LATE = {
    "App": ("gnomon.app", "App"),
    "Attempt": ("gnomon.executors.python", "AttemptContext"),
    "ChangeResult": ("gnomon.contracts.store", "ChangeResult"),
    "Request": ("gnomon.scheduler", "Request"),
    "Selection": ("gnomon.contracts.store", "Selection"),
    "preview": ("gnomon.scheduler.preview", "preview"),
}


def __getattr__(name: str) -> object:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _LATE[name]
    value = globals()[name] = getattr(import_module(module), attribute)
    return value
