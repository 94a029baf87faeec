"""JSON in and out: strict with strangers, exact with ourselves."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.model.codec import (
    BODY_BYTES_MAX,
    DEPTH_MAX,
    KEYS_MAX,
    build_spec,
    decode_spec,
    encode_spec,
    parse_json,
    read_back,
    stored_form,
)
from gnomon.model.errors import InvalidRequest, InvalidSpec
from gnomon.model.spec import (
    CatchUp,
    Cron,
    Http,
    Kafka,
    Mock,
    Periodic,
    Python,
    Rabbitmq,
    Retry,
    Spec,
)

BAD_BODIES = [
    (b"", "not JSON"),
    (b" ", "not JSON"),
    (b"{", "not JSON"),
    (b"}", "not JSON"),
    (b"{]", "not JSON"),
    (b"nul", "not JSON"),
    (b"{'a':1}", "not JSON"),
    (b"{a:1}", "not JSON"),
    (b"[1,]", "not JSON"),
    (b'{"a":1}x', "not JSON"),
    (b'{"a":1}{"b":2}', "not JSON"),
    (b"// no\n{}", "not JSON"),
    (b"01", "not JSON"),
    (b"0x10", "not JSON"),
    (b"+1", "not JSON"),
    (b'"a\x00b"', "not JSON"),
    (b'"a\nb"', "not JSON"),
    (b'"\\x41"', "not JSON"),
    (b"NaN", "NaN"),
    (b'{"a":Infinity}', "Infinity"),
    (b"[-Infinity]", "-Infinity"),
    (b"1e999999", "too large"),
    (b"-1e400", "too large"),
    (b"1" * 19, "18 digits"),
    (b"-" + b"1" * 19, "18 digits"),
    (b"1" * 5000, "18 digits"),
    (b'{"a":1,"a":2}', "'a' stands twice"),
    (b'{"a":{"b":1,"b":1}}', "'b' stands twice"),
    (b'{"a":1,"\\u0061":2}', "'a' stands twice"),
    (b'{"' + b"k" * 5000 + b'":1,"' + b"k" * 5000 + b'":2}', "stands twice"),
    (b'"\\ud800"', "surrogate"),
    (b'{"\\udfff":1}', "surrogate"),
    (b'[[{"a":"\\ud800x"}]]', "surrogate"),
    (b'"a\\u0000"', "NUL"),
    (b'{"a\\u0000":1}', "NUL"),
    (b'\xef\xbb\xbf{"a":1}', "byte order mark"),
    ('{"a":1}'.encode("utf-16"), "not UTF-8"),
    ('{"a":1}'.encode("utf-16-le"), "not JSON"),
    (b'"\xff"', "not UTF-8 (byte 1)"),
    (b'"\xed\xa0\x80"', "not UTF-8"),
    (b'"\xc0\x80"', "not UTF-8"),
    (b"[" * 100_000, "bytes"),
    (b"[" * 60_000, "nested deeper"),
    (b'{"a":' * 10_000, "nested deeper"),
    (b"[" * 33 + b"]" * 33, "nested deeper"),
    (b"{" + b",".join(b'"%d":1' % n for n in range(1001)) + b"}", "keys"),
    (b"[" + b",".join([b'{"a":1}'] * 1001) + b"]", "keys"),
    (b" " * (BODY_BYTES_MAX + 1), "bytes"),
    (b"\x1f\x8b\x08\x00", "not UTF-8"),
]


@pytest.mark.parametrize(("body", "problem"), BAD_BODIES)
def test_a_bad_body_is_refused_with_its_reason(body: bytes, problem: str) -> None:
    """Whatever Python's parser would let through or choke on: one clear, short error."""
    with pytest.raises(InvalidRequest) as caught:
        parse_json(body)
    assert problem in str(caught.value)
    assert len(str(caught.value)) < 200


def test_a_key_that_stands_twice_among_many_is_found_at_once() -> None:
    """Looking for it took a minute for a body of half a megabyte, in which nothing else ran."""
    body = b"{" + b",".join(b'"%06d":0' % n for n in [*range(50_000), 49_999]) + b"}"
    with pytest.raises(InvalidRequest, match="'049999' stands twice"):
        parse_json(body, bytes_max=len(body), keys_max=50_001)


@pytest.mark.parametrize(
    "body",
    [
        b"{}", b"[]", b"null", b"0", b"-0", b"1e5", b"9" * 18, b'"\\ud83d\\ude00"', b'"[[[[{{{{"',
        b'"\\"["', b"[" * DEPTH_MAX + b"]" * DEPTH_MAX, b'{"a":[1,{"b":null}],"c":"\\u00e9"}',
        b'["' + b"[" * 1000 + b'\\"' + b"[" * 1000 + b'"]',
        b"{" + b",".join(b'"%d":1' % n for n in range(KEYS_MAX)) + b"}",
        b" " * (BODY_BYTES_MAX - 2) + b"{}",
    ],
)  # fmt: skip
def test_a_good_body_is_read_as_python_reads_it(body: bytes) -> None:
    """Strict is not strange: what is within the bounds means what it always means."""
    assert json.loads(body) == parse_json(body)


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**18) + 1, 10**18 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=20,
)


