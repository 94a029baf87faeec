"""Real workers in virtual time that share limits, and an executor that counts who overlaps."""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from types import MappingProxyType
from typing import Any

import msgspec

from gnomon.contracts.env import Env
from gnomon.contracts.executor import AttemptRequest
from gnomon.contracts.observer import Observer, SilentObserver
from gnomon.contracts.store import HeartbeatResult, LeaseStore, Store
from gnomon.model.errors import Unavailable
from gnomon.model.limits import Limit, LimitKey, LimitKind
from gnomon.model.outcome import Outcome, Succeeded
from gnomon.model.spec import Effect, Kafka, Mock, Spec
from gnomon.scheduler import Request, Scheduler
from gnomon.stores.sqlite import open_sqlite
from gnomon.testing.faulty import FaultyStore, Misfortune
from gnomon.testing.virtual import SeededEntropy, VirtualClock, VirtualLoop, VirtualProcess
from gnomon.worker import Worker, WorkerConfig
from tests.simulation.runner import SimulationRunner

SHARD_COUNT = 8
FAR_S = 600.0
KINDS: tuple[type[Effect], ...] = (Mock, Kafka)


@dataclass(slots=True)
class Start:
    """An attempt reached the executor."""

    at: float
    process: str
    id: str
    kind: str
    late_s: float
    until: float = math.inf


class Receiver:
    """Takes a while for each attempt, and knows how many are with it at once."""

    def __init__(self, loop: VirtualLoop, took_s: Callable[[AttemptRequest], float]) -> None:
        self._loop = loop
        self._took_s = took_s
        self._clock = VirtualClock(loop)
        self.present: Counter[str] = Counter()  # by kind
        self.most: Counter[str] = Counter()
        self.starts: list[Start] = []
        self.ended = 0

    def reset_most(self) -> None:
        self.most.clear()

    async def execute(self, process: VirtualProcess, order: AttemptRequest) -> Outcome:
        kind = _kind_of(order.effect)
        late_s = (self._clock.now() - order.scheduled_at).total_seconds()
        start = Start(self._loop.time(), process.name, order.id, kind, late_s)
        self.starts.append(start)
        self.present[kind] += 1
        self.most[kind] = max(self.most[kind], self.present[kind])
        try:
            await asyncio.sleep(self._took_s(order))
        finally:
            self.present[kind] -= 1  # also when its process is killed
            start.until = self._loop.time()
        self.ended += 1
        return Succeeded()

    def most_within(self, window_s: float, kind: str = "mock") -> int:
        """The most starts in any window of this length."""
        times = [start.at for start in self.starts if start.kind == kind]
        return max(
            (sum(begin <= at < begin + window_s for at in times) for begin in times), default=0
        )


def most_at_once(starts: Sequence[Start]) -> int:
    """How many of these overlapped."""
    changes = sorted([(start.at, 1) for start in starts] + [(start.until, -1) for start in starts])
    return max(accumulate(change for _, change in changes))


def _kind_of(effect: Effect) -> str:
    return effect.target if isinstance(effect, Kafka) else "mock"


class _Executor:
    def __init__(
        self, receiver: Receiver, process: VirtualProcess, kinds: Collection[type[Effect]]
    ) -> None:
        self._receiver = receiver
        self._process = process
        self._needs = tuple("kind mock" if kind is Mock else "kafka target " for kind in kinds)

    def serves(self, need: str) -> bool:
        return need.startswith(self._needs)

    async def execute(self, order: AttemptRequest) -> Outcome:
        return await self._receiver.execute(self._process, order)

    async def close(self) -> None: ...


class _SlowHeart:
    """Leases whose heartbeats take a while."""

    def __init__(self, leases: LeaseStore, heartbeat_s: float) -> None:
        self._leases = leases
        self._heartbeat_s = heartbeat_s

    def __getattr__(self, name: str) -> Any:
        return getattr(self._leases, name)

    async def heartbeat(self, *args: Any, **named: Any) -> HeartbeatResult:
        await asyncio.sleep(self._heartbeat_s)
        return await self._leases.heartbeat(*args, **named)


