"""Virtual time: nothing waits, and processes freeze and die as a whole."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Iterator
from datetime import timedelta
from typing import Any

import pytest

from gnomon.testing.virtual import (
    EPOCH,
    Deadlock,
    SeededEntropy,
    VirtualClock,
    VirtualLoop,
    VirtualProcess,
)


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    made = VirtualLoop()
    yield made
    made.close()


def live(loop: VirtualLoop, coroutine: Coroutine[Any, Any, Any]) -> Any:
    return loop.run_until_complete(coroutine)


def test_clock_jumps_to_the_next_timer(loop: VirtualLoop) -> None:
    """A day of sleep takes no time and is a day by the clock."""
    clock = VirtualClock(loop, skew=timedelta(minutes=5), booted_s=1000.0)
    live(loop, asyncio.sleep(86_400))
    assert 86_400.0 == loop.time()
    assert EPOCH + timedelta(days=1, minutes=5) == clock.now()
    assert 87_400.0 == clock.monotonic()


def test_timers_fire_in_order_of_their_time(loop: VirtualLoop) -> None:
    seen: list[int] = []

    async def after(number: int) -> None:
        await asyncio.sleep(number)
        seen.append(number)

    async def all_of_them() -> None:
        await asyncio.gather(*(after(number) for number in (3, 1, 2)))

    live(loop, all_of_them())
    assert [1, 2, 3] == seen


def test_waiting_for_nothing_is_a_deadlock(loop: VirtualLoop) -> None:
    """What would hang for ever in real life is an error here."""
    waiting = loop.create_task(asyncio.Event().wait())
    with pytest.raises(Deadlock):
        loop.run_until_complete(waiting)
    waiting.cancel()
    loop.run_until_complete(asyncio.wait([waiting]))


def test_cancelled_timers_do_not_move_the_clock(loop: VirtualLoop) -> None:
    loop.call_later(100, lambda: None).cancel()
    live(loop, asyncio.sleep(1))
    assert 1.0 == loop.time()


def test_frozen_process_does_nothing_until_it_thaws(loop: VirtualLoop) -> None:
    """Timers of a frozen process wait for the thaw; those of others do not."""
    seen: list[tuple[str, float]] = []

    async def tick(name: str) -> None:
        await asyncio.sleep(1)
        seen.append((name, loop.time()))

    async def world() -> None:
        frozen = VirtualProcess(loop, "frozen")
        tasks = [frozen.start(tick("frozen"), name="a"), loop.create_task(tick("free"))]
        await asyncio.sleep(0)  # both have set their timers
        frozen.freeze(10)
        await asyncio.wait(tasks)

    live(loop, world())
    assert [("free", 1.0), ("frozen", 10.0)] == seen


def test_killed_process_ends_with_all_that_it_started(loop: VirtualLoop) -> None:
    """Also a task started by a task of the process, and also while it is frozen."""
    inner: list[asyncio.Task[None]] = []

    async def start_another() -> None:
        inner.append(asyncio.create_task(asyncio.sleep(100)))
        await asyncio.sleep(100)

    async def world() -> asyncio.Task[Any]:
        process = VirtualProcess(loop, "victim")
        outer = process.start(start_another(), name="outer")
        await asyncio.sleep(1)
        process.freeze(50)
        process.kill()
        await asyncio.wait([outer, *inner])
        return outer

    outer = live(loop, world())
    assert outer.cancelled()
    assert inner[0].cancelled()
    assert 1.0 == loop.time()


def test_same_seed_gives_the_same_ids() -> None:
    one, other = (SeededEntropy(random.Random(7)) for _ in range(2))
    assert (one.guid(), one.token(), one.fraction()) == (
        other.guid(),
        other.token(),
        other.fraction(),
    )
    assert 7 == one.guid().version
    assert 4 == one.token().version
