"""Each takes one guard of the protocol away. The simulation must notice, or it proves nothing.

They stand around the engine and know its tables, not its code: before the real verb is called,
the row is made to look as if its fence were satisfied.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any
from unittest import mock
from uuid import UUID

import msgspec

from gnomon.contracts.store import (
    ArrivalResult,
    BeginRequest,
    BeginResult,
    BegunAttempt,
    ChangeResult,
    ConfirmResult,
    FinishRequest,
    HeartbeatResult,
    HeldShard,
    Lane,
    LapsedRow,
    LeaseRequest,
    MoveResult,
    PollResult,
    Recorded,
    SettleRequest,
    ShardLock,
    Store,
)
from gnomon.model.spec import Effect, Mock
from gnomon.model.transition import transition
from gnomon.stores.sqlite.rows import micros, moment
from gnomon.worker import Worker, WorkerConfig
from gnomon.worker import attempt as attempt_module
from gnomon.worker import settlement as settlement_module
from gnomon.worker.guest import Guest
from gnomon.worker.late_commits import LateCommits, ShardsToRescan
from gnomon.worker.leases import WorkerLeases
from gnomon.worker.pump import Pump
from gnomon.worker.reservations import Reservations
from tests.simulation.crowd import Crowd
from tests.simulation.world import Ablation, World

READ_INCOMING = """
SELECT i.created_at, i.guid, i.queue, i.priority, i.scheduled_at, a.attempts
FROM incoming_queue AS i
LEFT JOIN scheduled_action AS a
    ON a.shard_id = i.shard_id AND a.guid = i.guid AND a.state = 'active'
JOIN shard_lock AS l ON l.shard_id = i.shard_id AND l.lease_guid = :lease_guid
WHERE i.shard_id = :shard
"""
INSERT_PROCESSING = """
INSERT OR REPLACE INTO processing_queue (shard_id, guid, queue, priority, scheduled_at, attempts)
VALUES (?, ?, ?, ?, ?, ?)
"""
DELETE_INCOMING = "DELETE FROM incoming_queue WHERE shard_id = ? AND created_at = ? AND guid = ?"
READ_IDLE = """
SELECT q.shard_id, q.guid, q.queue, q.priority, q.scheduled_at, q.attempts
FROM processing_queue AS q
JOIN scheduled_action AS a ON a.guid = q.guid
WHERE a.id = ? AND q.running = 0
"""
READ_DUE = """
SELECT scheduled_at, shard_id, guid FROM processing_queue
WHERE shard_id = ? AND queue = ? AND priority = ? AND need = ? AND running = 0
    AND scheduled_at <= ?
