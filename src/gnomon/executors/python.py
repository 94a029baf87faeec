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
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from datetime import datetime
from functools import partial
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar
from uuid import UUID

import msgspec

from gnomon.contracts.clock import Clock
from gnomon.contracts.executor import AttemptRequest
from gnomon.contracts.observer import Observer, SilentObserver
from gnomon.executors._threads import DaemonThreads
from gnomon.model.attempt_boundary import AttemptBoundary
from gnomon.model.effects import json_problem
from gnomon.model.errors import ConfigurationError, short
from gnomon.model.ids import NAME_PATTERN
from gnomon.model.outcome import Cancel, Cancelled, Fail, Failed, Outcome, Succeeded, cut
from gnomon.model.spec import Python

P = ParamSpec("P")
R = TypeVar("R")

THREAD_COUNT_DEFAULT = 32
NAMES_SHOWN_MAX = 10
_NO_ANSWER = Succeeded()
_ENCODER = msgspec.json.Encoder()


class AttemptContext(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a function is told about its attempt. `key` is the same for all attempts of one
    occurrence: use it to make the effect happen once."""

    id: str
    key_of: Callable[[], str]
    attempt_id: UUID
    attempt_no: int
    occurrence_no: int
    scheduled_at: datetime
    deadline: datetime

    @property
    def key(self) -> str:
        return self.key_of()


# -- registration ---------------------------------------------------------------------------------


class Function(Generic[P, R]):
    """A registered function. Calling it does nothing but describe the call, as an effect."""

    def __init__(self, name: str, function: Callable[Concatenate[AttemptContext, P], R]) -> None:
        self.name = name
        self.function = function
        self._signature = inspect.signature(function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Python:
        """The effect that calls the function so. TypeError names the argument that is not JSON."""
        try:
            bound = self._signature.bind(None, *args, **kwargs)
        except TypeError as exc:
            raise TypeError(f"{self.name}(): {exc}") from None
        for name, value in self._named(bound):
            problem = json_problem(value)
            if problem is not None:
                raise TypeError(f"{self.name}(): the argument {name!r} {problem}")
        return Python(function=self.name, args=list(args), kwargs=dict(kwargs))

    def _named(self, bound: inspect.BoundArguments) -> Iterator[tuple[str, object]]:
        for name, value in list(bound.arguments.items())[1:]:  # the first is the attempt
            match self._signature.parameters[name].kind:
                case inspect.Parameter.VAR_POSITIONAL:
                    yield from ((f"*{name}", part) for part in value)
                case inspect.Parameter.VAR_KEYWORD:
                    yield from value.items()
                case _:
                    yield name, value

    def __repr__(self) -> str:
        return f"<Function {self.name}>"


class _Entry(msgspec.Struct, frozen=True):
    function: Callable[..., Any]
    is_async: bool


class Registry:
    """The functions that effects may name. Filled at start, before a worker begins anything."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}

    def register(self, name: str, function: Callable[..., Any]) -> None:
        """Make a function known. Errors: ConfigurationError for a bad name or one that is taken."""
        path = f"function {short(name)}"
        if not NAME_PATTERN.fullmatch(name):
            raise ConfigurationError(path, "a name is 1 to 64 characters out of A-Z a-z 0-9 . _ -")
        if not callable(function):
            raise ConfigurationError(path, "is not callable")
        if name in self._entries:
            raise ConfigurationError(path, "is registered already: choose another name")
        self._entries[name] = _Entry(function, _is_async(function))

    def function(
        self, name: str | None = None
    ) -> Callable[[Callable[Concatenate[AttemptContext, P], R]], Function[P, R]]:
        """Decorate a function to register it, under its own name unless another is given."""

        def decorate(function: Callable[Concatenate[AttemptContext, P], R]) -> Function[P, R]:
            known_as = name or str(getattr(function, "__name__", ""))
            self.register(known_as, function)
            return Function(known_as, function)

        return decorate

    def find(self, name: str) -> _Entry | None:
        return self._entries.get(name)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._entries))


def _is_async(function: Callable[..., Any]) -> bool:
    called = getattr(function, "__call__", None)  # noqa: B004 - an object may have an async one
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


# -- execution ------------------------------------------------------------------------------------


