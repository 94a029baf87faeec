"""Keeps the reservations of what this process has in hand, and hears when one is lost.

An attempt whose time-out is longer than the window lives on reservations that are prolonged. While
the database is away nobody prolongs them; when it is back, this process knows better than the row
what is still under way here: it prolongs its own attempts and never calls them interrupted.

An attempt that another process called interrupted meanwhile is lost: it is cancelled here, for it
would only run beside the newer one. One whose action was replaced or deleted may go on to its end,
as every attempt may that had begun before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from uuid import UUID

from gnomon.boundary import Round
from gnomon.contracts.env import Env
from gnomon.contracts.store import ActionStore, BegunAttempt, LapsedRow, ReservedAttempt, WorkStore
from gnomon.worker.config import WorkerConfig
from gnomon.worker.recorder import ResultRecorder
from gnomon.worker.slots import Slots

DOUBTED_MAX_S = 10.0  # a thread that never ends must not keep its worker from being a guest


class Reservations:
    """Of the attempts in the slots, and of results that are not written yet."""

    def __init__(
        self,
        work: WorkStore,
        actions: ActionStore,
        *,
        slots: Slots,
        recorder: ResultRecorder,
        config: WorkerConfig,
        env: Env,
    ) -> None:
        self._work = work
        self._actions = actions
        self._slots = slots
        self._recorder = recorder
        self._window = config.window
        self._grace = config.grace
        self._clock = env.clock
        self._observer = env.observer
        self._extended_s = env.clock.monotonic()  # since then none of them ran out
        self._lost: set[UUID] = set()  # told already
        self._doubted: frozenset[UUID] = frozenset()  # of these it may have run out
        self._doubted_until = 0.0

    async def keep_extending(self) -> None:
        """Prolong the reservations of attempts that may outlast them."""
        while True:
            await asyncio.sleep(self._window.total_seconds() / 3)
            with Round(self._observer, "extend"):
                await self.extend_long()

    async def keep_own(self, lapsed_rows: Sequence[LapsedRow]) -> list[LapsedRow]:
        """Of rows whose reservation ran out: prolong what is in hand here, return the others."""
        own = self._own(lapsed_rows)
        if own:
            await self._work.extend(list(own.values()), window=self._window, grace=self._grace)
            self._observer.count("reservations_outlived", len(own))
        return [lapsed for lapsed in lapsed_rows if _attempt_of(lapsed) not in own]

    def _own(self, lapsed_rows: Sequence[LapsedRow]) -> dict[UUID, ReservedAttempt]:
        attempts = {
            lapsed.attempt.attempt_id for lapsed in lapsed_rows if lapsed.running and lapsed.attempt
        }
        if not attempts:
            return {}
        own: dict[UUID, ReservedAttempt] = {}
        for begun in self._slots.attempts():
            if begun.attempt_id in attempts:
                own[begun.attempt_id] = begun
        for attempt_id in attempts & self._recorder.unwritten().keys():
            own[attempt_id] = self._recorder.unwritten()[attempt_id]
        return own

    async def are_in_doubt(self) -> bool:
        """Whether some may have run out, as in a process that was frozen, and their attempts have
        not ended here. They are extended first. Who begins in the shards of others meanwhile would
        repeat there what this process has in hand, before it tells the result."""
        if self._clock.monotonic() - self._extended_s > self._window.total_seconds():
            await self.extend_long()
        if self._clock.monotonic() > self._doubted_until:
            self._doubted = frozenset()
        self._doubted &= self._in_hand()
        return bool(self._doubted)

    def _in_hand(self) -> set[UUID]:
        return {begun.attempt_id for begun in self._slots.attempts()} | {
            *self._recorder.unwritten()
        }

    async def extend_long(self) -> None:
        """Once, and learn what is lost; and what is in doubt, if it was not done in time."""
        now, in_hand = self._clock.monotonic(), self._in_hand()
        kept = await self._extend_long()
        if now - self._extended_s > self._window.total_seconds():
            self._doubted = frozenset(in_hand.difference(kept))
            self._doubted_until = now + DOUBTED_MAX_S
        self._extended_s = now

    async def _extend_long(self) -> Collection[UUID]:
        long = [begun for begun in self._slots.attempts() if begun.spec.timeout > self._window]
        if not long:
            return ()
        kept = await self._work.extend(long, window=self._window, grace=self._grace)
        present = {begun.attempt_id for begun in self._slots.attempts()}
        self._lost &= present
        for begun in long:
            attempt_id = begun.attempt_id
            if attempt_id in present and attempt_id not in kept and attempt_id not in self._lost:
                await self._note_lost(begun)
        return kept

    async def _note_lost(self, begun: BegunAttempt) -> None:
        action = await self._actions.get(begun.id)
        is_superseded = action is None or action.meta.guid != begun.guid
        self._lost.add(begun.attempt_id)
        self._observer.event(
            "attempt_lost", action=begun.id, attempt_no=begun.status.attempts,
            because="superseded" if is_superseded else "taken over",
        )  # fmt: skip
        if not is_superseded:
            self._slots.lose({begun.attempt_id})


def _attempt_of(lapsed: LapsedRow) -> UUID | None:
    return None if lapsed.attempt is None else lapsed.attempt.attempt_id
