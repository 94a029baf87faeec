"""The scenarios, by name. Each is a coroutine function from a stand to its results."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import NamedTuple

from benchmarks.report import Result
from benchmarks.scale import Engine
from benchmarks.scenarios import (
    burst,
    callbacks,
    campaign,
    console,
    create,
    drain,
    figures,
    growth,
    lateness,
    memory,
    stages,
    sustained,
    tasks,
    xmin,
)
from benchmarks.stand import Stand

Measure = Callable[[Stand], AsyncIterator[Result]]


class Takes(NamedTuple):
    """About how many seconds it takes on two quiet cores: always, with each round, and more with
    `--full-growth`."""

    always_s: float
    round_s: float = 0.0
    grown_s: float = 0.0


class Scenario(NamedTuple):
    """What is measured, and how long that takes."""

    measure: Measure
    about: str
    takes: Mapping[Engine, Takes]  # engines where it is not measured are left out
    quick_s: float


SCENARIOS: Mapping[str, Scenario] = {
    "drain": Scenario(
        drain.measure,
        "no-op one-shots, created before: from the word to idle workers until all are finished and "
        "recorded; also with the creation. Beside every peer.",
        {"postgres": Takes(60, 60), "sqlite": Takes(30, 45)},
        25,
    ),
    "create": Scenario(
        create.measure,
        "single calls, one after the other and by 16 callers at a time, beside every peer; many in "
        "one call beside a bare insert of the same rows; by SQL beside a plain INSERT.",
        {"postgres": Takes(5, 55), "sqlite": Takes(5, 12)},
        15,
    ),
    "burst": Scenario(
        burst.measure,
        "many due at one instant: until the last executes, beside every peer; an immediate action "
        "every 100 ms meanwhile, from its creation to the call of its executor.",
        {"postgres": Takes(120), "sqlite": Takes(150)},
        25,
    ),
    "lateness": Scenario(
        lateness.measure,
        "from the due time to the call of the executor: few at random times on an idle system, "
        "beside every peer; 1,000 a second over a million pending (--full-growth: and 10 million).",
        {"postgres": Takes(200, grown_s=600), "sqlite": Takes(110, grown_s=600)},
        30,
    ),
    "sustained": Scenario(
        sustained.measure,
        "a steady rate for minutes, autovacuum as Debian ships it: lateness, dead rows and sizes "
        "over time.",
        {"postgres": Takes(330), "sqlite": Takes(330)},
        8,
    ),
    "growth": Scenario(
        growth.measure,
        "what it costs to begin an action, by how many are pending (--full-growth: to 10 million).",
        {"postgres": Takes(120, grown_s=600), "sqlite": Takes(90, grown_s=600)},
        10,
    ),
    "xmin": Scenario(
        xmin.measure,
        "a closed stream of create and drain while somebody else's transaction holds a snapshot "
        "(60 s; --full-growth: 5 minutes), and the same without it.",
        {"postgres": Takes(200, grown_s=480), "sqlite": Takes(200, grown_s=480)},
        10,
    ),
    "memory": Scenario(
        memory.measure,
        "what a worker occupies with a million pending, and with none.",
        {"postgres": Takes(90), "sqlite": Takes(80)},
        10,
    ),
    "campaign": Scenario(
        campaign.measure,
        "two million due at one moment and cancelled before it: do others notice?",
        {"postgres": Takes(800)},
        25,
    ),
    "callbacks": Scenario(
        callbacks.measure,
        "signed HTTP calls a second, beside a bare aiohttp loop.",
        {"postgres": Takes(0, 20), "sqlite": Takes(0, 25)},
        10,
    ),
    "console": Scenario(
        console.measure,
        "every question of the console's views, in turn, 100 times each, over a million pending "
        "actions (--full-growth: and 10 million) while 1,000 a second fire: the server's own time.",
        {"postgres": Takes(180, grown_s=900), "sqlite": Takes(180, grown_s=900)},
        60,
    ),
    "figures": Scenario(
        figures.measure,
        "what it costs to keep the history of attempts: drains with and without it, in turn, and "
        "the additions alone.",
        {"postgres": Takes(5, 40), "sqlite": Takes(5, 30)},
        25,
    ),
    "tasks": Scenario(
        tasks.measure,
        "SQL tasks beside pg_task's recorded figures and bare loops; a growing queue; at idle.",
        {"postgres": Takes(120, 25)},
        15,
    ),
    "stages": Scenario(
        stages.measure,
        "entities through stages beside bare SQL; a remote stage; with a growing base; beside a "
        "backfill.",
        {"postgres": Takes(500, 60), "sqlite": Takes(700, 90)},
        25,
    ),
}
