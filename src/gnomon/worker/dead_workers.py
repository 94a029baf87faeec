"""What dead processes left behind is freed at once, where their death is beyond doubt.

What proves a death is the rule of `gnomon.lease`: another worker on the same machine, or the same
one started anew, can ask the machine. Where it cannot be had, leases and reservations run out as
they always do.

Attempts that ended with their process are interrupted; what goes on elsewhere (a call at whoever
received it, a statement at its server) keeps its reservation, so that no other attempt meets it.
Shards are given back for all that. The worker's own row goes last: whoever does this may die as
well, and another one begins again. Everything is fenced by what was read; twice is no harm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta

from gnomon.boundary import Round
from gnomon.contracts.env import Env
from gnomon.contracts.store import (
    HeldShard,
    LapsedRow,
    LimitRequest,
    SettleRequest,
    Store,
    WorkerRow,
)
from gnomon.model.effects import ends_with_process
from gnomon.model.limits import LimitKind
from gnomon.model.outcome import Interrupted
from gnomon.model.transition import decide
from gnomon.worker.attempt import tell_settled
from gnomon.worker.config import WorkerConfig
from gnomon.worker.leases import WorkerLeases
from gnomon.worker.pump import Pump

LOOK_EVERY_S = 0.25
BURIED_MAX = 50  # in one look
PAGE = 250  # attempts in one transaction
PAGES_MAX = 400  # in one look
# What a process sent just before its end the database may perform after it: a last begin, say.
AGAIN_AFTER_S = 2.0
FROZEN_EVERY_S = 2.0
FROZEN_AFTER = timedelta(seconds=5)  # as long as a transaction may be idle
REASON = "the worker's process ended"


class DeadWorkers:
    """Looks for workers whose processes have ended."""

    def __init__(
        self,
        store: Store,
        leases: WorkerLeases,
        pump: Pump,
        *,
        config: WorkerConfig,
        env: Env,
        freed: Callable[[], None],
    ) -> None:
        self._store = store
        self._leases = leases
        self._pump = pump
        self._processes = env.processes
        self._terms = config.lease_terms
        self._clock = env.clock
        self._observer = env.observer
        self._freed = freed
        self._known: frozenset[str] = frozenset()
        self._again_at: dict[str, float] = {}  # owners to look at once more

    async def keep_looking(self) -> None:
        """Look until cancelled; an unavailable store is waited for."""
        while True:
            with Round(self._observer, "undertaker"):
                await self.look()
            await asyncio.sleep(LOOK_EVERY_S * self._leases.crowd)

    async def look(self) -> None:
        """Bury whoever is dead, and see what is due now that somebody else may have buried."""
        rows = await self._store.leases.list_workers()
        ended = [row for row in rows if self._has_ended(row)][:BURIED_MAX]
        owners = {row.owner for row in ended} | self._due_again()
        if owners:
            await self._bury(ended, owners)
        present = frozenset(row.owner for row in rows)
        is_gone, self._known = not self._known <= present, present
        if is_gone or ended:
            await self._pump.adopt(self._leases.trusted())
            self._freed()

    async def keep_ending_frozen(self) -> None:
        """End sessions of processes that stopped within a statement, until cancelled: who is
        frozen there holds rows that others wait for."""
        while True:
            await asyncio.sleep(FROZEN_EVERY_S * self._leases.crowd)
            with Round(self._observer, "frozen"):
                count = await self._store.leases.end_frozen_sessions(after=FROZEN_AFTER)
                if count:
                    self._observer.event("frozen_sessions_ended", count=count)

    def _has_ended(self, row: WorkerRow) -> bool:
        is_other = row.worker != self._leases.worker
        return is_other and self._terms.is_dead(row.process, row.silent_for, self._processes)

    def _due_again(self) -> set[str]:
        now = self._clock.monotonic()
        due = {owner for owner, at in self._again_at.items() if at <= now}
        for owner in due:
            del self._again_at[owner]
        return due

    async def _bury(self, ended: Sequence[WorkerRow], owners: Collection[str]) -> None:
        interrupted, elsewhere = await self._interrupt(owners)
        shards = await self._release(owners)
        for row in ended:
            if row.owner not in elsewhere:
                await self._give_back(row)
            await self._store.leases.remove_worker(row.worker)
            self._again_at.setdefault(row.owner, self._clock.monotonic() + AGAIN_AFTER_S)
        # The count of the living is a heartbeat old: without this, shards would wait for the next.
        self._leases.lose(sum(row.silent_for < self._terms.lease for row in ended))
        if ended or interrupted or shards:
            self._observer.event(
                "worker_buried",
                owners=sorted(owners),
                interrupted=interrupted,
                elsewhere=len(elsewhere),
                shards=shards,
            )

    # -- attempts ---------------------------------------------------------------------------------

    async def _interrupt(self, owners: Collection[str]) -> tuple[int, set[str]]:
        """Interrupt what ended; how many, and whose attempts may go on elsewhere."""
        count, elsewhere, after = 0, set[str](), None
        for _ in range(PAGES_MAX):
            page = await self._store.work.list_orphans(
                owners, shards=self._leases.all_shards, after=after, limit=PAGE
            )
            over = [orphan for orphan in page if ends_with_process(orphan.spec.action)]
            elsewhere |= {_owner_of(orphan) for orphan in page if orphan not in over}
            if over:
                count += await self._settle(over)
            if len(page) < PAGE:
                break
            after = page[-1].guid
        return count, elsewhere

    async def _settle(self, orphans: Sequence[LapsedRow]) -> int:
        settlements = [_settlement(orphan) for orphan in orphans]
        for one in settlements:
            tell_settled(self._observer, one)
        applied, now = await self._store.work.settle(settlements), self._clock.monotonic()
        self._pump.tally.settled(settlements[:applied])
        if applied < len(orphans):  # somebody has a row of theirs locked: with the next look
            self._again_at |= {_owner_of(orphan): now for orphan in orphans}
        self._pump.timeline.rechecks.hurry({orphan.shard for orphan in orphans}, now)
        return applied

    # -- shards and limits ------------------------------------------------------------------------

    async def _release(self, owners: Collection[str]) -> int:
        held = [
            HeldShard(shard=lock.shard, lease_guid=lock.lease_guid)
            for lock in await self._store.leases.list_locks()
            if lock.owner in owners and lock.lease_guid is not None
        ]
        if held:
            await self._store.leases.release(held)
        return len(held)

    async def _give_back(self, row: WorkerRow) -> None:
        """Its part of the limits on attempts: none of them is under way any more."""
        table = await self._store.limits.list()
        nothing = LimitRequest(held=0, wanted=0)
        claims = {
            use.limit.key: nothing
            for use in table.uses
            if use.limit.parallel is not None and use.limit.kind is not LimitKind.STAGE
        }
        if claims:
            await self._store.limits.share(row.worker, claims, alive_for=self._terms.lease)


def _owner_of(orphan: LapsedRow) -> str:
    assert orphan.attempt is not None
    assert orphan.attempt.owner is not None
    return orphan.attempt.owner


def _settlement(orphan: LapsedRow) -> SettleRequest:
    assert orphan.attempt is not None
    # What was armed, and whose time has not come, was not performed; and it is not due before.
    is_armed = orphan.attempt.began_at > orphan.now
    event = Interrupted(reason=REASON, reserved_until=orphan.scheduled_at, planned=is_armed)
    now = max(orphan.now, orphan.attempt.began_at)
    verdict = decide(orphan.spec, orphan.status, event, guid=orphan.guid, now=now)
    return SettleRequest(lapsed=orphan, verdict=verdict, reason=REASON)
