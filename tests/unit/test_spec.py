"""Specs: every rule has a value that breaks it, and the error names the field."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from gnomon.model.codec import build_spec
from gnomon.model.effects import validate_effect
from gnomon.model.errors import InvalidRequest, InvalidSpec, UnknownField
from gnomon.model.schedule import validate_policy
from gnomon.model.spec import (
    CatchUp,
    Cron,
    Mock,
    Periodic,
    Retry,
    Spec,
    validate,
)

MOCK = {"type": "mock"}
BIG = 10**17


def admit(fields: dict[str, Any]) -> Spec:
    """As the admission does it, but for what compares with the present."""
    spec = build_spec({"action": MOCK, **fields})
    validate(spec)
    validate_policy(spec)
    validate_effect(spec.action)
    return spec


def periodic(period: object) -> dict[str, Any]:
    return {"policy": {"type": "periodic", "period": period}}


def cron(expression: object, timezone: object = "UTC") -> dict[str, Any]:
    return {"policy": {"type": "cron", "expression": expression, "timezone": timezone}}


def retry(**fields: object) -> dict[str, Any]:
    return {"retry": fields}


BAD_SPECS: list[tuple[dict[str, Any], str]] = [
    # times
    ({"start_at": "2026-01-01T00:00:00"}, "spec.start_at"),
    ({"start_at": "0001-01-01T00:00:00Z"}, "spec.start_at"),
    ({"start_at": "1969-12-31T23:59:59Z"}, "spec.start_at"),
    ({"start_at": "9001-01-01T00:00:00Z"}, "spec.start_at"),
    ({"start_at": "9999-12-31T23:59:59Z"}, "spec.start_at"),
    ({"start_at": "294277-01-01T00:00:00Z"}, "spec.start_at"),
    ({"start_at": "2026-06-30T23:59:60Z"}, "spec.start_at"),
    ({"start_at": "2026-02-29T00:00:00Z"}, "spec.start_at"),
    ({"start_at": "infinity"}, "spec.start_at"),
    ({"start_at": "now"}, "spec.start_at"),
    ({"start_at": ""}, "spec.start_at"),
    ({"start_at": 0}, "spec.start_at"),
    ({"start_at": True}, "spec.start_at"),
    ({"deadline": "2026-01-01T00:00:00"}, "spec.deadline"),
    ({"deadline": "9999-01-01T00:00:00Z"}, "spec.deadline"),
    ({"start_at": "2026-01-02T00:00:00Z", "deadline": "2026-01-01T00:00:00Z"}, "spec.deadline"),
    ({"start_at": "2026-01-02T00:00:00Z", "deadline": "2026-01-02T00:00:00Z"}, "spec.deadline"),
    (
        {"start_at": "2026-01-02T00:00:00Z", "deadline": "2026-01-02T01:00:00+02:00"},
        "spec.deadline",
    ),
    # durations
    ({"timeout": 0}, "spec.timeout"),
    ({"timeout": -1}, "spec.timeout"),
    ({"timeout": "1us"}, "spec.timeout"),
    ({"timeout": "25h"}, "spec.timeout"),
    ({"timeout": None}, "spec.timeout"),
    ({"timeout": "soon"}, "spec.timeout"),
    ({"timeout": BIG}, "spec.timeout"),
    ({"active": 0}, "spec.active"),
    ({"active": "999ms"}, "spec.active"),
    ({"active": "3661d"}, "spec.active"),
    ({"jitter": -1}, "spec.jitter"),
    ({"jitter": "25h"}, "spec.jitter"),
    ({"retention": -1}, "spec.retention"),
    ({"retention": "367d"}, "spec.retention"),
    # policy
    (periodic(0), "spec.policy.period"),
    (periodic(-1), "spec.policy.period"),
    (periodic("1us"), "spec.policy.period"),
    (periodic(0.999999), "spec.policy.period"),
    (periodic(BIG), "spec.policy.period"),
    (periodic("3661d"), "spec.policy.period"),
    (periodic(None), "spec.policy.period"),
    ({"policy": {"type": "periodic"}}, "spec.policy"),
    ({"policy": {"type": "weekly"}}, "spec.policy.type"),
    ({"policy": {}}, "spec.policy.type"),
    ({"policy": {"type": ["once"]}}, "spec.policy.type"),
    ({"policy": "once"}, "spec.policy"),
    ({"policy": None}, "spec.policy"),
    ({"policy": {"type": "once", "period": 5}}, "spec.policy.period"),
    (cron("* * * *"), "spec.policy.expression"),
    (cron("* * * * * *"), "spec.policy.expression"),
    (cron(""), "spec.policy.expression"),
    (cron("60 * * * *"), "spec.policy.expression"),
    (cron("*/0 * * * *"), "spec.policy.expression"),
    (cron("0 0 30 2 *"), "spec.policy.expression"),
    (cron("0 0 * 2 MON#6"), "spec.policy.expression"),
    (cron("0 0 31 4 *"), "spec.policy.expression"),
    (cron("a b c d e"), "spec.policy.expression"),
    (cron("9" * 5000 + " * * * *"), "spec.policy.expression"),
    (cron("0," * 5000 + "0 * * * *"), "spec.policy.expression"),
    (cron(5), "spec.policy.expression"),
    (cron("* * * * *", "Mars/Phobos"), "spec.policy.timezone"),
    (cron("* * * * *", "../../etc/passwd"), "spec.policy.timezone"),
    (cron("* * * * *", ""), "spec.policy.timezone"),
    (cron("* * * * *", "Europe"), "spec.policy.timezone"),
    (cron("* * * * *", "x" * 10_000), "spec.policy.timezone"),
    # retries
    (retry(max=-1), "spec.retry.max"),
    (retry(max=2**31), "spec.retry.max"),
    (retry(max=1.5), "spec.retry.max"),
    (retry(max="3"), "spec.retry.max"),
    (retry(min_period=0), "spec.retry.min_period"),
    (retry(min_period="999ms"), "spec.retry.min_period"),
    (retry(min_period=2, max_period=1), "spec.retry.max_period"),
    (retry(min_period=2), "spec.retry.max_period"),
    (retry(max_period="3661d"), "spec.retry.max_period"),
    (retry(scale=-1), "spec.retry.scale"),
    (retry(scale=float("nan")), "spec.retry.scale"),
    (retry(scale=float("inf")), "spec.retry.scale"),
    (retry(back_off=-0.5), "spec.retry.back_off"),
    (retry(back_off=float("nan")), "spec.retry.back_off"),
    (retry(back_off=float("inf")), "spec.retry.back_off"),
    (retry(back_off="2"), "spec.retry.back_off"),
    ({"retry": 3}, "spec.retry"),
    # counts
    ({"occurrences_max": 0}, "spec.occurrences_max"),
    ({"occurrences_max": 2**31}, "spec.occurrences_max"),
    ({"successes_max": -1}, "spec.successes_max"),
    ({"consecutive_failures_max": 0}, "spec.consecutive_failures_max"),
    ({"interruptions_max": -1}, "spec.interruptions_max"),
    ({"priority": -1}, "spec.priority"),
    ({"priority": 10}, "spec.priority"),
    ({"priority": "high"}, "spec.priority"),
    ({"priority": True}, "spec.priority"),
    ({"catch_up": {"mode": "some"}}, "spec.catch_up.mode"),
    ({"catch_up": {"mode": "all", "max": 0}}, "spec.catch_up.max"),
    ({"catch_up": {"mode": "all", "max": 10_001}}, "spec.catch_up.max"),
    ({"catch_up": "all"}, "spec.catch_up"),
    ({"drift": "yes"}, "spec.drift"),
    # names
    ({"queue": ""}, "spec.queue"),
    ({"queue": "a b"}, "spec.queue"),
    ({"queue": "../x"}, "spec.queue"),
    ({"queue": "x" * 65}, "spec.queue"),
    ({"queue": "\u202eliam"}, "spec.queue"),
    ({"queue": "mail\n"}, "spec.queue"),
    ({"queue": 5}, "spec.queue"),
    ({"labels": {"": "x"}}, "spec.labels"),
    ({"labels": {"a b": "x"}}, "spec.labels"),
    ({"labels": {"a": "x" * 257}}, "spec.labels.a"),
    ({"labels": {"a": "x\ny"}}, "spec.labels.a"),
    ({"labels": {"a": "\x1b[31m"}}, "spec.labels.a"),
    ({"labels": {"a": "\u202e"}}, "spec.labels.a"),
    ({"labels": {"a": "\ud800"}}, "spec.labels.a"),
    ({"labels": {"a": 1}}, "spec.labels"),
    ({"labels": {f"l{n}": "" for n in range(33)}}, "spec.labels"),
    ({"labels": ["a"]}, "spec.labels"),
    # unknown fields
    ({"Timeout": 5}, "spec.Timeout"),
    ({"retry": {"retries": 5}}, "spec.retry.retries"),
    ({"catch_up": {"n": 5}}, "spec.catch_up.n"),
    ({"action": {"type": "mock", "__class__": "os"}}, "spec.action.__class__"),
    # the action
    ({"action": None}, "spec.action"),
    ({"action": "mock"}, "spec.action"),
    ({"action": {}}, "spec.action.type"),
    ({"action": {"type": "shell"}}, "spec.action.type"),
    ({"action": {"type": None}}, "spec.action.type"),
    ({"action": {"type": "http", "url": "https://a.example/"}}, "spec.action"),
    ({"action": {"type": "python", "function": "f", "args": {}}}, "spec.action.args"),
    ({"action": {"type": "mock", "hang": "-1s"}}, "spec.action.hang"),
]


@pytest.mark.parametrize(("fields", "path"), BAD_SPECS)
def test_a_bad_spec_is_refused_by_its_field(fields: dict[str, Any], path: str) -> None:
    """The error names the field and the rule, in one short line."""
    with pytest.raises(InvalidRequest) as caught:
        admit(fields)
    assert isinstance(caught.value, InvalidSpec | UnknownField)
    assert caught.value.path in (path, f"{path}[...]")
    assert str(caught.value).startswith(path)
    assert len(str(caught.value)) < 300
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [None, [], "spec", 5, {}, {"policy": {"type": "once"}}])
def test_what_is_no_spec_at_all_is_refused(value: object) -> None:
    """A spec is an object with an action."""
    with pytest.raises(InvalidSpec, match=r"^spec"):
        build_spec(value)


def test_a_slip_of_the_pen_gets_a_suggestion() -> None:
    """`deadlin` is told about `deadline`."""
    with pytest.raises(UnknownField, match="did you mean 'deadline'"):
        admit({"deadlin": "2026-01-01T00:00:00Z"})


def test_an_unknown_field_cannot_forge_a_line() -> None:
    """What is repeated in a message is escaped and cut."""
    with pytest.raises(UnknownField) as caught:
        admit({"a\n2026 INFO all is well\x1b[31m" + "x" * 5000: 1})
    assert len(str(caught.value)) < 200
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"start_at": "1970-01-01T00:00:00Z", "deadline": "9000-12-31T23:59:59.999999Z"},
        {"start_at": "2026-01-01T00:00:00+02:00"},
        {"timeout": "1ms", "jitter": 0, "retention": 0, "active": "1s"},
        {"timeout": "1d", "jitter": "1d", "retention": "366d", "active": "3660d"},
        periodic(1),
        periodic("3660d"),
        cron("0 0 29 2 *", "America/New_York"),
        cron("*/5 9-17 * * MON-FRI"),
        cron("0 0 L * *"),
        retry(max=1_000_000, min_period=1, max_period="3660d", scale=1e308, back_off=1e308),
        {"occurrences_max": 1, "successes_max": 2**31 - 1, "interruptions_max": 0},
        {"priority": 0, "queue": "A-z_0.9"},
        {"priority": 9, "labels": {"a.b-c_D": "grün 😀 'quoted'", "empty": ""}},
        {"catch_up": {"mode": "all", "max": 10_000}, "drift": True},
    ],
)
def test_the_edges_of_the_rules_are_allowed(fields: dict[str, Any]) -> None:
    """What is exactly at a bound is within it."""
    assert isinstance(admit(fields), Spec)


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        (Spec(action=Mock(), policy=Periodic(period=timedelta.max)), "spec.policy.period"),
        (Spec(action=Mock(), active=timedelta.max), "spec.active"),
        (Spec(action=Mock(), retry=Retry(max_period=timedelta.max)), "spec.retry.max_period"),
        (Spec(action=Mock(), retry=Retry(min_period=timedelta.min)), "spec.retry.min_period"),
        (Spec(action=Mock(), catch_up=CatchUp(max=2**40)), "spec.catch_up.max"),
        (Spec(action=Mock(), deadline=datetime.max.replace(tzinfo=UTC)), "spec.deadline"),
        (Spec(action=Mock(), start_at=datetime(2026, 1, 1)), "spec.start_at"),  # noqa: DTZ001
    ],
)
def test_specs_made_in_python_obey_the_same_rules(spec: Spec, path: str) -> None:
    """No duration is so long that adding it to a time could overflow."""
    with pytest.raises(InvalidRequest, match=path):
        validate(spec)


def test_deadline_and_start_are_compared_as_moments() -> None:
    """Zones do not matter: 01:00+02:00 is before 00:00Z."""
    zone = timezone(timedelta(hours=2))
    start = datetime(2026, 1, 2, 0, 0, tzinfo=UTC)
    spec = Spec(action=Mock(), start_at=start, deadline=datetime(2026, 1, 2, 2, 1, tzinfo=zone))
    validate(spec)
    with pytest.raises(InvalidSpec, match=r"spec\.deadline"):
        validate(Spec(action=Mock(), start_at=start, deadline=start.replace(tzinfo=zone)))


def test_cron_needs_its_calendar() -> None:
    """`validate` leaves cron to `validate_policy`, which knows zones and expressions."""
    spec = Spec(action=Mock(), policy=Cron(expression="nonsense"))
    validate(spec)
    with pytest.raises(InvalidSpec, match=r"spec\.policy\.expression"):
        validate_policy(spec)
