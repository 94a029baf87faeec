"""Twenty stages on a sparse graph, each reading two fields before its own: what one change costs.

Counted in memory under virtual time, for these counts depend on no clock and no engine.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from gnomon.stages import EntityView, Stage, Update
from gnomon.testing.stage_bench import StageBench

STAGE_COUNT = 20
SEEDS = range(5)
Document = dict[str, Any]


class Counts(NamedTuple):
    """How often stages were asked and called, and how many versions came of it."""

    asks: int
    runs: int
    saves: int


class Node(Stage[Document, None]):
    """Adds up what it watches."""

    asks = 0
    runs = 0

    def should_process(self, it: EntityView[Document, None]) -> bool:  # noqa: ARG002 - it is only counted
        self.asks += 1
        return True

    async def process(self, it: EntityView[Document, None]) -> Update[None]:
        self.runs += 1
        return Update({self.writes[0]: 1 + sum(it.entity.get(name, 0) for name in self.watch)})


def graph(dice: random.Random) -> list[Node]:
    """In the worst order."""
    made: list[Node] = []
    for number in range(STAGE_COUNT):
        known = ["u", *(f"f{before}" for before in range(number))]
        watch = tuple(dice.sample(known, min(2, len(known)))) if number else ("u",)
        fields = {"name": f"s{number}", "watch": watch, "writes": (f"f{number}",)}
        made.append(type(f"Node{number}", (Node,), fields)())
    return made[::-1]


async def counts_of_a_change() -> Counts:
    """The most of each, over a few graphs."""
    found = [await _counts(graph(random.Random(seed))) for seed in SEEDS]
    return Counts(*(max(column) for column in zip(*found, strict=True)))


async def _counts(stages: list[Node]) -> Counts:
    async with StageBench("ad", *stages) as bench:
        await bench.put("e", {"u": 1})
        await bench.run_due()
        before = bench.version("e")
        for each in stages:
            each.asks = each.runs = 0
        await bench.patch("e", {"u": 2})
        await bench.run_due()
        return Counts(
            sum(each.asks for each in stages),
            sum(each.runs for each in stages),
            bench.version("e") - before,
        )