ORDER BY scheduled_at
LIMIT ?
"""
MAKE_DUE = (
    "UPDATE processing_queue SET running = 0, scheduled_at = ? WHERE shard_id = ? AND guid = ?"
)
READ_ATTEMPT = "SELECT attempt_id FROM processing_queue WHERE shard_id = ? AND guid = ?"
MAKE_RUNNING = "UPDATE processing_queue SET running = 1 WHERE shard_id = ? AND guid = ?"
MAKE_LAPSED = (
    "UPDATE processing_queue"
    " SET running = ?, scheduled_at = ?, attempt_id = coalesce(?, attempt_id)"
    " WHERE shard_id = ? AND guid = ?"
)
IS_RUNNING = (
    "SELECT 1 FROM processing_queue AS q JOIN scheduled_action AS a"
    " ON a.shard_id = q.shard_id AND a.guid = q.guid"
    " WHERE q.shard_id = ? AND q.guid = ? AND q.attempt_id = ? AND q.running = 1"
)
READ_LEASES = "SELECT shard_id, lease_guid FROM shard_lock WHERE lease_guid IS NOT NULL"


class Around:
    """A role of the store with some verbs replaced."""

    def __init__(self, inner: Any, world: World) -> None:
        self._inner = inner
        self._world = world
        self._execute = world.runner.connection.execute

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._inner, verb)

    def _leases(self) -> dict[int, UUID]:
        """Whatever leases there are: who uses them always passes the check."""
        return {shard: UUID(bytes=guid) for shard, guid in self._execute(READ_LEASES)}

    def _as_holder(self, demands: Sequence[BeginRequest]) -> list[BeginRequest]:
        leases = self._leases()
        return [
            msgspec.structs.replace(demand, lease_guid=leases[demand.lane.shard])
            if demand.lease_guid is not None and demand.lane.shard in leases
            else demand
            for demand in demands
        ]

    def _present(self, holdings: Sequence[HeldShard]) -> list[HeldShard]:
        leases = self._leases()
        return [
            msgspec.structs.replace(held, lease_guid=leases[held.shard])
            for held in holdings
            if held.shard in leases
        ]


# -- work -----------------------------------------------------------------------------------------


class AroundWork(Around):
    """The work role; the short way of arrivals is made of the verbs that may be replaced."""

    async def move_and_begin(
        self,
        holdings: Sequence[HeldShard],
        *,
        limit: int,
        room: Mapping[str, int],
        newest: bool,
        **named: Any,
    ) -> ArrivalResult:
        if newest:  # a look that moves nothing but what it begins
            found: ArrivalResult = await self._inner.move_and_begin(
                holdings, limit=limit, room=room, newest=True, **named
            )
            return found
        moved: MoveResult = await self.move(holdings, limit=limit)
        leases = {held.shard: held.lease_guid for held in holdings}
        demands = [
            BeginRequest(lane=lane, lease_guid=leases[lane.shard], limit=room[lane.queue])
            for lane in moved.lanes
            if lane.queue in room
        ]
        if not demands:
            return ArrivalResult(moved=moved, begun=[])
        result: BeginResult = await self.begin(demands, silent=timedelta(0), **named)
        return ArrivalResult(moved=moved, begun=result.begun)


class TwoStepMove(AroundWork):
    """Incoming rows are read, inserted and deleted in transactions of their own."""

    async def move(self, holdings: Sequence[HeldShard], *, limit: int) -> MoveResult:
        lanes: dict[Lane, datetime] = {}
        count = 0
        for held in holdings:
            wanted = {"shard": held.shard, "lease_guid": held.lease_guid.bytes}
            for created_at, guid, *row in self._execute(READ_INCOMING, wanted).fetchall():
                await self._world.between()
                queue, priority, scheduled_at, attempts = row
                if attempts is not None:
                    self._execute(INSERT_PROCESSING, (held.shard, guid, *row))
                    lanes[Lane(held.shard, queue, priority)] = moment(scheduled_at)
                    count += 1
                await self._world.between()
                self._execute(DELETE_INCOMING, (held.shard, created_at, guid))
        now = self._world.clock.now()
        return MoveResult(count=count, lanes=lanes, marks={}, more=False, now=now)


class BlindBegin(AroundWork):
    """Due rows are read in one transaction and stamped in another, by guid alone."""

    async def begin(self, demands: Sequence[BeginRequest], **named: Any) -> BeginResult:
        now_us = micros(self._world.clock.now())
        due = [
            row
            for demand in demands
            for row in self._execute(READ_DUE, (*demand.lane, now_us, demand.limit)).fetchall()
        ]
        await self._world.between()
        for row in due:
            self._execute(MAKE_DUE, row)
        result: BeginResult = await self._inner.begin(self._as_holder(demands), **named)
        return result


class BeginWithoutLease(AroundWork):
    """The lease is looked at before, and not inside, the transaction that begins."""

    async def begin(self, demands: Sequence[BeginRequest], **named: Any) -> BeginResult:
        await self._world.between()
        result: BeginResult = await self._inner.begin(self._as_holder(demands), **named)
        return result


class ShortReservation(AroundWork):
    """An attempt is reserved for a second only, as with the default retry period."""

    async def begin(self, demands: Sequence[BeginRequest], **named: Any) -> BeginResult:
        named |= {"window": timedelta(seconds=1), "grace": timedelta(0)}
        result: BeginResult = await self._inner.begin(demands, **named)
        return result

    async def extend(self, attempts: Sequence[BegunAttempt], **_: Any) -> Collection[UUID]:
        return {
            one.attempt_id
            for one in attempts
            if self._execute(
                IS_RUNNING, (one.shard, one.guid.bytes, one.attempt_id.bytes)
            ).fetchone()
        }


class FinishByGuid(AroundWork):
    """A result is accepted whoever's attempt it is."""

    async def finish(self, finishes: Sequence[FinishRequest], *, owner: str) -> Sequence[Recorded]:
        blind = [self._as_current(finish) for finish in finishes]
        result: Sequence[Recorded] = await self._inner.finish(blind, owner=owner)
        return result

    def _as_current(self, finish: FinishRequest) -> FinishRequest:
        row = (finish.shard, finish.guid.bytes)
        found = self._execute(READ_ATTEMPT, row).fetchone()
        if found is None or found[0] is None:
            return finish
        self._execute(MAKE_RUNNING, row)
        return msgspec.structs.replace(finish, attempt_id=UUID(bytes=found[0]))


