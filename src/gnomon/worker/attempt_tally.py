"""Counts attempts by minute and queue, and has the counts stored: one row a queue and minute.

An attempt costs some additions in memory. What a minute counted is written when it is over, as a
whole: a repeated write changes nothing, and a crash loses the last minute of one process.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from gnomon.boundary import Round
from gnomon.clock import DatabaseClock
from gnomon.contracts.observer import Observer
from gnomon.contracts.store import (
    FinishRequest,
    HistoryRow,
    ReportStore,
    SettleRequest,
)
from gnomon.model.action import State
from gnomon.model.history import (
    BEGUN,
    BOUNDS_S,
    DEAD,
    DURATION,
    INTERRUPTED,
    LATENESS,
    OUTCOMES,
    SUCCEEDED,
    add_counts,
    new_counts,
)

ALL_QUEUES = ""  # counts every attempt; no queue has this name
QUEUES_MAX = 50  # further ones count among all only
MINUTES_MAX = 10  # kept while the store is away
MINUTE = timedelta(minutes=1)
LOOK_S = 1.0


class AttemptTally:
    """The counts of the minute that goes on."""

    def __init__(self) -> None:
        self._of: dict[str, list[int]] = {}
        self._of_others = new_counts()

    def begun(self, counts: Mapping[str, int]) -> None:
        """So many attempts began, by queue."""
        for queue, count in counts.items():
            self._counts_of(queue)[BEGUN] += count

    def ended(self, queue: str, finish: FinishRequest, late_s: float, took_s: float) -> None:
        """An attempt of a queue ended. What was never performed is not counted. It is late until
        its executor is called, and lasts from then on."""
        outcome = OUTCOMES.get(finish.outcome)
        if outcome is None:
            return
        counts = self._of.get(queue) or self._counts_of(queue)
        counts[outcome] += 1
        counts[LATENESS + bisect_left(BOUNDS_S, late_s)] += 1  # by hand: each attempt pays for it
        counts[DURATION + bisect_left(BOUNDS_S, took_s)] += 1
        if outcome != SUCCEEDED and finish.verdict.state is State.DEAD:
            counts[DEAD] += 1

    def settled(self, settlements: Sequence[SettleRequest]) -> None:
        """Attempts broke off; rows that were only missed are none."""
        for settlement in settlements:
            counts = self._counts_of(settlement.lapsed.spec.queue)
            counts[INTERRUPTED] += settlement.lapsed.running
            counts[DEAD] += settlement.verdict.state is State.DEAD

    def take(self) -> dict[str, list[int]]:
        """The counts by queue, and begin anew."""
        everything, counts = self._of_others, self._of
        self._of_others, self._of = new_counts(), {}
        for numbers in counts.values():
            add_counts(everything, numbers)
        return {ALL_QUEUES: everything, **counts} if any(everything) else {}

    def _counts_of(self, queue: str) -> list[int]:
        counts = self._of.get(queue)
        if counts is None:
            if len(self._of) >= QUEUES_MAX:
                return self._of_others
            counts = self._of[queue] = new_counts()
        return counts


class TallyKeeper:
    """Has the counts stored, minute by minute."""

    def __init__(
        self,
        store: ReportStore,
        tally: AttemptTally,
        *,
        worker: UUID,
        time: DatabaseClock,
        observer: Observer,
    ) -> None:
        self._store = store
        self._tally = tally
        self._worker = worker
        self._time = time
        self._observer = observer
        self._minute: datetime | None = None
        self._unwritten: dict[datetime, dict[str, list[int]]] = {}

    async def keep_writing(self) -> None:
        """Look until cancelled; an unavailable store is waited for."""
        while True:
            await asyncio.sleep(LOOK_S)
            with Round(self._observer, "tally"):
                await self.look()

    async def look(self, *, is_last: bool = False) -> None:
        """Write what is over; at the end of the worker also what is not."""
        minute = minute_of(self._time.now())
        if self._minute is None:
            self._minute = minute
        if minute > self._minute or is_last:
            self._close(self._minute)
            self._minute = minute
        while self._unwritten:
            at, counts = next(iter(self._unwritten.items()))
            rows = [
                HistoryRow(at=at, queue=queue, counts=numbers) for queue, numbers in counts.items()
            ]
            await self._store.record_minute(self._worker, rows)
            self._unwritten.pop(at, None)

    def _close(self, minute: datetime) -> None:
        counts = self._tally.take()
        if counts:
            self._unwritten[minute] = counts
        while len(self._unwritten) > MINUTES_MAX:
            del self._unwritten[min(self._unwritten)]


def minute_of(moment: datetime) -> datetime:
    """The minute that it is in."""
    return moment.replace(second=0, microsecond=0)
