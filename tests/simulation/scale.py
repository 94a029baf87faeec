"""Many workers and many shards in virtual time: how soon every shard has an owner, what becomes of
those of a machine that is lost, and what all the looking costs the database.

    python -m tests.simulation.scale --workers 1000 --shards 4096
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sized
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from gnomon.contracts.env import Env
from gnomon.contracts.executor import AttemptRequest
from gnomon.model.need import kind_need
from gnomon.model.outcome import Outcome, Succeeded
from gnomon.model.spec import Mock, Once, Spec
from gnomon.scheduler import Request, Scheduler
from gnomon.stores.sqlite import open_sqlite
from gnomon.testing.faulty import Arguments, FaultyStore, Misfortune, Watcher
from gnomon.testing.virtual import SeededEntropy, VirtualClock, VirtualLoop, VirtualProcess
from gnomon.worker import Worker
from tests.simulation.runner import SimulationRunner

START_S = 2.0  # all workers of a fleet are started within this
STEADY_S = 10.0
LOOK_EVERY_S = 0.1
PHASE_MAX_S = 120.0
ROUND_TRIP_S = 0.002  # to the database, at most
AHEAD_S = 1.0  # actions are created so long before they are due
LOADED_VERBS = 12  # so many are shown


@dataclass
class Phase:
    """What one phase showed."""

    name: str
    took_s: float | None = None  # None: it did not end within PHASE_MAX_S
    virtual_s: float = 0.0
    calls: Counter[str] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)
    asked: int = 0  # for shards
    late_s: list[float] = field(default_factory=list)

    def late(self, part: float) -> float | None:
        """A quantile of the lateness, in seconds."""
        ranked = sorted(self.late_s)
        return ranked[min(len(ranked) - 1, int(part * len(ranked)))] if ranked else None

    def per_second(self, counts: Counter[str]) -> Counter[str]:
        return Counter({verb: round(count / self.virtual_s) for verb, count in counts.items()})


class ScaleWorld(Watcher):
    """A fleet of workers, one user, and a database that counts what it is asked."""

    def __init__(self, loop: VirtualLoop, *, workers: int, shards: int, rate: float) -> None:
        self.loop = loop
        self.workers = workers
        self.shards = shards
        self.rate = rate
        self.dice = random.Random(1)
        self.entropy = SeededEntropy(random.Random(2))
        self.clock = VirtualClock(loop)
        self.phases: list[Phase] = []
        self.fleet: list[_Member] = []
        self.early = 0
        self.created = 0
        self.performed_count = 0

    # -- what the database sees -------------------------------------------------------------------

    def performed(self, store: FaultyStore, verb: str, arguments: Arguments, result: Any) -> None:
        phase = self.phases[-1]
        phase.calls[verb] += 1
        phase.rows[verb] += len(result) if isinstance(result, Sized) else 1
        phase.asked += len(arguments.args[0]) if verb == "acquire" else 0

    def executed(self, order: AttemptRequest) -> None:
        """An action is performed: how late?"""
        late_s = (self.clock.now() - order.scheduled_at).total_seconds()
        self.phases[-1].late_s.append(late_s)
        self.performed_count += 1
        self.early += late_s < 0

    # -- the course of it -------------------------------------------------------------------------

    async def run(self) -> None:
        await self._build()
        await self._phase("start", self._start(self.workers), self._is_balanced)
        using = self.loop.create_task(self._use(), name="user")
        await self._phase("steady", _nothing, self._after(STEADY_S))
        lost = self.workers // 10
        await self._phase(f"{lost} lost at once", self._lose(lost), self._is_balanced)
        await self._phase("steady again", _nothing, self._after(STEADY_S))
        await self._phase(f"{lost} join", self._start(lost), self._is_balanced)
        using.cancel()
        await self._phase("rest", _nothing, self._is_done)
        self._raise_what_ended()
        for member in self.fleet:
            member.kill()
        await asyncio.sleep(0.001)
        self.runner.connection.close()

    async def _build(self) -> None:
        self.runner = SimulationRunner()
        self.store = open_sqlite(
            ":memory:", clock=self.clock, entropy=self.entropy, runner=self.runner
        )
        await self.store.installation.migrate(shard_count=self.shards)
        self.installation = await self.store.installation.open()
        self.scheduler = Scheduler(
            self.store, self.installation, clock=self.clock, entropy=self.entropy
        )

    async def _phase(
        self, name: str, begin: Callable[[], None], is_over: Callable[[], bool]
    ) -> None:
        phase, began_at, watch = Phase(name), self.loop.time(), time.monotonic()
        self.phases.append(phase)
        begin()
        while self.loop.time() - began_at < PHASE_MAX_S:
            await asyncio.sleep(LOOK_EVERY_S)
            if is_over():
                phase.took_s = self.loop.time() - began_at
                break
        phase.virtual_s = self.loop.time() - began_at
        self._raise_what_ended()
        took = "did not end" if phase.took_s is None else f"{phase.took_s:.1f} s"
        print(f"{name}: {took} ({time.monotonic() - watch:.0f} s real)", file=sys.stderr)

    def _start(self, count: int) -> Callable[[], None]:
        def begin() -> None:
            for _ in range(count):
                member = _Member(self, f"w{len(self.fleet)}")
                self.fleet.append(member)
                self.loop.call_later(self.dice.uniform(0, START_S), member.start)

        return begin

    def _lose(self, count: int) -> Callable[[], None]:
        """Machines are cut off, with all that runs on them: nobody can prove that it is dead."""

        def begin() -> None:
            for member in self.dice.sample(self._living(), count):
                member.kill()

        return begin

    def _living(self) -> list[_Member]:
        return [member for member in self.fleet if member.is_alive]

    def _after(self, for_s: float) -> Callable[[], bool]:
        def is_over() -> bool:
            phase = self.phases[-1]
            phase.virtual_s += LOOK_EVERY_S
            return phase.virtual_s >= for_s

        return is_over

    def _is_balanced(self) -> bool:
        """Every shard has an owner that lives, and nobody holds more than its share."""
        living = self._living()
        if any(member.task is None for member in living):
            return False
        held = [len(member.worker.leases.shards) for member in living]
        share = -(-self.shards // len(living))
        return sum(held) == self.shards and max(held) <= share

    def _is_done(self) -> bool:
        return self.performed_count >= self.created

    def _raise_what_ended(self) -> None:
        for member in self._living():
            if member.task is not None and member.task.done():
                member.task.result()

    # -- the user ---------------------------------------------------------------------------------

    async def _use(self) -> None:
        while True:
            at = self.clock.now() + timedelta(seconds=AHEAD_S)
            spec = Spec(action=Mock(), policy=Once(), start_at=at)
            await self.scheduler.create(Request(spec=spec, id=f"a{self.created}"))
            self.created += 1
            await asyncio.sleep(self.dice.expovariate(self.rate))


def _nothing() -> None:
    """The fleet is left alone."""


class _Member:
    """One worker on a machine of its own."""

    def __init__(self, world: ScaleWorld, name: str) -> None:
        self._world = world
        self._faulty = FaultyStore(
            world.store,
            source=random.Random(world.dice.random()),
            misfortune=Misfortune(delay_s=ROUND_TRIP_S),
            watcher=world,
            name=name,
        )
        self._process = VirtualProcess(world.loop, name)
        self.task: asyncio.Task[Any] | None = None
        self.worker = Worker(
            self._faulty.store,
            world.installation,
            {Mock: _Clocked(world)},
            env=Env(clock=VirtualClock(world.loop), entropy=world.entropy),
            owner=name,
        )

    @property
    def is_alive(self) -> bool:
        return not self._process.dead

    def start(self) -> None:
        self.task = self._process.start(self.worker.work(asyncio.Event()), name="worker")

    def kill(self) -> None:
        self._faulty.is_dead = True
        self._process.kill()


class _Clocked:
    """Performs mocks, and tells the world when."""

    def __init__(self, world: ScaleWorld) -> None:
        self._world = world

    def serves(self, need: str) -> bool:
        return need == kind_need("mock")

    async def execute(self, order: AttemptRequest) -> Outcome:
        self._world.executed(order)
        return Succeeded()

    async def close(self) -> None: ...


def run_scale(*, workers: int, shards: int, rate: float) -> ScaleWorld:
    """Live through it once."""
    loop = VirtualLoop()
    was_enabled = gc.isenabled()
    gc.disable()
    world = ScaleWorld(loop, workers=workers, shards=shards, rate=rate)
    try:
        loop.run_until_complete(world.run())
    finally:
        loop.close()
        if was_enabled:
            gc.enable()
    return world


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.scale", description=__doc__)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--shards", type=int, default=4096)
    parser.add_argument("--rate", type=float, default=200.0, help="actions a second")
    options = parser.parse_args(arguments)
    world = run_scale(workers=options.workers, shards=options.shards, rate=options.rate)
    for phase in world.phases:
        calls, rows = phase.per_second(phase.calls), phase.per_second(phase.rows)
        print(f"\n{phase.name}")
        for verb, count in calls.most_common(LOADED_VERBS):
            print(f"  {verb:24} {count:8} calls/s {rows[verb]:10} rows/s")
        summary = {
            "phase": phase.name,
            "took_s": phase.took_s and round(phase.took_s, 1),
            "calls_per_s": calls.total(),
            "rows_per_s": rows.total(),
            "performed": len(phase.late_s),
            "late_p50_s": phase.late(0.5),
            "late_p99_s": phase.late(0.99),
            "late_max_s": phase.late(1.0),
        }
        print(json.dumps(summary))
    print(json.dumps({"created": world.created, "early": world.early}), flush=True)
    return 1 if world.early or any(phase.took_s is None for phase in world.phases) else 0


if __name__ == "__main__":
    sys.exit(main())
