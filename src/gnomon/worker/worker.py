"""A worker process: takes shards, makes their actions happen at their time, and leaves cleanly."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import cached_property
from uuid import UUID

from gnomon.boundary import Round
from gnomon.clock import wait_set
from gnomon.contracts.env import Env
from gnomon.contracts.executor import Executor
from gnomon.contracts.leased_service import LeasedService, Ownership
from gnomon.contracts.store import (
    BegunAttempt,
    Capabilities,
    FinishRequest,
    HeartbeatResult,
    HeldShard,
    Installation,
    Lane,
    Recorded,
    Store,
)
from gnomon.model.errors import IdentityMismatch, Unavailable
from gnomon.model.spec import Effect
from gnomon.model.upkeep import rest_after
from gnomon.telemetry.watchdog import Watchdog
from gnomon.worker.attempt import AttemptRunner, tell_undecidable
from gnomon.worker.attempt_tally import TallyKeeper
from gnomon.worker.cancellations import Cancellations
from gnomon.worker.config import WorkerConfig
from gnomon.worker.dead_workers import DeadWorkers
from gnomon.worker.examiner import Examiner
from gnomon.worker.gates import QueueGate, TargetGate
from gnomon.worker.guest import Guest, Served, helper_demand
from gnomon.worker.heartbeat import Heartbeat, OpenStore
from gnomon.worker.leases import WorkerLeases
from gnomon.worker.limits import AttemptLimits
from gnomon.worker.pauses import PauseEnder
from gnomon.worker.pump import Pump
from gnomon.worker.recorder import ResultRecorder
from gnomon.worker.reservations import Reservations
from gnomon.worker.slots import Slots
from gnomon.worker.unserved import NOBODY, UnservedTeller

Services = list[tuple[str, Coroutine[None, None, None]]]

HELP_EVERY_S = 0.5
FIRST_PURGE_S = 2.0  # what was due meanwhile comes first
PURGE_LIMIT = 5_000
LEAVE_S = 2.0
OWNER_DIGITS = 12


class Worker:
    """One process's worth of work. `work` is its whole life."""

    def __init__(
        self,
        store: Store,
        installation: Installation,
        executors: Mapping[type[Effect], Executor],
        *,
        env: Env,
        owner: str,
        config: WorkerConfig | None = None,
        open_store: OpenStore | None = None,  # for the heartbeat's thread; None: beat in the loop
        companions: Sequence[Callable[[Ownership], LeasedService]] = (),
    ) -> None:
        worker = env.entropy.token()
        owner = f"{owner}/{worker.hex[:OWNER_DIGITS]}"  # numbers of processes come again
        self._config = config = _fitted(config or WorkerConfig(), store.capabilities)
        self._clock, self._entropy, self._observer = env.clock, env.entropy, env.observer
        self._store, self._open_store, self._tracing = store, open_store, env.tracing
        self._served = Served(executors, config)
        self._tick_s = config.heartbeat.total_seconds() / 2
        self._lane_of: dict[UUID, Lane] = {}  # of results that make a row due again
        self._ended_counts: Counter[tuple[str, str]] = Counter()  # by queue and outcome
        queues: dict[str, QueueGate] = {}
        targets: dict[str, TargetGate] = {}
        self._slots = self._slots_of(executors, installation, env, queues, targets)
        self._recorder = ResultRecorder(
            store.work,
            owner=owner,
            batch=config.finish_batch,
            pace_s=store.capabilities.pace_s,
            observer=env.observer,
            recorded=self._recorded,
            dropped=self._dropped,
        )
        self.leases = WorkerLeases(
            store.leases,
            worker=worker,
            owner=owner,
            shard_count=installation.shard_count,
            config=config,
            env=env,
        )
        self._reservations = Reservations(
            store.work,
            store.actions,
            slots=self._slots,
            recorder=self._recorder,
            config=config,
            env=env,
        )
        self._cancellations = Cancellations(store.work, self._slots, owner, env.observer)
        self.pump = Pump(
            store.work,
            leases=self.leases,
            slots=self._slots,
            recorder=self._recorder,
            reservations=self._reservations,
            config=config,
            env=env,
            serves=self._served.serves_lane,
        )
        self.pump.pace_s = store.capabilities.pace_s
        self._guest = Guest(store, self.leases, self.pump, served=self._served, env=env)
        self._unserved = UnservedTeller(store, self.leases, env)
        self._examiner = Examiner(store, installation, self.leases, config, env)
        self._pauses = PauseEnder(store.work, self.leases, ended=self.pump.hint, env=env)
        self._limits = AttemptLimits(
            store.limits,
            worker=self.leases.worker,
            slots=self._slots,
            config=config,
            env=env,
            queues=queues,
            targets=targets,
            changed=self._shared,
        )
        self._heartbeat, self._balance = self._heartbeat_of(env), asyncio.Event()
        self._dead_workers = DeadWorkers(
            store, self.leases, self.pump, config=config, env=env, freed=self._balance.set
        )
        self._companions = [make(self.leases) for make in companions]

    def _slots_of(
        self,
        executors: Mapping[type[Effect], Executor],
        installation: Installation,
        env: Env,
        queues: Mapping[str, QueueGate],
        targets: Mapping[str, TargetGate],
    ) -> Slots:
        performer = AttemptRunner(
            executors,
            installation=installation.id,
            env=env,
            send_within=self._config.send_within,
            gates=targets,
        )
        return Slots(
            performer,
            clock=env.clock,
            concurrency_of=self._config.concurrency_of,
            ended=self._ended,
            attempts_max=self._config.attempts_limit,
            gates=queues,
            is_open=False,
            observer=env.observer,
        )

    def _heartbeat_of(self, env: Env) -> Heartbeat:
        return Heartbeat(
            self.leases,
            interval_s=self._config.heartbeat.total_seconds(),
            observer=env.observer,
            felt=self._felt,
            watchdog=Watchdog(env.clock, env.observer, every_s=self._tick_s),
        )

    @cached_property
    def _tally_keeper(self) -> TallyKeeper:
        return TallyKeeper(
            self._store.reports,
            self.pump.tally,
            worker=self.leases.worker,
            time=self.pump.time,
            observer=self._observer,
        )

    def __repr__(self) -> str:
        return f"Worker({self.leases.owner}, {self.leases})"

    @property
    def in_hand(self) -> int:
        """Attempts begun whose end is not recorded yet."""
        return self._slots.in_hand + self.pump.arming.count + self._recorder.backlog

    # -- life -------------------------------------------------------------------------------------

    async def work(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set, then drain: end or hand back everything, and leave.

        Errors: IdentityMismatch. A database that is away is waited for, also at the start.
        """
        if not await self._verified(stop):
            return
        await self._heartbeat.beat_once(self._store)
        async with asyncio.TaskGroup() as group:
            lasting = [group.create_task(work, name=name) for name, work in self._lasting()]
            beginning = [group.create_task(work, name=name) for name, work in self._beginning()]
            await stop.wait()
            for task in beginning:
                task.cancel()
            await asyncio.wait(beginning)
            await self._drain_companions()
            await self._drain()
            for task in lasting:
                task.cancel()
        await self._limits.limiter.leave()
        await self._leave()  # again, for the first goodbye may have failed

    async def _verified(self, stop: asyncio.Event) -> bool:
        """Make sure that it is the right database; False if `stop` was set before it answered."""
        while not stop.is_set():
            with Round(self._observer, "start"):
                difference = await self._store.installation.verify_identity()
                if difference is not None:
                    raise IdentityMismatch(difference)
                self.pump.time.observe(await self._store.installation.now())
                return True
            await wait_set(stop, self._config.poll.total_seconds())
        return False

    def _lasting(self) -> Services:
        """What must go on until the last result is written."""
        beat = (
            self._heartbeat.beat_in_loop(self._store)
            if self._open_store is None
            else self._heartbeat.beat_in_thread(self._open_store)
        )
        return [
            ("heart", beat),
            ("ticker", self._tick()),
            ("recorder", self._recorder.keep_writing()),
            ("extender", self._reservations.keep_extending()),
            ("cancellations", self._cancellations.keep_looking()),
            ("limits", self._limits.limiter.keep_asking()),
            ("tally", self._tally_keeper.keep_writing()),
        ]

    def _beginning(self) -> Services:
        """What begins new attempts, and ends as soon as a stop is asked for."""
        services = [
            ("pump", self.pump.keep_pumping()),
            ("balance", self._keep_balance()),
            ("undertaker", self._dead_workers.keep_looking()),
            ("frozen", self._dead_workers.keep_ending_frozen()),
            ("wakeups", self._store.wakeups.listen(self._hint)),
            ("janitor", self._keep_purging()),
            ("freed", self._keep_filling()),
            ("guest", self._guest.keep_visiting()),
            ("doctor", self._examiner.keep_examining()),
            ("unserved", self._unserved.keep_telling()),
            ("pauses", self._pauses.keep_ending()),
            *(("companion", companion.keep_working()) for companion in self._companions),
        ]
        return [*services, ("helper", self._keep_helping())] if self._config.helpers else services

    def _hint(self, shards: Collection[int]) -> None:
        self.pump.hint(shards)
        for companion in self._companions:
            companion.hint(shards)

    async def _drain_companions(self) -> None:
        """First of all: what they write is fenced by the leases."""
        drains = [companion.drain(self._config.drain) for companion in self._companions]
        await asyncio.gather(*drains)

    async def _drain(self) -> None:
        """Leave the living first, so that the others take the shards and begin what it will not."""
        await self._leave()
        self.pump.arming.disarm()
        self._recorder.note_burst(goes_on=False)
        await self._slots.drain(self._config.drain)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._config.drain.total_seconds()):
                await self._recorder.idle()
        self._tell_ended()
        with suppress(Unavailable, TimeoutError):  # then the last minute is lost
            async with asyncio.timeout(LEAVE_S):
                await self._tally_keeper.look(is_last=True)

    async def _leave(self) -> None:
        """Say goodbye, unless nobody listens: then the lease ends by itself."""
        with suppress(Unavailable, TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                await self.leases.leave()

    # -- services ---------------------------------------------------------------------------------

    async def _tick(self) -> None:
        """Show the heartbeat's thread that the loop is alive."""
        while True:
            self.leases.ticked_at = before = self._clock.monotonic()
            self._tell_ended()
            for queue, count in self._slots.tidy().items():
                self._observer.gauge("attempts_running", count, queue=queue)
            await asyncio.sleep(self._tick_s)
            lag_s = self._clock.monotonic() - before - self._tick_s
            self._observer.gauge("event_loop_lag_seconds", max(0.0, lag_s))

    async def _keep_balance(self) -> None:
        """Hold a fair share of the shards: take what is free, give back what is too much."""
        interval_s = self._config.heartbeat.total_seconds()
        while True:
            with Round(self._observer, "balance"):
                await self._balance_once()
            self._balance.clear()
            await wait_set(self._balance, self.leases.rest_s(interval_s))

    async def _balance_once(self) -> None:
        await self.leases.release()
        surplus = self.leases.surplus()
        if surplus:
            self.pump.abandon(surplus)
            self._limits.note_given_back(len(self.leases.shards) - len(surplus))
            await self.leases.give_back(surplus)
        elif len(self.leases.shards) < self.leases.share:
            taken = await self.leases.take()
            if taken:
                await self.pump.adopt(taken)
                for companion in self._companions:
                    companion.hint(())  # these shards are new to it, whatever waits there is not
        self._observer.gauge("shards_held", len(self.leases.shards))

    async def _keep_filling(self) -> None:
        """Wake the pump when a slot becomes free: it may have been waiting for one."""
        while True:
            await self._slots.freed()
            self.pump.wake()

    async def _keep_purging(self) -> None:
        """Remove what is past its retention, at least as fast as it is written; not all workers
        at the same moment."""
        full_rounds = 0
        await asyncio.sleep(FIRST_PURGE_S * (0.5 + self._entropy.fraction()))
        while True:
            started = self._clock.monotonic()
            is_full = await self._purge()
            full_rounds = full_rounds + 1 if is_full else 0
            rest_s = rest_after(
                self._clock.monotonic() - started,
                full_rounds=full_rounds,
                every_s=self._config.purge.total_seconds(),
            )
            await asyncio.sleep(rest_s * (0.5 + self._entropy.fraction()))

    async def _purge(self) -> bool:
        """Whether it removed as much as it may, so that more may be left."""
        gone = 0
        with Round(self._observer, "purge"):
            gone = await self._store.installation.purge(limit=PURGE_LIMIT)
            worker = self.leases.worker
            gone += await self._store.reports.thin_history(worker, limit=PURGE_LIMIT)
        return gone >= PURGE_LIMIT

    async def _keep_helping(self) -> None:
        """Move and begin in shards whose owner is silent, until somebody takes them over."""
        while True:
            await asyncio.sleep(HELP_EVERY_S)
            with Round(self._observer, "helper"):
                await self._help()

    async def _help(self) -> None:
        silent = self.leases.silent(await self.leases.locks(HELP_EVERY_S))
        if not silent:
            return
        shards = self.leases.part([lock.shard for lock in silent])
        await self._pauses.help(shards, silent=self._config.silent)
        limit = max(1, self._config.move_batch // len(shards))  # of each: together one batch
        moved = await self._store.work.move_silent(shards, limit=limit, silent=self._config.silent)
        self._observer.count("actions_moved", moved.count)
        holdings = [HeldShard(shard=shard, lease_guid=NOBODY) for shard in shards]
        lanes = await self._store.work.list_lanes(holdings)
        now, serves = self.pump.time.now(), self._served.serves_lane
        overdue = [lane for lane, at in lanes.items() if at < now and serves(lane)]
        begun = await self.pump.begin_in(overdue, helper_demand)
        if begun:
            self._observer.count("helper_begun", begun)

    # -- what happens meanwhile -------------------------------------------------------------------

    def _felt(self, pulse: HeartbeatResult) -> None:
        self.pump.time.observe(pulse.now)
        self._limits.note_heartbeat(pulse, len(self.leases.shards))
        if self._limits.are_known:
            self._slots.open()
        lost = self.leases.note(pulse)
        self.pump.abandon(lost)
        if lost or self.leases.surplus() or self.leases.is_wanting:
            self._balance.set()

    def _shared(self) -> None:
        if self._limits.are_known:
            self._slots.open()
        self.pump.wake()

    def _ended(
        self, begun: BegunAttempt, finish: FinishRequest, late_s: float, took_s: float
    ) -> None:
        if finish.verdict.scheduled_at is not None:
            need = finish.need or begun.need
            self._lane_of[begun.attempt_id] = begun.lane._replace(need=need)
        if finish.outcome == "abandoned":
            self._observer.count("attempts_abandoned")
        if finish.verdict.reason is not None:
            tell_undecidable(self._observer, finish.id, finish.verdict)
        self._ended_counts[begun.spec.queue, finish.outcome] += 1
        self.pump.tally.ended(begun.spec.queue, finish, late_s, took_s)
        is_armed = bool(begun.waited)
        self._recorder.put(finish, may_wait=is_armed and finish.verdict.scheduled_at is None)

    def _tell_ended(self) -> None:
        """Metrics are for people: once in a tick is often enough."""
        counts, self._ended_counts = self._ended_counts, Counter()
        for (queue, outcome), count in counts.items():
            self._observer.count("attempts_ended", count, queue=queue, outcome=outcome)

    def _dropped(self, finish: FinishRequest) -> None:
        if self._tracing is not None:
            self._tracing.trace_finish(finish.attempt_id, "dropped")
        self._lane_of.pop(finish.attempt_id, None)

    def _recorded(self, finish: FinishRequest, recorded: Recorded) -> None:
        if self._tracing is not None:
            self._tracing.trace_finish(finish.attempt_id, recorded.value)
        if recorded is Recorded.APPLIED and finish.verdict.scheduled_at is None:
            return  # the commonest: nothing follows
        lane = self._lane_of.pop(finish.attempt_id, None)
        at = finish.verdict.scheduled_at
        if recorded is not Recorded.LATE and lane is not None and at is not None:
            if self.leases.holding(lane.shard) is not None:
                self.pump.timeline.note(lane, at)
                self.pump.wake()
            else:
                self._guest.note(at)
        elif recorded is Recorded.LATE:
            self._observer.event("late_result", action=finish.id, outcome=finish.outcome)


def _fitted(config: WorkerConfig, capabilities: Capabilities) -> WorkerConfig:
    """Nothing is armed singly where a look costs as much as a begin."""
    return replace(config, soon=timedelta(0)) if capabilities.pace_s else config
