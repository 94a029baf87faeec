"""Stages marked `fuse` follow one another in memory; whatever is in the way, they do it alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from gnomon.contracts.store.queues import Commit, CommitResult
from gnomon.stages import Quarantine, Update
from gnomon.stages.bound_stage import OutageError
from gnomon.stages.explain import StageExplanation
from gnomon.testing.stage_bench import StageBench
from tests.conformance.stages.given import It, fuse_all, settled, stage

SECOND = timedelta(seconds=1)


@pytest.fixture(autouse=True)
def fused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here all are."""
    fuse_all(monkeypatch)


def chain(**options: Any) -> list[Any]:
    """Three, each by the field of the one before; the options are the second one's."""
    second: dict[str, Any] = {"writes": "b", "process": lambda it: Update({"b": it.entity["a"]})}
    return [
        stage("a", watch="x", writes="a", process=lambda it: Update({"a": it.entity["x"]})),
        stage("b", watch="a", ask=lambda it: "a" in it.entity, **second | options),
        stage("c", watch="a b", writes="c", ask=lambda it: "b" in it.entity,
              process=lambda it: Update({"c": it.entity["b"]})),
    ]  # fmt: skip


def watched(bench: StageBench, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The stages of each commit from now on."""
    found: list[list[str]] = []
    commits_of = bench.worker.reconciler.claims._runs._commits
    commit = commits_of.put_all

    async def watching(commits: Sequence[Commit]) -> Sequence[CommitResult]:
        found.extend([part.stage for part in each.parts] for each in commits)
        return await commit(commits)

    monkeypatch.setattr(commits_of, "put_all", watching)
    return found


async def row_of(bench: StageBench, name: str) -> StageExplanation | None:
    """What the entity `e` has in a stage's queue."""
    return next((row for row in (await bench.explain("e")).stages if row.stage == name), None)


async def test_a_chain_is_saved_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each stage sees what the one before it made, under its own version, once."""
    stages = chain()
    bench = await settled(*stages, entities={})
    commits = watched(bench, monkeypatch)
    await bench.put("e", {"x": 7})
    await bench.run_due()

    assert [["a", "b", "c"]] == commits
    assert {"x": 7, "a": 7, "b": 7, "c": 7} == bench["e"]
    assert [1, 2, 3] == [it.version for each in stages for it in each.given]
    assert [
        {"change v1 by user: everything"},
        {"change v2 by a: a"},
        {"change v3 by b: b"},
    ] == [set(it.reasons) for each in stages for it in each.given]
    explained = await bench.explain("e")
    assert ["stage:c", "stage:b", "stage:a", "user"] == [note.author for note in explained.changes]
    assert [3, 2, 1, 0] == [note.depth for note in explained.changes]


async def test_a_stage_that_two_before_it_wake_follows_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first of them has woken it already when the second one is called."""
    stages = chain()
    bench = await settled(*stages, entities={"e": {"x": 7}})
    commits = watched(bench, monkeypatch)
    await bench.put("e", {**bench["e"], "x": 8})
    await bench.run_due()
    assert [["a", "b", "c"]] == commits
    assert {"change v5 by user: x", "change v6 by a: a", "change v7 by b: b"} == {
        reason for each in stages for reason in each.given[-1].reasons
    }
    assert 8 == bench["e"]["c"]


async def test_a_stage_that_fails_does_so_in_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was made before it is saved; the failure counts when it is called alone."""
    failures = iter([ValueError("no"), ValueError("no")])

    def process(it: It) -> Update[Any]:
        for error in failures:
            raise error
        return Update({"b": it.entity["a"]})

    stages = chain(process=process)
    bench = await settled(*stages, entities={})
    commits = watched(bench, monkeypatch)
    await bench.put("e", {"x": 7})
    await bench.run_due()
    assert [["a"]] == commits
    row = await row_of(bench, "b")
    assert row is not None
    assert (1, "ValueError: no") == (row.attempts, row.last_error)

    await bench.advance(seconds=2)
    assert [["a"], ["b", "c"]] == commits
    assert 7 == bench["e"]["c"]
    assert [1, 1, 2] == [it.attempt for it in stages[1].given]


async def test_a_stage_that_is_away_keeps_back_nothing_but_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was made before it is saved, nobody is blamed, and the stage before it goes on."""
    is_away = True

    def process(it: It) -> Update[Any]:
        if is_away:
            raise OutageError("its model is not loaded")
        return Update({"b": it.entity["a"]})

    class Honest(type(chain(process=process)[1])):  # type: ignore[misc]
        async def process_many(self, its: Sequence[It]) -> Sequence[Update[Any]]:
            return [await self.process(it) for it in its]

    first, _, last = chain()
    bench = await settled(first, Honest(), last, entities={})
    commits = watched(bench, monkeypatch)
    for number in range(3):
        await bench.put(f"e{number}", {"x": 7})
        await bench.run_due()
    assert [["a"]] * 3 == commits
    rows = [row for number in range(3) for row in (await bench.explain(f"e{number}")).stages]
    assert [("b", 0)] * 3 == [(row.stage, row.attempts) for row in rows]
    is_away = False
    await bench.advance(minutes=1)
    assert [7, 7, 7] == [bench[f"e{number}"]["c"] for number in range(3)]


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param({"writes": "other"}, id="writes elsewhere"),
        pytest.param({"process": lambda _: Update([{"op": "no"}])}, id="no patch"),
    ],
)
async def test_a_bug_of_a_stage_is_its_own(trouble: dict[str, Any]) -> None:
    """It is quarantined, the others are not."""
    bench = await settled(*chain(**trouble), entities={"e": {"x": 7}})
    assert {"x": 7, "a": 7} == bench["e"]
    (row,) = await bench.parked()
    assert ("b", 1) == (row.stage, row.attempts)


