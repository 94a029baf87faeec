"""Python functions as effects: stored is a name and JSON arguments, never code.

    registry = Registry()

    @registry.function()
    async def welcome(attempt: AttemptContext, name: str) -> None: ...

    welcome("ann")  # → Python(function="welcome", args=["ann"])

Coroutine functions are awaited on the event loop, plain ones run in a bounded pool of threads.
A thread cannot be killed: when its attempt ends early, the thread stays taken until the function
returns, and is counted as stuck until then.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Generator, Mapping
from concurrent.futures import Future
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar
from uuid import UUID

import msgspec

from gnomon.contracts.clock import Clock
from gnomon.contracts.executor import (
    ASKED_TO_END,
    AttemptReport,
    AttemptReports,
    AttemptRequest,
    SilentReports,
)
from gnomon.contracts.observer import Observer, SilentObserver
from gnomon.executors._threads import DaemonThreads
from gnomon.executors.signature import CallSignature, Misfit, build_foreign
from gnomon.model.attempt_boundary import AttemptBoundary
from gnomon.model.errors import ConfigurationError, short
from gnomon.model.function import FunctionRecord
from gnomon.model.ids import NAME_PATTERN
from gnomon.model.need import FUNCTION, function_need
from gnomon.model.outcome import (
    NOT_KEPT,
    RESULT_BYTES_MAX,
    Cancel,
    Cancelled,
    Fail,
    Failed,
    Outcome,
    Succeeded,
    Unserved,
    cut,
)
from gnomon.model.spec import Python

P = ParamSpec("P")
R = TypeVar("R")

THREAD_COUNT_DEFAULT = 32
REPORT_CHARS_MAX = 200
NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})
_NO_ANSWER = Succeeded()
# Annotations of a first parameter that is meant for the user's own argument.
_PLAIN_TYPES = tuple(
    plain
    for kind in (str, int, float, bool, bytes, list, dict, tuple, set)
    for plain in (kind, kind.__name__)
)
_ENCODER = msgspec.json.Encoder(enc_hook=build_foreign)


_NO_REPORTS = SilentReports()


class AttemptContext(msgspec.Struct, frozen=True, gc=False):
    """What a function is told about its attempt. `key` is the same for all attempts of one
    occurrence: use it to make the effect happen once."""

    # A view: of what an attempt could be asked, most are asked for little or nothing.
    _order: AttemptRequest
    _is_over: Callable[[], object] = bool
    _reports: AttemptReports = _NO_REPORTS

    def __repr__(self) -> str:
        return f"<Attempt {self.attempt_no} of {self.id}>"

    @property
    def id(self) -> str:
        """Of the action."""
        return self._order.id

    @property
    def key(self) -> str:
        """The same for all attempts of one occurrence, and for no other."""
        return self._order.key

    @property
    def attempt_id(self) -> UUID:
        """Of this attempt alone."""
        return self._order.attempt_id

    @property
    def attempt_no(self) -> int:
        """1, 2, … of the action."""
        return self._order.attempt_no

    @property
    def occurrence_no(self) -> int:
        """1, 2, … of the action: one occurrence may take several attempts."""
        return self._order.occurrence_no

    @property
    def scheduled_at(self) -> datetime:
        """The planned time of the occurrence."""
        return self._order.scheduled_at

    @property
    def deadline(self) -> datetime:
        """When the attempt's time is over."""
        return self._order.deadline

    @property
    def guid(self) -> UUID:
        """Of the action as it is now: a change gives it another one."""
        return self._order.guid

    @property
    def is_cancelled(self) -> bool:
        """Whether to end soon: its action was cancelled, its time is over, or its worker leaves. It
        is for plain functions that take long; a coroutine function is cancelled by asyncio."""
        return bool(self._is_over())

    def report(self, fraction: float, text: str = "", /) -> Awaitable[None]:
        """Say how far it is, from 0 to 1, for whoever looks at the action: `await ctx.report(0.4,
        "page 4 of 10")`. A plain function calls it without `await`. It costs next to nothing: what
        was said last is written about once a second, and is gone when the attempt has ended."""
        if isinstance(fraction, bool) or not isinstance(fraction, int | float):
            raise TypeError(
                "report() takes a number from 0 to 1, and a text: report(0.4, 'page 4')"
            )
        if not 0 <= fraction <= 1:  # nor is it NaN
            raise ValueError(f"report(): {fraction} is not from 0 to 1; 40 % is 0.4")
        self._reports.note(
            AttemptReport(
                id=self.id,
                guid=self.guid,
                attempt_id=self.attempt_id,
                fraction=float(fraction),
                text=cut(_text(text), REPORT_CHARS_MAX),
            )
        )
        return _SAID


