"""For tests: yours of what uses Gnomon, and ours of Gnomon itself. Nothing of ours imports it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gnomon.testing.action_bench import ActionBench
    from gnomon.testing.stage_bench import StageBench

__all__ = ["ActionBench", "StageBench"]

# Loaded when they are used: pytest loads this package for its fixtures, whoever it tests.
_LATE = {
    "ActionBench": "gnomon.testing.action_bench",
    "StageBench": "gnomon.testing.stage_bench",
}


def __getattr__(name: str) -> object:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_LATE[name]), name)
    return value
