"""What a worker has counted is there after it has gone."""

from __future__ import annotations

import asyncio
from pathlib import Path

from gnomon import Attempt
from gnomon.app import App
from gnomon.contracts.store import Selection
from gnomon.model.action import State

PATIENCE_S = 60.0


async def test_the_history_outlives_the_worker(tmp_path: Path) -> None:
    """Two attempts, one of which failed: by queue, and among all."""
    app = App(f"sqlite:///{tmp_path / 'history.db'}")

    @app.action
    async def greet(_: Attempt) -> str:
        return "hello"

    @app.action
    async def stumble(_: Attempt) -> None:
        raise ValueError("no")

    async with app:
        await app.schedule(greet(), id="a", queue="mail")
        await app.schedule(stumble(), id="b")
        stop = asyncio.Event()
        working = asyncio.create_task(app.work(stop))
        async with asyncio.timeout(PATIENCE_S):
            while len(await ended(app)) < 2:
                await asyncio.sleep(0.01)
        stop.set()
        await working
        reports = app.scheduler.reports
        everything, mail = await reports.history(), await reports.history(queue="mail")
        assert (2, 1, 1, 1) == tuple(
            sum(getattr(point, name) for point in everything.points)
            for name in ("begun", "succeeded", "failed", "dead")
        )
        assert (1, 1, 0) == tuple(
            sum(getattr(point, name) for point in mail.points)
            for name in ("begun", "succeeded", "failed")
        )
        assert 2 == sum(sum(point.lateness.counts) for point in everything.points)


async def ended(app: App) -> list[str]:
    page = await app.scheduler.list(Selection(states=(State.DONE, State.DEAD)))
    return [action.meta.id for action in page.actions]
