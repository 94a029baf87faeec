"""Rows that become visible behind the marks, and how far back to look for them.

A mark says that no unmoved row is older. A transaction that is open for longer than the mark lags
behind proves it wrong when it commits: its rows bear the time at which they were written. So every
poll asks which transactions are in progress, and when one of them is over, the shards whose mark
passed its beginning are looked at once from there on. The full look every now and then finds what
this does not: an engine that cannot tell its transactions, a look that failed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from gnomon.contracts.store import Holding, Incoming, Moved

EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
MARGIN = timedelta(seconds=5)  # a row's time may be that of a statement that had to wait at first


class Latecomers:
    """Which transactions were open at the last poll, and since when they may have been writing."""

    def __init__(self) -> None:
        self._since: dict[int, datetime] = {}
        self.seen_at: datetime | None = None  # at the last poll that could tell

    def __repr__(self) -> str:
        return f"Latecomers({len(self._since)} open)"

    def observe(self, found: Incoming) -> datetime | None:
        """Take a poll in; from where on those that are over since the last one may have written.

        A transaction wrote nothing before the last poll that did not know it. One that the first
        poll knows may be as old as it likes.
        """
        if found.open is None:
            return None
        over = [since for one, since in self._since.items() if one not in found.open]
        known = self._since
        if self.seen_at is not None and found.now < self.seen_at:  # the clock was set back
            known = {one: min(since, found.now) for one, since in known.items()}
            self.seen_at = found.now
        newly = self.seen_at or EARLIEST
        self._since = {one: known.get(one, newly) for one in found.open}
        self.seen_at = found.now
        return min(over, default=None)

    def bound(self, mark: datetime) -> datetime:
        """No mark may pass the last poll: what was opened and closed since, nobody knows."""
        return mark if self.seen_at is None else min(mark, self.seen_at)


class LookBack:
    """The shards that are to be looked at from before their marks, once."""

    def __init__(self) -> None:
        self._from: dict[int, datetime] = {}

    def __repr__(self) -> str:
        return f"LookBack({len(self._from)} shards)"

    def ask(self, holdings: Iterable[Holding], since: datetime) -> list[int]:
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

    def lowered(self, held: Holding) -> Holding:
        """The holding with the mark to move from."""
        start = self._from.get(held.shard)
        return held if start is None else msgspec.structs.replace(held, incoming_mark=start)

    def noted(self, holdings: Sequence[Holding], moved: Moved) -> dict[int, datetime]:
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