class BlindSettle(AroundWork):
    """The sweeper writes by guid, without comparing what it read."""

    async def settle(self, settlements: Sequence[SettleRequest]) -> int:
        await self._world.between()
        for settle in settlements:
            lapsed = settle.lapsed
            attempt = None if lapsed.attempt is None else lapsed.attempt.attempt_id.bytes
            seen = (int(lapsed.running), micros(lapsed.scheduled_at), attempt)
            self._execute(MAKE_LAPSED, (*seen, lapsed.shard, lapsed.guid.bytes))
        result: int = await self._inner.settle(settlements)
        return result


class HastyInterruption(AroundWork):
    """What goes on elsewhere is taken to end with the process, too."""

    async def list_orphans(self, owners: Collection[str], **named: Any) -> Sequence[LapsedRow]:
        found: Sequence[LapsedRow] = await self._inner.list_orphans(owners, **named)
        return [
            msgspec.structs.replace(
                orphan, spec=msgspec.structs.replace(orphan.spec, action=Mock())
            )
            for orphan in found
        ]


class Starving(AroundWork):
    """Refused rows are not told: a lane is due as long as one of them is."""

    async def begin(self, demands: Sequence[BeginRequest], **named: Any) -> BeginResult:
        result: BeginResult = await self._inner.begin(demands, **named)
        next_due = dict(result.next_due) | dict(result.refused)
        return msgspec.structs.replace(result, next_due=next_due, refused={})


class BlindConfirm(AroundWork):
    """What was armed is performed at its time, whatever has become of it."""

    async def confirm(self, attempts: Sequence[BegunAttempt]) -> ConfirmResult:
        result: ConfirmResult = await self._inner.confirm(attempts)
        return ConfirmResult(now=result.now, early=result.early)


class HastyConfirm(AroundWork):
    """What was armed is performed by the clock of its worker."""

    async def confirm(self, attempts: Sequence[BegunAttempt]) -> ConfirmResult:
        result: ConfirmResult = await self._inner.confirm(attempts)
        return msgspec.structs.replace(result, early=())


class WaitingFinish(AroundWork):
    """Results are written when nobody holds any of their actions."""

    async def finish(self, finishes: Sequence[FinishRequest], *, owner: str) -> Sequence[Recorded]:
        while any(finish.id in self._world.holds.held for finish in finishes):
            await asyncio.sleep(0.05)
        result: Sequence[Recorded] = await self._inner.finish(finishes, owner=owner)
        return result


class ForgottenSeries(AroundWork):
    """Delivery keys are made of the generation."""

    async def begin(self, demands: Sequence[BeginRequest], **named: Any) -> BeginResult:
        result: BeginResult = await self._inner.begin(demands, **named)
        begun = [msgspec.structs.replace(one, series=None) for one in result.begun]
        return msgspec.structs.replace(result, begun=begun)


