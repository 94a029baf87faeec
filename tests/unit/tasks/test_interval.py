"""Intervals as PostgreSQL reads them. The same texts are compared with a real one elsewhere."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.model.errors import InvalidSpec
from gnomon.model.task.interval import Interval, parse_interval, read_interval

MINUTE = 60_000_000
READ: dict[str | float, Interval] = {
    "0": Interval(),
    "90": Interval(micros=90_000_000),
    90: Interval(micros=90_000_000),
    1.5: Interval(micros=1_500_000),
    0.0000001: Interval(),
    "5 min": Interval(micros=5 * MINUTE),
    "1 hour 30 min": Interval(micros=90 * MINUTE),
    "1h30m": Interval(micros=90 * MINUTE),
    "00:05:00": Interval(micros=5 * MINUTE),
    "02:30": Interval(micros=150 * MINUTE),
    "-00:00:01.5": Interval(micros=-1_500_000),
    "100:00:00": Interval(micros=6000 * MINUTE),
    "1 day 02:30:00": Interval(days=1, micros=150 * MINUTE),
    "500 ms": Interval(micros=500_000),
    "5300 us": Interval(micros=5_300),
    ".5 sec": Interval(micros=500_000),
    "1 mon": Interval(months=1),
    "1.5 months": Interval(months=1, days=15),
    "2 years 1 mon": Interval(months=25),
    "1.5 years": Interval(months=18),
    "1 century": Interval(months=1200),
    "3 weeks": Interval(days=21),
    "1.5 days": Interval(days=1, micros=720 * MINUTE),
    "5 min ago": Interval(micros=-5 * MINUTE),
    "@ 1 day": Interval(days=1),
    "1 day 5": Interval(days=1, micros=5_000_000),
    "1 DAY": Interval(days=1),
    "P1Y2M3DT4H5M6S": Interval(months=14, days=3, micros=245 * MINUTE + 6_000_000),
    "PT0.5S": Interval(micros=500_000),
    "P1.5D": Interval(days=1, micros=720 * MINUTE),
}
REFUSED = [
    "", " ", "abc", "x1", "1e3", "5 fortnights", "1 2 days", "1 hour,", "days", "P", "PT", "P1H",
    "00:60:00", "1:2:3:4", "--5", "5 min 5 min x", "99999999 years", "9" * 30, "1" * 300, "½ hour",
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), READ.items(), ids=map(repr, READ))
def test_intervals_are_read_as_postgresql_reads_them(text: str | float, expected: Interval) -> None:
    """Words, clock times, ISO 8601 and plain numbers of seconds, in their three parts."""
    assert expected == read_interval(text)


@pytest.mark.parametrize("text", REFUSED, ids=repr)
def test_what_is_no_interval_is_refused(text: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(InvalidSpec):
        read_interval(text)


@pytest.mark.parametrize("number", [float("inf"), float("nan")])
def test_numbers_without_an_end_are_refused(number: float) -> None:
    """Infinity is no length of time here."""
    with pytest.raises(InvalidSpec):
        parse_interval(number)


def test_a_month_has_thirty_days_where_it_must_have_a_length() -> None:
    """As PostgreSQL compares intervals."""
    assert timedelta(days=31) == parse_interval("1 mon 1 day")


@pytest.mark.parametrize(
    ("start", "interval", "expected"),
    [
        ("2026-08-31", "1 mon", "2026-09-30"),
        ("2024-01-31", "1 mon", "2024-02-29"),
        ("2026-12-15", "1 mon", "2027-01-15"),
        ("2024-02-29", "1 year", "2025-02-28"),
        ("2026-03-31", "-1 mon", "2026-02-28"),
        ("2026-01-31", "1 mon 1 day", "2026-03-01"),
    ],
)
def test_months_are_as_long_as_the_calendar_says(start: str, interval: str, expected: str) -> None:
    """A day that the month does not have becomes its last; days are added after the months."""
    moment = datetime.fromisoformat(start).replace(tzinfo=UTC)
    assert datetime.fromisoformat(expected).replace(tzinfo=UTC) == (
        read_interval(interval).after(moment)
    )


def test_a_time_beyond_the_calendar_is_an_overflow() -> None:
    """The caller decides what that means."""
    for text in ("1 mon", "40 days"):
        with pytest.raises(OverflowError):
            read_interval(text).after(datetime(9999, 12, 31, tzinfo=UTC))


@given(st.text(max_size=30))
def test_no_text_breaks_the_reader(text: str) -> None:
    """It is an interval, or it is refused."""
    try:
        found = read_interval(text)
    except InvalidSpec:
        return
    assert abs(found.length) < timedelta(days=366 * 10_000 * 3)


@given(st.integers(0, 400), st.integers(0, 86_400 * 1_000_000 * 40))
def test_what_postgresql_writes_is_read_back(days: int, micros: int) -> None:
    """PostgreSQL shows days and a clock time."""
    seconds, fraction = divmod(micros, 1_000_000)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:06}"
    assert Interval(days=days, micros=micros) == read_interval(f"{days} days {clock}")
