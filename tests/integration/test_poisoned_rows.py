"""One row that nobody can read or decide ends itself, and neither a worker nor its neighbours."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest

from gnomon.app import App
from gnomon.config import DatabaseConfig, Settings
from gnomon.executors.python import AttemptContext
from gnomon.model.action import State
from gnomon.model.errors import NotFound
from gnomon.model.spec import CatchUp, Cron, Python, Spec
from gnomon.scheduler import Request
from tests.fixtures.postgres import PostgresSchema

WITHIN_S = 60.0
ZONE = "Europe/Kyiv"


@dataclass
class Place:
    """An installation, and a way to write into it behind its back."""

    app: App
    write: Callable[[str], Awaitable[None]]


def settings(url: str, schema: str = "gnomon") -> Settings:
    return replace(Settings(), database=DatabaseConfig(url=url, schema=schema))


@pytest.fixture(params=["sqlite", "postgres"])
async def place(
    request: pytest.FixtureRequest, tmp_path: Path, installed_schema: PostgresSchema
) -> Place:
    if request.param == "postgres":
        dsn, schema = installed_schema

        async def execute(sql: str) -> None:
            connection = await asyncpg.connect(dsn)
            await connection.execute(sql.format(schema=f"{schema}."))
            await connection.close()

        return Place(App(settings=settings(dsn, schema), migrate=True), execute)
    path = tmp_path / "poison.db"

    async def change(sql: str) -> None:
        connection = sqlite3.connect(path)
        connection.executescript(sql.format(schema=""))
        connection.close()

    return Place(App(settings=settings(f"sqlite:///{path}")), change)


UNKNOWN_ZONE = "UPDATE {schema}scheduled_action SET spec = replace(spec, 'Europe/Kyiv', 'No/Where')"
SPEC = "UPDATE {schema}scheduled_action SET spec = '%s' WHERE id = 'poison'"
POISONS = {
    "unknown zone": UNKNOWN_ZONE,
    "no JSON": SPEC % "{{",
    "unknown kind": SPEC % '{{"action": {{"type": "telepathy"}}}}',
    "another type": SPEC % '{{"action": 5}}',
    "no period": SPEC
    % (
        '{{"action": {{"type": "mock"}}, "policy": {{"type": "periodic", "period": "PT0S"}}, '
        '"start_at": "2026-01-01T00:00:00Z"}}'
    ),
    "oversized": SPEC % ('{{"action": {{"type": "mock", "answer": "' + "x" * 3_000_000 + '"}}}}'),
}


@pytest.mark.parametrize("poison", POISONS)
async def test_a_poisoned_row_ends_alone(place: Place, poison: str) -> None:
    """It is performed once at most and ends; what is due with it is performed; the worker lives."""
    app, calls = place.app, list[str]()

    @app.action
    async def note(attempt: AttemptContext) -> None:
        calls.append(attempt.id)

    async with app:
        cron = Cron(expression="* * * * *", timezone=ZONE)
        await app.scheduler.create(
            Request(id="poison", spec=Spec(action=Python(function="note"), policy=cron))
        )
        await place.write(POISONS[poison])
        with suppress(NotFound):
            await app.scheduler.run_now("poison")
        for number in range(20):
            await app.scheduler.create(Request(id=f"n{number}", spec=Spec(action=note())))
        stop = asyncio.Event()
        working = asyncio.create_task(app.work(stop))
        async with asyncio.timeout(WITHIN_S):
            while (found := await app.scheduler.get("poison")).status.state is State.ACTIVE:
                await asyncio.sleep(0.02)
            while len({id for id in calls if id != "poison"}) < 20:
                await asyncio.sleep(0.02)
        assert not working.done()
        assert 1 >= calls.count("poison")
        assert 1 == found.status.attempts
        assert 0 == found.status.interrupted
        stop.set()
        await working


async def test_a_missed_time_of_an_unknown_zone_ends_its_action(place: Place) -> None:
    """The sweep decides it: dead, with a reason that names the zone; the worker goes on."""
    app = place.app
    cron = Cron(expression="* * * * *", timezone=ZONE)
    spec = Spec(
        action=Python(function="never"),
        policy=cron,
        catch_up=CatchUp(mode="none"),
        active=timedelta(seconds=1),
    )
    async with app:
        await app.scheduler.create(Request(id="poison", spec=spec))
        await place.write(UNKNOWN_ZONE)
        for table in ("scheduled_action", "incoming_queue"):
            await place.write(f"UPDATE {{schema}}{table} SET scheduled_at = {await _early(place)}")
        await place.write(
            f"UPDATE {{schema}}scheduled_action SET expires_at = {await _early(place)}"
        )
        stop = asyncio.Event()
        working = asyncio.create_task(app.work(stop))
        async with asyncio.timeout(WITHIN_S):
            while (found := await app.scheduler.get("poison")).status.state is State.ACTIVE:
                await asyncio.sleep(0.02)
        assert State.DEAD == found.status.state
        assert "No/Where" in (found.status.reason or "")
        assert not working.done()
        stop.set()
        await working


async def _early(place: Place) -> str:
    """A moment just past, as this engine writes it."""
    installation = place.app.store.installation
    now = await installation.now() - timedelta(seconds=5)
    if "sqlite" in place.app.settings.database.url:
        return str(int(now.timestamp() * 1_000_000))
    return f"'{now.isoformat()}'"
