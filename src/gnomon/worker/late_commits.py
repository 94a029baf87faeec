"""Rows that become visible behind the marks, and how far back to look for them.

A mark says that no unmoved row is older. A transaction that is open for longer than the mark lags
behind proves it wrong when it commits: its rows bear the time at which they were written. So every
poll asks which transactions are in progress, and when one of them is over, the shards whose mark
passed its beginning are looked at once from there on. The full look every now and then finds what
this does not: an engine that cannot tell its transactions, a look that failed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec

from gnomon.contracts.store import HeldShard, MoveResult, OpenTransactions, PollResult

EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
SPANS_MAX = 64  # more are drawn together
MARGIN = timedelta(seconds=5)  # a row's time may be that of a statement that had to wait at first


class TransactionSpan(NamedTuple):
    """Numbers from `start` to before `stop`, any of which may be in progress since some time."""

    start: int
    stop: int
    since: datetime


class LateCommits:
    """Which transactions were open at the last poll, and since when they may have been writing."""

    def __init__(self) -> None:
        self._since: dict[int, datetime] = {}
        self._spans: list[TransactionSpan] = []  # in order
        self._stop = 0  # the next transaction's number at the last poll
        self.seen_at: datetime | None = None  # at the last poll that could tell

    def __repr__(self) -> str:
        return f"LateCommits({len(self._since)} open, {len(self._spans)} spans)"

    def observe(self, result: PollResult) -> datetime | None:
        """Take a poll in; from where on those that are over since the last one may have written.

        A transaction wrote nothing before the last poll at which its number was not given out yet.
        One that is older than the first poll may be as old as it likes.
        """
        if result.open is None:
            return None
        before, now = self.seen_at, result.now
        if (
            before is None or result.open.stop < self._stop
        ):  # another server: nothing is known of it
            self._since, self._spans, self._stop, since = {}, [], 0, EARLIEST
        else:
            since = before
            if now < before:  # the clock was set back since then, and has gone on from there
                since = now - MARGIN
                self._set_back(since)
        self._spans.append(TransactionSpan(self._stop, result.open.stop, since))
        over = self._over(result.open)
        self._keep(result.open)
        self.seen_at = now
        return None if before is None else min(over, default=None)

    def _set_back(self, until: datetime) -> None:
        """What is open may write rows of the new time."""
        self._since = {one: min(since, until) for one, since in self._since.items()}
        self._spans = [span._replace(since=min(span.since, until)) for span in self._spans]

    def _keep(self, present: OpenTransactions) -> None:
        """Remember what may be in progress still."""
        self._since = {one: self._since_of(one) for one in present.ids}
        spans = [span._replace(start=max(span.start, present.start)) for span in self._spans]
        self._spans = [span for span in spans if span.start < span.stop]
        while len(self._spans) > SPANS_MAX:
            first, second, *rest = self._spans
            since = min(first.since, second.since)
            self._spans = [TransactionSpan(first.start, second.stop, since), *rest]
        self._stop = present.stop

    def _over(self, present: OpenTransactions) -> list[datetime]:
        """Since when those may have been writing that are not in progress any more."""
        alive, ids = frozenset(present.ids), sorted(present.ids)
        over = [since for one, since in self._since.items() if one not in alive]
        for span in self._spans:
            stop = min(span.stop, present.start)
            if stop - span.start > bisect_left(ids, stop) - bisect_left(ids, span.start):
                over.append(span.since)
        return over

    def _since_of(self, one: int) -> datetime:
        known = self._since.get(one)
        spans = (span.since for span in self._spans if span.start <= one < span.stop)
        return next(spans, EARLIEST) if known is None else known

    def bound(self, mark: datetime) -> datetime:
        """No mark may pass the last poll: what was opened and closed since, nobody knows."""
        return mark if self.seen_at is None else min(mark, self.seen_at)


class ShardsToRescan:
    """The shards that are to be looked at from before their marks, once."""

    def __init__(self) -> None:
        self._from: dict[int, datetime] = {}

    def __repr__(self) -> str:
        return f"ShardsToRescan({len(self._from)} shards)"

    def ask(self, holdings: Iterable[HeldShard], since: datetime) -> list[int]:
        """Look from `since` on in those shards whose marks have passed it; which ones."""
        asked = []
        for held in holdings:
            if held.incoming_mark is not None and held.incoming_mark > since:
                start = max(since - MARGIN, EARLIEST)
                self._from[held.shard] = min(self._from.get(held.shard, start), start)
                asked.append(held.shard)
        return asked

    def drop(self, shards: Collection[int]) -> None:
        """Leave it to the next full look: the shards are lost, or looking back fails."""
        for shard in shards:
            self._from.pop(shard, None)

    def lowered(self, held: HeldShard) -> HeldShard:
        """The holding with the mark to move from."""
        start = self._from.get(held.shard)
        return held if start is None else msgspec.structs.replace(held, incoming_mark=start)

    def noted(self, holdings: Sequence[HeldShard], moved: MoveResult) -> dict[int, datetime]:
        """Take a move in: the new marks of these shards, as held, and how far looking back is."""
        marks = dict(moved.marks)
        for held in holdings:
            if held.shard not in self._from:
                continue
            reached, mark = marks.get(held.shard), held.incoming_mark
            if moved.more and reached is not None and mark is not None and reached < mark:
                self._from[held.shard] = marks.pop(held.shard)
            else:
                del self._from[held.shard]
        return marks