@given(json_values)
def test_what_json_can_say_comes_back(value: object) -> None:
    """Everything that obeys the rules survives, escaped or not."""
    assert value == parse_json(json.dumps(value).encode())
    assert value == parse_json(json.dumps(value, ensure_ascii=False).encode())


@given(st.binary(max_size=200))
def test_no_body_can_raise_anything_else(body: bytes) -> None:
    """Only our own error leaves the parser."""
    try:
        found = parse_json(body)
    except InvalidRequest:
        return
    assert json.loads(body) == found


FULL = Spec(
    action=Http("POST", "https://a.example/x", headers={"A": "b"}, json={"a": 1}, success=(200,)),
    policy=Cron(expression="0 3 * * *", timezone="Europe/Berlin"),
    start_at=datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
    deadline=datetime(2027, 1, 1, tzinfo=UTC),
    retry=Retry(max=5, min_period=timedelta(seconds=1.5), max_period=timedelta(hours=1), scale=2.5),
    timeout=timedelta(milliseconds=1500),
    active=timedelta(minutes=1),
    drift=True,
    catch_up=CatchUp(mode="all", max=7),
    jitter=timedelta(microseconds=1),
    occurrences_max=1,
    successes_max=2,
    consecutive_failures_max=3,
    interruptions_max=0,
    retention=timedelta(0),
    labels={"team": "päonie"},
    queue="mail",
    priority=0,
)


@pytest.mark.parametrize(
    "spec",
    [
        Spec(action=Mock()),
        Spec(action=Python(function="f", args=[1, "a", None], kwargs={"b": [{}]})),
        Spec(
            action=Rabbitmq(target="t", exchange="e", routing_key="k", json=[1], headers={"a": "b"})
        ),
        Spec(action=Kafka(target="t", topic="o", key="k", value="v", headers={"a": "b"})),
        Spec(action=Mock(hang=timedelta(seconds=1)), policy=Periodic(period=timedelta(seconds=1))),
        FULL,
    ],
)
def test_a_stored_spec_is_read_back_the_same(spec: Spec) -> None:
    """What is written is what is read."""
    assert spec == decode_spec(encode_spec(spec))


def test_defaults_are_not_stored() -> None:
    """The stored form is short, and a new default reaches old actions only by intent."""
    assert '{"action":{"type":"mock"}}' == encode_spec(Spec(action=Mock()))


def test_people_may_write_durations_their_way() -> None:
    """Every duration of a spec accepts units, numbers and ISO 8601."""
    spec = build_spec({
        "action": {"type": "mock", "hang": "1m"},
        "policy": {"type": "periodic", "period": "1h30m"},
        "retry": {"min_period": 2, "max_period": "PT5M"},
        "timeout": "30s",
        "active": "1d",
        "jitter": 0.5,
        "retention": "1w",
    })  # fmt: skip
    assert Mock(hang=timedelta(minutes=1)) == spec.action
    assert Periodic(period=timedelta(minutes=90)) == spec.policy
    assert timedelta(seconds=2) == spec.retry.min_period
    assert timedelta(minutes=5) == spec.retry.max_period
    assert timedelta(seconds=30) == spec.timeout
    assert timedelta(days=1) == spec.active
    assert timedelta(seconds=0.5) == spec.jitter
    assert timedelta(weeks=1) == spec.retention


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (Spec(action=Mock(), drift="no"), "spec.drift"),  # type: ignore[arg-type]
        (Spec(action=Mock(), queue=5), "spec.queue"),  # type: ignore[arg-type]
        (Spec(action=Mock(), catch_up=CatchUp(mode="some")), "spec.catch_up.mode"),  # type: ignore[arg-type]
        (Spec(action=Mock(), timeout=5), "spec.timeout"),  # type: ignore[arg-type]
        (Spec(action=Python(function="f", args=[object()])), "cannot be stored"),
        (Spec(action=Mock(answer="\ud800")), "cannot be stored"),
        (Spec(action=Mock(), retry=Retry(scale=float("nan"))), "spec.retry.scale"),
    ],
)
def test_wrong_types_from_python_are_found_before_they_are_stored(spec: Spec, problem: str) -> None:
    """A spec that could not be read back must not become a row."""
    with pytest.raises(InvalidSpec, match=problem):
        read_back(stored_form(spec))


def test_right_types_from_python_pass() -> None:
    """The check has no opinion on values."""
    read_back(stored_form(FULL))
    assert FULL == decode_spec(encode_spec(FULL))
