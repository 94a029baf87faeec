"""Timers (stages.md 5.1)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from gnomon.stages import Update, Wake
from gnomon.testing.stage_bench import StageBench
from tests.conformance.stages.given import It, settled, stage, times_of

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(days: float) -> datetime:
    return START + timedelta(days=days)


async def test_a_timer_fires_at_its_time_and_not_early() -> None:
    """The stage is called when it asked to be, by the store's clock."""
    clock = stage("clock", process=lambda it: Update(wake=at(180)) if it.now < at(180) else None)
    bench = await settled(clock, entities={"e": {}})
    await bench.advance(days=179)
    assert [START] == times_of(clock.given)
    await bench.advance(days=2)
    assert [START, at(180)] == times_of(clock.given)
    assert frozenset({"timer"}) == clock.given[1].reasons


async def test_a_change_does_not_eat_the_timer() -> None:
    """The timer is apart from the queue: a look in between leaves it."""
    once: Iterator[Update[Any]] = iter([Update(wake=at(10))])
    clock = stage("clock", watch="a", process=lambda _: next(once, None))
    bench = await settled(clock, entities={"e": {"a": 1}})
    await bench.patch("e", {"a": 2})
    await bench.run_due()
    await bench.advance(days=11)
    assert [START, START, at(10)] == times_of(clock.given)


async def test_a_moment_replaces_the_timer_and_none_cancels_it() -> None:
    """The stage is the authority over its timer."""
    plan: list[Any] = [Update(wake=at(5)), Update(wake=at(7)), Update(wake=None)]
    clock = stage("clock", watch="a", process=lambda _: plan.pop(0))
    bench = await settled(clock, entities={"e": {"a": 1}})
    await bench.patch("e", {"a": 2})
    await bench.advance(days=6)
    assert 2 == len(clock.given)
    await bench.advance(days=2)
    assert [START, START, at(7)] == times_of(clock.given)
    await bench.advance(days=300)
    assert 3 == len(clock.given)


async def test_should_process_arms_the_earlier_of_the_two() -> None:
    """A relative timer must not move on with every edit."""

    def ask(it: It) -> Wake:
        return Wake(it.now + timedelta(days=10))

    clock = stage("clock", watch="a", ask=ask)
    bench = await settled(clock, entities={"e": {"a": 1}})
    await bench.advance(days=6)
    await bench.patch("e", {"a": 2})
    await bench.advance(days=5)
    assert [at(10)] == times_of(clock.given)


async def test_a_timer_run_is_not_gated_by_should_process() -> None:
    """The stage asked for it."""
    clock = stage("clock", ask=lambda it: Wake(at(1)) if it.now < at(1) else False)
    bench = await settled(clock, entities={"e": {}})
    await bench.advance(days=2)
    assert [at(1)] == times_of(clock.given)


async def test_after_downtime_a_timer_fires_once() -> None:
    """However late."""
    clock = stage("clock", process=lambda it: Update(wake=at(1)) if it.now < at(1) else None)
    bench = await settled(clock, entities={"e": {}})
    bench.clock.move_to(at(100))
    await bench.run_due()
    assert [START, at(100)] == times_of(clock.given)


async def test_a_moment_in_the_past_is_now() -> None:
    """It is queued at once."""
    plan: list[Update[Any] | None] = [Update(wake=at(-5)), None]
    clock = stage("clock", process=lambda _: plan.pop(0))
    await settled(clock, entities={"e": {}})
    assert 2 == len(clock.given)


async def test_timers_are_rounded_up_to_the_grain_and_spread_by_a_stable_share() -> None:
    """Never early; with `spread` the entities do not all come at once, and always the same way."""
    wish = at(1) + timedelta(milliseconds=1)
    clock = stage("clock", process=lambda it: Update(wake=wish) if it.now < wish else None)
    bench = await settled(clock, entities={"e": {}})
    await bench.advance(days=2)
    assert at(1) + timedelta(seconds=1) == clock.given[1].now
    fired = []
    for _ in range(2):
        herd = stage(
            "herd",
            process=lambda it: Update(wake=at(1)) if it.now < at(1) else None,
            spread=timedelta(hours=1),
        )
        bench = await settled(herd, entities={f"e{n}": {} for n in range(20)})
        await bench.advance(days=2)
        fired.append(sorted(times_of(herd.given)[20:]))
    assert fired[0] == fired[1]
    assert at(1) <= fired[0][0] < fired[0][-1] < at(1) + timedelta(hours=1, seconds=1)
    assert 15 < len(set(fired[0]))


async def test_a_failure_after_a_timer_is_the_queues_business() -> None:
    """No tick is lost: the fired row is tried again."""
    tries: list[Any] = []

    def process(it: It) -> Update[Any] | None:
        if it.now < at(1):
            return Update(wake=at(1))
        tries.append(it.now)
        if len(tries) == 1:
            raise ValueError("not now")
        return None

    bench = StageBench("ad", stage("clock", process=process))
    await bench.put("e", {})
    await bench.advance(days=2)
    assert 2 == len(tries)


async def test_an_ask_brings_a_timer_forward_and_never_puts_it_off() -> None:
    """`process` may have set it for a reason of its own; `Wake(None)` cancels nothing."""
    answers: list[bool | Wake] = [True, Wake(at(20)), Wake(None), Wake(at(5))]
    clock = stage(
        "clock",
        watch="a",
        ask=lambda it: answers[it.entity["a"]],
        process=lambda it: Update(wake=at(10)) if it.now == START else None,
    )
    bench = await settled(clock, entities={"e": {"a": 0}})
    for number, timer_at in ((1, at(10)), (2, at(10)), (3, at(5))):
        await bench.patch("e", {"a": number})
        await bench.run_due()
        [row] = (await bench.explain("e")).stages
        assert timer_at == row.timer_at
