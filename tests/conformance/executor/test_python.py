"""The Python executor: the suite for coroutine and plain functions, and what is its own."""

from __future__ import annotations

import asyncio
import threading
import traceback
from collections.abc import AsyncIterator, Sequence
from datetime import date, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest

from gnomon.clock import SystemClock
from gnomon.contracts.executor import ASKED_TO_END, AttemptReport
from gnomon.contracts.observer import SilentObserver
from gnomon.executors.python import AttemptContext, PythonExecutor, Registry
from gnomon.model.errors import ConfigurationError
from gnomon.model.outcome import (
    RESULT_BYTES_MAX,
    Cancel,
    Cancelled,
    Fail,
    Failed,
    Outcome,
    Succeeded,
    Unserved,
)
from gnomon.model.spec import Effect, Python
from tests.conformance.executor.suite import ExecutorSuite, order_of


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


class PythonStand:
    """One stand for both kinds: `kind` is the prefix of the functions' names."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._release = threading.Event()
        self.sent_count = 0
        registry = Registry()
        for name in ("ok", "fail", "hang", "talk", "exit", "surrogate", "unprintable", "stop"):
            registry.register(f"async.{name}", getattr(self, f"async_{name}"))
            registry.register(f"sync.{name}", getattr(self, f"sync_{name}"))
        self.executor = PythonExecutor(registry, SystemClock(), thread_count=4)

    def close(self) -> None:
        self._release.set()

    def succeeding(self) -> Effect:
        return Python(function=f"{self._kind}.ok", args=[1], kwargs={"b": 2})

    def failing(self) -> Effect:
        return Python(function=f"{self._kind}.fail")

    def hanging(self) -> Effect:
        return Python(function=f"{self._kind}.hang")

    def talkative(self) -> Effect:
        return Python(function=f"{self._kind}.talk")

    def broken(self) -> Sequence[Effect]:
        names = ("no-such", "exit", "surrogate", "unprintable", "stop")
        effects: list[Effect] = [Python(function=f"{self._kind}.{name}") for name in names]
        return [*effects, Python(function=f"{self._kind}.ok", kwargs={"unknown": 1})]

    def sync_ok(self, _: AttemptContext, a: int, *, b: int) -> dict[str, int]:
        self.sent_count += 1
        return {"a": a, "b": b}

    def sync_fail(self, _: AttemptContext) -> None:
        self.sent_count += 1
        raise RuntimeError("no luck\x00 today")

    def sync_hang(self, _: AttemptContext) -> None:
        self._release.wait()

    def sync_talk(self, _: AttemptContext) -> list[str]:
        return ["a\x00é"] * 100_000

    def sync_exit(self, _: AttemptContext) -> None:
        raise SystemExit(3)

    def sync_surrogate(self, _: AttemptContext) -> None:
        raise ValueError("\ud800")

    def sync_unprintable(self, _: AttemptContext) -> None:
        raise UnprintableError

    def sync_stop(self, _: AttemptContext) -> None:
        raise StopIteration

    async def async_ok(self, attempt: AttemptContext, a: int, *, b: int) -> dict[str, int]:
        return self.sync_ok(attempt, a, b=b)

    async def async_fail(self, attempt: AttemptContext) -> None:
        self.sync_fail(attempt)

    async def async_hang(self, _: AttemptContext) -> None:
        await asyncio.sleep(86400)

    async def async_talk(self, attempt: AttemptContext) -> list[str]:
        return self.sync_talk(attempt)

    async def async_exit(self, attempt: AttemptContext) -> None:
        self.sync_exit(attempt)

    async def async_surrogate(self, attempt: AttemptContext) -> None:
        self.sync_surrogate(attempt)

    async def async_unprintable(self, attempt: AttemptContext) -> None:
        self.sync_unprintable(attempt)

    async def async_stop(self, attempt: AttemptContext) -> None:
        self.sync_stop(attempt)


class TestPython(ExecutorSuite):
    @pytest.fixture(params=["async", "sync"])
    async def stand(self, request: pytest.FixtureRequest) -> AsyncIterator[PythonStand]:
        found = PythonStand(request.param)
        yield found
        found.close()
        await found.executor.close()


class Noting(SilentObserver):
    def __init__(self) -> None:
        self.events: list[dict[str, object]] = []

    def event(self, name: str, /, **fields: object) -> None:
        self.events.append({"name": name, **fields})


async def outcome_of(function: Any, *args: Any, noting: Noting | None = None) -> Outcome:
    registry = Registry()
    registry.register("f", function)
    executor = PythonExecutor(registry, SystemClock(), thread_count=1, observer=noting)
    try:
        return await executor.execute(order_of(Python(function="f", args=list(args))))
    finally:
        await executor.close()


async def test_a_function_learns_about_its_attempt() -> None:
    """The first argument says which action, occurrence and attempt this is, and until when."""
    seen: list[AttemptContext] = []
    await outcome_of(seen.append)
    (attempt,) = seen
    order = order_of(Python(function="f"))
    told = ("id", "guid", "key", "attempt_id", "attempt_no", "occurrence_no")
    for name in (*told, "scheduled_at", "deadline"):
        assert getattr(order, name) == getattr(attempt, name)
    assert "<Attempt 1 of greet-ann>" == repr(attempt)


@pytest.mark.parametrize(
    ("result", "answer"),
    [
        (None, None),
        ({"a": [1, 2.5, None]}, '{"a":[1,2.5,null]}'),
        ("done", '"done"'),
        (object(), "(a object, which is not JSON)"),
        ("\ud800", "(a str, which is not JSON)"),
    ],
)
async def test_a_result_is_shown_as_json(result: object, answer: str | None) -> None:
    """What is returned is for people to see: the effect happened, whatever it is."""

    async def function(_: AttemptContext) -> object:
        return result

    assert Succeeded(answer=answer) == await outcome_of(function)
    assert Succeeded(answer=answer) == await outcome_of(lambda _: result)


@pytest.mark.parametrize("chars", [RESULT_BYTES_MAX - 2, RESULT_BYTES_MAX - 1])
async def test_a_result_is_kept_whole_or_told_about(chars: int) -> None:
    """A part of it would be no use. The attempt has succeeded all the same, and is not repeated."""
    noting = Noting()
    outcome = await outcome_of(lambda _: "x" * chars, noting=noting)
    if chars + 2 <= RESULT_BYTES_MAX:
        assert Succeeded(answer=f'"{"x" * chars}"') == outcome
        assert [] == noting.events
    else:
        assert isinstance(outcome, Succeeded)
        assert outcome.answer is not None
        assert outcome.answer.startswith('(a result of 65537 bytes; up to 65536 are kept) "xxx')
        assert [("python.result_not_kept", outcome.answer)] == [
            (event["name"], event["reason"]) for event in noting.events
        ]


async def test_a_function_is_not_called_with_what_does_not_fit() -> None:
    """The attempt fails for good, with a sentence: trying again cannot help."""
    called: list[object] = []

    async def function(_: AttemptContext, when: date, *, count: int = 0) -> None:
        called.append(when)

    def plain(_: AttemptContext, when: date, *, count: int = 0) -> None:
        called.append(when)

    for each in (function, plain):
        assert Succeeded() == await outcome_of(each, "2026-12-24")
        wrong = await outcome_of(each, "tomorrow")
        missing = await outcome_of(each)
        assert isinstance(wrong, Failed)
        assert isinstance(missing, Failed)
        assert not wrong.retryable
        assert not missing.retryable
        assert "f(): the argument 'when' was stored as 'tomorrow', and date is" in wrong.error
        assert "missing a required argument: 'when'; stored is (), wanted is (when" in missing.error
    assert [date(2026, 12, 24)] * 2 == called


class Heard:
    """Reports as they come."""

    def __init__(self) -> None:
        self.reports: list[AttemptReport] = []
        self.ended: list[UUID] = []

    @property
    def has_any(self) -> bool:
        return bool(self.reports)

    def note(self, report: AttemptReport) -> None:
        self.reports.append(report)

    def forget(self, attempt_id: UUID) -> None:
        self.ended.append(attempt_id)


async def test_a_function_reports_how_far_it_is() -> None:
    """From a coroutine and from a thread; and it is told when the attempt has ended."""

    async def function(ctx: AttemptContext) -> None:
        await ctx.report(0.4, "page 4")

    def plain(ctx: AttemptContext) -> None:
        ctx.report(1)
        ctx.report(0, "x" * 1_000)

    heard, registry = Heard(), Registry()
    registry.register("function", function)
    registry.register("plain", plain)
    executor = PythonExecutor(registry, SystemClock(), thread_count=1, reports=heard)
    order = order_of(Python(function="function"))
    assert Succeeded() == await executor.execute(order)
    assert Succeeded() == await executor.execute(order_of(Python(function="plain")))
    await executor.close()

    first, second, third = heard.reports
    assert (order.id, order.guid, order.attempt_id) == (first.id, first.guid, first.attempt_id)
    assert (0.4, "page 4") == (first.fraction, first.text)
    assert (1.0, "") == (second.fraction, second.text)
    assert 200 == len(third.text)
    assert 2 == len(heard.ended)


@pytest.mark.parametrize("fraction", [40, -0.1, float("nan"), True, "half", None])
async def test_a_report_is_from_0_to_1(fraction: Any) -> None:
    """What else is a mistake in the function, and says what to write."""
    outcome = await outcome_of(lambda ctx: ctx.report(fraction) and None)
    assert isinstance(outcome, Failed)
    assert "from 0 to 1" in outcome.error


async def test_a_function_says_how_its_attempt_ended() -> None:
    """`Fail` and `Cancel` are outcomes; any other exception is a failure with its name."""

    def raising(exc: BaseException) -> Any:
        async def function(_: AttemptContext) -> None:
            raise exc

        return function

    wait = timedelta(minutes=5)
    later = Fail("no such user", retryable=False, retry_after=wait)
    expected = Failed(error="no such user", retryable=False, retry_after=wait)
    assert expected == await outcome_of(raising(later))
    assert Cancelled(reason="unsubscribed") == await outcome_of(raising(Cancel("unsubscribed")))
    assert Failed(error="KeyError: 'x'") == await outcome_of(raising(KeyError("x")))
    cancelled = Failed(error="asyncio.exceptions.CancelledError: ")
    assert cancelled == await outcome_of(raising(asyncio.CancelledError()))


async def test_what_was_raised_goes_to_the_log_only() -> None:
    """Operators see where it failed; the stored error is one line."""

    def broken(_: AttemptContext) -> None:
        raise RuntimeError("no luck")

    registry = Registry()
    registry.register("f", broken)
    executor = PythonExecutor(registry, SystemClock(), thread_count=1)
    order = order_of(Python(function="f"))
    assert Failed(error="RuntimeError: no luck") == await executor.execute(order)
    error = order.raised.take()
    assert "in broken" in "".join(traceback.format_exception(error))
    order.raised.put(RuntimeError("too late"))
    assert order.raised.take() is None
    await executor.close()


async def test_an_unknown_function_is_handed_back() -> None:
    """Another worker may know it."""
    registry = Registry()
    registry.register("welcome", print)
    executor = PythonExecutor(registry, SystemClock())
    outcome = await executor.execute(order_of(Python(function="greet")))
    assert Unserved("function greet") == outcome
    assert not executor.serves("function greet")
    assert executor.serves("function welcome")
    registry.register("greet", print)
    assert executor.serves("function greet")


async def test_a_plain_function_that_returns_a_coroutine_fails() -> None:
    """Nothing was done, and the message says what to change."""

    async def inner(_: AttemptContext) -> None: ...

    def outer(attempt: AttemptContext) -> object:
        return inner(attempt)

    outcome = await outcome_of(outer)
    assert isinstance(outcome, Failed)
    assert "async def" in outcome.error


async def test_a_stuck_thread_stays_taken_until_it_returns() -> None:
    """A plain function cannot be killed: its slot is counted as stuck and given back late."""
    release, returned = threading.Event(), threading.Event()
    registry = Registry()
    registry.register("hang", lambda _: release.wait())
    registry.register("ok", lambda _: None)
    noting = Noting()
    executor = PythonExecutor(registry, SystemClock(), thread_count=1, observer=noting)
    executor._threads.submit(lambda: None)  # the pool is warm: what follows is about waiting

    hung = await executor.execute(order_of(Python(function="hang"), timeout_s=0.05))
    assert Failed(error="timed out after 0.05 s") == hung
    assert 1 == executor.stuck_count

    waited = await executor.execute(order_of(Python(function="ok"), timeout_s=0.05))
    assert Failed(error="timed out after 0.05 s: no thread became free") == waited
    assert 1 == executor.stuck_count

    release.set()
    executor._threads.submit(returned.set)
    assert await asyncio.to_thread(returned.wait, 5)
    assert 0 == executor.stuck_count
    assert isinstance(await executor.execute(order_of(Python(function="ok"))), Succeeded)
    await executor.close()
    names = [event["name"] for event in noting.events]
    assert ["python.thread_stuck", "python.thread_returned"] == names


async def test_threads_are_bounded() -> None:
    """Never more plain functions at once than there are threads."""
    lock = threading.Lock()
    now = most = 0

    def function(_: AttemptContext) -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        threading.Event().wait(0.005)
        with lock:
            now -= 1

    registry = Registry()
    registry.register("f", function)
    executor = PythonExecutor(registry, SystemClock(), thread_count=3)
    orders = [executor.execute(order_of(Python(function="f"))) for _ in range(12)]
    outcomes = await asyncio.gather(*orders)
    await executor.close()
    assert [Succeeded()] * 12 == outcomes
    assert 3 == most


@pytest.mark.parametrize("name", ["", "a b", "a/b", "x" * 65, "é", "a\n"])
def test_a_bad_name_is_refused(name: str) -> None:
    """Names are the same letters everywhere."""
    with pytest.raises(ConfigurationError, match="1 to 64 characters"):
        Registry().register(name, print)


def test_a_name_is_registered_once() -> None:
    """Two functions under one name would be a silent choice."""
    registry = Registry()
    registry.register("greet", print)
    with pytest.raises(ConfigurationError, match="registered already"):
        registry.register("greet", print)
    assert ("greet",) == registry.names


async def test_a_decorated_function_describes_its_call() -> None:
    """Calling it makes an effect, which the executor turns into the call."""
    registry = Registry()
    calls: list[object] = []

    @registry.function()
    async def welcome(attempt: AttemptContext, name: str, *, times: int = 1) -> None:
        calls.append((attempt.id, name, times))

    @registry.function("mail.send")
    def send(attempt: AttemptContext, /, *to: str, **options: object) -> None:
        calls.append((to, options))

    assert Python(function="welcome", args=["ann"], kwargs={"times": 2}) == welcome("ann", times=2)
    assert Python(function="mail.send", args=["a", "b"], kwargs={"cc": None}) == send(
        "a", "b", cc=None
    )
    executor = PythonExecutor(registry, SystemClock())
    await executor.execute(order_of(welcome("ann")))
    await executor.execute(order_of(send("a", x=1)))
    await executor.close()
    assert [("greet-ann", "ann", 1), (("a",), {"x": 1})] == calls


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        (([object()],), {}, r"welcome\(\): the argument 'name' holds a 'object'"),
        ((("a", "b"),), {}, r"'name' holds a 'tuple'"),
        ((float("nan"),), {}, r"'name' holds a number that is not finite"),
        (("ann", 10**18), {}, r"'\*more' holds an integer of over 18 digits"),
        (("ann",), {"extra": {1: 2}}, r"'extra' holds an object with a key that is no string"),
        (("a\x00",), {}, r"'name' holds NUL"),
        ((), {}, r"missing a required argument: 'name'"),
    ],
)
def test_arguments_that_are_not_json_are_refused_at_the_call(
    args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    """The TypeError names the argument, where the mistake is made and not where it is stored."""

    @Registry().function()
    async def welcome(_: AttemptContext, name: Any, *more: Any, **extra: Any) -> None: ...

    with pytest.raises(TypeError, match=message):
        welcome(*args, **kwargs)


# -- asked to end ---------------------------------------------------------------------------------


async def ended_when_asked(executor: PythonExecutor, name: str, began: threading.Event) -> Outcome:
    """Perform a function, and ask it to end as soon as it began, as the worker does."""

    def is_ending() -> int:
        return performing.cancelling()

    order = order_of(Python(function=name), timeout_s=30)
    performing: asyncio.Task[Outcome] = asyncio.create_task(
        executor.execute(msgspec.structs.replace(order, is_ending=is_ending))
    )
    await asyncio.to_thread(began.wait, 10)
    performing.cancel(ASKED_TO_END)
    async with asyncio.timeout(10):
        return await performing


async def test_a_function_in_a_thread_sees_that_it_should_end() -> None:
    """Its attempt is over when it returns, and not before: then it is cancelled."""
    began, looked = threading.Event(), list[bool]()
    registry = Registry()

    def work(ctx: AttemptContext) -> str:
        looked.append(ctx.is_cancelled)
        began.set()
        while not ctx.is_cancelled:
            pass
        looked.append(ctx.is_cancelled)
        return "half"

    registry.register("work", work)
    executor = PythonExecutor(registry, SystemClock())
    assert Cancelled(reason=ASKED_TO_END) == await ended_when_asked(executor, "work", began)
    assert [False, True] == looked
    assert 0 == executor.stuck_count
    await executor.close()


async def test_a_function_in_a_thread_that_does_not_look_tells_its_own_end() -> None:
    """It did all of it: that is no cancellation."""
    began, release = threading.Event(), threading.Event()
    registry = Registry()

    def work(_: AttemptContext) -> str:
        began.set()
        release.wait(10)
        return "all"

    registry.register("work", work)
    executor = PythonExecutor(registry, SystemClock())
    order = order_of(Python(function="work"), timeout_s=30)
    performing = asyncio.ensure_future(executor.execute(order))
    await asyncio.to_thread(began.wait, 10)
    performing.cancel(ASKED_TO_END)
    await asyncio.sleep(0)
    release.set()
    assert Succeeded(answer='"all"') == await performing
    await executor.close()


async def test_a_function_that_has_no_thread_yet_gets_none() -> None:
    """It is cancelled before it began."""
    release, began, calls = threading.Event(), threading.Event(), list[str]()
    registry = Registry()

    def hang(_: AttemptContext) -> None:
        began.set()
        release.wait(10)

    registry.register("hang", hang)
    registry.register("next", lambda ctx: calls.append(ctx.id))
    executor = PythonExecutor(registry, SystemClock(), thread_count=1)
    hanging = asyncio.ensure_future(executor.execute(order_of(Python(function="hang"))))
    await asyncio.to_thread(began.wait, 10)
    with pytest.raises(asyncio.CancelledError):
        await ended_when_asked(executor, "next", began)
    release.set()
    await hanging
    assert [] == calls
    await executor.close()


async def test_a_coroutine_that_is_asked_to_end_is_cancelled() -> None:
    """As asyncio does it; it may look, too, in a thread that it started."""
    began, looked = threading.Event(), list[bool]()
    registry = Registry()

    async def work(ctx: AttemptContext) -> None:
        looked.append(ctx.is_cancelled)
        began.set()
        try:
            await asyncio.sleep(30)
        finally:
            looked.append(ctx.is_cancelled)

    registry.register("work", work)
    executor = PythonExecutor(registry, SystemClock())
    with pytest.raises(asyncio.CancelledError):
        await ended_when_asked(executor, "work", began)
    assert [False, True] == looked
    await executor.close()


async def test_a_function_whose_time_is_over_sees_it() -> None:
    """Nobody waits for it any more: it should not go on for hours."""
    ended = threading.Event()
    registry = Registry()

    def work(ctx: AttemptContext) -> None:
        while not ctx.is_cancelled:
            pass
        ended.set()

    registry.register("work", work)
    executor = PythonExecutor(registry, SystemClock())
    outcome = await executor.execute(order_of(Python(function="work"), timeout_s=0.05))
    assert Failed(error="timed out after 0.05 s") == outcome
    assert await asyncio.to_thread(ended.wait, 10)
    await executor.close()