class _Said:
    """What `report` returns: it is done already, awaited or not."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


_SAID = _Said()


# -- registration ---------------------------------------------------------------------------------


class Function(Generic[P, R]):
    """A registered function. Calling it does nothing but describe the call, as an effect."""

    def __init__(
        self, function: Callable[Concatenate[AttemptContext, P], R], signature: CallSignature
    ) -> None:
        self.name = signature.name
        self.function = function
        self._signature = signature

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Python:
        """The effect that calls the function so. Arguments are written as JSON by their
        annotations; TypeError names the one that cannot be."""
        by_place, by_name = self._signature.encode(args, kwargs)
        return Python(function=self.name, args=by_place, kwargs=by_name)

    def __repr__(self) -> str:
        return f"<Function {self.name}>"


class _Entry(msgspec.Struct, frozen=True):
    function: Callable[..., Any]
    signature: CallSignature
    is_async: bool
    options: Mapping[str, Any]  # of all its actions


class Registry:
    """The functions that effects may name. Filled at start, before a worker begins anything."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}

    def register(
        self, name: str, function: Callable[..., Any], options: Mapping[str, Any] = NO_OPTIONS
    ) -> CallSignature:
        """Make a function known. Errors: ConfigurationError for a bad name or one that is taken, or
        a function that cannot be told of its attempt, or whose arguments have no form in JSON."""
        path = f"function {short(name)}"
        if not NAME_PATTERN.fullmatch(name):
            raise ConfigurationError(path, "a name is 1 to 64 characters out of A-Z a-z 0-9 . _ -")
        if not callable(function):
            raise ConfigurationError(path, "is not callable")
        if name in self._entries:
            raise ConfigurationError(path, "is registered already: choose another name")
        if not _takes_attempt(function):
            raise ConfigurationError(
                path, f"must take its attempt first: def {name}(ctx: gnomon.Attempt, …)"
            )
        signature = CallSignature(name, function)
        self._entries[name] = _Entry(function, signature, _is_async(function), options)
        return signature

    def check(self) -> None:
        """Whether all annotations can be found by now. Errors: ConfigurationError."""
        for entry in self._entries.values():
            entry.signature.resolve()

    def function(
        self, name: str | None = None, options: Mapping[str, Any] = NO_OPTIONS
    ) -> Callable[[Callable[Concatenate[AttemptContext, P], R]], Function[P, R]]:
        """Decorate a function to register it, under its own name unless another is given."""

        def decorate(function: Callable[Concatenate[AttemptContext, P], R]) -> Function[P, R]:
            if isinstance(function, Function):
                raise ConfigurationError(
                    f"function {function.name}",
                    "is declared already: write @app.action below @app.cron or @app.every",
                )
            known_as = name or str(getattr(function, "__name__", ""))
            return Function(function, self.register(known_as, function, options))

        return decorate

    def find(self, name: str) -> _Entry | None:
        return self._entries.get(name)

    def options_of(self, name: str) -> Mapping[str, Any]:
        """What was said about all actions of a function, where it was declared."""
        entry = self._entries.get(name)
        return NO_OPTIONS if entry is None else entry.options

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._entries))

    def describe(self) -> list[FunctionRecord]:
        """What each is called with. Errors: ConfigurationError, as `check`."""
        return [entry.signature.describe() for entry in self._entries.values()]


def _takes_attempt(function: Callable[..., Any]) -> bool:
    """Whether it can be called with the attempt as its first positional argument, and that is no
    argument of the user's: one with a default, or of another type."""
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters:
        return False
    first = parameters[0]
    if first.kind is inspect.Parameter.VAR_POSITIONAL:
        return True
    is_positional = first.kind in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD)
    return is_positional and first.default is first.empty and first.annotation not in _PLAIN_TYPES