# -- actions --------------------------------------------------------------------------------------


class LeavingRows(Around):
    """A change leaves the row of its old generation in the queue."""

    async def delete(self, id: str, **named: Any) -> ChangeResult:
        return await self._leaving(id, self._inner.delete(id, **named))

    async def pause(self, id: str, guid: UUID, **named: Any) -> ChangeResult:
        return await self._leaving(id, self._inner.pause(id, guid, **named))

    async def run_now(self, id: str, guid: UUID, **named: Any) -> ChangeResult:
        return await self._leaving(id, self._inner.run_now(id, guid, **named))

    async def _leaving(self, id: str, change: Awaitable[ChangeResult]) -> ChangeResult:
        rows = self._execute(READ_IDLE, (id,)).fetchall()
        changed = await change
        for row in rows:
            self._execute(INSERT_PROCESSING, row)
        return changed


# -- leases ---------------------------------------------------------------------------------------


class BlindHeartbeat(Around):
    """A former owner keeps the thief's lease alive in its own name."""

    async def heartbeat(self, worker: UUID, *, holdings: Any, **named: Any) -> HeartbeatResult:
        result: HeartbeatResult = await self._inner.heartbeat(
            worker, holdings=self._present(holdings), **named
        )
        return result


class BlindRelease(Around):
    """A former owner frees the thief's lock."""

    async def release(self, holdings: Sequence[HeldShard]) -> None:
        await self._inner.release(self._present(holdings))


class EagerAcquire(Around):
    """A lease is taken over whether or not its owner lives."""

    async def list_locks(self, *, silent: timedelta | None = None) -> Sequence[ShardLock]:
        return [
            msgspec.structs.replace(lock, lease_guid=None, silent_for=None)
            for lock in await self._inner.list_locks(silent=silent)
        ]

    async def acquire(
        self, requests: Sequence[LeaseRequest], *, owner: str, lease_for: timedelta
    ) -> Sequence[HeldShard]:
        present = {lock.shard: lock for lock in await self._inner.list_locks()}
        eager = [
            msgspec.structs.replace(request, seen=present[request.seen.shard])
            for request in requests
        ]
        taken: Sequence[HeldShard] = await self._inner.acquire(
            eager, owner=owner, lease_for=-lease_for
        )
        return taken


# -- others ---------------------------------------------------------------------------------------


class ForeignClock(Around):
    """The database's time is taken from a machine whose clock is wrong."""

    async def now(self) -> datetime:
        return self._world.clock.now() + timedelta(seconds=200)


class Unhurried(WorkerConfig):
    """However late, it is still sent."""

    @property
    def send_within(self) -> timedelta:
        return timedelta(hours=1)


class LateSending(Ablation):
    """No last look at the clock before sending."""

    name = "late-sending"

    def config(self, config: WorkerConfig) -> WorkerConfig:
        return Unhurried(**{field.name: getattr(config, field.name) for field in fields(config)})


class WrongProof(Ablation):
    """A machine is believed about the processes of another: it knows none with such a number."""

    name = "wrong-proof"
    is_gullible = True


class OnePool(Ablation):
    """What is small and urgent waits for a connection like everything else."""

    name = "one-pool"
    has_one_pool = True


class Unaware(LateCommits):
    """Does not mind which transactions are open."""

    def observe(self, found: PollResult) -> None:
        super().observe(found)


class Dripping(ShardsToRescan):
    """One look, however much there is."""

    def noted(self, holdings: Sequence[HeldShard], moved: MoveResult) -> dict[int, datetime]:
        marks = super().noted(holdings, moved)
        self.drop([held.shard for held in holdings])
        return marks


class WithPart(Ablation):
    """A worker whose pump has one part replaced."""

    def __init__(self, name: str, part: str, make: Callable[[], object]) -> None:
        self.name = name
        self._part = part
        self._make = make

    def worker(self, worker: Worker) -> None:
        assert hasattr(worker.pump, self._part)
        setattr(worker.pump, self._part, self._make())


