"""Lanes in which due rows may have been passed over, and when those are looked at again.

A row is passed over when its action is locked, by a user's open transaction say. Asking for it over
and over would keep the lanes behind it waiting and the database busy, and beginning at its place
would mean walking over everything that has been begun since. So its lane goes on without it, and is
asked from its place on only now and then: soon at first, then after a growing moment.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from gnomon.contracts.store import Lane

SPELL_FIRST_S = 0.05
SPELL_MAX_S = 1.0


@dataclass(slots=True)
class LaneRecheck:
    """Where the rows in question begin, and when to look."""

    floor: datetime | None  # None: at the lane's first row
    look_s: float
    spell_s: float
    place: datetime | None  # where the next look begins: behind the floor, if it is one of many


class LaneRechecks:
    """All lanes in doubt. Moments are on the worker's own monotonic clock."""

    def __init__(self) -> None:
        self._of: dict[Lane, LaneRecheck] = {}

    def __repr__(self) -> str:
        return f"LaneRechecks({len(self._of)} lanes)"

    def __contains__(self, lane: object) -> bool:
        return lane in self._of

    def __iter__(self) -> Iterator[Lane]:
        return iter(self._of)

    def put(
        self,
        lane: Lane,
        floor: datetime | None,
        now_s: float,
        *,
        reached: datetime | None = None,
    ) -> None:
        """Rows from `floor` on may have been passed over; after a look in vain: still. A look that
        saw a part of them goes on soon from where it `reached`, before one begins at the floor."""
        known = self._of.get(lane)
        if known is None:
            place = reached or floor
            self._of[lane] = LaneRecheck(floor, now_s + SPELL_FIRST_S, SPELL_FIRST_S, place)
        elif known.look_s <= now_s:
            floor = known.floor if known.place != known.floor else floor
            spell_s = SPELL_FIRST_S if reached else min(known.spell_s * 2, SPELL_MAX_S)
            self._of[lane] = LaneRecheck(floor, now_s + spell_s, spell_s, reached or floor)
        elif floor is None or (known.floor is not None and floor < known.floor):
            known.place = floor if known.place == known.floor else known.place
            known.floor = floor

    def lower(self, lane: Lane, at: datetime) -> None:
        """A row before the floor is known of: the next look must not pass it."""
        known = self._of.get(lane)
        if known is not None and known.floor is not None and at < known.floor:
            known.floor = known.place = at

    def clear(self, lane: Lane) -> None:
        """Nothing was passed over, or all of it has been begun."""
        self._of.pop(lane, None)

    def end(self, lane: Lane, now_s: float) -> None:
        """A look found nothing in vain from its place on: if that was not the floor, the rows
        before it are still in question."""
        known = self._of.get(lane)
        if known is None or known.place == known.floor:
            self.clear(lane)
        else:
            self.put(lane, known.floor, now_s)

    def hurry(self, shards: Collection[int], now_s: float) -> None:
        """Something was done about the rows of these shards: look at once."""
        for lane, recheck in self._of.items():
            if lane.shard in shards:
                recheck.look_s = min(recheck.look_s, now_s)

    def is_due(self, lane: Lane, now_s: float) -> bool:
        """Whether it is time to look at what was passed over in the lane."""
        known = self._of.get(lane)
        return known is not None and known.look_s <= now_s

    def first(self, lanes: Sequence[Lane], free: int, now_s: float) -> list[Lane]:
        """The first priority of these lanes, and the next ones too until one has a lane that is not
        merely looked at: where the store is slow, every round would be a look and nothing else. A
        lane in doubt does not count as sure, though more of it may be due than what is held."""
        looks: list[Lane] = []
        last: list[Lane] = []
        for _, group in groupby(lanes, key=lambda lane: lane.priority):
            looks += last
            last = list(group)
            if not all(self.is_due(lane, now_s) for lane in last):
                break
        return [*looks[: max(1, free // 2)], *last][:free]

    def place(self, lane: Lane) -> datetime | None:
        """From where on to look; only of a lane in doubt."""
        return self._of[lane].place

    def covers(self, lane: Lane, at: datetime) -> bool:
        """Whether a row at `at` may be one of those passed over."""
        known = self._of.get(lane)
        return known is not None and (known.floor is None or known.floor <= at)

    def next_s(self, *, closed: frozenset[str], shards: Collection[int]) -> float | None:
        """When to look next, in these shards only, without queues that have no free slot."""
        return min(
            (
                recheck.look_s
                for lane, recheck in self._of.items()
                if lane.queue not in closed and lane.shard in shards
            ),
            default=None,
        )
