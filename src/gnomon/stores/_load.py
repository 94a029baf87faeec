"""What will be due, added up from what an engine found part by part."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from gnomon.contracts.store import DueBucket, DueLoad, RecurringAction
from gnomon.model.codec import read_spec
from gnomon.model.spec import Once, Unreadable


class LoadTally:
    """Seconds are added up in their buckets; counts never pass the limit."""

    def __init__(self, times: Sequence[datetime], *, limit: int) -> None:
        self._times = times
        self._limit = limit
        self._counts = [0] * (len(times) - 1)
        self._seconds: list[dict[datetime, int]] = [{} for _ in self._counts]
        self.partial = False

    def room(self, place: int) -> int:
        """How many more are counted in a bucket."""
        return max(0, self._limit - self._counts[place])

    def add(self, place: int, count: int, second: datetime, herd: int) -> None:
        """So many in a bucket, `herd` of them in one second of it."""
        self._counts[place] = min(self._limit, self._counts[place] + count)
        seconds = self._seconds[place]
        seconds[second] = seconds.get(second, 0) + herd

    def add_second(self, second: datetime, count: int) -> None:
        """So many within a second, wherever it belongs; what is due already belongs nowhere."""
        place = bisect_right(self._times, second) - 1
        if 0 <= place < len(self._counts):
            self.add(place, count, second, count)

    def total(self, at: datetime) -> DueLoad:
        buckets = [
            _bucket(count, seconds)
            for count, seconds in zip(self._counts, self._seconds, strict=True)
        ]
        return DueLoad(at=at, buckets=buckets, partial=self.partial)


def _bucket(count: int, seconds: dict[datetime, int]) -> DueBucket:
    if not seconds:
        return DueBucket(count=count)
    herd_at = max(seconds, key=lambda second: (seconds[second], -second.timestamp()))
    return DueBucket(count=count, herd_at=herd_at, herd_count=seconds[herd_at])


def recurring_actions(rows: Iterable[Any], moments: Iterable[datetime]) -> list[RecurringAction]:
    """Rows of `list_recurring`, and when their occurrences are; what the index took for one by
    mistake is left out."""
    actions = []
    for row, occurrence_at in zip(rows, moments, strict=True):
        spec = read_spec(row["spec"])
        if not isinstance(spec.action, Unreadable) and not isinstance(spec.policy, Once):
            actions.append(RecurringAction(id=row["id"], spec=spec, occurrence_at=occurrence_at))
    return actions
