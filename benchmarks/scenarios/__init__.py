"""The scenarios, by name. Each is a coroutine function from a stand to its results."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping

from benchmarks.report import Result
from benchmarks.scenarios import (
    burst,
    callbacks,
    campaign,
    create,
    drain,
    growth,
    lateness,
    memory,
    stages,
    tasks,
    xmin,
)
from benchmarks.stand import Stand

Scenario = Callable[[Stand], AsyncIterator[Result]]

SCENARIOS: Mapping[str, Scenario] = {
    "drain": drain.measure,
    "create": create.measure,
    "burst": burst.measure,
    "lateness": lateness.measure,
    "growth": growth.measure,
    "xmin": xmin.measure,
    "memory": memory.measure,
    "campaign": campaign.measure,
    "callbacks": callbacks.measure,
    "tasks": tasks.measure,
    "stages": stages.measure,
}
