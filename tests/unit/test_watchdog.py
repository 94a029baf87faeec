"""Whoever holds the event loop is named, once each time: functions, effects and stages."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest

from gnomon.contracts.executor import AttemptRequest
from gnomon.contracts.observer import SilentObserver
from gnomon.contracts.store.entities import Entity
from gnomon.executors.python import AttemptContext, PythonExecutor, Registry
from gnomon.model.outcome import Outcome, Succeeded
from gnomon.model.spec import Mock, Python
from gnomon.stages import EntityView, Stage, Update
from gnomon.stages.bound_stage import LocalStage, StageInput
from gnomon.stages.documents import LoadedDocument
from gnomon.telemetry.watchdog import Watchdog
from gnomon.worker.attempt import AttemptRunner, DeadlineGuard
from tests.unit.worker.surroundings import EPOCH, HandClock, surroundings
from tests.unit.worker.test_slots import begun

ENTITY = Entity(key="ad/e", shard=0, epoch=1, version=1, doc="{}", changed_at=EPOCH)
VIEW = StageInput(ENTITY, LoadedDocument("{}"), {}, EPOCH)


class Told(SilentObserver):
    """What was told of a held loop."""

    def __init__(self) -> None:
        self.events: list[dict[str, object]] = []
        self.counts: list[str] = []

    def event(self, name: str, /, **fields: object) -> None:
        assert "event_loop_blocked" == name
        self.events.append(fields)

    def count(self, name: str, value: int = 1, /, **labels: str) -> None:
        assert ("event_loop_blocked", 1) == (name, value)
        self.counts.append(labels["by"])


class Block:
    """Blocks whoever calls it until it is opened."""

    def __init__(self) -> None:
        self.entered, self.opened = threading.Event(), threading.Event()

    def hold(self) -> None:
        self.entered.set()
        assert self.opened.wait(timeout=30)


Scene = Callable[[Block], Coroutine[Any, Any, object]]


@contextmanager
def held_loop(scene: Scene, told: Told) -> Iterator[tuple[Watchdog, HandClock]]:
    """A loop in a thread of its own that this scene holds, and a watchdog that looks at it."""
    block, clock = Block(), HandClock()
    made: list[Watchdog] = []

    async def live() -> None:
        made.append(Watchdog(clock, told, every_s=0.25))
        await scene(block)

    thread = threading.Thread(target=lambda: asyncio.run(live()))
    thread.start()
    try:
        assert block.entered.wait(timeout=30)
        yield made[0], clock
    finally:
        block.opened.set()
        thread.join()


def performing(effect: Mock | Python, executors: dict[type, Any]) -> Coroutine[Any, Any, object]:
    env, clock, _ = surroundings()
    performer = AttemptRunner(
        executors, installation=UUID(int=1), env=env, send_within=timedelta(seconds=4)
    )
    task: Any = asyncio.current_task()
    attempt = msgspec.structs.replace(
        begun(7), spec=msgspec.structs.replace(begun(7).spec, action=effect)
    )
    return performer.perform(attempt, clock.seconds, DeadlineGuard(task))


async def in_function(block: Block) -> object:
    registry = Registry()

    async def greedy(attempt: AttemptContext) -> None:
        block.hold()

    registry.register("greedy", greedy)
    executor = PythonExecutor(registry, HandClock())
    return await performing(Python(function="greedy"), {Python: executor})


async def in_effect(block: Block) -> object:
    class Blocking:
        def serves(self, need: str) -> bool:
            return True

        async def execute(self, order: AttemptRequest) -> Outcome:
            block.hold()
            return Succeeded()

    return await performing(Mock(), {Mock: Blocking()})


async def in_stage(block: Block) -> object:
    class Greedy(Stage[Any, Any]):
        name = "greedy-stage"

        async def process(self, it: EntityView[Any, Any]) -> Update[Any] | None:
            block.hold()
            return None

    return await LocalStage("ad", Greedy()).process([VIEW])


async def in_question(block: Block) -> object:
    class Pensive(Stage[Any, Any]):
        name = "pensive"

        def should_process(self, it: EntityView[Any, Any]) -> bool:
            block.hold()
            return True

        async def process(self, it: EntityView[Any, Any]) -> Update[Any] | None:
            return None

    return LocalStage("ad", Pensive()).ask(VIEW)


async def in_own_code(block: Block) -> object:
    block.hold()
    return None


@pytest.mark.parametrize(
    ("scene", "by", "at"),
    [
        (in_function, "function greedy", "action a7, attempt 1"),
        (in_effect, "mock", "action a7, attempt 1"),
        (in_stage, "stage greedy-stage", ""),
        (in_question, "stage pensive", ""),
        (in_own_code, "(unknown)", ""),
    ],
)
def test_whoever_holds_the_loop_is_named_once(scene: Scene, by: str, at: str) -> None:
    """By name, with what it is at and where in the code; as a metric and as an event."""
    told = Told()
    with held_loop(scene, told) as (watchdog, clock):
        alive_at = clock.seconds
        watchdog.look(alive_at)
        assert [] == told.events
        clock.seconds += 1.3
        watchdog.look(alive_at)
        clock.seconds += 20
        watchdog.look(alive_at)
        assert [by] == told.counts
        (event,) = told.events
        assert (by, at, 1.3) == (event["by"], event["at"], event["for_s"])
        assert "in hold" in str(event["stack"])
        watchdog.look(alive_at + 5)  # it was free meanwhile, and is held again
        assert [by, by] == told.counts


def test_a_loop_that_waits_is_not_held() -> None:
    """After the whole process was frozen nobody is blamed."""
    told, clock = Told(), HandClock()
    ready = threading.Event()
    made: list[tuple[Watchdog, asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def live() -> None:
        over = asyncio.Event()
        made.append((Watchdog(clock, told, every_s=0.25), asyncio.get_running_loop(), over))
        ready.set()
        await over.wait()

    thread = threading.Thread(target=lambda: asyncio.run(live()))
    thread.start()
    assert ready.wait(timeout=30)
    watchdog, loop, over = made[0]
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(timeout=30)
    clock.seconds += 60
    watchdog.look(clock.seconds - 60)
    loop.call_soon_threadsafe(over.set)
    thread.join()
    assert [] == told.events
