"""The decorators of an app: `@app.action`, `@app.cron`, `@app.every`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack, cast, overload

import msgspec

from gnomon.executors.python import AttemptContext, Function, Registry
from gnomon.model.action import Action, State
from gnomon.model.duration import parse_duration
from gnomon.model.errors import ConfigurationError, InvalidRequest, NoResult, NotFound, short
from gnomon.model.ids import NAME_PATTERN
from gnomon.model.outcome import NOT_KEPT
from gnomon.model.spec import Mock, Once, Python
from gnomon.scheduler import Scheduler
from gnomon.scheduler.options import Duration, FunctionOptions, Options, check_names, request_of
from gnomon.scheduler.program import DeclaredOptions, Program

P = ParamSpec("P")
R = TypeVar("R")
Plain = Callable[Concatenate[AttemptContext, P], R]

PROGRAM_DEFAULT = "main"


class Functions:
    """What a program says of its functions. Every `App` is one."""

    registry: Registry
    program: Program

    @overload
    def action(self, function: Plain[P, R], /) -> Function[P, R]: ...

    @overload
    def action(
        self, /, *, name: str | None = None, **options: Unpack[FunctionOptions]
    ) -> Callable[[Plain[P, R]], Function[P, R]]: ...

    def action(
        self,
        function: Any = None,
        /,
        *,
        name: str | None = None,
        **options: Unpack[FunctionOptions],
    ) -> Any:
        """Declare a function, async or not, that actions may call; calling it makes the effect.

        Options (`retry`, `timeout`, `queue`, …) count for its actions where `schedule` says nothing
        else.
        """
        check_names(options, "action", FunctionOptions.__annotations__)
        request_of(Mock(), cast("Options", options))  # a wrong one is told here, not at a call
        if isinstance(function, str):
            raise TypeError(f"action(): a name is given by name=: @app.action(name={function!r})")
        declare = self.registry.function(name, options)
        return declare if function is None else declare(function)

    def cron(
        self, expression: str, /, *, timezone: str = "UTC", **options: Unpack[DeclaredOptions]
    ) -> Callable[[Plain[P, R] | Function[P, R]], Function[P, R]]:
        """Declare an action that calls the function at the times of a cron expression.

        Above `@app.action(…)`, or alone. The workers of this program create the action, change it
        when this declaration has changed, and pause it when it is gone from the code. Its id is the
        function's name unless `id` is given; `args` and `kwargs` are for the function.
        """
        when = {"cron": expression, "timezone": timezone}
        return self._recurring("cron", when, options)

    def every(
        self, period: Duration, /, **options: Unpack[DeclaredOptions]
    ) -> Callable[[Plain[P, R] | Function[P, R]], Function[P, R]]:
        """Declare an action that calls the function every period, as `cron` does."""
        return self._recurring("every", {"every": period}, options)

    def _recurring(
        self, call: str, when: Mapping[str, Any], options: DeclaredOptions
    ) -> Callable[[Plain[P, R] | Function[P, R]], Function[P, R]]:
        check_names(options, call, DeclaredOptions.__annotations__)
        given: dict[str, Any] = dict(options)
        args, kwargs = given.pop("args", ()), given.pop("kwargs", {})
        if isinstance(args, str) or not isinstance(kwargs, Mapping):
            raise TypeError(
                f"{call}(): args is a list and kwargs a mapping: args=[…], kwargs={{…}}"
            )
        request_of(Mock(), cast("Options", {**given, **when}))  # the same for what is said here

        def declare(function: Plain[P, R] | Function[P, R]) -> Function[P, R]:
            known = function if isinstance(function, Function) else self.action(function)
            self._check_known(known, call)
            try:
                effect = known(*args, **kwargs)
            except TypeError as exc:
                hint = f"give what it needs: @app.{call}(…, args=[…]) or kwargs={{…}}"
                raise TypeError(f"@app.{call}: {exc}; {hint}") from None
            wanted = {**self.registry.options_of(known.name), "id": known.name, **given, **when}
            self.program.declare(request_of(effect, cast("Options", wanted)))
            return known

        return declare

    def _check_known(self, function: Function[..., Any], call: str) -> None:
        entry = self.registry.find(function.name)
        if entry is None or entry.function is not function.function:
            raise ConfigurationError(
                f"function {function.name}", f"is of another app: @app.{call} is for its own"
            )


async def wait_result(
    scheduler: Scheduler, registry: Registry, id: str, *, within: Duration | None
) -> Any:
    """What `App.result` gives, and its errors."""
    patience = None if within is None else parse_duration(within, "timeout").total_seconds()
    try:
        async with asyncio.timeout(patience):
            async for action in scheduler.watch(id):
                if action.status.state.is_terminal:
                    return result_of(registry, action)
                if not isinstance(action.spec.policy, Once):
                    raise InvalidRequest(
                        f"action {id} recurs, and has a result for each time: see its attempts"
                    )
    except TimeoutError:
        raise TimeoutError(f"action {id} has not ended within {patience:g} s") from None
    raise NotFound("action", id)


def result_of(registry: Registry, action: Action) -> Any:
    """What an action's function returned, typed as it is declared where that is known here.
    Errors: NoResult."""
    status, last = action.status, action.status.last_attempt
    if status.state is not State.DONE or last is None:
        told = "; ".join(filter(None, (status.reason, None if last is None else last.error)))
        raise NoResult(action.meta.id, state=status.state, reason=told or "it was not attempted")
    if last.answer is None:
        return None
    if last.answer.startswith(NOT_KEPT):
        told = last.answer.removeprefix(NOT_KEPT).partition(")")[0]
        raise NoResult(action.meta.id, state=status.state, reason=told)
    effect = action.spec.action
    if not isinstance(effect, Python):
        return last.answer
    plain, entry = msgspec.json.decode(last.answer), registry.find(effect.function)
    if entry is None or entry.signature.returns is None:
        return plain
    try:
        return entry.signature.returns.decode(plain)
    except msgspec.ValidationError as exc:
        reason = (
            f"it was stored as {short(plain)}, and {entry.signature.returns} is declared: {exc}"
        )
        raise NoResult(action.meta.id, state=status.state, reason=reason) from None


def program_name(frame: FrameType | None) -> str:
    """What a program is called unless it says so: the module in which its app is made."""
    name = PROGRAM_DEFAULT if frame is None else str(frame.f_globals.get("__name__", ""))
    if name == "__main__":
        main = sys.modules["__main__"]
        spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
        name = Path(file).stem if spec is None and file else getattr(spec, "name", PROGRAM_DEFAULT)
        name = name.removesuffix(".__main__")
    return name if NAME_PATTERN.fullmatch(name) else PROGRAM_DEFAULT
