"""The Python executor: the suite for coroutine and plain functions, and what is its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

import pytest

from gnomon.clock import SystemClock
from gnomon.contracts.observer import SilentObserver
from gnomon.executors.python import AttemptContext, PythonExecutor, Registry
from gnomon.model.errors import ConfigurationError
from gnomon.model.outcome import Cancel, Cancelled, Fail, Failed, Outcome, Succeeded
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
    for name in {*AttemptContext.__struct_fields__, "key"} - {"key_of"}:
        assert getattr(order, name) == getattr(attempt, name)


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
    assert Failed(error="CancelledError: ") == await outcome_of(raising(asyncio.CancelledError()))


async def test_the_traceback_goes_to_the_observer_only() -> None:
    """Operators see where it failed; the stored error is one line."""

    def broken(_: AttemptContext) -> None:
        raise RuntimeError("no luck")

    noting = Noting()
    outcome = await outcome_of(broken, noting=noting)
    assert Failed(error="RuntimeError: no luck") == outcome
    (event,) = noting.events
    assert "python.function_failed" == event["name"]
    assert "in broken" in str(event["traceback"])


async def test_an_unknown_function_names_the_known_ones() -> None:
    """Another worker may know it: tried again, with a message that helps."""
    registry = Registry()
    for number in range(12):
        registry.register(f"f{number:02}", print)
    executor = PythonExecutor(registry, SystemClock())
    outcome = await executor.execute(order_of(Python(function="greet")))
    shown = ", ".join(f"f{number:02}" for number in range(10))
    error = f"no function 'greet' here; this worker knows {shown} and 2 more"
    assert Failed(error=error, retryable=True) == outcome


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
