"""What a save makes ready is claimed at once, from memory; the queue is for what has to wait."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from gnomon.contracts.store.queues import LaneHead, QueueStore, StageLane
from gnomon.stages import Update, reconciler
from gnomon.stages.bound_stage import LocalStage
from gnomon.stages.pipeline import StagePipeline
from gnomon.testing.stage_bench import StageBench
from tests.conformance.stages.given import It, settled, stage
from tests.conformance.stages.test_order import Gate, work

AHEAD = 8


def chain() -> list[Any]:
    """Three, each by the field of the one before."""
    return [
        stage("a", watch="x", writes="a", process=lambda it: Update({"a": it.entity["x"]})),
        stage("b", watch="a", writes="b", process=lambda it: Update({"b": it.entity["a"]}),
              ask=lambda it: "a" in it.entity),
        stage("c", watch="b", process=lambda it: Update(state=it.entity["b"]),
              ask=lambda it: "b" in it.entity),
    ]  # fmt: skip


async def test_a_chain_needs_no_look_at_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row is made by this very process, which knows all that a call needs."""
    stages = chain()
    bench = await settled(*stages, entities={})
    found: list[str] = []
    queues: QueueStore = bench.worker.reconciler._queues
    lane_head = queues.lane_head

    async def counting(*args: Any, **options: Any) -> LaneHead:
        peeked = await lane_head(*args, **options)
        found.extend(claim.row.stage for claim in peeked.claims)
        return peeked

    monkeypatch.setattr(queues, "lane_head", counting)
    await bench.put("e", {"x": 7})
    await bench.run_due()

    assert [] == found
    assert (7, 1) == await bench.stages.state("c", "e").read()
    assert [1, 2, 3] == [it.version for each in stages for it in each.given]
    assert [{"change v1 by user: everything"}, {"change v2 by a: a"}, {"change v3 by b: b"}] == [
        set(it.reasons) for each in stages for it in each.given
    ]


async def test_what_follows_knows_the_state_that_was_just_saved() -> None:
    """Its own, of the call before, when another stage has woken it meanwhile."""
    seen: list[Any] = []

    def first(it: It) -> Update[Any]:
        seen.append(it.state)
        if it.state is None:
            return Update({"n": 1}, state="once")
        return Update(state="twice")

    stages = (
        stage("first", watch="m", writes="n", process=first),
        stage("second", watch="n", writes="m", ask=lambda it: "n" in it.entity,
              process=lambda it: Update({"m": it.entity["n"]})),
    )  # fmt: skip
    bench = await settled(*stages, entities={"e": {"x": 1}})
    assert [None, "once"] == seen
    assert ("twice", 2) == await bench.stages.state("first", "e").read()


async def test_a_change_from_outside_in_between_is_seen() -> None:
    """What was claimed from memory meets another version: the stage is called anew."""
    gate = Gate()
    slow = gate.stage()
    bench = StageBench(
        "ad", stage("before", watch="w", writes="x", process=lambda _: Update({"x": 1})), slow
    )
    await bench.put("e", {"w": 0})
    bench.worker.hint(())
    await work(bench)
    assert [1] == [it.entity["x"] for it in slow.given]
    await bench.put("e", {"w": 0, "x": 5})
    gate.opened.set()
    await bench.run_due()
    assert {"w": 0, "x": 5, "y": 5} == bench["e"]


async def test_a_stage_that_works_alongside_is_called_once_for_a_row() -> None:
    """However long the call takes."""
    opened = asyncio.Event()

    class Slow(type(stage("slow", alongside=True))):  # type: ignore[misc]
        async def process(self, it: It) -> None:
            self.given.append(it)
            await opened.wait()

    slow = Slow()
    bench = StageBench("ad", slow)
    await bench.put("e", {"x": 1})
    bench.worker.hint(())
    await work(bench)
    bench.clock.move_to(bench.now + timedelta(seconds=5))
    bench.worker.reconciler.wake()
    await work(bench)
    assert ["e"] == [it.id for it in slow.given]
    opened.set()
    await bench.run_due()


async def test_what_waits_for_long_is_not_overtaken() -> None:
    """Fresh rows may go first while others wait for a second; then the queue is in order again."""
    bench = await settled(entities={})
    line = StagePipeline(LocalStage("ad", stage("s")))
    line.capacity.share = 1.0
    assert line.may_follow(0.0, bench.now, AHEAD)
    line.left(StageLane.MAIN, bench.now)
    assert line.may_follow(0.0, bench.now + timedelta(seconds=0.9), AHEAD)
    assert not line.may_follow(0.0, bench.now + timedelta(seconds=1), AHEAD)