async def test_a_stage_that_was_given_up_is_freed_and_called_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its row is not to be left behind."""
    is_broken = True

    def process(it: It) -> Update[Any]:
        if is_broken:
            raise Quarantine("look at it")
        return Update({"b": it.entity["a"]})

    bench = await settled(*chain(process=process), entities={"e": {"x": 7}})
    assert ["b"] == [row.stage for row in await bench.parked()]
    is_broken = False
    commits = watched(bench, monkeypatch)
    await bench.put("e", {**bench["e"], "x": 8})
    await bench.run_due()
    assert [["a"], ["b", "c"]] == commits
    assert [] == list(await bench.parked())
    assert 8 == bench["e"]["c"]


async def test_a_timer_outlives_a_pass() -> None:
    """As it does any call that says nothing of it; one that says so cancels it."""
    wakes: list[Any] = []
    stages = chain(
        process=lambda it: Update({"b": it.entity["a"]}, **(wakes.pop() if wakes else {}))
    )
    bench = StageBench("ad", *stages)
    at = bench.now + timedelta(days=1)
    wakes.append({"wake": at})
    await bench.put("e", {"x": 7})
    await bench.run_due()
    for x in (8, 9):
        await bench.put("e", {**bench["e"], "x": x})
        await bench.run_due()
        row = await row_of(bench, "b")
        assert row is not None
        assert at == row.timer_at
    wakes.append({"wake": None})
    await bench.put("e", {**bench["e"], "x": 10})
    await bench.run_due()
    assert await row_of(bench, "b") is None
    assert 10 == bench["e"]["c"]


async def test_a_stage_without_room_is_called_later() -> None:
    """Its rate holds in passes, too."""
    times = []

    def process(it: It) -> Update[Any]:
        times.append(bench.now)
        return Update({"b": it.entity["a"]})

    stages = chain(rate="1/s", process=process)
    stages[0].batch = 8
    bench = StageBench("ad", *stages)
    for n in range(3):
        await bench.put(f"e{n}", {"x": n})
    await bench.advance(seconds=5)
    assert 3 == len(times)
    assert all(later - at >= SECOND for at, later in pairwise(times))
    assert [0, 1, 2] == [bench[f"e{n}"]["c"] for n in range(3)]


async def test_a_change_meanwhile_is_seen_by_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the pass is saved: it begins again, and proves no loop by its first go."""
    bench: StageBench

    class Late(type(chain()[1])):  # type: ignore[misc]
        writes = ("b", "x")  # a circle, as far as one can see

        async def process(self, it: It) -> Update[Any]:
            self.given.append(it)
            if len(self.given) == 1:
                await bench.patch("e", {"y": 1})
                await bench.patch("e", {"y": None})  # as if nothing had been
            return Update({"b": it.entity["a"]})

    first, _, last = chain()
    bench = await settled(first, Late(), last, entities={})
    commits = watched(bench, monkeypatch)
    await bench.put("e", {"x": 7})
    await bench.run_due()
    assert {"x": 7, "a": 7, "b": 7, "c": 7} == bench["e"]
    assert [["a", "b", "c"], ["a", "b", "c"]] == commits[:2]
    assert [] == list(await bench.parked())
    assert 6 == bench.version("e")


async def test_what_others_come_before_waits_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage that is not fused comes between: those behind it wait, and run once."""
    stages = chain()
    bench = await settled(*stages, entities={})
    served: Any = bench.worker.reconciler.pipelines["b"].stage
    served.info = replace(served.info, fuse=False)
    commits = watched(bench, monkeypatch)
    await bench.put("e", {"x": 7})
    await bench.run_due()
    assert [["a"], ["b", "c"]] == commits
    assert 1 == len(stages[2].given)
