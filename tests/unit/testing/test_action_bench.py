"""The bench for actions: the real store and rules, the test's own time."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta

import pytest

import gnomon
from gnomon.testing import ActionBench

NOWHERE = "postgresql://nobody@127.0.0.1:1/none"


@pytest.fixture
def app() -> gnomon.App:
    """On a database that is not there: who touches it fails."""
    return gnomon.App(NOWHERE)


async def test_what_is_due_happens_and_what_is_not_waits(app: gnomon.App) -> None:
    calls: list[tuple[str, datetime]] = []
    with ActionBench(app) as bench:

        @app.action
        async def note(ctx: gnomon.Attempt, name: str) -> str:
            calls.append((name, bench.now))
            return name.upper()

        start = bench.now
        await app.schedule(note("now"))
        await app.schedule(note("later"), in_="3h", queue="mail", priority=2, labels={"a": "b"})
        assert 1 == await bench.run_due()
        (later,) = bench.scheduled
        assert ("note", ["later"], "mail", 2) == (
            later.function,
            later.args,
            later.queue,
            later.priority,
        )
        assert start + timedelta(hours=3) == later.scheduled_at
        assert {"a": "b"} == later.labels
        assert 0 == await bench.advance(hours=2, minutes=59)
        assert 1 == await bench.advance(minutes=1)
        assert [("now", start), ("later", start + timedelta(hours=3))] == calls
        assert ["NOW", "LATER"] == [(attempt.answer or "").strip('"') for attempt in bench.attempts]
        assert ["done", "done"] == [action.state for action in bench.ended]


async def test_everything_happens_at_its_time(app: gnomon.App) -> None:
    """Periods, cron and what functions schedule themselves, each at its own moment."""
    seen: list[str] = []
    with ActionBench(app, now="2026-01-01T00:00Z") as bench:

        @app.action
        async def first(ctx: gnomon.Attempt) -> None:
            seen.append(f"first {bench.now:%d %H:%M}")
            await app.schedule(second(), in_="30m")

        @app.action
        async def second(ctx: gnomon.Attempt) -> None:
            seen.append(f"second {bench.now:%d %H:%M}")

        await app.schedule(first(), every="12h", at="2026-01-01T06:00Z", id="first")
        assert 4 == await bench.advance(days=1)
    assert ["first 01 06:00", "second 01 06:30", "first 01 18:00", "second 01 18:30"] == seen


async def test_a_failure_is_raised_in_the_test(app: gnomon.App) -> None:
    """It is the very exception; it was recorded, and its retry waits like any other."""

    @app.action(retry=1)
    async def fragile(ctx: gnomon.Attempt) -> None:
        if ctx.attempt_no == 1:
            raise ValueError("broken")

    with ActionBench(app) as bench:
        await app.schedule(fragile(), id="f")
        with pytest.raises(ValueError, match="broken") as caught:
            await bench.run_due()
        assert ["raised in attempt 1 of the action f"] == caught.value.__notes__
        assert 1 == bench["f"].status.failed
        assert 1 == await bench.advance(hours=1)
        assert "done" == bench["f"].status.state


async def test_a_plain_function_fails_likewise(app: gnomon.App) -> None:
    @app.action
    def fragile(ctx: gnomon.Attempt) -> None:
        raise gnomon.Fail("no such user", retryable=False)

    with ActionBench(app) as bench:
        await app.schedule(fragile(), id="f")
        with pytest.raises(gnomon.Fail, match="no such user"):
            await bench.run_due()
        assert gnomon.State.DEAD == bench["f"].status.state


async def test_failures_can_be_kept_to_see_retries(app: gnomon.App) -> None:
    @app.action(retry=2)
    async def broken(ctx: gnomon.Attempt) -> None:
        raise ValueError(f"number {ctx.attempt_no}")

    with ActionBench(app, raise_failures=False) as bench:
        await app.schedule(broken(), id="b")
        await bench.advance(days=1)
        errors = [(attempt.attempt_no, attempt.error) for attempt in bench.attempts]
        assert [(number, f"ValueError: number {number}") for number in (1, 2, 3)] == errors
        (dead,) = bench.ended
        assert ("dead", "b") == (dead.state, dead.id)


async def test_cancelling_from_within_is_no_failure(app: gnomon.App) -> None:
    @app.action
    async def enough(ctx: gnomon.Attempt) -> None:
        raise gnomon.Cancel("enough")

    with ActionBench(app) as bench:
        await app.schedule(enough(), every="1h")
        await bench.advance(days=1)
        assert ["cancelled"] == [attempt.outcome for attempt in bench.attempts]


async def test_a_function_that_takes_too_long_fails(app: gnomon.App) -> None:
    """Its timeout is in real time, for so the function runs."""

    @app.action(timeout="10ms")
    async def hang(ctx: gnomon.Attempt) -> None:
        await asyncio.Event().wait()

    with ActionBench(app) as bench:
        await app.schedule(hang(), id="h")
        with pytest.raises(AssertionError, match="attempt 1 of the action h failed: timed out"):
            await bench.run_due()


async def test_a_function_that_is_not_declared_is_an_error_of_the_test(app: gnomon.App) -> None:
    """Once: afterwards it waits, as it would wait for a worker that has it."""
    with ActionBench(app) as bench:
        await app.schedule(gnomon.Python(function="nobody"), id="n")
        with pytest.raises(AssertionError, match="the app has no function nobody"):
            await bench.run_due()
        assert 0 == await bench.run_due()

        @app.action
        async def nobody(ctx: gnomon.Attempt) -> None: ...

        assert 1 == await bench.run_due()


async def test_what_leaves_the_program_is_kept(app: gnomon.App) -> None:
    answers = iter([RuntimeError("503"), "fine"])

    def receive(effect: object) -> object:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    call = gnomon.Http("POST", "https://example.org/ping")
    with ActionBench(app, receive=receive) as bench:
        await app.schedule(call, id="ping", retry=1)
        with pytest.raises(RuntimeError, match="503"):
            await bench.run_due()
        await bench.advance(hours=1)
        assert [call, call] == bench.sent
        assert "fine" == bench.attempts[-1].answer


async def test_order_is_priority_then_time_then_scheduling(app: gnomon.App) -> None:
    seen: list[str] = []

    @app.action
    async def note(ctx: gnomon.Attempt, name: str) -> None:
        seen.append(name)

    with ActionBench(app) as bench:
        for name in "cab":
            await app.schedule(note(name), at=bench.now)
        await app.schedule(note("early"), at=bench.now - timedelta(seconds=1))
        await app.schedule(note("first"), priority=0)
        await bench.run_due()
    assert ["first", "early", "c", "a", "b"] == seen


async def test_what_expired_ends_and_holds_up_nothing(app: gnomon.App) -> None:
    @app.action
    async def late(ctx: gnomon.Attempt) -> None: ...

    with ActionBench(app) as bench:
        await app.schedule(late(), in_="1h", deadline=bench.now + timedelta(hours=2), id="l")
        bench.clock.move_to(bench.now + timedelta(hours=3))
        assert 0 == await bench.run_due()
        assert "expired" == bench["l"].status.state


async def test_the_program_may_open_close_and_work(app: gnomon.App) -> None:
    """Whatever it does with its app, the bench is what it reaches."""

    @app.action
    async def note(ctx: gnomon.Attempt) -> None:
        assert app.is_open

    with ActionBench(app) as bench:
        stop = asyncio.Event()
        async with app:
            await app.schedule(note(), id="n", every="1d")
            async with asyncio.TaskGroup() as group:
                group.create_task(app.work(stop))
                stop.set()
        assert not app.is_open
        assert 0 == bench["n"].status.attempts
        assert 1 == await bench.run_due()
        async with app:
            assert 1 == (await app.scheduler.get("n")).status.attempts
    assert not app.is_open
    assert app.stand_in is None


async def test_a_callers_transaction_is_no_obstacle(app: gnomon.App) -> None:
    @app.action
    async def note(ctx: gnomon.Attempt) -> None: ...

    with ActionBench(app) as bench:
        await app.schedule(note(), connection=object())
        assert ["note"] == [action.function for action in bench.scheduled]


async def test_plain_functions_share_the_store_with_the_test(app: gnomon.App) -> None:
    """A hundred of them in threads of their own, each scheduling something."""

    @app.action
    def plain(ctx: gnomon.Attempt, left: int) -> int:
        return threading.get_ident()

    with ActionBench(app) as bench:
        await asyncio.gather(*(app.schedule(plain(number)) for number in range(100)))
        assert 100 == await bench.run_due()
        threads = {attempt.answer for attempt in bench.attempts}
        assert str(threading.get_ident()) not in threads


async def test_an_app_that_is_open_is_refused() -> None:
    app = gnomon.App("sqlite:///:memory:")
    async with app:
        with pytest.raises(gnomon.InvalidRequest, match="close it before the bench"):
            ActionBench(app)
    with ActionBench(app), pytest.raises(gnomon.InvalidRequest, match="on a bench already"):
        ActionBench(app)


async def test_a_bench_that_is_closed_is_gone(app: gnomon.App) -> None:
    """The app is as it was: on its own database, which is not there."""
    clock = app.env.clock
    bench = ActionBench(app)
    assert app.env.clock is bench.clock
    bench.close()
    bench.close()
    assert app.env.clock is clock
    with pytest.raises(gnomon.StoreUnavailable, match="closed"):
        await bench.store.actions.count()
    with pytest.raises(gnomon.StoreUnavailable):
        await app.open()


async def test_a_bench_makes_its_own_app() -> None:
    async with ActionBench(now=datetime(2026, 5, 1, tzinfo=UTC)) as bench:

        @bench.app.action
        async def note(ctx: gnomon.Attempt) -> str:
            return f"{ctx.scheduled_at:%Y-%m-%d}"

        await bench.app.schedule(note())
        await bench.run_due()
        assert ['"2026-05-01"'] == [attempt.answer for attempt in bench.attempts]


async def test_what_never_rests_is_an_error(
    app: gnomon.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gnomon.testing.action_bench.STEPS_MAX", 20)

    @app.action
    async def again(ctx: gnomon.Attempt) -> None:
        await app.schedule(again())

    with ActionBench(app) as bench:
        await app.schedule(again())
        with pytest.raises(AssertionError, match="again and again: 20 attempts"):
            await bench.run_due()


async def test_what_is_declared_is_there(app: gnomon.App) -> None:
    """As where a worker works: what the code declared before the bench, and since."""
    seen: list[str] = []

    @app.cron("0 9 * * *")
    async def open_shop(ctx: gnomon.Attempt) -> None:
        seen.append("open")

    with ActionBench(app, now="2026-01-01T00:00Z") as bench:
        assert ["open_shop"] == [action.id for action in bench.scheduled]

        @app.every("1d")
        async def count(ctx: gnomon.Attempt) -> None:
            seen.append("count")

        await bench.advance(days=1)
        assert {"open", "count"} == set(seen)
