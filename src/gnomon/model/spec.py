"""What the user asks for: what to do, when, and how to retry.

A `Spec` is frozen and knows no clock; `validate` says whether it obeys the rules
that need no other knowledge. Rules that compare with the present are in `scheduler.admission`.
"""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec

from gnomon.model.duration import DURATION_MAX
from gnomon.model.errors import InvalidSpec
from gnomon.model.ids import NAME_PATTERN, check_name

SECOND = timedelta(seconds=1)
ZERO = timedelta(0)
TIMEOUT_DEFAULT = timedelta(seconds=15)
TIMEOUT_MAX = timedelta(days=1)
RETENTION_MAX = timedelta(days=366)
RETRIES_MAX = 1_000_000
COUNT_MAX = 2**31 - 1
TRACEPARENT_PATTERN = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
LABELS_MAX = 32
LABEL_CHARS_MAX = 256
PRIORITY_MAX = 9
CATCH_UP_MAX = 10_000
YEAR_MAX = 9000  # far from datetime's end, so that adding a duration cannot overflow


class _SpecPart(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Every part of a spec: immutable, unknown fields refused, defaults not written."""


# -- what to do -----------------------------------------------------------------------------------


class Http(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag="http",
    tag_field="type",
):  # fmt: skip
    """Call a URL. Success is an answer whose status is in `success` (default: any 2xx)."""

    method: str
    url: str
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    body: str | None = None
    json: Any = None
    success: tuple[int, ...] = ()


class Python(_SpecPart, frozen=True, tag="python", tag_field="type"):
    """Call a function that the worker's program registered under this name."""

    function: str
    args: list[Any] = msgspec.field(default_factory=list)
    kwargs: dict[str, Any] = msgspec.field(default_factory=dict)


class Mock(_SpecPart, frozen=True, tag="mock", tag_field="type"):
    """For tests: succeed, fail the first `fail` attempts, hang for a time, or kill the process."""

    fail: int = 0
    hang: timedelta = ZERO
    kill: int = 0  # kill the worker process in the first `kill` attempts
    answer: str | None = None


class Rabbitmq(_SpecPart, frozen=True, tag="rabbitmq", tag_field="type"):
    """Publish a message. Success: the broker has confirmed it, and some queue takes it."""

    target: str  # named in the worker's configuration, which has the address
    routing_key: str
    exchange: str = ""  # the default exchange: the routing key names a queue
    body: str | None = None
    json: Any = None
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    content_type: str | None = None


class Kafka(_SpecPart, frozen=True, tag="kafka", tag_field="type"):
    """Send a record. Success: all replicas in sync have it."""

    target: str  # named in the worker's configuration, which has the address
    topic: str
    key: str | None = None
    value: str | None = None
    json: Any = None
    headers: dict[str, str] = msgspec.field(default_factory=dict)


class Grpc(_SpecPart, frozen=True, tag="grpc", tag_field="type"):
    """Call a service that implements `gnomon.v1.ActionHandler`. Success: it answered OK."""

    target: str  # named in the worker's configuration, which has the address
    handler: str  # what the service is to do, in its own words
    payload: Any = None


class Push(_SpecPart, frozen=True, tag="push", tag_field="type"):
    """Send a technical push through a notificator, to a user's devices or to one device."""

    target: str  # named in the worker's configuration, which has the address
    ttl: timedelta  # required; counted from its time: what is not sent by then is not sent at all
    user: str | None = None
    device: str | None = None
    payload: Any = None


class Sql(_SpecPart, frozen=True, tag="sql", tag_field="type"):
    """Perform one SQL statement. Success: it is committed."""

    target: str  # named in the worker's configuration, which has the login
    statement: str
    parameters: list[Any] = msgspec.field(default_factory=list)  # for $1, $2, …
    autocommit: bool = False  # outside of a transaction, for VACUUM and its kin: at least once


class Unreadable(_SpecPart, frozen=True, tag="unreadable", tag_field="type"):
    """Stands for what a stored spec that cannot be read asked for; never stored, always fails."""

    error: str


Effect = Http | Python | Mock | Rabbitmq | Kafka | Grpc | Push | Sql


# -- when -----------------------------------------------------------------------------------------


class Once(_SpecPart, frozen=True, tag="once", tag_field="type"):
    """Until the first success, or until the retries are used up."""


class Periodic(_SpecPart, frozen=True, tag="periodic", tag_field="type"):
    """Every `period`, counted on the grid that begins at `start_at`."""

    period: timedelta


class Cron(_SpecPart, frozen=True, tag="cron", tag_field="type"):
    """At the times of a five-field cron expression, in a time zone."""

    expression: str
    timezone: str = "UTC"


Policy = Once | Periodic | Cron


class CatchUp(_SpecPart, frozen=True):
    """What happens to occurrences missed while nothing ran: none, one for all, or all of them."""

    mode: Literal["none", "one", "all"] = "one"
    max: int = 100  # with `all`: at most this many, the newest ones


class Retry(_SpecPart, frozen=True):
    """`min(max_period, min_period + scale * back_off ** n)`, n = failures before this one.

    Up to the part `jitter` of what was added to `min_period` is left out, by chance."""

    max: int = 0
    min_period: timedelta = SECOND
    max_period: timedelta = SECOND
    scale: float = 0.0  # seconds
    back_off: float = 0.0
    jitter: float = 0.0


# -- the whole ------------------------------------------------------------------------------------


class Spec(_SpecPart, frozen=True):
    """All that a user says about an action."""

    action: Effect
    policy: Policy = Once()  # frozen, so shared; a default made by a factory would be written out
    start_at: datetime | None = None  # admission fills it in: now, by default
    deadline: datetime | None = None
    retry: Retry = Retry()
    timeout: timedelta = TIMEOUT_DEFAULT
    active: timedelta | None = None  # not begun within it after its time: the occurrence expires
    drift: bool = False  # count the next period from the end of the attempt, not on the grid
    catch_up: CatchUp = CatchUp()
    jitter: timedelta = ZERO  # each occurrence is delayed by its own fixed part of this
    occurrences_max: int | None = None
    successes_max: int | None = None
    consecutive_failures_max: int | None = None
    interruptions_max: int = 5  # in a row; more and the action is dead, for it may be the cause
    retention: timedelta | None = None  # how long it stays visible when finished
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    queue: str = "default"
    priority: int = 5  # 0 is first, 9 is last
    traceparent: str | None = None  # of W3C: the span that stored it, if there was one


def validate(spec: Spec) -> None:
    """Refuse a spec that breaks a rule; the error names the field, the rule and the value."""
    _validate_times(spec)
    _validate_retry(spec.retry)
    _validate_counts(spec)
    _validate_labels(spec)
    match spec.policy:
        case Periodic(period=period):
            _within("spec.policy.period", period, SECOND, DURATION_MAX)
        case Cron():
            pass  # parsed where the calendar is: gnomon.model.schedule.validate_policy
        case Once():
            pass


def _validate_times(spec: Spec) -> None:
    for path, moment in (("spec.start_at", spec.start_at), ("spec.deadline", spec.deadline)):
        if moment is None:
            continue
        if moment.tzinfo is None:
            raise InvalidSpec(path, "must have a time zone, for example a trailing Z", got=moment)
        if not 1970 <= moment.year <= YEAR_MAX:
            raise InvalidSpec(path, f"must be between 1970 and the year {YEAR_MAX}", got=moment)
    if spec.start_at and spec.deadline and spec.deadline <= spec.start_at:
        raise InvalidSpec("spec.deadline", "must be after start_at", got=spec.deadline)
    _within("spec.timeout", spec.timeout, timedelta(milliseconds=1), TIMEOUT_MAX)
    if spec.active is not None:
        _within("spec.active", spec.active, SECOND, DURATION_MAX)
    _within("spec.jitter", spec.jitter, ZERO, timedelta(days=1))
    if spec.retention is not None:
        _within("spec.retention", spec.retention, ZERO, RETENTION_MAX)


def _validate_retry(retry: Retry) -> None:
    _count("spec.retry.max", retry.max, 0, RETRIES_MAX)
    _within("spec.retry.min_period", retry.min_period, SECOND, DURATION_MAX)
    _within("spec.retry.max_period", retry.max_period, SECOND, DURATION_MAX)
    if retry.max_period < retry.min_period:
        raise InvalidSpec(
            "spec.retry.max_period", "must not be below min_period", got=retry.max_period
        )
    for path, value in (("spec.retry.scale", retry.scale), ("spec.retry.back_off", retry.back_off)):
        if not math.isfinite(value) or value < 0:
            raise InvalidSpec(path, "must be a finite number, 0 or more", got=value)
    if not 0 <= retry.jitter <= 1:  # nor is it NaN
        raise InvalidSpec("spec.retry.jitter", "must be between 0 and 1", got=retry.jitter)


def _validate_counts(spec: Spec) -> None:
    for name in ("occurrences_max", "successes_max", "consecutive_failures_max"):
        value = getattr(spec, name)
        if value is not None:
            _count(f"spec.{name}", value, 1, COUNT_MAX)
    _count("spec.interruptions_max", spec.interruptions_max, 0, COUNT_MAX)
    _count("spec.priority", spec.priority, 0, PRIORITY_MAX)
    _count("spec.catch_up.max", spec.catch_up.max, 1, CATCH_UP_MAX)


def _validate_labels(spec: Spec) -> None:
    check_name("spec.queue", spec.queue)
    if spec.traceparent is not None and not TRACEPARENT_PATTERN.fullmatch(spec.traceparent):
        raise InvalidSpec(
            "spec.traceparent", "must be as W3C writes it, 00-<32>-<16>-<2> hexadecimal digits",
            got=spec.traceparent,
        )  # fmt: skip
    _count("spec.labels", len(spec.labels), 0, LABELS_MAX)
    for name, value in spec.labels.items():
        if not NAME_PATTERN.fullmatch(name):
            raise InvalidSpec("spec.labels", "a name must match [A-Za-z0-9._-]{1,64}", got=name)
        if len(value) > LABEL_CHARS_MAX or not value.isprintable():
            raise InvalidSpec(
                f"spec.labels.{name}",
                f"must be printable, up to {LABEL_CHARS_MAX} chars",
                got=value,
            )


def _at_least(path: str, value: timedelta, least: timedelta) -> None:
    if value < least:
        raise InvalidSpec(path, f"must be at least {least.total_seconds():g} s", got=value)


def _within(path: str, value: timedelta, least: timedelta, most: timedelta) -> None:
    _at_least(path, value, least)
    if value > most:
        raise InvalidSpec(path, f"must be at most {most.total_seconds():g} s", got=value)


def _count(path: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise InvalidSpec(path, f"must be between {least} and {most}", got=value)
