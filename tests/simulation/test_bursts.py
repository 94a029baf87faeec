"""A burst is begun ahead of its time: what is performed, what is handed back, in virtual time."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

from gnomon.contracts.store import ActionStore
from gnomon.worker import WorkerConfig
from tests.simulation.limited import Stage, play
from tests.unit.worker.surroundings import Audience

CONFIG = WorkerConfig(concurrency=20, burst_least=5)  # of each of three workers
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
        at = await burst_of(stage, 30)
        await stage.until(lambda: counted(stage, RUNNING) == 30, within_s=9.9)
        assert [] == stage.receiver.starts
        assert await stage.store.installation.now() < at
        await stage.until(lambda: stage.receiver.ended == 30)
        assert 30 == audience.counts["attempts_armed"]
        assert 30 == len({start.id for start in stage.receiver.starts})
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
    """Not while more of it is due and waits for a slot; and all of them soon after."""

    async def scene(stage: Stage) -> None:
        await stage.settle()
        await stage.create(100)  # then it is known how quick they are, and that more can be armed
        await stage.until(lambda: counted(stage, FINISHED) == 100, within_s=15)
        await burst_of(stage, 300)
        await stage.until(lambda: counted(stage, RUNNING) == 300, within_s=9.9)
        await stage.until(lambda: stage.receiver.ended >= 100 + 60)
        assert counted(stage, FINISHED) == 100
        await stage.until(lambda: stage.receiver.ended == 100 + 300)
        await stage.until(lambda: counted(stage, FINISHED) == 100 + 300, within_s=1)

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

    config = WorkerConfig(concurrency=10, burst_least=3)
    play(scene, observer=audience, config=config, took_s=16.0)


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
