"""Asks the store to begin attempts, and hands what it began to the slots.

What the store began must be performed or handed back, and only its answer says what that is: so
no shutdown cuts such a call short, and a lost answer is asked for again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from gnomon.contracts.env import Env
from gnomon.contracts.store import (
    BeginRequest,
    BeginResult,
    BegunAttempt,
    HeldShard,
    MoveResult,
    WorkStore,
)
from gnomon.model.errors import Unavailable
from gnomon.worker.attempt_tally import AttemptTally
from gnomon.worker.config import WorkerConfig
from gnomon.worker.slots import SlotHold, Slots

T = TypeVar("T")

PutArmed = Callable[[Sequence[BegunAttempt]], None]


class BeginCalls:
    """The two verbs that begin attempts, for one worker."""

    def __init__(
        self,
        store: WorkStore,
        *,
        owner: str,
        slots: Slots,
        config: WorkerConfig,
        env: Env,
        tally: AttemptTally,
    ) -> None:
        self._store = store
        self._owner = owner
        self._slots = slots
        self._config = config
        self._clock = env.clock
        self._entropy = env.entropy
        self._observer = env.observer
        self._tally = tally

    async def begin(self, demands: Sequence[BeginRequest]) -> BeginResult:
        """Begin what is due in lanes."""
        promised: Counter[str] = Counter()
        for demand in demands:
            promised[demand.lane.queue] += demand.limit
        promise = self._slots.promise(promised)
        try:
            return await self._seen_through(self._begin(demands, promise))
        finally:
            promise.close()

    async def arm(
        self,
        demands: Sequence[BeginRequest],
        *,
        until: datetime,
        wait: timedelta,
        put: PutArmed,
    ) -> BeginResult:
        """Begin ahead what is due in lanes by then; they need no slot yet, and are reserved for so
        much longer."""
        return await self._seen_through(self._arm(demands, until, wait, put))

    async def _arm(
        self, demands: Sequence[BeginRequest], until: datetime, wait: timedelta, put: PutArmed
    ) -> BeginResult:
        batch = self._entropy.token()
        try:
            result = await self._store.begin(
                demands,
                batch=batch,
                owner=self._owner,
                grace=self._config.grace + wait,
                window=self._config.window,
                silent=self._config.silent,
                until=until,
            )
        except Unavailable:
            with suppress(Unavailable):
                shards = {demand.lane.shard for demand in demands}
                self._put_armed(await self._store.find_begun(shards, batch=batch), put)
            raise
        self._put_armed(result.begun, put)
        return result

    def _put_armed(self, begun: Sequence[BegunAttempt], put: PutArmed) -> None:
        put(begun)
        self._tell_begun(Counter(attempt.spec.queue for attempt in begun))

    async def move_and_begin(
        self,
        holdings: Sequence[HeldShard],
        *,
        room: Mapping[str, int],
        limit: int,
        first: bool = False,
    ) -> MoveResult:
        """The short way of what arrived: move and begin in one step. `first`: what is begun comes
        before all that waits for a slot."""
        return await self._arrive(holdings, room, limit, first=first, newest=False)

    async def begin_newest(
        self, holdings: Sequence[HeldShard], *, room: Mapping[str, int], limit: int
    ) -> MoveResult:
        """The same for what is due among the newest arrivals, before all that waits."""
        return await self._arrive(holdings, room, limit, first=True, newest=True)

    async def _arrive(
        self,
        holdings: Sequence[HeldShard],
        room: Mapping[str, int],
        limit: int,
        *,
        first: bool,
        newest: bool,
    ) -> MoveResult:
        promise = self._slots.promise(room, first=first)
        call = self._move_and_begin(holdings, room, limit, promise, newest=newest)
        try:
            return await self._seen_through(call)
        finally:
            promise.close()

    async def _seen_through(self, work: Coroutine[Any, Any, T]) -> T:
        call = asyncio.create_task(work, name="begin")
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            await asyncio.wait([call], timeout=self._config.drain.total_seconds())
            if not call.cancel() and not call.cancelled():
                call.exception()  # seen, and of no use any more
            raise

    async def _begin(self, demands: Sequence[BeginRequest], promise: SlotHold) -> BeginResult:
        batch, asked_at = self._entropy.token(), self._clock.monotonic()
        try:
            result = await self._store.begin(
                demands,
                batch=batch,
                owner=self._owner,
                grace=self._config.grace,
                window=self._config.window,
                silent=self._config.silent,
            )
        except Unavailable:
            shards = {demand.lane.shard for demand in demands}
            await self._take_lost(shards, batch, asked_at, promise)
            raise
        self._take(result.begun, asked_at, promise)
        return result

    async def _move_and_begin(
        self,
        holdings: Sequence[HeldShard],
        room: Mapping[str, int],
        limit: int,
        promise: SlotHold,
        *,
        newest: bool,
    ) -> MoveResult:
        batch, asked_at = self._entropy.token(), self._clock.monotonic()
        try:
            arrived = await self._store.move_and_begin(
                holdings,
                limit=limit,
                newest=newest,
                room=room,
                batch=batch,
                owner=self._owner,
                grace=self._config.grace,
                window=self._config.window,
            )
        except Unavailable:
            shards = {held.shard for held in holdings}
            await self._take_lost(shards, batch, asked_at, promise)
            raise
        self._take(arrived.begun, asked_at, promise)
        return arrived.moved

    async def _take_lost(
        self, shards: Collection[int], batch: UUID, asked_at: float, promise: SlotHold
    ) -> None:
        """The answer was lost: what was begun may still be performed, if it is found."""
        with suppress(Unavailable):
            self._take(await self._store.find_begun(shards, batch=batch), asked_at, promise)

    def _take(self, begun: Sequence[BegunAttempt], asked_at: float, promise: SlotHold) -> None:
        """Hand begun attempts to the slots that were promised to them."""
        promise.close()
        self._tell_begun(self._slots.take(begun, asked_at, first=promise.first))

    def _tell_begun(self, counts: Mapping[str, int]) -> None:
        self._tally.begun(counts)
        for queue, count in counts.items():
            self._observer.count("attempts_begun", count, queue=queue)
        if counts:
            self._observer.observe("begin_batch", sum(counts.values()))
