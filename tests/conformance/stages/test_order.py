"""A stage waits for busy stages that can wake it: it sees their work, and runs once, not twice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from gnomon.stages import Update
from gnomon.stages.bound_stage import OutageError
from gnomon.testing.stage_bench import StageBench
from tests.conformance.stages.given import It, settled, stage

ROUNDS = 50  # more than enough for two stages and two entities


class Gate:
    """Makes a stage whose calls end when it is opened."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()

    def stage(self, **options: Any) -> Any:
        """It computes `y` of `x`, one entity at a time."""
        gate = self

        class Slow(type(stage("first", watch="x", writes="y", parallel=1, **options))):  # type: ignore[misc]
            async def process(self, it: It) -> Update[Any]:
                self.given.append(it)
                await gate.opened.wait()
                return Update({"y": it.entity["x"]})

        return Slow()


async def while_busy(*stages: Any) -> StageBench:
    """A bench where the first stage is busy with one entity, and there is another."""
    bench = StageBench("ad", *stages)
    for entity_id in ("busy", "waits"):
        await bench.put(entity_id, {"x": 1})
        bench.worker.hint(())
        await work(bench)
    return bench


async def work(bench: StageBench) -> None:
    """Go on with all that does not need the end of a call."""
    for _ in range(ROUNDS):
        await bench.worker.reconciler.step()
        await asyncio.sleep(0)


def ids_of(given: Sequence[It]) -> list[str]:
    return [it.id for it in given]


async def test_a_stage_waits_for_a_busy_one_that_can_wake_it() -> None:
    """With an entity that the busy one has yet to begin; then it sees what that has made of it."""
    gate = Gate()
    first, then = gate.stage(), stage("then", watch="x y")
    bench = await while_busy(first, then)
    assert (["busy"], []) == (ids_of(first.given), ids_of(then.given))

    gate.opened.set()
    await bench.run_due()

    assert (["busy", "waits"], ["busy", "waits"]) == (ids_of(first.given), ids_of(then.given))
    assert [1, 1] == [it.entity["y"] for it in then.given]


async def test_a_stage_that_cannot_be_woken_by_it_does_not_wait() -> None:
    """It may have what the busy one is not working on just now."""
    gate = Gate()
    first, other = gate.stage(), stage("other", watch="x")
    bench = await while_busy(first, other)
    assert ["busy"] == ids_of(first.given)
    assert "waits" in ids_of(other.given)
    gate.opened.set()
    await bench.run_due()


async def test_its_patience_ends_after_half_a_minute() -> None:
    """A slow stage does not hold up the others for ever; but two never work on one entity."""
    gate = Gate()
    first, then = gate.stage(), stage("then", watch="x y")
    bench = await while_busy(first, then)

    bench.clock.move_to(bench.now + timedelta(seconds=30))
    await work(bench)
    assert [] == then.given

    bench.clock.move_to(bench.now + timedelta(seconds=2))
    await work(bench)
    assert ["waits"] == ids_of(then.given)
    gate.opened.set()
    await bench.run_due()


async def test_what_a_busy_stage_has_claimed_ahead_is_let_go_after_half_a_minute() -> None:
    """Nor does it keep others from what it has not begun: whether it can wake them or not."""
    gate = Gate()
    first, then, other = gate.stage(), stage("then", watch="x y"), stage("other", watch="z")
    bench = StageBench("ad", first, then, other)
    for entity_id in ("busy", "waits"):
        await bench.put(entity_id, {"x": 1})
    bench.worker.hint(())
    await work(bench)
    await bench.patch("waits", {"z": 1})
    bench.worker.hint(())
    await work(bench)
    before = len(other.given)
    bench.clock.move_to(bench.now + timedelta(seconds=29))
    await work(bench)
    assert (["busy"], []) == (ids_of(first.given), ids_of(then.given))
    assert before == len(other.given)

    bench.clock.move_to(bench.now + timedelta(seconds=3))
    await work(bench)

    assert (["busy"], ["waits"]) == (ids_of(first.given), ids_of(then.given))
    assert ["waits"] == ids_of(other.given[before:])
    gate.opened.set()
    await bench.run_due()
    assert ["busy", "waits"] == ids_of(first.given)


async def test_it_does_not_wait_for_a_stage_that_is_away() -> None:
    """Who knows when that will be back."""

    class Away(type(stage("first", watch="x", writes="y"))):  # type: ignore[misc]
        async def process_many(self, its: Sequence[It]) -> Sequence[Any]:
            raise OutageError("gone")

    then = stage("then", watch="x y")
    bench = await settled(Away(), then, entities={"e1": {"x": 1}})
    await bench.put("e2", {"x": 1})
    await bench.run_due()
    assert ["e1", "e2"] == ids_of(then.given)


async def test_it_does_not_wait_for_a_stage_that_works_alongside() -> None:
    """That one is meant not to hold up others."""
    gate = Gate()
    first, then = gate.stage(alongside=True), stage("then", watch="x y")
    bench = await while_busy(first, then)
    assert (["busy"], ["busy", "waits"]) == (ids_of(first.given), ids_of(then.given))
    gate.opened.set()
    await bench.run_due()


async def test_a_round_that_is_dropped_in_the_middle_waits_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a worker that is killed leaves it: nobody will ever go on with it."""
    bench = await settled(stage("s"), entities={"e": {}})
    never = asyncio.Event()

    async def hang(*_: Any) -> bool:
        return await never.wait()

    monkeypatch.setattr(bench.worker.reconciler.claims, "claim_all", hang)
    monkeypatch.setattr(bench.worker.reconciler, "_ask", hang)
    before = asyncio.all_tasks()
    dropped = bench.worker.reconciler.step()
    assert dropped.send(None) is not None
    dropped.close()
    for task in asyncio.all_tasks() - before:
        task.cancel()
