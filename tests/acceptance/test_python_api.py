"""The Python API as the README shows it, on both engines."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

import gnomon
from gnomon.contracts.store import Selection
from gnomon.model.errors import AlreadyExists, InvalidSpec, NotFound

ROOT = Path(__file__).parents[2]
WAIT_S = 20.0


@pytest.fixture(params=["sqlite", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> gnomon.App:
    if request.param == "sqlite":
        return gnomon.App(f"sqlite:///{tmp_path}/gnomon.db")
    dsn, schema = request.getfixturevalue("postgres_schema")
    return gnomon.App(dsn, schema=schema)


@asynccontextmanager
async def working(app: gnomon.App) -> AsyncIterator[None]:
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(app.work(stop))
        try:
            yield
        finally:
            stop.set()


async def ended(app: gnomon.App, id: str) -> gnomon.Action:
    async with asyncio.timeout(WAIT_S):
        while True:
            action = await app.scheduler.get(id)
            if action.status.state.is_terminal:
                return action
            await asyncio.sleep(0.02)


async def test_a_function_is_called_with_its_arguments(app: gnomon.App) -> None:
    """Declare, schedule, work: the function's result is the action's answer."""

    @app.action
    async def add(ctx: gnomon.Attempt, left: int, *, right: int) -> dict[str, object]:
        return {"sum": left + right, "id": ctx.id, "attempt": ctx.attempt_no}

    async with app, working(app):
        action = await app.schedule(add(1, right=2), id="sum")
        finished = await ended(app, action.meta.id)
    assert gnomon.State.DONE is finished.status.state
    assert finished.status.last_attempt is not None
    assert '{"sum":3,"id":"sum","attempt":1}' == finished.status.last_attempt.answer


async def test_a_sync_function_is_called_in_a_thread(app: gnomon.App) -> None:
    """Plain functions do not hold up the loop."""

    @app.action(name="plain")
    def whatever(ctx: gnomon.Attempt, word: str) -> str:
        return f"{ctx.id} {word}"

    async with app, working(app):
        await app.schedule(whatever("hello"), id="sync")
        finished = await ended(app, "sync")
    assert finished.status.last_attempt is not None
    assert '"sync hello"' == finished.status.last_attempt.answer


async def test_failures_are_retried_and_then_the_action_is_dead_and_can_be_armed_again(
    app: gnomon.App,
) -> None:
    """1 + max attempts, visible as dead; `retry` makes a new generation."""
    calls: list[int] = []

    @app.action
    async def fragile(ctx: gnomon.Attempt) -> None:
        calls.append(ctx.attempt_no)
        if len(calls) <= 2:
            raise gnomon.Fail(f"no {len(calls)}")

    async with app, working(app):
        await app.schedule(fragile(), id="fragile", retry=gnomon.Retry(max=1))
        dead = await ended(app, "fragile")
        assert (gnomon.State.DEAD, 2, 2) == (
            dead.status.state,
            dead.status.attempts,
            dead.status.failed,
        )
        assert "retries used up" == dead.status.reason
        outcomes = [attempt.outcome for attempt in await app.scheduler.attempts("fragile")]
        assert ["failed", "failed"] == outcomes
        await app.scheduler.retry("fragile")
        assert gnomon.State.DONE is (await ended(app, "fragile")).status.state
    assert [1, 2, 1] == calls


async def test_a_periodic_action_ends_after_its_successes(app: gnomon.App) -> None:
    """Periods and end conditions."""
    seen: list[tuple[int, datetime]] = []

    @app.action
    async def tick(ctx: gnomon.Attempt) -> None:
        seen.append((ctx.occurrence_no, ctx.scheduled_at))

    async with app, working(app):
        await app.schedule(tick(), id="tick", every="1s", successes_max=3)
        finished = await ended(app, "tick")
    assert 3 == finished.status.succeeded
    assert [1, 2, 3] == [number for number, _ in seen]
    assert [timedelta(seconds=1)] * 2 == [
        later - earlier for (_, earlier), (_, later) in pairwise(seen)
    ]


async def test_nothing_begins_early(app: gnomon.App) -> None:
    """An action waits for its time."""
    moments: list[datetime] = []

    @app.action
    async def later(ctx: gnomon.Attempt) -> None:
        moments.append(datetime.now(UTC))

    due = datetime.now(UTC) + timedelta(seconds=0.7)
    async with app, working(app):
        await app.schedule(later(), at=due, id="later")
        finished = await ended(app, "later")
    assert 1 == len(moments)
    assert finished.status.last_attempt is not None
    assert finished.status.last_attempt.began_at >= due


async def test_the_same_id_twice_is_refused_and_the_same_key_twice_is_not(app: gnomon.App) -> None:
    """Idempotency by key; ids are unique among the living."""
    async with app:
        far = datetime.now(UTC) + timedelta(days=1)
        first = await app.schedule(gnomon.Mock(), id="one", key="k1", at=far)
        again = await app.schedule(gnomon.Mock(), id="one", key="k1", at=far)
        assert first.meta.guid == again.meta.guid
        with pytest.raises(AlreadyExists):
            await app.schedule(gnomon.Mock(), id="one", at=far)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"at": "tomorrow"}, "at"),
        ({"at": "2026-12-24T18:00"}, "at"),
        ({"every": "5 parsecs"}, "every"),
        ({"every": 0.5}, "period"),
        ({"cron": "* * *"}, "expression"),
        ({"cron": "0 0 * * *", "timezone": "Mars/Olympus"}, "timezone"),
        ({"every": 5, "cron": "0 0 * * *"}, "every"),
        ({"timezone": "UTC"}, "timezone"),
        ({"id": "a b"}, "id"),
        ({"timeout": -1}, "timeout"),
        ({"priority": 10}, "priority"),
    ],
)
async def test_bad_options_are_named(
    options: dict[str, object], field: str, tmp_path: Path
) -> None:
    """A clear error each, and nothing stored."""
    async with gnomon.App(f"sqlite:///{tmp_path}/gnomon.db") as app:
        with pytest.raises(InvalidSpec, match=field):
            await app.schedule(gnomon.Mock(), **options)  # type: ignore[arg-type]
        assert 0 == sum((await app.store.actions.count()).values())


async def test_scheduling_in_a_sqlite_transaction_follows_its_fate(tmp_path: Path) -> None:
    """Rolled back: never there. Committed: there, and attempted."""
    app = gnomon.App(f"sqlite:///{tmp_path}/gnomon.db")
    async with app, working(app):
        connection = sqlite3.connect(tmp_path / "gnomon.db", isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        await app.schedule(gnomon.Mock(), id="gone", connection=connection)
        connection.execute("ROLLBACK")
        connection.execute("BEGIN IMMEDIATE")
        await app.schedule(gnomon.Mock(), id="kept", connection=connection)
        connection.execute("COMMIT")
        connection.close()
        assert gnomon.State.DONE is (await ended(app, "kept")).status.state
        with pytest.raises(NotFound):
            await app.scheduler.get("gone")


@pytest.mark.parametrize(
    ("example", "expected"),
    [
        ("hello.py", "hello ann, this is attempt 1"),
        ("in_your_transaction.py", "after the commit: active"),
    ],
)
def test_examples_do_what_they_say(example: str, expected: str, tmp_path: Path) -> None:
    """Examples are programs, not prose."""
    target = f"sqlite:///{tmp_path}/e.db" if example == "hello.py" else str(tmp_path / "e.db")
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / example), target],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert 0 == done.returncode, done.stderr
    assert expected in done.stdout


async def test_the_readme_begins_with_code_that_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first screen of the README, executed as it stands there."""
    monkeypatch.chdir(tmp_path)
    readme = (ROOT / "README.md").read_text()
    found = re.search(r"```python\n(import gnomon.*?)```", readme, re.DOTALL)
    assert found is not None
    lines = "".join(f"    {line}\n" for line in found[1].splitlines())
    names: dict[str, object] = {}
    exec(f"async def screen():\n{lines}    return app\n", names)
    app = await names["screen"]()  # type: ignore[operator]
    async with app:
        ids = [action.meta.id for action in (await app.scheduler.list(Selection())).actions]
    assert ["ping", "welcome-ann"] == ids
