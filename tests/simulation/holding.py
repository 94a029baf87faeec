"""A user's open transaction holds actions, as PostgreSQL lets him: others pass them over.

The engine of the simulation has one writer, so what row locks do is put around it: who would find
an action locked is answered as if it were. Users wait for it, workers never do.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from gnomon.contracts.store import (
    ActionDraft,
    ArrivalResult,
    BeginRequest,
    BeginResult,
    FinishRequest,
    HeldShard,
    LapsedRow,
    MoveResult,
    Recorded,
    SettleRequest,
    Store,
)
from gnomon.stores.sqlite.rows import micros
from tests.simulation.history import History

PAUSE_S = 6.0  # between two transactions, on average
HOLD_S = (0.2, 25.0)
RESERVED = timedelta(seconds=30)
WAIT_S = 0.05
ATTENTION = timedelta(seconds=1.2)  # how long after its release an action may go unnoticed

HIDE = "UPDATE scheduled_action SET state = 'paused' WHERE state = 'active' AND id = ?"
SHOW = "UPDATE scheduled_action SET state = 'active' WHERE id = ?"
IS_MINE = """
SELECT 1 FROM processing_queue AS q
JOIN scheduled_action AS a ON a.guid = q.guid
WHERE q.guid = ? AND q.attempt_id = ? AND (q.running = 1 OR q.swept = 1)
"""
PROLONG = """
UPDATE processing_queue SET scheduled_at = max(scheduled_at, ?) WHERE guid = ? AND running = 1
"""


class Holds:
    """What is held just now, and by whom: a user who takes his time."""

    def __init__(self, seed: int, history: History, now: Callable[[], datetime]) -> None:
        self.dice = random.Random(f"holds {seed}")
        self.history = history
        self.now = now
        self.held: set[str] = set()
        self._released_at: dict[str, datetime] = {}

    def was_held(self, id: str, since: datetime) -> bool:
        """Whether it is held, or was until shortly before `since`."""
        released_at = self._released_at.get(id)
        is_recent = released_at is not None and released_at + ATTENTION >= since
        return id in self.held or is_recent

    def clock_was_set(self, by: timedelta) -> None:
        """Tell the past as the clock would have shown it."""
        self._released_at = {id: at + by for id, at in self._released_at.items()}

    async def keep_holding(self, ids: Callable[[], Sequence[str]]) -> None:
        """One transaction after the other, on what `ids` names first: where it hurts."""
        try:
            while True:
                await asyncio.sleep(self.dice.expovariate(1 / PAUSE_S))
                chosen = ids()[: self.dice.randint(1, 4)]
                self.held.update(chosen)
                self.history.note("holder", "holds", *chosen)
                await asyncio.sleep(self.dice.uniform(*HOLD_S))
                self.release()
        finally:
            self.release()

    def release(self) -> None:
        now = self.now()
        self._released_at.update(dict.fromkeys(self.held, now))
        self.held.clear()

    def around(self, store: Store, execute: Callable[..., Any]) -> Store:
        """The engine, as those see it who meet held rows."""
        return msgspec.structs.replace(
            store,
            work=HeldWork(store.work, self, execute),
            actions=HeldActions(store.actions, self),
        )


class HeldWork:
    """What workers do: never wait."""

    def __init__(self, inner: Any, holds: Holds, execute: Callable[..., Any]) -> None:
        self._inner = inner
        self._holds = holds
        self._execute = execute

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._inner, verb)

    async def begin(self, demands: Sequence[BeginRequest], **named: Any) -> BeginResult:
        hidden = [id for id in self._holds.held if self._execute(HIDE, (id,)).rowcount]
        try:
            result: BeginResult = await self._inner.begin(demands, **named)
        finally:
            for id in hidden:
                self._execute(SHOW, (id,))
        self._holds.history.reach("passed over", bool(hidden and result.refused))
        return result

    async def move_and_begin(
        self,
        holdings: Sequence[HeldShard],
        *,
        limit: int,
        room: Mapping[str, int],
        newest: bool = False,
        **named: Any,
    ) -> ArrivalResult:
        if newest and self._holds.held:
            nothing = MoveResult(count=0, lanes={}, marks={}, more=False, now=self._holds.now())
            return ArrivalResult(moved=nothing, begun=[])
        if not self._holds.held:
            arrived: ArrivalResult = await self._inner.move_and_begin(
                holdings, limit=limit, room=room, newest=newest, **named
            )
            return arrived
        moved: MoveResult = await self._inner.move(holdings, limit=limit)
        leases = {held.shard: held.lease_guid for held in holdings}
        demands = [
            BeginRequest(lane=lane, lease_guid=leases[lane.shard], limit=room[lane.queue])
            for lane in moved.lanes
            if lane.queue in room
        ]
        if not demands:
            return ArrivalResult(moved=moved, begun=[])
        result = await self.begin(demands, silent=timedelta(0), **named)
        return ArrivalResult(moved=moved, begun=result.begun)

    async def finish(self, finishes: Sequence[FinishRequest], *, owner: str) -> Sequence[Recorded]:
        held = [one for one in finishes if self._is_held(one)]
        rest = [one for one in finishes if one not in held]
        found: Sequence[Recorded] = await self._inner.finish(rest, owner=owner) if rest else []
        answers = {one.attempt_id: answer for one, answer in zip(rest, found, strict=True)}
        until = micros(self._holds.now() + RESERVED)
        for one in held:
            self._execute(PROLONG, (until, one.guid.bytes))
        return [answers.get(one.attempt_id, Recorded.HELD) for one in finishes]

    def _is_held(self, finish: FinishRequest) -> bool:
        keys = (finish.guid.bytes, finish.attempt_id.bytes)
        is_locked = finish.id in self._holds.held
        return is_locked and self._execute(IS_MINE, keys).fetchone() is not None

    async def list_lapsed(
        self, holdings: Sequence[HeldShard], *, limit: int
    ) -> Sequence[LapsedRow]:
        found: Sequence[LapsedRow] = await self._inner.list_lapsed(holdings, limit=limit)
        free = [one for one in found if one.id not in self._holds.held]
        self._holds.history.reach("held and lapsed", len(free) < len(found))
        return free

    async def settle(self, settlements: Sequence[SettleRequest]) -> int:
        free = [one for one in settlements if one.lapsed.id not in self._holds.held]
        count: int = await self._inner.settle(free)
        return count


class HeldActions:
    """What users do: wait."""

    def __init__(self, inner: Any, holds: Holds) -> None:
        self._inner = inner
        self._holds = holds

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._inner, verb)

    async def _free(self, id: str) -> None:
        while id in self._holds.held:
            await asyncio.sleep(WAIT_S)

    async def replace(self, draft: ActionDraft, **named: Any) -> Any:
        await self._free(draft.id)
        return await self._inner.replace(draft, **named)

    async def delete(self, id: str, **named: Any) -> Any:
        await self._free(id)
        return await self._inner.delete(id, **named)

    async def pause(self, id: str, *args: Any, **named: Any) -> Any:
        await self._free(id)
        return await self._inner.pause(id, *args, **named)

    async def resume(self, id: str, *args: Any, **named: Any) -> Any:
        await self._free(id)
        return await self._inner.resume(id, *args, **named)

    async def run_now(self, id: str, *args: Any, **named: Any) -> Any:
        await self._free(id)
        return await self._inner.run_now(id, *args, **named)
