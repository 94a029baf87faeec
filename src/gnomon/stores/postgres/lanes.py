"""What a move found and what a begin left: added up from the rows of their statements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from gnomon.contracts.store import BeginRequest, HeldShard, Lane, MoveResult
from gnomon.stores.postgres.connection import Row

MOMENT = timedelta(milliseconds=20)  # what came due within it may have done so after the begin
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class BeginParameters(NamedTuple):
    """What all attempts of one `begin` share, in the order of the parameters."""

    first_half: str  # of the attempt ids
    owner: str
    grace: timedelta
    window: timedelta
    silent: timedelta


class LaneLeft(NamedTuple):
    """What lanes have left after a begin."""

    next_due: dict[Lane, datetime | None]
    refused: dict[Lane, datetime]
    looked_at: datetime | None  # None: there was no need to

    def joined(self, other: LaneLeft) -> LaneLeft:
        """Of both, which have no lane in common."""
        return LaneLeft(
            self.next_due | other.next_due,
            self.refused | other.refused,
            self.looked_at or other.looked_at,
        )

    def add(self, lane: Lane, row: Row, *, is_short: bool, moment: timedelta) -> None:
        """A lane was looked at. One that gave less than was asked, although its first row is due,
        refused that row."""
        first = row["first_at"]
        if is_short and first is not None and first <= row["now"] - moment:
            self.refused[lane] = first
            self.next_due[lane] = row["behind_at"]
        else:
            self.next_due[lane] = first


class MoveTally:
    """Adds up what a move found, shard by shard."""

    def __init__(self, holdings: Sequence[HeldShard], limit: int, slack: timedelta) -> None:
        self._slack = slack  # how far marks lag behind
        self._old_marks = {holding.shard: holding.incoming_mark for holding in holdings}
        self._limit = limit
        self.count = 0
        self.lanes: dict[Lane, datetime] = {}
        self.marks: dict[int, datetime] = {}
        self.more = False
        self.now = LONG_AGO  # where several statements tell the time: the latest

    def add_shard(self, shard: int, taken: int, last_at: datetime | None, now: datetime) -> None:
        """A held shard gave so many rows, the last one created then."""
        is_full = taken >= self._limit and last_at is not None
        self.more = self.more or is_full
        present = now - self._slack
        mark = last_at - self._slack if is_full and last_at is not None else present
        self.marks[shard] = min(max(self._old_marks[shard] or mark, mark), present)

    def add_lane(self, lane: Lane, earliest: datetime, count: int) -> None:
        known = self.lanes.get(lane)
        self.lanes[lane] = earliest if known is None else min(known, earliest)
        self.count += count

    def add_totals(self, rows: Iterable[Row]) -> None:
        """One row for each shard (without a queue), one for each lane that got rows."""
        for row in rows:
            if row["queue"] is None:
                self.add_shard(row["shard_id"], row["count"], row["moment"], row["now"])
            else:
                lane = Lane(row["shard_id"], row["queue"], row["priority"])
                self.add_lane(lane, row["moment"], row["count"])

    def add_taken(
        self, held: Mapping[int, datetime], taken: Iterable[Row], put: Iterable[Row]
    ) -> None:
        """Shards that are held, and when that was asked; the rows that `move_take` took there, and
        those of them that `move_put` stored."""
        times: dict[int, list[datetime]] = {shard: [] for shard in held}
        for row in taken:
            times[row["shard_id"]].append(row["created_at"])
        for shard, now in held.items():
            self.add_shard(shard, len(times[shard]), max(times[shard], default=None), now)
            self.now = max(self.now, now)
        for row in put:
            lane = Lane(row["shard_id"], row["queue"], row["priority"])
            self.add_lane(lane, row["scheduled_at"], 1)

    def moved(self, now: datetime) -> MoveResult:
        return MoveResult(
            count=self.count, lanes=self.lanes, marks=self.marks, more=self.more, now=now
        )


def mark_of(holding: HeldShard) -> datetime:
    return holding.incoming_mark or LONG_AGO


def rows_per_lane(rows: Iterable[Row]) -> Counter[Lane]:
    return Counter(map(lane_of, rows))


def last_due(rows: Iterable[Row]) -> dict[Lane, datetime]:
    """When the last row of each lane was due, of rows in order of time."""
    return {lane_of(row): row["due_at"] for row in rows}


def lane_columns(demands: Sequence[BeginRequest]) -> tuple[list[object], ...]:
    """Shards, queues, priorities and needs as arrays."""
    return (
        [demand.lane.shard for demand in demands],
        [demand.lane.queue for demand in demands],
        [demand.lane.priority for demand in demands],
        [demand.lane.need for demand in demands],
    )


def lane_of(row: Row) -> Lane:
    return Lane(row["shard_id"], row["queue"], row["priority"], row["need"])
