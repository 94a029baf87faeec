"""Workers are killed while SQL actions are under way in the installation's own database."""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
from collections.abc import Iterator
from functools import partial
from typing import Any

import psycopg
import pytest
from psycopg import sql

from gnomon.app import App
from gnomon.model.action import State
from tests.fault.own_effects import EFFECTS, granted, login_of, wanted
from tests.fault.stage import (
    Stage,
    all_actions,
    all_attempts,
    all_done,
    counted,
    create_all,
    stop_all,
    until,
)
from tests.fixtures.processes import ChildProcess

KILLS = 60
KILLED_ATTEMPTS_MIN = 50
WORKERS = 4
WAITING_MIN = 100  # so that every kill finds workers at work
WAVE = 200
BEGUN = "SELECT count(*) FROM {0}.processing_queue WHERE running AND owner LIKE %s"


@pytest.fixture
def login(postgres_stage: Stage) -> Iterator[str]:
    with login_of(postgres_stage.url) as name:
        yield name


class Field:
    """Actions to be done, and workers to be killed at it."""

    def __init__(self, app: App, owner: psycopg.Connection[Any], schema: str) -> None:
        self.app = app
        self._owner = owner
        self._schema = sql.Identifier(schema)
        self.action_count = 0

    def asked(self, text: str, *values: object) -> tuple[Any, ...]:
        row = self._owner.execute(sql.SQL(text).format(self._schema), values).fetchone()
        assert row is not None
        return tuple(row)

    async def fill(self) -> None:
        """Enough actions for the next kill."""
        done = (await counted(self.app))[State.DONE]
        if self.action_count - done >= WAITING_MIN:
            return
        numbers = range(self.action_count, self.action_count + WAVE)
        await create_all(self.app, [wanted(f"a-{n}", n) for n in numbers])
        self.action_count += WAVE

    def begun_by(self, process_id: int) -> int:
        return int(self.asked(BEGUN, f"%/{process_id}/%")[0])


def living(brood: ChildProcess) -> list[int]:
    """The brood's workers, oldest first."""
    born = [int(found) for found in re.findall(r"^born (\d+)$", brood.log, re.MULTILINE)]
    return [process_id for process_id in born if not _is_dead(process_id)]


def _is_dead(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return True
    return False


async def kill_many(field: Field, brood: ChildProcess) -> int:
    """Kill workers at random moments; how many attempts they were at."""
    chooser, killed = random.Random(), 0
    for _ in range(KILLS):
        await field.fill()
        await asyncio.sleep(chooser.random() * 0.2)

        def at_work() -> list[int]:
            return [each for each in living(brood) if field.begun_by(each)]

        await until(at_work, "worker at work")
        victim = chooser.choice(at_work() or living(brood))
        os.kill(victim, signal.SIGKILL)
        await until(partial(_is_dead, victim), "death")
        killed += field.begun_by(victim)
    return killed


@pytest.mark.slow
async def test_effects_are_committed_once_under_kills(postgres_stage: Stage, login: str) -> None:
    """Workers are killed 60 times in the middle of it: each action's row is there exactly once, and
    every attempt that was cut short is counted."""
    stage = postgres_stage
    async with stage.app() as app:
        with psycopg.connect(stage.url, autocommit=True) as owner:
            dsn = granted(owner, stage, login)
            field = Field(app, owner, stage.schema)
            options = ("--sql-dsn", dsn, "--concurrency", "4")
            brood = stage.launch_brood("--workers", str(WORKERS), *options)
            killed = await kill_many(field, brood)
            # What ends between the looks at the states is in two of them.
            assert (await counted(app)).total() >= field.action_count
            await all_done(app, field.action_count)
            assert [0] == await stop_all(brood)
            found = field.asked(EFFECTS)
        actions = await all_actions(app)
        interrupted = sum(action.status.interrupted for action in actions.values())
        logs = await all_attempts(app, sorted(actions))
        seen = sum("earlier" in (one.answer or "") for log in logs.values() for one in log)
        print(f"\n  {KILLS} kills at {killed} attempts, {interrupted} cut short, {seen} found done")
        assert (field.action_count, field.action_count) == found
        assert killed >= KILLED_ATTEMPTS_MIN, "too few kills hit an attempt"
        assert interrupted >= KILLED_ATTEMPTS_MIN, "attempts that were cut short are not counted"
        assert all(
            status.attempts == status.succeeded + status.failed + status.interrupted
            for status in (action.status for action in actions.values())
        )
        assert [] == list(await app.store.installation.doctor())
