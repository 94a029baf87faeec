"""Durations as people write them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.model.duration import DURATION_MAX, format_duration, parse_duration
from gnomon.model.errors import InvalidSpec


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (0, 0),
        (90, 90),
        (1.5, 1.5),
        ("30s", 30),
        ("5m", 300),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("2d", 172800),
        ("1w", 604800),
        ("250ms", 0.25),
        ("1us", 0.000001),
        ("PT5M", 300),
        ("P1DT1S", 86401),
        ("PT0.5S", 0.5),
        (timedelta(seconds=7), 7),
    ],
)
def test_every_form_is_read(text: object, seconds: float) -> None:
    """Numbers are seconds; texts have units or are ISO 8601."""
    assert timedelta(seconds=seconds) == parse_duration(text, "spec.timeout")


@pytest.mark.parametrize(
    "value",
    [
        True, None, [], {}, "", " ", "5", "5 m", " 5m", "5m ", "5M", "m5", "-5m", "-PT5M", -1,
        -0.001,
        "1e5s", "٣s", "5m\n", "5m\x00", "PT", "P1Y", "PT5M3", "P999999999999D", "9" * 60 + "w",
        "1s" * 40, 10**18, 10**400, -(10**400), 1e308, float("nan"), float("inf"), float("-inf"),
        "NaN", "inf", DURATION_MAX + timedelta(microseconds=1), timedelta(microseconds=-1),
        timedelta.max, timedelta.min,
    ],
)  # fmt: skip
def test_anything_else_is_refused_by_its_field(value: object) -> None:
    """The error names the field, whatever the value is."""
    with pytest.raises(InvalidSpec) as caught:
        parse_duration(value, "spec.retry.min_period")
    assert "spec.retry.min_period" == caught.value.path
    assert len(str(caught.value)) < 300


@given(st.timedeltas(min_value=timedelta(0), max_value=DURATION_MAX))
def test_a_formatted_duration_is_read_back_exactly(value: timedelta) -> None:
    """No microsecond is lost between writing and reading."""
    assert value == parse_duration(format_duration(value), "x")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (timedelta(0), "0s"),
        (timedelta(seconds=90), "1m30s"),
        (timedelta(days=8, microseconds=1), "1w1d1us"),
    ],
)
def test_the_format_is_the_one_people_write(value: timedelta, text: str) -> None:
    """Largest unit first, nothing that is zero."""
    assert text == format_duration(value)
