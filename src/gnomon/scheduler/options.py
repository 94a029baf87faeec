"""The keyword options of the Python API and of the CLI, and how they become a request."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Any, TypedDict, get_args

from gnomon.model.duration import parse_duration
from gnomon.model.errors import InvalidSpec
from gnomon.model.spec import CatchUp, Cron, Effect, Once, Periodic, Policy, Retry, Spec
from gnomon.scheduler.admission import IfExists, Request

__all__ = [
    "FunctionOptions",
    "IfExists",
    "Options",
    "check_effect",
    "check_names",
    "moment_of",
    "request_of",
]

Duration = timedelta | str | float

HOUR = timedelta(hours=1)


class FunctionOptions(TypedDict, total=False):
    """What may be said about all actions that call a function, where it is declared."""

    retry: Retry | int  # a number: so often, at growing distances from a second to an hour
    timeout: Duration
    active: Duration
    jitter: Duration
    interruptions_max: int
    retention: Duration
    labels: Mapping[str, str]
    queue: str
    priority: int


class Options(FunctionOptions, total=False):
    """Everything that can be said about an action besides what it does."""

    id: str
    key: str  # idempotency key: a repeat of the call changes nothing
    at: datetime | str
    in_: Duration  # from now, instead of `at`
    every: Duration
    cron: str
    timezone: str
    deadline: datetime | str
    drift: bool
    catch_up: CatchUp
    occurrences_max: int
    successes_max: int
    consecutive_failures_max: int


_PLAIN = (
    "drift", "catch_up", "occurrences_max", "successes_max", "consecutive_failures_max",
    "interruptions_max", "queue", "priority",
)  # fmt: skip
# What other schedulers call it.
_ALIASES = {
    "delay": "in_", "countdown": "in_", "eta": "at", "run_at": "at", "when": "at",
    "interval": "every", "max_retries": "retry", "retries": "retry", "tz": "timezone",
    "name": "id", "tags": "labels", "expires": "deadline",
}  # fmt: skip
_DURATIONS = ("timeout", "active", "jitter", "retention")


def request_of(effect: Effect, options: Options) -> Request:
    """A request out of keyword options. Errors name the option."""
    given: dict[str, Any] = dict(options)
    check_names(given, "schedule")
    fields = {name: given[name] for name in _PLAIN if given.get(name) is not None}
    if not isinstance(fields.get("catch_up", CatchUp()), CatchUp):
        raise InvalidSpec(
            "catch_up", "must be a gnomon.CatchUp, such as CatchUp(mode='none')",
            got=fields["catch_up"],
        )  # fmt: skip
    for name in _DURATIONS:
        if given.get(name) is not None:
            fields[name] = parse_duration(given[name], name)
    if given.get("labels"):
        fields["labels"] = _labels(given["labels"])
    if given.get("retry") is not None:
        fields["retry"] = retry_of(given["retry"])
    for option, field in (("at", "start_at"), ("deadline", "deadline")):
        if given.get(option) is not None:
            fields[field] = moment_of(given[option], option)
    spec = Spec(action=effect, policy=_policy(given), **fields)
    return Request(id=given.get("id"), spec=spec, key=given.get("key"), delay=_delay(given))


def _labels(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise InvalidSpec("labels", "must be a mapping of names to texts", got=value)
    return dict(value)


def check_effect(effect: object) -> None:
    """TypeError with what to write, if this does not say what is to be done."""
    if isinstance(effect, get_args(Effect)):
        return
    name = getattr(effect, "name", None) or getattr(effect, "__name__", type(effect).__name__)
    if hasattr(effect, "function"):
        raise TypeError(f"schedule() takes a call of the function: write {name}(…), not {name}")
    if callable(effect):
        raise TypeError(f"schedule(): declare {name} with @app.action, then schedule {name}(…)")
    kinds = ", ".join(kind.__name__ for kind in get_args(Effect))
    raise TypeError(
        f"schedule() takes a call of a declared function, or one of {kinds}; not {name}"
    )


def check_names(given: Collection[str], call: str, known: Collection[str] = ()) -> None:
    """TypeError if one of these names is no option; it names the nearest one."""
    known = known or Options.__annotations__
    for name in given:
        if name not in known:
            near = get_close_matches(name, [*known, *_ALIASES], n=1)
            hint = f"; did you mean {_ALIASES.get(near[0], near[0])!r}?" if near else ""
            raise TypeError(f"{call}() has no option {name!r}{hint}")


def retry_of(value: Retry | int) -> Retry:
    """How to retry; a number stands for growing distances that keep many failures apart."""
    if isinstance(value, Retry):
        _check_growth(value)
        return value
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidSpec("retry", "must be a number of retries or a gnomon.Retry", got=value)
    return Retry(max=value, max_period=HOUR, scale=1.0, back_off=2.0, jitter=0.5)


def _check_growth(retry: Retry) -> None:
    """What is said about growing distances must have an effect."""
    if retry.back_off and not retry.scale:
        raise InvalidSpec(
            "retry.back_off",
            "does nothing without scale: write scale=1.0 (seconds), or only the number of retries",
            got=retry.back_off,
        )
    if retry.scale and retry.max_period <= retry.min_period:
        raise InvalidSpec(
            "retry.scale",
            "does nothing unless max_period is more than min_period, which is a second by default",
            got=retry.scale,
        )


def _delay(given: Mapping[str, Any]) -> timedelta | None:
    if given.get("in_") is None:
        return None
    if given.get("at") is not None:
        raise InvalidSpec("in_", "cannot be combined with at", got=given["in_"])
    return parse_duration(given["in_"], "in_")


def _policy(given: Mapping[str, Any]) -> Policy:
    every, cron = given.get("every"), given.get("cron")
    if every is not None and cron is not None:
        raise InvalidSpec("every", "cannot be combined with cron", got=every)
    if cron is None and given.get("timezone") is not None:
        raise InvalidSpec("timezone", "is for cron only", got=given["timezone"])
    if every is not None:
        return Periodic(period=parse_duration(every, "every"))
    if cron is not None:
        return Cron(expression=cron, timezone=given.get("timezone") or "UTC")
    return Once()


def moment_of(value: object, option: str) -> datetime:
    """A moment in UTC; a text is ISO 8601 and, like a datetime, must have a time zone."""
    if isinstance(value, timedelta):
        raise InvalidSpec(option, "must be a time; for a time from now write in_", got=value)
    if not isinstance(value, str | datetime):
        raise InvalidSpec(
            option, "must be a datetime, or a text such as 2026-12-24T18:00Z", got=value
        )
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise InvalidSpec(
                option, "must be a time such as 2026-12-24T18:00:00+01:00", got=value
            ) from None
    else:
        moment = value
    if moment.tzinfo is None:
        raise InvalidSpec(option, "must have a time zone, for example +01:00 or Z", got=value)
    return moment.astimezone(UTC)
