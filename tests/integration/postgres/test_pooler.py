"""Behind a pooler in transaction mode everything works that works without one, but for hints."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from gnomon import Request
from gnomon.app import App
from gnomon.config import Settings
from gnomon.contracts.store import Selection
from gnomon.executors.python import AttemptContext
from gnomon.model.action import State
from gnomon.model.errors import GnomonError
from gnomon.model.spec import Spec
from tests.fixtures.postgres import PostgresSchema

ACTIONS = 200
PATIENCE_S = 60.0


@pytest.fixture
async def app(pooled_schema: PostgresSchema) -> AsyncIterator[App]:
    settings = Settings()
    database = replace(
        settings.database,
        url=pooled_schema.dsn,
        schema=pooled_schema.schema,
        shard_count=4,
        prepared_statements=False,
    )
    async with App(settings=replace(settings, database=database), migrate=True) as opened:
        yield opened


async def test_actions_are_performed_behind_a_pooler(app: App) -> None:
    """Migrated, scheduled, begun, finished, listed and examined through sessions that are shared
    with others; new ones are found by polling."""
    done: set[str] = set()
    all_done, later_done, stop = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @app.action
    async def note(ctx: AttemptContext) -> None:
        done.add(ctx.id)
        if len(done) == ACTIONS:
            all_done.set()
        if ctx.id == "later":
            later_done.set()

    answers = await app.schedule_many([Request(spec=Spec(action=note()))] * ACTIONS)
    working = asyncio.create_task(app.work(stop))
    try:
        async with asyncio.timeout(PATIENCE_S):
            await all_done.wait()
            await app.schedule(note(), id="later")
            await later_done.wait()
    finally:
        stop.set()
        await working

    assert not any(isinstance(answer, GnomonError) for answer in answers)
    page = await app.scheduler.list(Selection(states=(State.DONE,)), limit=500)
    assert ACTIONS + 1 == len(page.actions)
    assert [] == list(await app.store.installation.doctor())
    assert 0 == await app.store.installation.purge(limit=100)
    assert not app.store.capabilities.wakeups


async def test_many_callers_share_few_sessions(app: App) -> None:
    """More transactions at once than there are sessions: none meets another's statement."""

    @app.action
    async def nothing(ctx: AttemptContext) -> None: ...

    later = datetime.now(UTC) + timedelta(hours=1)
    await asyncio.gather(*(app.schedule(nothing(), id=f"a{n}", at=later) for n in range(60)))
    found = await asyncio.gather(*(app.scheduler.get(f"a{n}") for n in range(60)))
    await asyncio.gather(*(app.scheduler.delete(f"a{n}") for n in range(60)))

    assert [f"a{n}" for n in range(60)] == [action.meta.id for action in found]
    assert 0 == (await app.store.actions.count()).get(State.ACTIVE, 0)