async def test_nothing_follows_into_a_stage_without_room() -> None:
    """Other stages may have the entity meanwhile."""
    line = StagePipeline(LocalStage("ad", stage("s", parallel=1)))
    line.capacity.share = 1.0
    now = (await settled(entities={})).now
    assert line.may_follow(0.0, now, AHEAD)
    assert not line.may_follow(0.0, now, 0)
    line.capacity.began(1, 0.0)
    assert not line.may_follow(0.0, now, AHEAD)


class HeldSaves:
    """Saves that reach the store when they are let through."""

    def __init__(self, bench: StageBench) -> None:
        self.opened = asyncio.Event()
        runs = bench.worker.reconciler.claims._runs
        self._send, self.batcher = runs._commits._send, runs._commits
        self.batcher._send = self._wait

    async def _wait(self, commits: Any) -> Any:
        await self.opened.wait()
        return await self._send(commits)


async def test_the_next_call_does_not_wait_for_the_save_of_the_last() -> None:
    """To write what a stage has said is no call of it."""
    one = stage("one", parallel=1, writes="y", process=lambda _: Update({"y": 1}))
    bench = await settled(one, entities={})
    held = HeldSaves(bench)
    for name in ("a", "b"):
        await bench.put(name, {"x": 1})
    bench.worker.hint(())
    await work(bench)
    assert ["a", "b"] == sorted(it.id for it in one.given)
    assert [1, 1] == [bench.version(name) for name in ("a", "b")]
    held.opened.set()
    await bench.run_due()
    assert [2, 2] == [bench.version(name) for name in ("a", "b")]
    assert 2 == len(one.given)


async def test_no_call_begins_while_a_batch_of_saves_waits() -> None:
    """What was made is kept in memory until it is written."""
    one = stage("one", parallel=1, writes="y", process=lambda _: Update({"y": 1}))
    bench = await settled(one, entities={})
    held = HeldSaves(bench)
    held.batcher._limit = 2
    for number in range(20):
        await bench.put(f"e{number}", {"x": 1})
    bench.worker.hint(())
    await work(bench)
    assert held.batcher.is_behind
    assert 10 > len(one.given)
    held.opened.set()
    await bench.run_due()
    assert 20 == len(one.given)


async def test_of_many_changes_no_more_are_asked_about_than_can_follow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The others would only wait in a queue instead; but not for ever, or one stage could hold up
    all others."""
    monkeypatch.setattr(reconciler, "FEED_BATCH", 2)
    gate = Gate()
    slow = gate.stage()
    bench = await settled(slow, entities={})
    for number in range(6):
        await bench.put(f"e{number}", {"x": 1})
    bench.worker.hint(())
    await work(bench)
    assert 2 == len(slow.asked)
    bench.clock.move_to(bench.now + timedelta(seconds=reconciler.ASK_WITHIN_S))
    bench.worker.hint(())
    await work(bench)
    assert 4 == len(slow.asked)
    gate.opened.set()
    await bench.run_due()
    assert all(1 == bench[f"e{number}"]["y"] for number in range(6))


async def test_a_few_changes_are_asked_about_at_once() -> None:
    """Though no stage has room for them: who looks at them sees what they wait for."""
    gate = Gate()
    slow = gate.stage()
    bench = await settled(slow, entities={})
    for number in range(4):
        await bench.put(f"e{number}", {"x": 1})
        bench.worker.hint(())
        await work(bench)
    assert 4 == len(slow.asked)
    gate.opened.set()
    await bench.run_due()


async def test_no_more_is_asked_about_while_a_batch_of_saves_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The stage has room, but what it makes could not be written."""
    monkeypatch.setattr(reconciler, "FEED_BATCH", 3)
    one = stage("one", writes="y", process=lambda _: Update({"y": 1}))
    bench = await settled(one, entities={})
    held = HeldSaves(bench)
    held.batcher._limit = 1
    for number in range(9):
        await bench.put(f"e{number}", {"x": 1})
    bench.worker.hint(())
    await work(bench)
    assert 3 == len(one.asked)
    held.opened.set()
    await bench.run_due()
    assert 9 == len(one.asked)
