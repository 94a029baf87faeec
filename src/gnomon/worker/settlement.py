"""What follows for a due row that cannot be begun: its attempt broke off, or it was missed."""

from __future__ import annotations

from collections.abc import Sequence

from gnomon.contracts.env import Env
from gnomon.contracts.store import HeldShard, LapsedRow, SettleRequest, WorkStore
from gnomon.model.outcome import Interrupted
from gnomon.model.transition import MissedOccurrences, decide
from gnomon.worker.attempt import tell_settled
from gnomon.worker.attempt_tally import AttemptTally
from gnomon.worker.reservations import Reservations
from gnomon.worker.timeline import Timeline

LAPSED_MAX = 1_000
STALE_MAX = 10_000


def settlement_of(lapsed: LapsedRow) -> SettleRequest:
    """Decide it by the rules of the model, on the row as it was read."""
    event = Interrupted() if lapsed.running else MissedOccurrences()
    verdict = decide(lapsed.spec, lapsed.status, event, guid=lapsed.guid, now=lapsed.now)
    reason = "the worker disappeared" if lapsed.running else "not begun in time"
    return SettleRequest(lapsed=lapsed, verdict=verdict, reason=reason)


class Settler:
    """Settles what nobody finished in held shards."""

    def __init__(
        self,
        store: WorkStore,
        reservations: Reservations,
        timeline: Timeline,
        *,
        tally: AttemptTally,
        env: Env,
    ) -> None:
        self._store = store
        self._reservations = reservations
        self._timeline = timeline
        self._tally = tally
        self._clock = env.clock
        self._entropy = env.entropy
        self._observer = env.observer
        self._batch = LAPSED_MAX  # so many at once: fewer after the store could not write some

    @property
    def is_one_by_one(self) -> bool:
        """Whether the store could not write the last ones, and fewer at once are not possible."""
        return self._batch == 1

    async def settle(self, holdings: Sequence[HeldShard]) -> bool:
        """Close interrupted attempts, pass over what expired; whether there may be more."""
        lapsed_rows = await self._store.list_lapsed(holdings, limit=LAPSED_MAX)
        others = await self._reservations.keep_own(lapsed_rows)
        settlements = [settlement_of(lapsed) for lapsed in others]
        if not settlements:
            return False
        settlements = self._drawn(settlements)
        applied = await self._write(settlements)
        for settle in settlements:  # now: what could not be written would be told at every try
            tell_settled(self._observer, settle)
        self._tally.settled(settlements[:applied])
        self._observer.event("settled", found=len(lapsed_rows), applied=applied)
        if applied:
            shards = {settlement.lapsed.shard for settlement in settlements}
            self._timeline.rechecks.hurry(shards, self._clock.monotonic())
        return applied > 0 and (len(lapsed_rows) >= LAPSED_MAX or len(settlements) < len(others))

    def _drawn(self, settlements: list[SettleRequest]) -> list[SettleRequest]:
        """As many as may be written at once, by chance: one that cannot be written must not be the
        first for ever."""
        if len(settlements) <= self._batch:
            return settlements
        return sorted(settlements, key=lambda _: self._entropy.fraction())[: self._batch]

    async def _write(self, settlements: Sequence[SettleRequest]) -> int:
        """Write them. If the store cannot, it may be for one of them: the next batch is half of it,
        until one succeeds."""
        batch, self._batch = self._batch, max(1, len(settlements) // 2)
        applied = await self._store.settle(settlements)
        self._batch = min(LAPSED_MAX, 2 * batch)
        return applied

    async def drop_stale(self, holdings: Sequence[HeldShard]) -> bool:
        """Until nothing is left: only the heads of the lanes are looked at."""
        dropped = await self._store.delete_stale(holdings, limit=STALE_MAX)
        if dropped:
            self._observer.event("stale_dropped", count=dropped)
            self._timeline.rechecks.hurry(
                {held.shard for held in holdings}, self._clock.monotonic()
            )
        return dropped > 0
