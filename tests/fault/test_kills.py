"""Workers are killed with SIGKILL while they work."""

from __future__ import annotations

import random

import pytest

from gnomon.model.action import State
from gnomon.model.spec import Mock
from tests.fault.program import note
from tests.fault.stage import Stage, all_done, create_all, request, stop_all, until
from tests.fixtures.processes import ChildProcess

ACTION_COUNT = 10_000


@pytest.mark.slow
async def test_ten_thousand_actions_survive_kills_on_sqlite(sqlite_stage: Stage) -> None:
    """All actions are done although their only worker is killed again and again."""
    await _survives(sqlite_stage, worker_count=1, kill_count=3)


@pytest.mark.slow
async def test_ten_thousand_actions_survive_kills_on_postgres(postgres_stage: Stage) -> None:
    """All actions are done although one of two workers is killed again and again."""
    await _survives(postgres_stage, worker_count=2, kill_count=6)


async def _survives(stage: Stage, *, worker_count: int, kill_count: int) -> None:
    chooser = random.Random()
    async with stage.app() as app:
        wanted = [request(f"a-{n}", note(n, n % 7 / 200)) for n in range(ACTION_COUNT)]
        names = await create_all(app, wanted)
        workers = {worker.process_id: worker for worker in await _start(stage, worker_count)}
        victims: set[int] = set()
        step = int(ACTION_COUNT * 0.8 / kill_count)
        for number in range(1, kill_count + 1):
            await stage.started(number * step - chooser.randrange(step // 2))
            await until(lambda: stage.latest_process() in workers, "a worker at work")
            victim = workers.pop(stage.latest_process())
            assert victim.is_running, victim.log
            stage.kill(victim)
            victims.add(victim.process_id)
            successor = stage.launch()  # not waited for: the others would be done before
            workers[successor.process_id] = successor
        await all_done(app, ACTION_COUNT)
        history = await stage.assert_kept(app, names)
        cut = [run for run in history.runs if run.ended_at is None]
        print(f"  {kill_count} kills, {len(cut)} attempts cut short")
        assert {run.pid for run in cut} <= victims
        assert cut, "no kill hit an attempt: the test shows nothing"
        assert [0] * worker_count == await stop_all(*workers.values())


async def _start(stage: Stage, count: int) -> list[ChildProcess]:
    return [await stage.worker() for _ in range(count)]


@pytest.mark.slow
async def test_poison_ends_dead_and_the_others_go_on(stage: Stage) -> None:
    """An action that kills its worker each time is given up; what was beside it is done."""
    async with stage.app() as app:
        poison = request("poison", Mock(kill=1_000), interruptions_max=2)
        await create_all(app, [poison])
        names: list[str] = []
        worker = stage.launch()

        async def is_dead() -> bool:
            nonlocal worker
            if not worker.is_running:
                stage.note_death(worker)
                worker = stage.launch()
                names.append(f"beside-{len(names)}")
                await create_all(app, [request(names[-1], note(len(names), 0.05))])
            return (await app.scheduler.get("poison")).status.state is not State.ACTIVE

        await until(is_dead, "end of the poison")
        await all_done(app, len(names))
        found = (await app.scheduler.get("poison")).status
        assert State.DEAD == found.state
        assert "interrupted: the worker's process ended" == found.reason
        assert (3, 3) == (found.attempts, found.interrupted)
        assert ["interrupted"] * 3 == [a.outcome for a in await app.scheduler.attempts("poison")]
        assert 3 == len(names), "each attempt killed one worker"
        await stage.assert_kept(app, names, unknown=["poison"])
        assert [0] == await stop_all(worker)
