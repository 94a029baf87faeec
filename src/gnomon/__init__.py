"""Gnomon runs actions at their time, durably, and never loses one."""

__version__ = "0.1.0"  # first: modules below read it

from gnomon.app import App
from gnomon.executors.python import AttemptContext as Attempt
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
