"""What is due next, in memory, for the shards this worker holds.

The timeline knows lanes, not rows: for each (shard, queue, priority, need) the earliest time at
which a row may be due. That is enough to sleep until exactly then and to ask the store for the
right lanes; the rows stay in the database, so a million pending actions cost this process nothing.
Being wrong is harmless: too early costs one empty question, too late is mended by the survey.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime

from gnomon.contracts.store import Lane
from gnomon.worker.lane_rechecks import LaneRechecks

NOTED_MAX = 64  # notes kept a lane while a question about it is out; more are drawn together


class Timeline:
    """The earliest due time of every lane of the held shards."""

    def __init__(self, serves: Callable[[Lane], bool] = lambda _: True) -> None:
        self._serves = serves  # of lanes that this worker does not begin in it knows nothing
        self._due: dict[Lane, datetime] = {}
        self._since: dict[Lane, datetime] = {}  # no row is due before this, but for `rechecks`
        self.rechecks = LaneRechecks()
        self._notes = 0
        self._noted: dict[Lane, list[tuple[int, datetime]]] = {}  # since the last answer

    def __repr__(self) -> str:
        return f"Timeline({len(self._due)} lanes, earliest {self.earliest()})"

    def note(self, lane: Lane, at: datetime) -> None:
        """A row of the lane is due at `at`; others may be due earlier."""
        if not self._serves(lane):
            return
        self._notes += 1
        noted = self._noted.setdefault(lane, [])
        noted.append((self._notes, at))
        if len(noted) > NOTED_MAX:
            noted[:] = [(self._notes, min(time for _, time in noted))]
        self._put(lane, at)

    def _put(self, lane: Lane, at: datetime) -> None:
        known = self._due.get(lane)
        if known is None or at < known:
            self._due[lane] = at
        since = self._since.get(lane)
        if since is not None and at < since:
            self._since[lane] = at
        self.rechecks.lower(lane, at)

    def asked(self) -> int:
        """A mark for a question that is put to the store now; its answer is settled with it."""
        return self._notes

    def settle(self, lane: Lane, at: datetime | None, *, asked: int | None = None) -> None:
        """The store said: the lane's earliest row is at `at` (None: it has none).

        The answer may be older than it looks: what was noted after `asked` it does not know.
        """
        if at is None:
            self._due.pop(lane, None)
            self._since.pop(lane, None)
        else:
            self._due[lane] = at
            self._since[lane] = at
        noted = self._noted.pop(lane, [])
        news = [] if asked is None else [entry for entry in noted if entry[0] > asked]
        if news:
            self._noted[lane] = news
            self._put(lane, min(time for _, time in news))

    def since(self, lane: Lane) -> datetime | None:
        """Where the live rows of a lane begin, so that dead ones need not be walked over."""
        return self._since.get(lane)

    def is_passed(self, lane: Lane, at: datetime) -> bool:
        """Whether a row at `at` is one that the lane goes on without, for the time being."""
        since = self._since.get(lane)
        return self.rechecks.covers(lane, at) and (since is None or at < since)

    def replace(
        self, shards: Iterable[int], lanes: Mapping[Lane, datetime], *, asked: int | None = None
    ) -> None:
        """Take over a survey of these shards: what it does not name is not there."""
        surveyed = frozenset(shards)
        for lane in self.lanes():
            if lane.shard in surveyed and lane not in lanes:
                self.rechecks.clear(lane)
                self.settle(lane, None, asked=asked)
        for lane, at in lanes.items():
            if self._serves(lane) and not self.is_passed(lane, at):
                self.rechecks.clear(lane)
                self.settle(lane, at, asked=asked)

    def forget(self, shard: int) -> None:
        """The shard is no longer held."""
        for lane in self.lanes():
            if lane.shard == shard:
                self.rechecks.clear(lane)
                self.settle(lane, None)

    def lanes(self) -> Collection[Lane]:
        """Every lane that has rows."""
        return {*self._due, *self.rechecks}

    def due(self, now: datetime, now_s: float) -> list[Lane]:
        """Lanes that have something to begin or to look at again: first priority first, then
        oldest first."""
        lanes = {lane: at for lane, at in self._due.items() if at <= now}
        lanes |= {lane: now for lane in self.rechecks if self.rechecks.is_due(lane, now_s)}
        return sorted(lanes, key=lambda lane: (lane.priority, lanes[lane], lane))

    def ahead(self, after: datetime, until: datetime) -> dict[Lane, datetime]:
        """Lanes whose first row is due between these moments."""
        return {lane: at for lane, at in self._due.items() if after < at <= until}

    def earliest(
        self, *, closed: frozenset[str] = frozenset(), shards: Collection[int] | None = None
    ) -> datetime | None:
        """When the next row is due, of these shards only, without queues that have no free slot."""
        return min(
            (
                at
                for lane, at in self._due.items()
                if lane.queue not in closed and (shards is None or lane.shard in shards)
            ),
            default=None,
        )
