"""Workers that do not all serve the same: a rolling deploy, a roll-back, queues of their own."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio

import gnomon
from gnomon.model.spec import Effect, Python
from gnomon.worker.unserved import find_unserved
from tests.fixtures.processes import ChildProcess, Processes

WAIT_S = 40.0
COUNT = 40
OLD = """
import gnomon

app = gnomon.App("sqlite:///:memory:")


@app.action
async def welcome(ctx: gnomon.Attempt) -> str:
    return "old"
"""
NEW = f"""{OLD.replace('"old"', '"new"')}

@app.action
def farewell(ctx: gnomon.Attempt) -> str:
    return "new"
"""


class Fleet(NamedTuple):
    """An open installation, and how to start a worker on it."""

    app: gnomon.App
    start: Callable[..., ChildProcess]

    async def schedule(self, effect: Effect, prefix: str, **options: object) -> list[str]:
        """So many actions that are due now, without a single retry."""
        ids = [f"{prefix}-{number}" for number in range(COUNT)]
        for id in ids:
            await self.app.schedule(effect, id=id, retry=gnomon.Retry(max=0), **options)  # type: ignore[arg-type]
        return ids

    async def shared_by(self, count: int) -> None:
        """Wait until so many workers have shards, and all shards are held."""
        async with asyncio.timeout(WAIT_S):
            while True:
                locks = await self.app.store.leases.list_locks()
                owners = {lock.owner for lock in locks}
                if None not in owners and len(owners) == count:
                    return
                await asyncio.sleep(0.05)

    async def unserved(self) -> list[tuple[str, int]]:
        """What the doctor shows."""
        shards = range(self.app.installation.shard_count)
        return [(one.need, one.count) for one in await find_unserved(self.app.store, shards)]

    async def ended(self, ids: Sequence[str]) -> Counter[tuple[str, int]]:
        """How they ended, and after how many attempts."""
        async with asyncio.timeout(WAIT_S):
            while True:
                actions = [await self.app.scheduler.get(id) for id in ids]
                if all(action.status.state.is_terminal for action in actions):
                    return Counter((one.status.state.value, one.status.attempts) for one in actions)
                await asyncio.sleep(0.1)


@pytest_asyncio.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def fleet(
    request: pytest.FixtureRequest, tmp_path: Path, processes: Processes
) -> AsyncIterator[Fleet]:
    url, schema = f"sqlite:///{tmp_path}/gnomon.db", "gnomon"
    if request.param == "postgres":
        url, schema = request.getfixturevalue("postgres_schema")
    (tmp_path / "old.py").write_text(OLD)
    (tmp_path / "new.py").write_text(NEW)

    def start(*arguments: str) -> ChildProcess:
        database = ("--database", url, "--schema", schema)
        worker = processes.start_gnomon(
            "worker", *database, *arguments, env={"PYTHONPATH": str(tmp_path)}
        )
        worker.wait_for_line("working on")
        return worker

    async with gnomon.App(url, schema=schema, migrate=True) as app:
        yield Fleet(app, start)
        processes.close()  # or their transactions would hold the schema


async def test_a_rolling_deploy_fails_nothing(fleet: Fleet) -> None:
    """Old and new workers share the shards: each action is done by one that knows its function, at
    its first attempt, whoever began it before."""
    fleet.start("--import", "old:app")
    fleet.start("--import", "new:app")
    fleet.start()  # one without any function
    await fleet.shared_by(3)

    old = await fleet.schedule(Python(function="welcome"), "old")
    new = await fleet.schedule(Python(function="farewell"), "new")

    assert Counter({("done", 1): COUNT}) == await fleet.ended(old)
    assert Counter({("done", 1): COUNT}) == await fleet.ended(new)
    assert [] == list(await fleet.app.store.installation.doctor())


async def test_what_nobody_serves_waits_and_is_shown(fleet: Fleet) -> None:
    """A roll-back, or a function that was renamed: nothing is lost, and it goes on with the next
    worker that knows the name."""
    fleet.start("--import", "old:app")
    await fleet.shared_by(1)
    ids = await fleet.schedule(Python(function="farewell"), "late")

    async with asyncio.timeout(WAIT_S):
        while ("function farewell", COUNT) not in await fleet.unserved():
            await asyncio.sleep(0.2)

    action = await fleet.app.scheduler.get(ids[0])
    assert ("function farewell", 0) == (action.status.need, action.status.attempts)
    await fleet.app.scheduler.delete(ids[0])
    fleet.start("--import", "new:app")
    assert Counter({("done", 1): COUNT - 1}) == await fleet.ended(ids[1:])
    assert [] == await fleet.unserved()


async def test_each_worker_serves_its_queues(fleet: Fleet) -> None:
    """Both hold shards with actions of both queues; neither strands what the other serves."""
    fleet.start("--import", "new:app", "--queues", "mail")
    fleet.start("--import", "new:app", "--queues", "reports,default")
    await fleet.shared_by(2)

    effect = Python(function="farewell")
    mail = await fleet.schedule(effect, "mail", queue="mail")
    reports = await fleet.schedule(effect, "reports", queue="reports")

    assert Counter({("done", 1): COUNT}) == await fleet.ended(mail)
    assert Counter({("done", 1): COUNT}) == await fleet.ended(reports)
