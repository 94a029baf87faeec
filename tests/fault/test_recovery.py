"""What a killed worker was doing is tried again within two seconds, where its death is provable."""

from __future__ import annotations

import os
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import quantiles

import pytest

from gnomon.app import App
from tests.fault.history import Run
from tests.fault.program import hold_first, let_go_file, note
from tests.fault.stage import Stage, all_done, create_all, request, stop_all, until

pytestmark = [pytest.mark.slow, pytest.mark.alone]

IS_FULL = bool(os.environ.get("GNOMON_FAULT_FULL"))
# `make fault-full` holds the promise, two seconds. The default run asks for less: a machine that
# runs all tests at once may stand still for longer. What a kill cost before is far from it, too.
RECOVERED_MAX_S = 2.0 if IS_FULL else 20.0
KILLS = 5 if IS_FULL else 1  # of each engine, with and without sibling
HELD = 24
BESIDE = 300
TIMEOUT = timedelta(seconds=60)  # what a kill cost before
# The product's own, not the short ones of the other tests.
OPTIONS = [
    *("--lease", "10", "--heartbeat", "0.5", "--step-down", "3", "--grace", "5", "--window", "60"),
    *("--poll", "0.2", "--sweep", "15", "--silent", "1.5"),
]


class Workers:
    """At work on a stage; one of them is killed again and again."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    async def start(self) -> None:
        """Until they work."""

    async def kill(self) -> int:
        """Kill the one that works; its number."""
        raise NotImplementedError

    async def restore(self) -> None:
        """As many as before."""

    async def stop(self) -> list[int]:
        raise NotImplementedError


class Restarted(Workers):
    """One worker; when it is killed it is started again, without delay."""

    async def start(self) -> None:
        self._brood = self._stage.launch_brood("--workers", "1", *OPTIONS)

    async def kill(self) -> int:
        victim = self._stage.latest_process()
        os.kill(victim, signal.SIGKILL)
        await until(lambda: not Path(f"/proc/{victim}").exists(), "end", poll_s=0.002)
        self._stage.deaths[victim] = datetime.now(UTC)
        return victim

    async def stop(self) -> list[int]:
        return await stop_all(self._brood)


class Siblings(Workers):
    """Two workers; the one that is left has to notice."""

    async def start(self) -> None:
        self._workers = [await self._stage.worker(*OPTIONS) for _ in range(2)]

    async def kill(self) -> int:
        latest = self._stage.latest_process()
        (victim,) = (one for one in self._workers if one.process_id == latest)
        self._stage.kill(victim)
        self._workers.remove(victim)
        return victim.process_id

    async def restore(self) -> None:
        self._workers.append(await self._stage.worker(*OPTIONS))

    async def stop(self) -> list[int]:
        return await stop_all(*self._workers)


@pytest.mark.parametrize("kind", [Restarted, Siblings])
async def test_what_was_interrupted_is_tried_again_within_seconds(
    stage: Stage, kind: type[Workers]
) -> None:
    """From the kill to the next begin, by the database's clock; nothing is lost or overlaps."""
    names: list[str] = []
    workers = kind(stage)
    async with stage.app() as app:
        await workers.start()
        p99_s = await _measured(stage, app, workers, names)
        assert {0} == set(await workers.stop())
        await stage.assert_kept(app, names)
        assert p99_s <= RECOVERED_MAX_S


async def _measured(stage: Stage, app: App, workers: Workers, names: list[str]) -> float:
    found: list[float] = []
    for _ in range(KILLS):
        found += await _round(stage, app, workers, names)
    p99_s = quantiles(found, n=100, method="inclusive")[98] if len(found) > 1 else found[0]
    print(f"\n  {KILLS} kills, {len(found)} interrupted: p99 {p99_s:.2f} s, max {max(found):.2f} s")
    return p99_s


async def _round(stage: Stage, app: App, workers: Workers, names: list[str]) -> list[float]:
    """Kill a worker in the middle of its work; how long each of its attempts was waited for."""
    let_go_file(stage.log).unlink(missing_ok=True)
    first, started = len(names), stage.start_count()
    held = [request(f"held-{first + n}", hold_first(n), timeout=TIMEOUT) for n in range(HELD)]
    names += await create_all(app, held)
    await stage.started(started + HELD)
    beside = [request(f"beside-{first + n}", note(n, n % 7 / 100)) for n in range(BESIDE)]
    names += await create_all(app, beside)
    killed_at = await app.store.installation.now()
    process_id = await workers.kill()
    cut = [run for run in stage.runs() if run.pid == process_id and run.ended_at is None]
    assert cut, "the kill hit no attempt: the test shows nothing"
    begins = [await _next_begin(app, run) for run in cut]
    let_go_file(stage.log).touch()
    await all_done(app, len(names), timeout_s=30.0)
    await workers.restore()
    return [(begin - killed_at).total_seconds() for begin in begins]


async def _next_begin(app: App, run: Run) -> datetime:
    """When the attempt after this one began."""
    found: list[datetime] = []

    async def is_begun() -> bool:
        action = await app.scheduler.get(run.id)
        attempts = [*await app.scheduler.attempts(run.id), action.status.current_attempt]
        found.extend(
            one.began_at for one in attempts if one is not None and one.attempt_no > run.attempt_no
        )
        return bool(found)

    await until(is_begun, f"another attempt of {run.id}", timeout_s=90.0)
    return min(found)
