"""Stages over entities: pure functions, timers, private state, saved together."""

from __future__ import annotations

from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from gnomon.stages.service import Stages

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


def __getattr__(name: str) -> object:
    """`Stages` is loaded when it is used: the settings read this package without it."""
    if name == "Stages":
        from gnomon.stages.service import Stages

        return Stages
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
