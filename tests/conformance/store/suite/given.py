"""The situations that tests start from, made by the contract's own verbs on any engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

import msgspec

from gnomon.contracts.clock import Entropy
from gnomon.contracts.store import (
    ActionDraft,
    BeginRequest,
    BeginResult,
    BegunAttempt,
    ChangeResult,
    FinishRequest,
    HeldShard,
    Installation,
    LapsedRow,
    LeaseRequest,
    Recorded,
    SettleRequest,
    Store,
)
from gnomon.model.action import Action
from gnomon.model.errors import GnomonError
from gnomon.model.ids import shard_of
from gnomon.model.outcome import Failed, Interrupted, Outcome, Succeeded, Unserved
from gnomon.model.spec import Mock, Periodic, Retry, Spec
from gnomon.model.transition import MissedOccurrences, transition

OWNER = "suite"
SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
NOTHING = timedelta(0)
POLL_S = 0.005
POLLS_MAX = 2_000


class CallerTransaction(Protocol):
    """A transaction of the user's own, on a connection that `joining` takes."""

    connection: object

    async def commit(self) -> None: ...

    async def roll_back(self) -> None: ...


Caller = Callable[[], AbstractAsyncContextManager[CallerTransaction]]


class Given:
    """Builds situations. Ids are made up unless given; everything is due unless said otherwise."""

    def __init__(
        self,
        store: Store,
        installation: Installation,
        *,
        entropy: Entropy,
        execute_raw: Callable[[str], Awaitable[Sequence[Sequence[Any]]]],
        open_another: Callable[[], Awaitable[Store]],
        caller_transaction: Caller | None = None,
        arrives: bool = False,
    ) -> None:
        self.store = store
        self.installation = installation
        self.entropy = entropy
        self.execute_raw = execute_raw
        self.open_another = open_another  # another store on the same database, as a process has it
        self.caller_transaction = caller_transaction
        self.arrives = arrives  # first attempts are begun on arrival, in place where the engine can
        self._holdings: dict[int, HeldShard] = {}
        self._names = 0

    async def now(self) -> datetime:
        return await self.store.installation.now()

    @property
    def shards(self) -> range:
        return range(self.installation.shard_count)

    def shard_of(self, name: str) -> int:
        return shard_of(name, self.installation.shard_count)

    def name_in(self, shard: int, prefix: str = "in") -> str:
        """An unused id that lives in the shard."""
        while True:
            self._names += 1
            name = f"{prefix}-{self._names}"
            if self.shard_of(name) == shard:
                return name

    # -- actions ----------------------------------------------------------------------------------

    async def draft(
        self,
        name: str | None = None,
        *,
        due_in: timedelta = -10 * SECOND,
        expires_in: timedelta | None = None,
        retention: timedelta = HOUR,
        guid: UUID | None = None,
        keyed: bool = False,
        **spec: Any,
    ) -> ActionDraft:
        """An admitted action, due ten seconds ago by default."""
        now = await self.now()
        self._names += name is None
        name = name or f"action-{self._names}"
        due = now + due_in
        fields: dict[str, Any] = {"action": Mock(), "start_at": due} | spec
        return ActionDraft(
            id=name,
            guid=guid or self.entropy.guid(),
            shard=self.shard_of(name),
            spec=Spec(**fields),
            scheduled_at=due,
            occurrence_at=due,
            expires_at=None if expires_in is None else now + expires_in,
            retention=retention,
            keyed=keyed,
        )

    async def created(self, name: str | None = None, **fields: Any) -> Action:
        changed = (await self.store.actions.create([await self.draft(name, **fields)]))[0]
        assert changed is not None
        return changed.action

    async def moved(self, name: str | None = None, **fields: Any) -> Action:
        """Created, and in the processing queue."""
        action = await self.created(name, **fields)
        await self.move()
        return action

    async def paused(self, name: str | None = None, **fields: Any) -> Action:
        action = await self.created(name, **fields)
        changed = await self.store.actions.pause(action.meta.id, self.entropy.guid(), if_match=None)
        return changed.action

    async def replaced(self, name: str, **fields: Any) -> ChangeResult:
        return await self.store.actions.replace(await self.draft(name, **fields), if_match=None)

    async def action(self, name: str) -> Action:
        found = await self.store.actions.get(name)
        assert found is not None, f"{name} is gone"
        return found

    # -- leases -----------------------------------------------------------------------------------

    async def holding(self, shard: int) -> HeldShard:
        """The shard, held by us."""
        if shard not in self._holdings:
            seen = next(
                lock for lock in await self.store.leases.list_locks() if lock.shard == shard
            )
            request = LeaseRequest(seen=seen, lease_guid=self.entropy.token())
            taken = await self.store.leases.acquire([request], owner=OWNER, lease_for=HOUR)
            assert taken, f"shard {shard} is held by {seen.owner}"
            self._holdings[shard] = taken[0]
        return self._holdings[shard]

    async def holdings(self) -> list[HeldShard]:
        """All shards, held by us."""
        return [await self.holding(shard) for shard in range(self.installation.shard_count)]

    def wrong(self, holding: HeldShard) -> HeldShard:
        """The same shard under a lease that nobody has."""
        return msgspec.structs.replace(holding, lease_guid=self.entropy.token())

    async def released(self) -> None:
        """Nobody holds anything."""
        await self.store.leases.release(list(self._holdings.values()))
        self._holdings.clear()

    # -- work -------------------------------------------------------------------------------------

    async def move(self) -> int:
        """Move all that waits; how many rows."""
        total = 0
        while True:
            unmarked = [
                msgspec.structs.replace(holding, incoming_mark=None)
                for holding in await self.holdings()
            ]
            moved = await self.store.work.move(unmarked, limit=1_000)
            total += moved.count
            if not moved.more:
                return total

    async def demands(self, *, limit: int = 100) -> list[BeginRequest]:
        """All that is in the queues of all shards."""
        holdings = {holding.shard: holding for holding in await self.holdings()}
        lanes = await self.store.work.list_lanes(list(holdings.values()))
        return [
            BeginRequest(lane=lane, lease_guid=holdings[lane.shard].lease_guid, limit=limit)
            for lane in sorted(lanes)
        ]

    async def begin(
        self,
        demands: Sequence[BeginRequest] | None = None,
        *,
        batch: UUID | None = None,
        grace: timedelta = 5 * SECOND,
        window: timedelta = 30 * SECOND,
        silent: timedelta = HOUR,
        limit: int = 100,
        owner: str = OWNER,
        until: datetime | None = None,
    ) -> BeginResult:
        """Begin what is due: everywhere, unless demands are given."""
        return await self.store.work.begin(
            await self.demands(limit=limit) if demands is None else demands,
            batch=batch or self.entropy.token(),
            owner=owner,
            grace=grace,
            window=window,
            silent=silent,
            until=until,
        )

    async def begun(self, name: str | None = None, **fields: Any) -> BegunAttempt:
        """A new action whose first attempt began a moment ago."""
        if self.arrives:
            return await self._arrived(await self.created(name, **fields))
        action = await self.moved(name, **fields)
        return await self.begun_again(action.meta.id)

    async def _arrived(
        self, action: Action, *, grace: timedelta = 5 * SECOND, window: timedelta = 30 * SECOND
    ) -> BegunAttempt:
        arrived = await self.store.work.move_and_begin(
            await self.holdings(),
            limit=1_000,
            room={action.spec.queue: 1_000},
            batch=self.entropy.token(),
            owner=OWNER,
            grace=grace,
            window=window,
        )
        return next(begun for begun in arrived.begun if begun.id == action.meta.id)

    async def begun_again(self, name: str) -> BegunAttempt:
        """The action's next attempt. Its row is in the processing queue and due."""
        result = await self.begin()
        return next(begun for begun in result.begun if begun.id == name)

    async def begun_once_due(self, name: str) -> BegunAttempt:
        """The same, where its time may still be some milliseconds away."""
        async for _ in polls():
            result = await self.begin()
            for begun in result.begun:
                if begun.id == name:
                    return begun
        raise AssertionError(f"{name} did not come due")

    async def finish_of(self, begun: BegunAttempt, outcome: Outcome | None = None) -> FinishRequest:
        """The attempt's end, with what follows from it."""
        outcome = outcome or Succeeded()
        verdict = transition(
            begun.spec, begun.status, outcome, guid=begun.guid, now=await self.now()
        )
        return FinishRequest(
            shard=begun.shard,
            id=begun.id,
            guid=begun.guid,
            attempt_id=begun.attempt_id,
            attempt_no=begun.status.attempts,
            occurrence_no=begun.status.occurrence_no,
            began_at=begun.began_at,
            outcome=type(outcome).__name__.lower(),
            verdict=verdict,
            error=outcome.error if isinstance(outcome, Failed) else None,
            answer=outcome.answer if isinstance(outcome, Succeeded | Failed) else None,
            need=outcome.need if isinstance(outcome, Unserved) else "",
        )

    async def recorded(self, begun: BegunAttempt, outcome: Outcome | None = None) -> Recorded:
        finish = await self.finish_of(begun, outcome)
        return (await self.store.work.finish([finish], owner=OWNER))[0]

    async def recorded_at_last(self, finish: FinishRequest) -> Recorded:
        """What became of it, as soon as nobody holds its action."""
        async for _ in polls():
            (found,) = await self.store.work.finish([finish], owner=OWNER)
            if found is not Recorded.HELD:
                return found
        raise AssertionError(f"{finish.id} is held for ever")

    async def finished(self, name: str | None = None, **fields: Any) -> Action:
        """An action that was done at its first attempt."""
        begun = await self.begun(name, **fields)
        assert Recorded.APPLIED is await self.recorded(begun)
        return await self.action(begun.id)

    async def finished_shortly(self, name: str, *, retention: timedelta) -> None:
        """Done, and its retention is over as soon as the clock ticks."""
        assert Recorded.APPLIED is await self.recorded(await self.begun(name, retention=retention))
        async for _ in polls():
            if await self.store.actions.get(name) is None:
                return
        raise AssertionError(f"{name} outlived its retention")

    # -- what lapses ------------------------------------------------------------------------------

    async def overrun(self, name: str | None = None, **fields: Any) -> BegunAttempt:
        """Begun without any reservation: its time is over as soon as the clock ticks."""
        if self.arrives:
            action = await self.created(name, **fields)
            return await self._arrived(action, grace=NOTHING, window=NOTHING)
        action = await self.moved(name, **fields)
        result = await self.begin(grace=NOTHING, window=NOTHING)
        return next(begun for begun in result.begun if begun.id == action.meta.id)

    async def lapsed(self, name: str) -> LapsedRow:
        """The action's row as `lapsed` reports it, as soon as it does."""
        async for _ in polls():
            for found in await self.store.work.list_lapsed(await self.holdings(), limit=100):
                if found.id == name:
                    return found
        raise AssertionError(f"{name} did not lapse")

    async def settlement(
        self, lapsed: LapsedRow, reason: str = "the worker disappeared"
    ) -> SettleRequest:
        """What the sweeper or the expirer decides about it."""
        event = Interrupted(reason=reason) if lapsed.running else MissedOccurrences()
        verdict = transition(
            lapsed.spec, lapsed.status, event, guid=lapsed.guid, now=await self.now()
        )
        return SettleRequest(lapsed=lapsed, verdict=verdict, reason=reason)

    async def swept(self, name: str | None = None, **fields: Any) -> BegunAttempt:
        """Begun, lapsed, and settled as interrupted; due again at once."""
        begun = await self.overrun(name, **fields)
        settlement = await self.settlement(await self.lapsed(begun.id))
        assert 1 == await self.store.work.settle([settlement])
        return begun

    async def queue_row_count(self) -> int:
        """Rows of both queues, also of old generations."""
        total = 0
        for table in ("incoming_queue", "processing_queue"):
            rows = await self.execute_raw(f"SELECT count(*) FROM {table}")
            total += int(rows[0][0])
        return total

    async def aged(self, table: str, column: str, age: timedelta) -> None:
        """Put a time back in all rows. Citus takes no sum that depends on the session's zone."""
        if self.store.capabilities.engine == "sqlite":
            older = f"{column} - {age // timedelta(microseconds=1)}"
        else:
            by = f"interval '{age.total_seconds()} seconds'"
            older = f"({column} AT TIME ZONE 'UTC' - {by}) AT TIME ZONE 'UTC'"
        await self.execute_raw(f"UPDATE {table} SET {column} = {older}")


def every(period: timedelta) -> Periodic:
    return Periodic(period=period)


def retrying(times: int) -> Retry:
    return Retry(max=times)


async def refusal(call: Awaitable[object]) -> GnomonError | None:
    """The error of ours that a call ends with; None if it does not."""
    try:
        await call
    except GnomonError as error:
        return error
    return None


async def polls() -> AsyncIterator[int]:
    """A bounded wait for the database's clock or for another connection: step by step."""
    for number in range(POLLS_MAX):
        yield number
        await asyncio.sleep(POLL_S)
