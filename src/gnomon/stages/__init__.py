"""Stages over entities: pure functions, timers, private state, saved together."""

from gnomon.stages.service import Stages
from gnomon.stages.stage import KEEP, Done, Item, Keep, Quarantine, Retry, Saved, Stage, Wake

__all__ = [
    "KEEP",
    "Done",
    "Item",
    "Keep",
    "Quarantine",
    "Retry",
    "Saved",
    "Stage",
    "Stages",
    "Wake",
]