def _is_async(function: Callable[..., Any]) -> bool:
    called = getattr(function, "__call__", None)  # noqa: B004 - an object may have an async one
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


# -- execution ------------------------------------------------------------------------------------


class _StopSign:
    """Tells a function in a thread that it should end, and remembers that it saw it."""

    def __init__(self) -> None:
        self._is_up = False
        self._is_seen = False

    def put_up(self) -> None:
        self._is_up = True

    def look(self) -> bool:
        self._is_seen = self._is_seen or self._is_up
        return self._is_up

    def explain(self, outcome: Outcome) -> Outcome:
        """Who returned after it had seen the sign did not do it all."""
        if self._is_seen and isinstance(outcome, Succeeded):
            return Cancelled(reason=ASKED_TO_END)
        return outcome


class PythonExecutor:
    """Calls registered functions."""

    def __init__(
        self,
        registry: Registry,
        clock: Clock,
        *,
        thread_count: int = THREAD_COUNT_DEFAULT,
        observer: Observer | None = None,
        raised: Callable[[BaseException], None] | None = None,  # hears of what functions raise
        reports: AttemptReports = _NO_REPORTS,
    ) -> None:
        self._reports = reports
        self._registry = registry
        self._clock = clock
        self._tell_raised = raised
        self._observer: Observer = observer or SilentObserver()
        self._threads = DaemonThreads(thread_count)
        self._thread_count = thread_count
        self._stuck = 0
        self._stuck_lock = threading.Lock()

    @property
    def stuck_count(self) -> int:
        """Threads whose attempt is over but whose function has not returned."""
        return self._stuck

    def serves(self, need: str) -> bool:
        name = need.removeprefix(FUNCTION)
        return name != need and self._registry.find(name) is not None

    async def execute(self, order: AttemptRequest) -> Outcome:
        effect = order.effect
        assert isinstance(effect, Python)
        entry = self._registry.find(effect.function)
        if entry is None:
            return Unserved(function_need(effect.function))
        try:
            if entry.is_async:
                return await self._in_loop(order, entry, effect)
            return await self._in_thread(order, entry, effect)
        finally:
            if self._reports.has_any:
                self._reports.forget(order.attempt_id)

    async def close(self) -> None:
        self._threads.close()

    # -- coroutine functions --

    async def _in_loop(self, order: AttemptRequest, entry: _Entry, effect: Python) -> Outcome:
        attempt = AttemptContext(order, order.is_ending, self._reports)
        with AttemptBoundary((Exception, SystemExit, asyncio.CancelledError)) as boundary:
            args, kwargs = entry.signature.decode(effect.args, effect.kwargs)
            result = await entry.function(attempt, *args, **kwargs)
            return _NO_ANSWER if result is None else self._answered(order, result)
        return self._raised(order, boundary.release())

    # -- plain functions --

    async def _in_thread(self, order: AttemptRequest, entry: _Entry, effect: Python) -> Outcome:
        stop = _StopSign()
        attempt = AttemptContext(order, stop.look, self._reports)
        future = self._threads.submit(partial(self._call, order, entry, attempt, effect))
        waiting = asyncio.wrap_future(future)
        try:
            done, _ = await self._wait(waiting, future, order.timeout_s, stop)
        except asyncio.CancelledError:
            stop.put_up()
            self._abandon(order, future)
            waiting.cancel()
            raise
        if done:
            return stop.explain(waiting.result())
        stop.put_up()
        began = self._abandon(order, future)
        waiting.cancel()  # or its late result would be sent to a loop that may be closed by then
        where = "" if began else ": no thread became free"
        return Failed(error=f"timed out after {order.timeout_s:g} s{where}")

    @staticmethod
    async def _wait(
        waiting: asyncio.Future[Outcome],
        future: Future[Outcome],
        timeout_s: float,
        stop: _StopSign,
    ) -> tuple[set[asyncio.Future[Outcome]], set[asyncio.Future[Outcome]]]:
        """Wait for the function. Who is asked to end may take its time for it: a thread cannot be
        killed, and what it does until it looks at the sign should not be called ended."""
        try:
            return await asyncio.wait((waiting,), timeout=timeout_s)
        except asyncio.CancelledError as exc:
            if exc.args != (ASKED_TO_END,) or future.cancel():
                raise
        stop.put_up()
        return await asyncio.wait((waiting,))

    def _call(
        self, order: AttemptRequest, entry: _Entry, attempt: AttemptContext, effect: Python
    ) -> Outcome:
        """In the thread. Returns values only: some exceptions cannot cross into a coroutine."""
        with AttemptBoundary(BaseException) as boundary:
            args, kwargs = entry.signature.decode(effect.args, effect.kwargs)
            result = entry.function(attempt, *args, **kwargs)
            if inspect.iscoroutine(result):
                result.close()
                return Failed(error="the function returned a coroutine: register it as `async def`")
            return _NO_ANSWER if result is None else self._answered(order, result)
        return self._failed(order, boundary.release())

    def _abandon(self, order: AttemptRequest, future: Future[Outcome]) -> bool:
        """Give a call up; whether it had begun. One that began keeps its thread, as stuck."""
        if future.cancel():
            return False
        self._count_stuck(1)
        since = self._clock.monotonic()
        self._observer.event(
            "python.thread_stuck", id=order.id, attempt_id=str(order.attempt_id), count=self._stuck
        )
        future.add_done_callback(partial(self._returned, order, since))
        return True

    def _returned(self, order: AttemptRequest, since: float, _: Future[Outcome]) -> None:
        self._count_stuck(-1)
        self._observer.event(
            "python.thread_returned",
            id=order.id,
            attempt_id=str(order.attempt_id),
            late_s=self._clock.monotonic() - since,
        )

    def _count_stuck(self, change: int) -> None:
        with self._stuck_lock:
            self._stuck += change
            self._observer.gauge("python_threads_stuck", self._stuck)

    # -- outcomes --

    def _answered(self, order: AttemptRequest, result: object) -> Succeeded:
        """What a function returned, as JSON. It was done, whatever it returned: so what cannot be
        kept is told instead."""
        try:
            text = _ENCODER.encode(result)
        except (TypeError, ValueError, RecursionError):
            told = f"{NOT_KEPT}a {type(result).__name__}, which is not JSON)"
        else:
            if len(text) <= RESULT_BYTES_MAX:
                return Succeeded(answer=text.decode())
            told = f"{NOT_KEPT}a result of {len(text)} bytes; up to {RESULT_BYTES_MAX} are kept)"
            told = cut(f"{told} {text[:RESULT_BYTES_MAX].decode('utf-8', 'ignore')}")
        self._observer.event("python.result_not_kept", id=order.id, reason=told)
        return Succeeded(answer=told)

    def _raised(self, order: AttemptRequest, exc: BaseException) -> Outcome:
        current = asyncio.current_task()
        if isinstance(exc, asyncio.CancelledError) and (current is None or current.cancelling()):
            raise exc
        return self._failed(order, exc)  # also if it awaited something that others cancelled

    def _failed(self, order: AttemptRequest, exc: BaseException) -> Outcome:
        if self._tell_raised is not None:
            self._tell_raised(exc)
        match exc:
            case Fail():
                return Failed(
                    error=cut(_text(exc.reason)),
                    retryable=bool(exc.retryable),
                    retry_after=exc.retry_after,
                )
            case Misfit():
                return Failed(error=cut(str(exc)), retryable=False)
            case Cancel():
                return Cancelled(reason=cut(_text(exc.reason)))
        order.raised.put(exc)
        return Failed(error=cut(f"{_named(type(exc))}: {_text(exc)}"))


def _named(kind: type[BaseException]) -> str:
    """As Python itself shows it: with its module, unless everybody knows it."""
    if kind.__module__ in ("builtins", "__main__"):
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def _text(value: object) -> str:
    with AttemptBoundary(Exception):  # a broken __str__ of the user's must not hide the failure
        return str(value)
    return "(cannot be shown)"
