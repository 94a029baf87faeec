"""How it went: what workers have counted, as points of equal distance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from gnomon.contracts.store import HistoryRow
from gnomon.model.duration import format_duration
from gnomon.model.errors import InvalidRequest
from gnomon.model.history import (
    BEGUN,
    BOUNDS_S,
    BUCKETS,
    DEAD,
    DURATION,
    FAILED,
    INTERRUPTED,
    LATENESS,
    SUCCEEDED,
    add_counts,
    new_counts,
    percentile_s,
)

POINTS_MAX = 1_500
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
MINUTES_KEPT_FOR = timedelta(days=2)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class TimeHistogram(msgspec.Struct, frozen=True, kw_only=True):
    """How many times were within each bound, and what half of them and nearly all did not exceed;
    None if there were none."""

    counts: Sequence[int]  # one more than there are bounds: the last one is beyond all
    p50: timedelta | None
    p99: timedelta | None


class HistoryPoint(msgspec.Struct, frozen=True, kw_only=True):
    """What was counted from this time on, for one step."""

    at: datetime
    begun: int
    succeeded: int
    failed: int
    interrupted: int
    dead: int  # actions
    lateness: TimeHistogram  # from due to the call of the executor
    duration: TimeHistogram  # from begun to ended


class History(msgspec.Struct, frozen=True, kw_only=True):
    """Points in order of time, without a gap."""

    queue: str | None  # None: all of them
    step: timedelta
    bounds: Sequence[timedelta]
    points: Sequence[HistoryPoint]


class HistorySpan(msgspec.Struct, frozen=True):
    """From when to when, in which steps; the ends are whole steps."""

    since: datetime
    until: datetime
    step: timedelta

    @property
    def count(self) -> int:
        return (self.until - self.since) // self.step


def span_of(
    since: datetime | None, until: datetime | None, step: timedelta | None, *, now: datetime
) -> HistorySpan:
    """What is left out is the last hour, by minutes or by as few steps as may be shown. Where only
    hours are kept, a step is an hour at least. Errors: InvalidRequest."""
    until = until or now
    since = since or until - HOUR
    if since >= until:
        raise InvalidRequest("from: must be before to")
    wanted = MINUTE if step is None else step
    if wanted < MINUTE or wanted % MINUTE:
        raise InvalidRequest("step: must be whole minutes, such as 1m, 5m or PT1H")
    if since < now - MINUTES_KEPT_FOR:
        wanted = -(-wanted // HOUR) * HOUR
    since = _floor(since, wanted)
    if step is None:
        while (until - since) / wanted > POINTS_MAX:
            wanted *= 2
            since = _floor(since, wanted)
    span = HistorySpan(since, _floor(until + wanted - timedelta.resolution, wanted), wanted)
    if span.count > POINTS_MAX:
        least = format_duration(-(-(span.until - span.since) // POINTS_MAX // MINUTE) * MINUTE)
        raise InvalidRequest(
            f"step: {span.count} points, at most {POINTS_MAX} are shown; {least} would do"
        )
    return span


def _floor(at: datetime, step: timedelta) -> datetime:
    try:
        return at - (at - _EPOCH) % step
    except OverflowError:
        raise InvalidRequest("from: is no time of ours") from None


def points_of(rows: Iterable[HistoryRow], span: HistorySpan) -> list[HistoryPoint]:
    """Add the rows up."""
    sums: dict[int, list[int]] = {}
    for row in rows:
        place = (row.at - span.since) // span.step
        add_counts(sums.setdefault(place, new_counts()), row.counts)
    nothing = new_counts()
    return [
        _point(span.since + place * span.step, sums.get(place, nothing))
        for place in range(span.count)
    ]


def _point(at: datetime, counts: Sequence[int]) -> HistoryPoint:
    return HistoryPoint(
        at=at,
        begun=counts[BEGUN],
        succeeded=counts[SUCCEEDED],
        failed=counts[FAILED],
        interrupted=counts[INTERRUPTED],
        dead=counts[DEAD],
        lateness=_histogram(counts[LATENESS : LATENESS + BUCKETS]),
        duration=_histogram(counts[DURATION : DURATION + BUCKETS]),
    )


def _histogram(counts: Sequence[int]) -> TimeHistogram:
    return TimeHistogram(counts=counts, p50=_percentile(counts, 0.5), p99=_percentile(counts, 0.99))


def _percentile(counts: Sequence[int], part: float) -> timedelta | None:
    value_s = percentile_s(counts, part)
    return None if value_s is None else timedelta(milliseconds=round(value_s * 1000))


BOUNDS = tuple(timedelta(seconds=bound) for bound in BOUNDS_S)
