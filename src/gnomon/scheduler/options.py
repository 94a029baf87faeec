"""The keyword options of the Python API and of the CLI, and how they become a request."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypedDict

from gnomon.model.duration import parse_duration
from gnomon.model.errors import InvalidSpec
from gnomon.model.spec import CatchUp, Cron, Effect, Once, Periodic, Policy, Retry, Spec
from gnomon.scheduler.admission import Request

Duration = timedelta | str | float


class Options(TypedDict, total=False):
    """Everything that can be said about an action besides what it does."""

    id: str
    key: str  # idempotency key: a repeat of the call changes nothing
    at: datetime | str
    every: Duration
    cron: str
    timezone: str
    deadline: datetime | str
    retry: Retry
    timeout: Duration
    active: Duration
    drift: bool
    catch_up: CatchUp
    jitter: Duration
    occurrences_max: int
    successes_max: int
    consecutive_failures_max: int
    interruptions_max: int
    retention: Duration
    labels: Mapping[str, str]
    queue: str
    priority: int


_PLAIN = (
    "retry", "drift", "catch_up", "occurrences_max", "successes_max", "consecutive_failures_max",
    "interruptions_max", "queue", "priority",
)  # fmt: skip
_DURATIONS = ("timeout", "active", "jitter", "retention")


def request_of(effect: Effect, options: Options) -> Request:
    """A request out of keyword options. Errors name the option."""
    given: dict[str, Any] = dict(options)
    fields = {name: given[name] for name in _PLAIN if given.get(name) is not None}
    for name in _DURATIONS:
        if given.get(name) is not None:
            fields[name] = parse_duration(given[name], name)
    if given.get("labels"):
        fields["labels"] = dict(given["labels"])
    for option, field in (("at", "start_at"), ("deadline", "deadline")):
        if given.get(option) is not None:
            fields[field] = moment_of(given[option], option)
    spec = Spec(action=effect, policy=_policy(given), **fields)
    return Request(id=given.get("id"), spec=spec, key=given.get("key"))


def _policy(given: Mapping[str, Any]) -> Policy:
    every, cron = given.get("every"), given.get("cron")
    if every is not None and cron is not None:
        raise InvalidSpec("every", "cannot be combined with cron", got=every)
    if every is not None:
        return Periodic(period=parse_duration(every, "every"))
    if cron is not None:
        return Cron(expression=cron, timezone=given.get("timezone") or "UTC")
    if given.get("timezone") is not None:
        raise InvalidSpec("timezone", "is for cron only", got=given["timezone"])
    return Once()


def moment_of(value: datetime | str, option: str) -> datetime:
    """A moment in UTC; a text is ISO 8601 and, like a datetime, must have a time zone."""
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