class Member:
    """One worker process."""

    def __init__(self, stage: Stage, name: str) -> None:
        self.process = VirtualProcess(stage.loop, name)
        self.store = FaultyStore(
            stage.store, source=random.Random(name), misfortune=stage.misfortune, name=name
        )
        self.stop = asyncio.Event()
        kinds = [kind for kind in KINDS if kind is not stage.lacking.get(name)]
        executor = _Executor(stage.receiver, self.process, kinds)
        leases: Any = _SlowHeart(self.store.store.leases, stage.heartbeat_s)
        self.worker = Worker(
            msgspec.structs.replace(self.store.store, leases=leases),
            stage.scheduler.installation,
            dict.fromkeys(kinds, executor),
            env=Env(
                clock=VirtualClock(stage.loop, booted_s=1e3),
                entropy=stage.entropy,
                observer=stage.observer,
            ),
            owner=name,
            config=stage.config,
        )
        self.task = self.process.start(self._live(), name=name)

    async def _live(self) -> None:
        while True:
            try:
                await self.worker.work(self.stop)
            except Unavailable:
                await asyncio.sleep(0.1)  # it could not even start
            else:
                return

    def kill(self) -> None:
        self.store.is_dead = True
        self.process.kill()


class Stage:
    """The store, the workers and the receiver."""

    def __init__(
        self,
        loop: VirtualLoop,
        *,
        took_s: Callable[[AttemptRequest], float] | float = 0.3,
        misfortune: Misfortune | None = None,
        config: WorkerConfig | None = None,
        heartbeat_s: float = 0.0,
        observer: Observer | None = None,
        lacking: Mapping[str, type[Effect]] = MappingProxyType({}),  # by member
    ) -> None:
        self.lacking = lacking
        self.loop = loop
        self.observer = observer or SilentObserver()
        self.heartbeat_s = heartbeat_s
        self.config = config or WorkerConfig(concurrency=20)
        self.entropy = SeededEntropy(random.Random(7))
        self.misfortune = misfortune or Misfortune(delay_s=0.004)
        if isinstance(took_s, int | float):
            fixed = float(took_s)
            self.receiver = Receiver(loop, lambda _: fixed)
        else:
            self.receiver = Receiver(loop, took_s)
        self.members: list[Member] = []
        self._ids = 0

    async def open(self, member_count: int = 3) -> None:
        clock = VirtualClock(self.loop)
        self.runner = SimulationRunner()
        self.store: Store = open_sqlite(
            ":memory:", clock=clock, entropy=self.entropy, runner=self.runner
        )
        await self.store.installation.migrate(shard_count=SHARD_COUNT)
        installation = await self.store.installation.open()
        self.scheduler = Scheduler(self.store, installation, clock=clock, entropy=self.entropy)
        self.members = [Member(self, f"w{number}") for number in range(member_count)]

    async def close(self) -> None:
        for member in self.members:
            member.kill()
        await asyncio.sleep(0.001)
        self.runner.connection.close()

    async def settle(self) -> None:
        """Until every worker has its share of the shards."""
        least = SHARD_COUNT // len(self.members)
        await self.until(
            lambda: (
                all(len(member.worker.leases.shards) >= least for member in self.members)
                and sum(len(member.worker.leases.shards) for member in self.members) == SHARD_COUNT
            )
        )

    async def until(self, condition: Callable[[], bool], within_s: float = FAR_S) -> float:
        """Wait in virtual time; how long it took."""
        started = self.loop.time()
        while not condition():
            assert self.loop.time() - started < within_s, "it did not happen"
            await asyncio.sleep(0.01)
        return self.loop.time() - started

    async def create(
        self, count: int, *, queue: str = "default", target: str | None = None, **spec: Any
    ) -> None:
        effect: Effect = Mock() if target is None else Kafka(target=target, topic="t", value="v")
        first, self._ids = self._ids, self._ids + count
        ids = [f"a{number}" for number in range(first, first + count)]
        await self.create_named(ids, Spec(action=effect, queue=queue, **spec))

    async def create_named(self, ids: Sequence[str], spec: Spec | None = None) -> None:
        made = spec or Spec(action=Mock())
        await self.scheduler.create_many([Request(id=name, spec=made) for name in ids])

    async def limit(self, kind: str, name: str, **fields: Any) -> None:
        limit = Limit(kind=LimitKind(kind), name=name, **fields)
        await self.store.limits.set(limit, guid=self.entropy.guid())

    async def drop(self, kind: str, name: str) -> None:
        key = LimitKey(LimitKind(kind), name)
        assert await self.store.limits.delete(key, guid=self.entropy.guid())


def play(scene: Callable[[Stage], Coroutine[Any, Any, None]], **stage: Any) -> None:
    """Perform a scene in virtual time."""
    loop = VirtualLoop()
    strays: list[object] = []
    loop.set_exception_handler(lambda _, context: strays.append(context))

    async def playing() -> None:
        made = Stage(loop, **stage)
        await made.open()
        try:
            await scene(made)
        finally:
            await made.close()

    try:
        loop.run_until_complete(playing())
    finally:
        loop.close()
    assert [] == strays
