"""A burst is begun ahead of its time: what is performed, what is handed back, in virtual time."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import patch

import msgspec

from gnomon.contracts.store import ActionStore
from gnomon.worker import WorkerConfig
from tests.simulation.limited import Stage, play
from tests.unit.worker.surroundings import Audience

NOT_SOON = timedelta(0)  # single ones are left to their time
CONFIG = WorkerConfig(concurrency=20, burst_least=5, soon=NOT_SOON)  # of each of three workers
SINGLE = WorkerConfig(concurrency=20)
MINUTE = timedelta(minutes=1)
RUNNING = "SELECT count(*) FROM processing_queue WHERE running = 1"
FINISHED = "SELECT count(*) FROM finished_action"
WAITING = "SELECT count(*) FROM processing_queue WHERE running = 0"


async def burst_of(stage: Stage, count: int, **spec: Any) -> datetime:
    """So many actions due at one instant, when they are in the queue."""
    at = await stage.store.installation.now() + timedelta(seconds=10)
    await stage.create(count, start_at=at, **spec)
    await stage.until(lambda: counted(stage, WAITING) == count)
    return at


def counted(stage: Stage, query: str) -> int:
    count: int = stage.runner.connection.execute(query).fetchone()[0]
    return count


def test_a_burst_is_armed_and_performed_at_its_time() -> None:
    """All of it, none early, each once."""
    audience = Audience()

    async def scene(stage: Stage) -> None:
        await stage.settle()
        at = await burst_of(stage, 40)
        await stage.until(lambda: counted(stage, RUNNING) == 40, within_s=9.9)
        assert [] == stage.receiver.starts
        assert await stage.store.installation.now() < at
        await stage.until(lambda: stage.receiver.ended == 40)
        assert 40 == audience.counts["attempts_armed"]
        assert 40 == len({start.id for start in stage.receiver.starts})
        assert 0 <= min(start.late_s for start in stage.receiver.starts)
        assert 0.1 > max(start.late_s for start in stage.receiver.starts)
        assert 0 == audience.counts["attempts_disarmed"]

    play(scene, observer=audience, config=CONFIG)


def test_few_actions_are_no_burst() -> None:
    """They are begun at their time, as ever."""
    audience = Audience()

    async def scene(stage: Stage) -> None:
        await stage.settle()
        await burst_of(stage, 4)
        await stage.until(lambda: stage.receiver.ended == 4, within_s=15)
        assert 0 == audience.counts["attempts_armed"]

    play(scene, observer=audience, config=CONFIG)


def test_what_is_cancelled_after_it_was_armed_is_not_performed() -> None:
    """It is handed back, and nothing of it is left in the queue."""
    audience = Audience()

    async def scene(stage: Stage) -> None:
        await stage.settle()
        await burst_of(stage, 40)
        await stage.until(lambda: counted(stage, RUNNING) == 40, within_s=9.9)
        actions: ActionStore = stage.store.actions
        rows = stage.runner.connection.execute("SELECT id FROM scheduled_action LIMIT 10")
        cancelled = {id for (id,) in rows.fetchall()}
        for id in cancelled:
            await actions.delete(id, if_match=None)
        await stage.until(lambda: stage.receiver.ended == 30)
        await asyncio.sleep(2)
        assert not cancelled & {start.id for start in stage.receiver.starts}
        assert 10 == audience.counts["attempts_disarmed"]
        assert 0 == counted(stage, "SELECT count(*) FROM processing_queue")

    play(scene, observer=audience, config=CONFIG)


def test_results_of_a_burst_are_recorded_when_it_is_performed() -> None:
    """Not while more of it is due, and soon performed; and all of them soon after."""

    def unrecorded(stage: Stage) -> int:
        return stage.receiver.ended - counted(stage, FINISHED)

    async def scene(stage: Stage) -> None:
        await stage.settle()
        await stage.create(100)  # then it is known how quick they are, and that more can be armed
        await stage.until(lambda: counted(stage, FINISHED) == 100, within_s=15)
        await burst_of(stage, 450)
        await stage.until(lambda: stage.receiver.ended > 100, within_s=15)
        await stage.until(lambda: unrecorded(stage) >= 100, within_s=3)  # 60 end at a time
        await stage.until(lambda: stage.receiver.ended == 100 + 450)
        await stage.until(lambda: counted(stage, FINISHED) == 100 + 450, within_s=1)

    play(scene, config=CONFIG, took_s=0.15)


def test_what_a_leaving_worker_armed_is_performed_by_the_others() -> None:
    """At its time, and not counted as an attempt of the one that left."""
    audience = Audience()

    async def scene(stage: Stage) -> None:
        await stage.settle()
        await burst_of(stage, 40)
        await stage.until(lambda: counted(stage, RUNNING) == 40, within_s=9.9)
        stage.members[0].stop.set()
        await asyncio.wait([stage.members[0].task])
        assert audience.counts["attempts_disarmed"] > 0
        await stage.until(lambda: stage.receiver.ended == 40, within_s=30)
        assert 0 <= min(start.late_s for start in stage.receiver.starts)
        finished = "SELECT count(*) FROM finished_action WHERE attempts = 1 AND succeeded = 1"
        await stage.until(lambda: counted(stage, finished) == 40)

    play(scene, observer=audience, config=CONFIG)


def test_what_a_dead_worker_armed_is_performed_at_its_time() -> None:
    """Interrupted before it was due: that is not a reason to begin it early."""

    async def scene(stage: Stage) -> None:
        await stage.settle()
        await burst_of(stage, 40)
        await stage.until(lambda: counted(stage, RUNNING) == 40, within_s=9.9)
        stage.members[0].kill()
        await stage.until(lambda: stage.receiver.ended == 40, within_s=90)
        assert 0 <= min(start.late_s for start in stage.receiver.starts)

    play(scene, config=CONFIG)


def test_what_finds_no_slot_is_handed_back() -> None:
    """It is begun anew when there is one, and was never counted."""
    audience = Audience()

    async def scene(stage: Stage) -> None:
        await stage.settle()
        await burst_of(stage, 20, timeout=MINUTE)
        await stage.until(lambda: counted(stage, RUNNING) == 20, within_s=9.9)
        await stage.create(60, timeout=MINUTE)  # slow ones: they have all slots when the time comes
        await stage.until(lambda: stage.receiver.ended == 80, within_s=200)
        assert audience.counts["attempts_disarmed"] > 0
        finished = "SELECT count(*) FROM finished_action WHERE attempts = 1 AND succeeded = 1"
        await stage.until(lambda: counted(stage, finished) == 80)

    config = WorkerConfig(concurrency=10, burst_least=3, soon=NOT_SOON)
    play(scene, observer=audience, config=config, took_s=16.0)


def late_of(config: WorkerConfig, *, limited: bool = False) -> tuple[list[float], Audience]:
    """How late some actions are that are due one after the other, and what was told of it."""
    audience, late_s = Audience(), list[float]()

    async def scene(stage: Stage) -> None:
        await stage.settle()
        if limited:
            await stage.limit("queue", "default", parallel=100)
            await asyncio.sleep(2)
        at = await stage.store.installation.now() + timedelta(seconds=3)
        for number in range(10):
            await stage.create(1, start_at=at + number * timedelta(milliseconds=170))
        await stage.until(lambda: stage.receiver.ended == 10, within_s=10)
        late_s.extend(start.late_s for start in stage.receiver.starts)

    play(scene, observer=audience, config=config)
    return late_s, audience


def test_a_single_action_is_armed_shortly_before_its_time() -> None:
    """So at its time it waits for a look, and not for a write; none is early."""
    late_s, audience = late_of(SINGLE)
    assert 10 == audience.counts["attempts_armed"]
    assert 0 <= min(late_s)
    assert max(late_s) < 0.02
    _, audience = late_of(CONFIG)
    assert 0 == audience.counts["attempts_armed"]


def test_single_actions_of_a_limited_queue_are_left_to_their_time() -> None:
    """And nobody asks for them again and again meanwhile."""
    late_s, audience = late_of(SINGLE, limited=True)
    assert 10 == len(late_s)
    assert 0 == audience.counts["attempts_armed"]


def test_what_is_cancelled_in_the_last_moment_is_not_performed() -> None:
    """It is armed by then: the look at its time finds that it does not stand."""
    audience = Audience()

    async def scene(stage: Stage) -> None:
        await stage.settle()
        at = await stage.store.installation.now() + timedelta(seconds=3)
        await stage.create(3, start_at=at)
        await stage.until(lambda: counted(stage, RUNNING) == 3, within_s=3)
        assert await stage.store.installation.now() < at
        ((id,),) = stage.runner.connection.execute("SELECT id FROM scheduled_action LIMIT 1")
        await stage.store.actions.delete(id, if_match=None)
        assert await stage.store.installation.now() < at
        await stage.until(lambda: stage.receiver.ended == 2)
        await asyncio.sleep(2)
        assert id not in {start.id for start in stage.receiver.starts}
        assert 1 == audience.counts["attempts_disarmed"]

    config = WorkerConfig(concurrency=20, soon=timedelta(milliseconds=300))
    play(scene, observer=audience, config=config)


def test_what_is_due_soon_and_held_is_left_to_its_time() -> None:
    """Whoever has no slot, or whose row somebody holds, does not make the worker ask for it in one
    round after the other."""
    asked: list[int] = []

    async def scene(stage: Stage) -> None:
        await stage.settle()
        at = await stage.store.installation.now() + timedelta(seconds=3)
        await stage.create(1, start_at=at)
        await asyncio.sleep(1)
        begin = stage.store.work.begin

        async def refuse(*args: Any, **named: Any) -> Any:
            if named.get("until") is not None:
                asked.append(1)
                args = ([msgspec.structs.replace(each, limit=0) for each in args[0]],)
            return await begin(*args, **named)

        with patch.object(stage.store.work, "begin", refuse):
            await stage.until(lambda: stage.receiver.ended == 1, within_s=10)
        (start,) = stage.receiver.starts
        assert 0 <= start.late_s < 0.1
        assert 1 <= len(asked) <= 2

    play(scene, config=SINGLE)


def test_a_queue_with_a_limit_is_not_armed() -> None:
    """How many of its attempts may begin is known at their time."""
    audience = Audience()

    async def scene(stage: Stage) -> None:
        await stage.limit("queue", "default", parallel=3)
        await stage.settle()
        await burst_of(stage, 40)
        await stage.until(lambda: stage.receiver.ended == 40, within_s=60)
        assert 0 == audience.counts["attempts_armed"]
        assert 3 == stage.receiver.most["mock"]

    play(scene, observer=audience, config=CONFIG)
