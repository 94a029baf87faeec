"""How many asks, runs and saves one change leads to (stages.md 2.3): counts, not times."""

from __future__ import annotations

import random
from typing import Any

import pytest

from gnomon.stages import Update
from gnomon.testing.stage_bench import StageBench
from tests.conformance.stages.given import stage

STAGE_COUNT = 20


def sparse_graph(dice: random.Random) -> list[Any]:
    """Each stage reads two fields before its own, and is given to the bench in the worst order."""
    made = []
    for number in range(STAGE_COUNT):
        known = ["u", *(f"f{before}" for before in range(number))]
        inputs = sorted(dice.sample(known, min(2, len(known)))) if number else ["u"]

        def process(it: Any, own: int = number, inputs: list[str] = inputs) -> Update[Any]:
            return Update({f"f{own}": 1 + sum(it.entity.get(name, 0) for name in inputs)})

        watched = " ".join(inputs)
        made.append(stage(f"s{number}", watch=watched, writes=f"f{number}", process=process))
    return made[::-1]


@pytest.mark.parametrize("seed", range(5))
async def test_twenty_stages_are_asked_and_run_as_often_as_the_graph_demands(seed: int) -> None:
    """A sparse graph, one change: at most 57 asks, 20 runs, 21 saves."""
    stages = sparse_graph(random.Random(seed))
    async with StageBench("ad", *stages) as bench:
        await bench.put("e", {"u": 1})
        await bench.run_due()
        for each in stages:
            each.asked.clear()
            each.given.clear()
        before = bench.version("e")
        await bench.patch("e", {"u": 2})
        await bench.run_due()
        asks = sum(len(each.asked) for each in stages)
        runs = sum(len(each.given) for each in stages)
        saves = bench.version("e") - before
        assert (True, True, True) == (asks <= 57, runs <= 20, saves <= 21), (asks, runs, saves)
        assert runs == saves - 1
        document, expected = bench["e"], {"u": 2}
        for each in stages[::-1]:
            total = 1 + sum(expected[name] for name in each.watch)
            expected[each.writes[0]] = total
        assert expected == document


async def test_a_chain_of_twenty_stages_is_no_loop() -> None:
    """However long a chain is, it ends, if no stage can wake one before it."""

    def link(number: int) -> Any:
        before, own = f"f{number - 1}", f"f{number}"
        return stage(
            f"s{number:02}",
            watch=before,
            writes=own,
            ask=lambda it: it.entity.get(before) != it.entity.get(own),
            process=lambda it: Update({own: it.entity[before]}),
        )

    async with StageBench("ad", *(link(number) for number in range(1, STAGE_COUNT + 1))) as bench:
        await bench.put("e", {"f0": 7})
        await bench.run_due()
        assert [] == list(await bench.parked())
        assert {7} == set(bench["e"].values())
        assert STAGE_COUNT + 1 == len(bench["e"])