class PythonExecutor:
    """Calls registered functions."""

    def __init__(
        self,
        registry: Registry,
        clock: Clock,
        thread_count: int = THREAD_COUNT_DEFAULT,
        observer: Observer | None = None,
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._observer: Observer = observer or SilentObserver()
        self._threads = DaemonThreads(thread_count)
        self._thread_count = thread_count
        self._stuck = 0
        self._stuck_lock = threading.Lock()

    @property
    def stuck_count(self) -> int:
        """Threads whose attempt is over but whose function has not returned."""
        return self._stuck

    async def execute(self, order: AttemptRequest) -> Outcome:
        effect = order.effect
        assert isinstance(effect, Python)
        entry = self._registry.find(effect.function)
        if entry is None:
            return self._unknown(effect.function)
        attempt = AttemptContext(
            id=order.id,
            key_of=order.key_of,
            attempt_id=order.attempt_id,
            attempt_no=order.attempt_no,
            occurrence_no=order.occurrence_no,
            scheduled_at=order.scheduled_at,
            deadline=order.deadline,
        )
        if not entry.is_async:
            return await self._in_thread(order, entry, attempt, effect)
        with AttemptBoundary((Exception, SystemExit, asyncio.CancelledError)) as boundary:
            result = await entry.function(attempt, *effect.args, **effect.kwargs)
            return _NO_ANSWER if result is None else _answered(result)
        return self._raised(order, boundary.release())

    async def close(self) -> None:
        self._threads.close()

    # -- plain functions --

    async def _in_thread(
        self, order: AttemptRequest, entry: _Entry, attempt: AttemptContext, effect: Python
    ) -> Outcome:
        future = self._threads.submit(partial(self._call, order, entry, attempt, effect))
        waiting = asyncio.wrap_future(future)
        try:
            done, _ = await asyncio.wait((waiting,), timeout=order.timeout_s)
        except asyncio.CancelledError:
            self._abandon(order, future)
            waiting.cancel()
            raise
        if done:
            return waiting.result()
        began = self._abandon(order, future)
        waiting.cancel()  # or its late result would be sent to a loop that may be closed by then
        where = "" if began else ": no thread became free"
        return Failed(error=f"timed out after {order.timeout_s:g} s{where}")

    def _call(
        self, order: AttemptRequest, entry: _Entry, attempt: AttemptContext, effect: Python
    ) -> Outcome:
        """In the thread. Returns values only: some exceptions cannot cross into a coroutine."""
        with AttemptBoundary(BaseException) as boundary:
            result = entry.function(attempt, *effect.args, **effect.kwargs)
            if inspect.iscoroutine(result):
                result.close()
                return Failed(error="the function returned a coroutine: register it as `async def`")
            return _NO_ANSWER if result is None else _answered(result)
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

    def _unknown(self, name: str) -> Failed:
        known = self._registry.names
        more = f" and {len(known) - NAMES_SHOWN_MAX} more" if len(known) > NAMES_SHOWN_MAX else ""
        listed = ", ".join(known[:NAMES_SHOWN_MAX]) or "no function at all"
        return Failed(
            error=cut(f"no function {short(name)} here; this worker knows {listed}{more}")
        )

    def _raised(self, order: AttemptRequest, exc: BaseException) -> Outcome:
        current = asyncio.current_task()
        if isinstance(exc, asyncio.CancelledError) and (current is None or current.cancelling()):
            raise exc
        return self._failed(order, exc)  # also if it awaited something that others cancelled

    def _failed(self, order: AttemptRequest, exc: BaseException) -> Outcome:
        match exc:
            case Fail():
                return Failed(
                    error=cut(_text(exc.reason)),
                    retryable=bool(exc.retryable),
                    retry_after=exc.retry_after,
                )
            case Cancel():
                return Cancelled(reason=cut(_text(exc.reason)))
        error = cut(f"{type(exc).__name__}: {_text(exc)}")
        self._observer.event(
            "python.function_failed",
            id=order.id,
            attempt_id=str(order.attempt_id),
            error=error,
            traceback="".join(traceback.format_exception(exc)),
        )
        return Failed(error=error)


def _answered(result: object) -> Succeeded:
    """What a function returned is for people to see. It was done, whatever it returned."""
    try:
        return Succeeded(answer=cut(_ENCODER.encode(result).decode()))
    except (TypeError, ValueError, RecursionError):
        return Succeeded(answer=f"(a {type(result).__name__}, which is not JSON)")


def _text(value: object) -> str:
    with AttemptBoundary(Exception):  # a broken __str__ of the user's must not hide the failure
        return str(value)
    return "(cannot be shown)"
