"""Stages over entities: pure functions, timers, private state, saved together."""

from gnomon.stages.service import Stages
from gnomon.stages.stage import (
    KEEP,
    EntityView,
    Keep,
    Quarantine,
    RetryLater,
    SavedVersion,
    Stage,
    Update,
    Wake,
)

__all__ = [
    "KEEP",
    "EntityView",
    "Keep",
    "Quarantine",
    "RetryLater",
    "SavedVersion",
    "Stage",
    "Stages",
    "Update",
    "Wake",
]
