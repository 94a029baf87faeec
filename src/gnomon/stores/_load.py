"""What will be due, added up from what an engine found part by part."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from gnomon.contracts.store import DueBucket, DueLoad, Lane, RecurringAction
from gnomon.model.codec import read_spec
from gnomon.model.spec import Once, Unreadable

LOOK_ROWS = 20  # read at each look into a lane
LOOKS_MAX = 150  # into buckets of lanes that hold more than that
LANES_FIRST = 100  # looked into before the others
LOAD_ARRIVALS = 10_000  # looked at in all
HERD_SEEN_MIN = 10  # in one second, before they stand for more
MOST_TIMES = 1_000  # a look is never taken for more than so many times what it saw
KNOWN_SPECS = 2_000  # of actions that come again, not read anew at each look
KNOWN_CHARS_MAX = 2_000  # of such a spec

T = TypeVar("T")


class Look(NamedTuple):
    """The first rows of a lane in a bucket: how many, when the last is due, the fullest second."""

    seen: int
    last_at: datetime
    herd_at: datetime
    herd: int


class Second(NamedTuple):
    """What was seen of a second, and for how many that stands."""

    seen: int
    all: float

    @property
    def herd(self) -> float:
        """A few that were seen together by chance stand for no herd."""
        return self.all if self.seen >= HERD_SEEN_MIN else self.seen


class LanesAhead:
    """Which lanes hold much within the whole time, and which little. A queue whose first lanes are
    all full is taken for full: a look costs a page of the index, whatever it finds. A lane that is
    taken for full is counted bucket by bucket, so that it does no harm if it is not."""

    def __init__(self, lanes: Sequence[Lane]) -> None:
        ordered = sorted(lanes, key=_by_queue)
        step = max(1, -(-len(ordered) // LANES_FIRST))
        self.first = ordered[::step]
        self._others = [lane for place, lane in enumerate(ordered) if place % step]
        self._full: list[Lane] = []
        self._unfilled: set[str] = set()

    def add(self, lane: Lane, *, is_full: bool) -> None:
        """It was looked into."""
        if is_full:
            self._full.append(lane)
        else:
            self._unfilled.add(lane.queue)

    def others(self) -> list[Lane]:
        """Those that are to be looked into after the first."""
        full = {lane.queue for lane in self._full} - self._unfilled
        self._full += [lane for lane in self._others if lane.queue in full]
        return [lane for lane in self._others if lane.queue not in full]

    def full(self) -> list[Lane]:
        """In such an order that a part of them has a part of every queue."""
        return sorted(self._full, key=_by_queue)


def _by_queue(lane: Lane) -> tuple[object, ...]:
    return lane.queue, lane.priority, lane.need, lane.shard


class LoadTally:
    """Adds seconds and looks up by bucket. Where there is much, it is estimated: the first rows of
    some lanes stand for all."""

    def __init__(self, times: Sequence[datetime]) -> None:
        self.times = times
        self._counts = [0.0] * (len(times) - 1)
        self._seconds: list[dict[datetime, Second]] = [{} for _ in self._counts]
        self.is_estimated = False

    def sample(self, lanes: Sequence[T]) -> tuple[Sequence[T], float]:
        """Those of them that are looked into, and for how many each stands."""
        step = max(1, -(-len(lanes) * len(self._counts) // LOOKS_MAX))
        chosen = lanes[::step]
        self.is_estimated |= step > 1
        return chosen, len(lanes) / len(chosen) if chosen else 1.0

    def add_second(self, second: datetime, count: int) -> None:
        """So many within a second; what is due already, or later, belongs nowhere."""
        place = bisect_right(self.times, second) - 1
        if 0 <= place < len(self._counts):
            self._add(place, count, second, count, 1.0)

    def add_look(self, place: int, look: Look, scale: float) -> None:
        """What was seen of one lane in a bucket. If there is more than was seen, it goes on as it
        began."""
        count = float(look.seen)
        if look.seen >= LOOK_ROWS:
            begin, end = self.times[place : place + 2]
            part = (look.last_at - begin) / (end - begin)
            count = (look.seen - 1) / max(part, 1 / MOST_TIMES)  # the last only ends the time
            self.is_estimated = True
        self._add(place, count * scale, look.herd_at, look.herd, scale)

    def _add(self, place: int, count: float, second: datetime, seen: int, scale: float) -> None:
        self._counts[place] += count
        seconds = self._seconds[place]
        known = seconds.get(second, Second(0, 0.0))
        seconds[second] = Second(known.seen + seen, known.all + seen * scale)

    def total(self, at: datetime) -> DueLoad:
        buckets = [
            _bucket(count, seconds)
            for count, seconds in zip(self._counts, self._seconds, strict=True)
        ]
        return DueLoad(at=at, buckets=buckets, is_estimated=self.is_estimated)


def _bucket(count: float, seconds: dict[datetime, Second]) -> DueBucket:
    if not seconds:
        return DueBucket(count=round(count))
    herd_at = max(seconds, key=lambda second: (seconds[second].herd, -second.timestamp()))
    return DueBucket(count=round(count), herd_at=herd_at, herd_count=round(seconds[herd_at].herd))


_known_spec = lru_cache(maxsize=KNOWN_SPECS)(read_spec)


def recurring_actions(rows: Iterable[Any], moments: Iterable[datetime]) -> list[RecurringAction]:
    """Rows of `list_recurring`, and when their occurrences are; what the index took for one by
    mistake is left out."""
    actions = []
    for row, occurrence_at in zip(rows, moments, strict=True):
        text = row["spec"]
        spec = _known_spec(text) if len(text) <= KNOWN_CHARS_MAX else read_spec(text)
        if not isinstance(spec.action, Unreadable) and not isinstance(spec.policy, Once):
            actions.append(RecurringAction(id=row["id"], spec=spec, occurrence_at=occurrence_at))
    return actions
