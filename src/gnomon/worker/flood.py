"""Whether more arrives than the slots take.

What finds no slot waits in the incoming queue for a moment: most often one is free by then. If it
goes on, all of it is moved, because only in the processing queue do priorities and other queues'
rows come first. Patience is greater while whole batches are begun, and begins anew if all that
waits is of one kind: the slots turn over quickly, and arrivals get their part of them. It is some
rounds at least: where the store takes long, all of it waits for a round and nothing is amiss.
"""

from __future__ import annotations

from collections.abc import Sequence

from gnomon.contracts.clock import Clock
from gnomon.contracts.store import HeldShard, MoveResult, WorkStore

MOMENT_S = 0.05
PATIENCE_S = 0.1
PATIENCE_SWIFT_S = 1.0
SWIFT_ROWS = 32
SWIFT_FOR_S = 1.0
LOOKED_AT = 2_000  # rows of each shard, once a second
MOMENT_ROUNDS = 2
NEWEST_EVERY_S = 0.05
NEWEST_SELDOM = 10  # the look takes at most one part in so many of the time,
NEWEST_PAUSE_MAX_S = 0.2  # unless others keep the machine busy: then what is due now comes first
PATIENCE_ROUNDS = 4
ROUND_MAX_S = 0.5  # what took longer stood still: it is no reason to be patient for minutes


class Flood:
    """Since when there was more than could be moved."""

    def __init__(self, store: WorkStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._since: float | None = None
        self._swift_until = 0.0
        self._round_s = 0.0
        self._newest_at = 0.0  # when the newest arrivals may be looked at again

    def note_round(self, took_s: float) -> None:
        """How long a round of the pump took."""
        self._round_s = min(took_s, ROUND_MAX_S)

    @property
    def is_lasting(self) -> bool:
        """Whether something has been waiting for a moment."""
        since, moment_s = self._since, max(MOMENT_S, MOMENT_ROUNDS * self._round_s)
        return since is not None and self._clock.monotonic() - since >= moment_s

    @property
    def is_newest_due(self) -> bool:
        """Whether to look at the newest arrivals, too."""
        return self.is_lasting and self._clock.monotonic() >= self._newest_at

    def note_newest(self, began_at: float) -> None:
        """They were looked at, from then until now."""
        took_s = self._clock.monotonic() - began_at
        pause_s = min(took_s * NEWEST_SELDOM, NEWEST_PAUSE_MAX_S)
        self._newest_at = began_at + max(NEWEST_EVERY_S, pause_s, 2 * took_s)

    def end(self) -> None:
        """Nothing waits."""
        self._since = None

    def rise(self) -> None:
        """Something waits."""
        if self._since is None:
            self._since = self._clock.monotonic()

    def note(self, moved: MoveResult, *, is_more: bool) -> None:
        """Some was moved; whether something waits still."""
        if is_more:
            self.rise()
        else:
            self.end()
        if not moved.lanes:  # all of them were begun at once
            self.note_begun(moved.count)

    def note_begun(self, count: int) -> None:
        """So many were begun in one step."""
        if count >= SWIFT_ROWS:
            self._swift_until = self._clock.monotonic() + SWIFT_FOR_S

    async def is_to_be_moved(self, holdings: Sequence[HeldShard]) -> bool:
        """Whether it lasts for too long."""
        now = self._clock.monotonic()
        is_swift = now < self._swift_until
        least_s = PATIENCE_SWIFT_S if is_swift else PATIENCE_S
        patience_s = max(least_s, PATIENCE_ROUNDS * self._round_s)
        if self._since is None or now - self._since <= patience_s:
            return False
        if is_swift and not await self._store.is_mixed(holdings, limit=LOOKED_AT):
            self._since = now
            return False
        return True
