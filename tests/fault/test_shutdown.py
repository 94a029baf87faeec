"""SIGTERM: a worker leaves without leaving anything behind."""

from __future__ import annotations

import signal
from datetime import timedelta

import pytest

from gnomon.app import App
from tests.fault.program import SHARD_COUNT, hold_first, note
from tests.fault.stage import (
    Stage,
    all_actions,
    all_done,
    create_all,
    owners,
    request,
    stop_all,
    until,
)

LONG = timedelta(seconds=60)
SHUT_DOWN = "the worker was shut down"


async def _holding(app: App, count: int) -> list[str]:
    wanted = [request(f"h-{n}", hold_first(n), timeout=LONG) for n in range(count)]
    return await create_all(app, wanted)


@pytest.mark.slow
async def test_sigterm_lets_attempts_end(stage: Stage) -> None:
    """What can end within the drain time ends: no attempt is cut short, the exit code is 0."""
    async with stage.app() as app:
        worker = await stage.worker()
        wanted = [request(f"a-{n}", note(n, 0.8), timeout=LONG) for n in range(20)]
        names = await create_all(app, wanted)
        await stage.started(20)
        assert [0] == await stop_all(worker)
        assert "left" in worker.log
        await stage.assert_kept(app, names)
        assert 20 == stage.start_count()


@pytest.mark.slow
async def test_sigterm_under_load_interrupts_nothing(stage: Stage) -> None:
    """Rolling restarts are free: what has begun ends, and what was being begun is not forgotten."""
    async with stage.app() as app:
        names = await create_all(app, [request(f"a-{n}", note(n, 0.02)) for n in range(5_000)])
        for count in (500, 1_500, 2_500, 3_500):
            worker = await stage.worker()
            await stage.started(count)
            assert [0] == await stop_all(worker)
            running = [
                name
                for name, action in (await all_actions(app)).items()
                if action.status.current_attempt is not None
            ]
            assert [] == running
        worker = await stage.worker()
        await all_done(app, 5_000)
        history = await stage.assert_kept(app, names)
        assert 5_000 == len(history.runs)
        assert [0] == await stop_all(worker)


@pytest.mark.slow
async def test_sigterm_interrupts_what_cannot_end(stage: Stage) -> None:
    """Attempts longer than the drain time are recorded as interrupted and attempted again."""
    async with stage.app() as app:
        worker = await stage.worker("--drain", "1")
        names = await _holding(app, 5)
        await stage.started(5)
        assert [0] == await stop_all(worker)
        logs = [await app.scheduler.attempts(name) for name in names]
        assert [("interrupted", SHUT_DOWN)] * 5 == [(a.outcome, a.error) for (a,) in logs]
        assert {None: SHARD_COUNT} == await owners(app)

        successor = await stage.worker()
        taken_s = await until(lambda: stage.start_count() == 10, "second attempts")
        print(f"\n  attempted again after {taken_s:.2f} s: no lease had to end")
        await all_done(app, 5)
        await stage.assert_kept(app, names)
        statuses = [(await app.scheduler.get(name)).status for name in names]
        assert [0] * 5 == [status.consecutive_interruptions for status in statuses]
        assert [0] == await stop_all(successor)


@pytest.mark.slow
async def test_shards_are_released_before_the_drain_ends(postgres_stage: Stage) -> None:
    """While a worker drains, another one gets all of its shards: nothing waits for the drain."""
    stage = postgres_stage
    async with stage.app() as app:
        leaving = await stage.worker("--drain", "50")
        names = await _holding(app, 5)
        await stage.started(5)
        staying = await stage.worker()

        async def has(process_id: int, count: int) -> bool:
            return (await owners(app))[process_id] == count

        await until(lambda: has(staying.process_id, SHARD_COUNT // 2), "a fair share")
        leaving.send(signal.SIGTERM)
        taken_s = await until(lambda: has(staying.process_id, SHARD_COUNT), "all shards")
        print(f"\n  all shards taken over {taken_s:.2f} s after SIGTERM")
        late = await create_all(app, [request(f"late-{n}", note(n, 0.0)) for n in range(50)])
        await all_done(app, 50)
        assert leaving.is_running, "it still drains"
        stage.let_go()
        assert 0 == leaving.wait()
        await all_done(app, 55)
        await stage.assert_kept(app, [*names, *late], timeout=timedelta(0))
        assert [0] == await stop_all(staying)
