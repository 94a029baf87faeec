"""The Python API as the README shows it, on both engines."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from uuid import UUID

import pytest

import gnomon
from gnomon.model.errors import AlreadyExists, InvalidSpec, NotFound
from gnomon.model.spec import CatchUp

ROOT = Path(__file__).parents[2]
WAIT_S = 60.0


@pytest.fixture(params=["sqlite", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> gnomon.App:
    if request.param == "sqlite":
        return gnomon.App(f"sqlite:///{tmp_path}/gnomon.db")
    dsn, schema = request.getfixturevalue("postgres_schema")
    return gnomon.App(dsn, schema=schema, migrate=True)


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


@dataclass(frozen=True)
class Receipt:
    """What a function is given and gives back."""

    order: UUID
    total: Decimal
    items: tuple[str, ...] = ()


async def test_arguments_and_results_have_their_types(app: gnomon.App) -> None:
    """By their annotations, through the store and back; and whoever does not know the function gets
    plain JSON."""
    seen: list[object] = []

    @app.action
    def total(ctx: gnomon.Attempt, order: UUID, price: Decimal, at: datetime | None) -> Receipt:
        seen.extend((order, price, at))
        return Receipt(order, 2 * price, ("a", "b"))

    order, at = UUID(int=7), datetime(2026, 1, 2, tzinfo=UTC)
    async with app, working(app):
        await app.schedule(total(order, Decimal("1.10"), at=at), id="total")
        result = await app.result("total", timeout=WAIT_S)
        async with gnomon.App(settings=app.settings) as other:
            plain = await other.result("total")
    assert [order, Decimal("1.10"), at] == seen
    assert Receipt(order, Decimal("2.20"), ("a", "b")) == result
    assert {"order": str(order), "total": "2.20", "items": ["a", "b"]} == plain


async def test_a_large_result_is_kept_whole(app: gnomon.App) -> None:
    """Up to 64 KiB, of any text; listings show its beginning."""
    text = ("\N{SNOWMAN}\"\\\n'" * 20_000)[:20_000]

    @app.action
    async def large(ctx: gnomon.Attempt, count: int) -> str:
        return text * count

    async with app, working(app):
        await app.schedule(large(1), id="large")
        await app.schedule(large(4), id="larger")
        assert text == await app.result("large", timeout=WAIT_S)
        with pytest.raises(gnomon.NoResult, match=r"is done and has no result: a result of \d+ by"):
            await app.result("larger", timeout=WAIT_S)
        page = await app.scheduler.list(gnomon.Selection(id_prefix="large"))
        (attempt,) = await app.scheduler.attempts("large")
    shown = [one.status.last_attempt for one in page.actions]
    assert [2048, 2048] == [len(one.answer or "") for one in shown if one is not None]
    assert attempt.answer is not None
    assert 2048 == len(attempt.answer)


async def test_who_waits_for_a_result_is_told_why_there_is_none(app: gnomon.App) -> None:
    """It did not succeed, it recurs, it is not there, it is not done yet."""

    @app.action
    async def fail(ctx: gnomon.Attempt) -> None:
        raise ValueError("no such user")

    async with app, working(app):
        await app.schedule(fail(), id="dead")
        await app.schedule(fail(), id="later", in_="1h")
        await app.schedule(fail(), id="often", every="1h", in_="1h")
        with pytest.raises(gnomon.NoResult, match="retries used up; ValueError: no such user"):
            await app.result("dead", timeout=WAIT_S)
        with pytest.raises(TimeoutError, match=r"action later has not ended within 0\.01 s"):
            await app.result("later", timeout=0.01)
        await app.scheduler.delete("later")
        with pytest.raises(gnomon.NoResult, match="is cancelled and has no result: deleted"):
            await app.result("later")
        with pytest.raises(gnomon.InvalidRequest, match="often recurs"):
            await app.result("often")
        with pytest.raises(NotFound, match="'never' does not exist"):
            await app.result("never")


async def test_a_changed_signature_ends_visibly(app: gnomon.App) -> None:
    """What was stored for the release before is not guessed at, and no retry is wasted on it."""
    called: list[object] = []

    @app.action
    async def greet(ctx: gnomon.Attempt, name: str) -> None:
        called.append(name)

    async with app, working(app):
        await app.schedule(
            gnomon.Python(function="greet", args=[7]), id="old", retry=gnomon.Retry(max=3)
        )
        finished = await ended(app, "old")
    assert [] == called
    assert (gnomon.State.DEAD, 1) == (finished.status.state, finished.status.attempts)
    assert finished.status.last_attempt is not None
    assert (
        "greet(): the argument 'name' was stored as 7, and str is wanted: Expected `str`, got `int`"
        == finished.status.last_attempt.error
    )


@pytest.mark.parametrize("kind", ["coroutine", "thread"])
async def test_whoever_watches_sees_how_far_an_attempt_is(app: gnomon.App, kind: str) -> None:
    """While it runs, by `get` and by `watch`; afterwards it has ended, and that is all."""
    go = threading.Event()

    @app.action(name="coroutine")
    async def report(ctx: gnomon.Attempt) -> None:
        for page in range(1, 5):
            await ctx.report(page / 10, f"page {page}")
        await asyncio.to_thread(go.wait)

    @app.action(name="thread")
    def report_from_a_thread(ctx: gnomon.Attempt) -> None:
        ctx.report(0.4, "page 4")
        go.wait()

    seen = []
    async with app, working(app):
        await app.schedule(gnomon.Python(function=kind), id="pages", timeout="1m")
        async with asyncio.timeout(WAIT_S):
            async for action in app.scheduler.watch("pages"):
                attempt = action.status.current_attempt
                if attempt is not None and attempt.progress is not None:
                    seen.append((attempt.progress, attempt.progress_text))
                    if attempt.progress == 0.4:  # the last one, as it was said
                        go.set()
        finished = await app.scheduler.get("pages")
    assert (0.4, "page 4") == seen[-1]
    assert gnomon.State.DONE is finished.status.state
    assert finished.status.last_attempt is not None
    assert None is finished.status.last_attempt.progress


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
        # All: on a busy machine none is left out for being late.
        catch_up = CatchUp(mode="all")
        await app.schedule(tick(), id="tick", every="1s", successes_max=3, catch_up=catch_up)
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
        timeout=200,
        check=False,
    )
    assert 0 == done.returncode, done.stderr
    assert expected in done.stdout
