"""`App.schedule(…, if_exists=…)`: what happens to the action that has the id already."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import gnomon
from gnomon.contracts.store import AuditSelection
from gnomon.model.errors import AlreadyExists, InvalidRequest

ENGINES = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]
PING = gnomon.Mock()


@pytest.fixture(params=ENGINES)
def closed_app(request: pytest.FixtureRequest, tmp_path: Path) -> gnomon.App:
    if request.param == "sqlite":
        return gnomon.App(f"sqlite:///{tmp_path}/put.db")
    installed: Any = request.getfixturevalue("installed_schema")
    return gnomon.App(installed.dsn, schema=installed.schema)


@pytest.fixture
async def app(closed_app: gnomon.App) -> AsyncIterator[gnomon.App]:
    async with closed_app as opened:
        yield opened


async def test_an_error_unless_something_else_is_said(app: gnomon.App) -> None:
    await app.schedule(PING, id="one", every="5m")
    with pytest.raises(AlreadyExists):
        await app.schedule(PING, id="one", every="5m")


async def test_keep_keeps_what_is_there(app: gnomon.App) -> None:
    first = await app.schedule(PING, id="one", every="5m", if_exists="keep")
    kept = await app.schedule(PING, id="one", every="6m", if_exists="keep")
    assert (first.meta.guid, first.spec) == (kept.meta.guid, kept.spec)


async def test_replace_gives_the_new_spec_and_an_equal_one_changes_nothing(app: gnomon.App) -> None:
    """Its generation, its counters and its next time stay: a deploy declares it again and again."""
    first = await app.schedule(PING, id="one", every="5m", retry=3, if_exists="replace")
    same = await app.schedule(PING, id="one", every="5m", retry=3, if_exists="replace")
    other = await app.schedule(PING, id="one", every="6m", retry=3, if_exists="replace")

    assert first.meta.guid == same.meta.guid
    assert first.status.scheduled_at == same.status.scheduled_at
    assert same.meta.guid != other.meta.guid
    entries = await app.store.tokens.list_audit(AuditSelection(), limit=100)
    verbs = sorted(
        entry.verb for entry in entries if entry.guid in {first.meta.guid, other.meta.guid}
    )
    assert ["create", "replace"] == verbs, "what changes nothing is in no audit"


async def test_another_start_is_another_spec(app: gnomon.App) -> None:
    """Where it is said. A delay counts from each call."""
    first = await app.schedule(PING, id="one", at="2099-01-01T00:00Z", if_exists="replace")
    same = await app.schedule(PING, id="one", at="2099-01-01T00:00Z", if_exists="replace")
    later = await app.schedule(PING, id="one", at="2099-01-02T00:00Z", if_exists="replace")
    moved = await app.schedule(PING, id="one", in_="1h", if_exists="replace")
    guids = [one.meta.guid for one in (first, same, later, moved)]
    assert (1, 3) == (len(set(guids[:2])), len(set(guids)))


async def test_a_finished_one_is_created_again(app: gnomon.App) -> None:
    first = await app.schedule(PING, id="one", in_="1h")
    await app.scheduler.delete("one")
    for if_exists in ("keep", "replace"):
        how: Any = if_exists
        again = await app.schedule(PING, id="one", in_="1h", if_exists=how)
        assert first.meta.guid != again.meta.guid
        await app.scheduler.delete("one")


async def test_many_at_once_leave_one(app: gnomon.App) -> None:
    """All processes of a program declare the same at their start."""
    calls = [app.schedule(PING, id="one", every="5m", if_exists="replace") for _ in range(8)]
    puts = await asyncio.gather(*calls)
    assert 1 == len({one.meta.guid for one in puts})


async def test_mistakes_are_told(app: gnomon.App) -> None:
    with pytest.raises(InvalidRequest, match="must be error, keep or replace"):
        await app.schedule(PING, id="one", if_exists="upsert")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="is for an action with an id"):
        await app.schedule(PING, if_exists="keep")


async def test_inside_a_transaction_of_the_callers(tmp_path: Path) -> None:
    """It sees what it has stored itself, and rolled back nothing of it was."""
    path = tmp_path / "joined.db"
    async with gnomon.App(f"sqlite:///{path}") as app:
        with closing(sqlite3.connect(path)) as connection:
            for if_exists in ("error", "keep", "replace"):
                how: Any = if_exists
                await app.schedule(PING, id="one", every="5m", if_exists=how, connection=connection)
            changed = await app.schedule(
                PING, id="one", every="6m", if_exists="replace", connection=connection
            )
            connection.rollback()
        assert gnomon.Periodic(period=timedelta(minutes=6)) == changed.spec.policy
        assert None is await app.store.actions.get("one")