class Without(Ablation):
    """An engine with one role replaced."""

    def __init__(self, name: str, role: str, around: Callable[[Any, World], Around]) -> None:
        self.name = name
        self._role = role
        self._around = around

    def store(self, store: Store, world: World) -> Store:
        changed = {self._role: self._around(getattr(store, self._role), world)}
        return msgspec.structs.replace(store, **changed)


class Patched(Ablation):
    """A worker with one of its functions replaced."""

    def __init__(self, name: str, *patches: tuple[object, str, object]) -> None:
        self.name = name
        self._patches = patches

    @contextmanager
    def patch(self) -> Iterator[None]:
        with ExitStack() as stack:
            for owner, attribute, replacement in self._patches:
                stack.enter_context(mock.patch.object(owner, attribute, replacement))
            yield


async def settle_all(_: Reservations, found: Sequence[LapsedRow]) -> list[LapsedRow]:
    """Also what is in one's own slots."""
    return list(found)


def ask_ahead(pump: Pump, lane: Lane, limit: int) -> BeginRequest:
    """From where the lane goes on: what was passed over is left to the next survey."""
    held = pump._leases.holding(lane.shard)
    return BeginRequest(
        lane=lane,
        lease_guid=None if held is None else held.lease_guid,
        limit=limit,
        since=pump.timeline.since(lane),
        hasty=lane not in pump.timeline.rechecks,
    )


async def stay_at_home(_: Guest) -> None:
    """Begin in the shards that one holds, and nowhere else."""


def fail_unserved(effect: Effect) -> str:
    """It fails the attempt, as if the receiver had refused it."""
    raise LookupError(f"this worker has no executor for {effect}")


def is_free_by_the_clock(leases: WorkerLeases, lock: ShardLock) -> bool:
    """By the database's clock alone, whether or not the owner was seen alive meanwhile."""
    return lock.silent_for is None or lock.silent_for >= leases._config.lease


ABLATIONS: dict[str, Ablation] = {
    ablation.name: ablation
    for ablation in (
        Without("two-step-move", "work", TwoStepMove),
        Without("blind-begin", "work", BlindBegin),
        Without("finish-by-guid", "work", FinishByGuid),
        Without("short-reservation", "work", ShortReservation),
        Without("blind-settle", "work", BlindSettle),
        Without("begin-without-lease", "work", BeginWithoutLease),
        Without("blind-confirm", "work", BlindConfirm),
        Without("hasty-confirm", "work", HastyConfirm),
        Without("waiting-finish", "work", WaitingFinish),
        Without("forgotten-series", "work", ForgottenSeries),
        Without("leaving-rows", "actions", LeavingRows),
        Without("blind-heartbeat", "leases", BlindHeartbeat),
        Without("blind-release", "leases", BlindRelease),
        Without("eager-acquire", "leases", EagerAcquire),
        Without("foreign-clock", "installation", ForeignClock),
        Without("hasty-interruption", "work", HastyInterruption),
        LateSending(),
        Without("starving", "work", Starving),
        WithPart("unaware-of-transactions", "_late_commits", Unaware),
        WithPart("dripping", "_rescans", Dripping),
        WrongProof(),
        OnePool(),
        Patched(
            "undecidable-raises",
            (attempt_module, "decide", transition),
            (settlement_module, "decide", transition),
        ),
        Patched("no-guests", (Guest, "visit", stay_at_home)),
        Patched("unserved-fails", (attempt_module, "need_of", fail_unserved)),
        Patched("settle-own", (Reservations, "keep_own", settle_all)),
        Patched("no-look-behind", (Pump, "_demand", ask_ahead)),
        Patched("trusted-clock", (WorkerLeases, "_is_free", is_free_by_the_clock)),
        Patched("trusted-marks", (Crowd, "counted", lambda _, mark: mark)),
    )
}
