"""What will be due: buckets of equal length ahead, and herds in them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from gnomon.model.errors import InvalidRequest
from gnomon.model.schedule import occurrence_after
from gnomon.model.spec import Once, Spec

BUCKETS_MAX = 400
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAYS_MAX = timedelta(days=366 * 50)


class LoadUnit(StrEnum):
    """How long a bucket is."""

    SECOND = "second"
    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"

    @property
    def length(self) -> timedelta:
        return timedelta(**{f"{self}s": 1})


def bucket_times(since: datetime, unit: LoadUnit, count: int) -> list[datetime]:
    """The beginnings of so many buckets, and the end of the last; the first holds `since`. Errors:
    InvalidRequest."""
    if not 1 <= count <= BUCKETS_MAX:
        raise InvalidRequest(f"count: must be between 1 and {BUCKETS_MAX} (got {count})")
    if abs(since - _EPOCH) > 4 * _DAYS_MAX:
        raise InvalidRequest("from: is too far away")
    first = since - (since - _EPOCH) % unit.length
    return [first + number * unit.length for number in range(count + 1)]


def firings_between(
    spec: Spec, after: datetime, since: datetime, until: datetime, *, most: int
) -> Iterator[datetime]:
    """The planned times of a recurring action after `after` that lie in [since, until), `most` of
    them: by the rule that fires them. What changes meanwhile (a pause, a failure, a limit on
    occurrences) is not foreseen."""
    if isinstance(spec.policy, Once) or spec.start_at is None:
        return
    just_before = max(after, since - timedelta.resolution)
    for _ in range(most):
        at = occurrence_after(spec, just_before)
        if at is None or at >= until:
            return
        yield at
        just_before = at
