"""What is counted of attempts, and what can be said from it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.contracts.store import HistoryRow
from gnomon.model.errors import InvalidRequest
from gnomon.model.history import (
    BEGUN,
    BOUNDS_S,
    BUCKETS,
    LATENESS,
    PLACES,
    add_counts,
    bucket_of,
    new_counts,
    percentile_s,
)
from gnomon.scheduler.attempt_history import (
    HOUR,
    MINUTE,
    POINTS_MAX,
    HistorySpan,
    points_of,
    span_of,
)
from gnomon.stores._history import HOUR_S, MINUTE_S, CountedRow, put_together, read_counts

NOW = datetime(2030, 1, 1, 12, 34, 56, tzinfo=UTC)
DAY = timedelta(days=1)
buckets = st.lists(st.integers(0, 1_000), min_size=BUCKETS, max_size=BUCKETS)


@given(st.floats(0, 1e6))
def test_a_time_is_within_the_bound_of_its_bucket(value_s: float) -> None:
    """And beyond the one before."""
    place = bucket_of(value_s)
    assert place == len(BOUNDS_S) or value_s <= BOUNDS_S[place]
    assert place == 0 or value_s > BOUNDS_S[place - 1]


@given(buckets, st.floats(0.01, 1), st.floats(0.01, 1))
def test_percentiles_grow_and_stay_within_their_bucket(
    counts: list[int], one: float, other: float
) -> None:
    """Of nothing there is none."""
    low, high = percentile_s(counts, min(one, other)), percentile_s(counts, max(one, other))
    if not any(counts):
        assert low is high is None
        return
    assert low is not None
    assert high is not None
    assert 0 <= low <= high <= BOUNDS_S[-1]
    assert counts[min(bucket_of(high), BUCKETS - 2)] or counts[-1]


def test_lists_of_other_versions_are_read() -> None:
    """A shorter one lacks what nobody counted then; of a longer one the rest is left alone."""
    counts = new_counts()
    add_counts(counts, [1, 2])
    add_counts(counts, [1] * (PLACES + 5))
    assert [2, 3, *[1] * (PLACES - 2)] == counts
    assert [1, *[0] * (PLACES - 1)] == read_counts("[1]")
    assert new_counts() == read_counts("no list") == read_counts('["a"]')


def test_rows_of_workers_become_minutes_and_minutes_hours() -> None:
    """Each queue for itself; nothing is lost."""
    rows = [
        CountedRow(queue, NOW.replace(minute=minute, second=0), [1])
        for queue in ("", "mail")
        for minute in (0, 1, 1)
    ]
    minutes = put_together(rows, into=MINUTE_S)
    assert [1, 2, 1, 2] == [row.counts[BEGUN] for row in minutes]
    hours = put_together(minutes, into=HOUR_S)
    assert [("", 3), ("mail", 3)] == [(row.queue, row.counts[BEGUN]) for row in hours]
    assert {NOW.replace(minute=0, second=0)} == {row.at for row in hours}


def test_points_have_no_gap() -> None:
    """Rows of several workers and minutes are added up in their step."""
    span = HistorySpan(
        NOW.replace(minute=0, second=0), NOW.replace(minute=15, second=0), 5 * MINUTE
    )
    rows = [
        HistoryRow(at=span.since + minutes * MINUTE, queue="", counts=_late(0.2))
        for minutes in (0, 4, 4, 10)
    ]
    points = points_of(rows, span)
    assert [3, 0, 1] == [point.begun for point in points]
    assert [span.since + step * span.step for step in range(3)] == [point.at for point in points]
    assert points[1].lateness.p50 is None
    assert points[2].lateness.p99 is not None
    assert timedelta(seconds=0.1) < points[2].lateness.p99 <= timedelta(seconds=0.3)


def _late(lateness_s: float) -> list[int]:
    counts = new_counts()
    counts[BEGUN] = counts[LATENESS + bucket_of(lateness_s)] = 1
    return counts


class TestSpan:
    """What is asked for, as whole steps."""

    def test_the_last_hour_by_minutes_unless_said(self) -> None:
        """To the end of this minute."""
        span = span_of(None, None, None, now=NOW)
        assert (MINUTE, 61) == (span.step, span.count)
        assert span.since <= NOW - HOUR < span.since + MINUTE
        assert span.until - MINUTE < NOW <= span.until

    def test_where_only_hours_are_kept_a_step_is_an_hour(self) -> None:
        """And a multiple of an hour is one."""
        assert HOUR == span_of(NOW - 3 * DAY, NOW - 2 * DAY, MINUTE, now=NOW).step
        assert 2 * HOUR == span_of(NOW - 3 * DAY, NOW, 90 * MINUTE, now=NOW).step

    @given(st.integers(1, 100_000))
    def test_without_a_step_there_is_one_that_fits(self, minutes: int) -> None:
        """However long it is."""
        span = span_of(NOW - minutes * MINUTE, NOW, None, now=NOW)
        assert 1 <= span.count <= POINTS_MAX + 1
        assert span.since <= NOW - minutes * MINUTE

    @pytest.mark.parametrize(
        ("since", "until", "step", "word"),
        [
            (NOW, NOW, None, "from"),
            (None, None, timedelta(seconds=30), "step"),
            (None, None, timedelta(0), "step"),
            (NOW - DAY, NOW + DAY, MINUTE, "2m would do"),
            (datetime(1, 1, 1, tzinfo=UTC), NOW, HOUR, "step"),
        ],
    )
    def test_what_makes_no_sense_is_refused(
        self, since: datetime | None, until: datetime | None, step: timedelta | None, word: str
    ) -> None:
        """With what to write."""
        with pytest.raises(InvalidRequest, match=word):
            span_of(since, until, step, now=NOW)
