"""A long quiet life in virtual time: everything is used at a steady rate and kept for a minute, and
everything that can grow is measured, in the database and in memory."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from types import MethodType
from typing import Any

import msgspec

from gnomon.contracts.env import Env
from gnomon.contracts.store.outbox import OutboxRow
from gnomon.executors.mock import MockExecutor
from gnomon.model.errors import Conflict, NotFound
from gnomon.model.spec import Mock, Periodic, Retry, Spec
from gnomon.scheduler import Request, Scheduler, SchedulerConfig
from gnomon.stages import EntityView, Stage, Stages, Update
from gnomon.stages.delivery import deliver_in_order
from gnomon.stages.service import StageWorker
from gnomon.stores.sqlite import open_sqlite
from gnomon.testing.virtual import SeededEntropy, VirtualClock, VirtualLoop, VirtualProcess
from gnomon.worker import Worker, WorkerConfig
from tests.simulation.runner import SimulationRunner
from tests.simulation.staged import Home

MINUTE_S = 60.0
MINUTE = timedelta(minutes=1)
TICK_S = 1.0
ACTIONS_A_TICK = 5
ENTITIES = 20
SHARD_COUNT = 3
LOOK_EVERY_S = 10.0
DEPTH_MAX = 12
VALUES_MAX = 20  # of a collection, looked into
CONFIG = WorkerConfig(poll=timedelta(seconds=1), purge=MINUTE, helpers=False)

Sizes = dict[str, int]


class Kept(Stage[dict[str, Any], int]):
    """Keeps a state and writes a field; now and then it sleeps."""

    name, watch, writes = "kept", ("a",), ("kept",)

    def should_process(self, it: EntityView[dict[str, Any], int]) -> bool:
        return bool(it.entity.get("kept") != it.entity["a"])

    async def process(self, it: EntityView[dict[str, Any], int]) -> Update[int]:
        return Update({"kept": it.entity["a"]}, state=(it.state or 0) + 1)


class Taking:
    """A receiver that takes every save."""

    async def send(self, rows: Collection[OutboxRow]) -> Any:
        return await deliver_in_order(list(rows), self._take)

    async def _take(self, row: OutboxRow) -> None: ...

    async def close(self) -> None: ...


class GrowingWorld:
    """One worker, one user, and somebody who measures."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.dice = random.Random(1)
        self.entropy = SeededEntropy(random.Random(2))
        self.env = Env(clock=VirtualClock(loop), entropy=self.entropy)
        self.runner = SimulationRunner()
        self.tables: list[tuple[float, Sizes]] = []
        self.memory: list[tuple[float, Sizes]] = []
        self.used = 0

    async def run(self, minutes: float) -> None:
        await self._build()
        process = VirtualProcess(self.loop, "worker")
        stop = asyncio.Event()
        working = process.start(self.worker.work(stop), name="worker")
        using = self.loop.create_task(self._use())
        while self.loop.time() < minutes * MINUTE_S:
            await asyncio.sleep(LOOK_EVERY_S)
            for task in (working, using):
                if task.done():
                    task.result()  # says why
            self.tables.append((self.loop.time(), self._count_rows()))
            self.memory.append((self.loop.time(), sizes_of(self.worker, self.scheduler)))
        using.cancel()
        stop.set()
        await working
        self.runner.connection.close()

    async def _build(self) -> None:
        store = open_sqlite(
            ":memory:",
            clock=self.env.clock,
            entropy=self.entropy,
            runner=self.runner,
            attempts_kept_for=MINUTE,
            audit_kept_for=MINUTE,
        )
        await store.installation.migrate(shard_count=SHARD_COUNT)
        installation = await store.installation.open()
        home = Home(store, installation, self.env)
        self.stages: Stages[Any] = Stages(home, "ad", relay=Taking())
        self.stages.add(Kept())
        self.scheduler = Scheduler(
            store,
            installation,
            clock=self.env.clock,
            entropy=self.entropy,
            config=SchedulerConfig(retention=MINUTE),
        )
        self.worker = Worker(
            store,
            installation,
            {Mock: MockExecutor()},
            env=self.env,
            owner="w",
            config=CONFIG,
            companions=[partial(StageWorker.of, home)],
        )

    # -- the user ---------------------------------------------------------------------------------

    async def _use(self) -> None:
        for number in range(ENTITIES):
            await self.stages.entities.put("ad", f"e{number}", {"a": 0})
        for number in range(3):
            spec = Spec(action=Mock(), policy=Periodic(period=timedelta(seconds=5)))
            await self.scheduler.create(Request(spec=spec, id=f"periodic{number}"))
        while True:
            self.used += 1
            with suppress(Conflict):  # with a stage or an attempt, now and then
                await self._use_actions(self.used)
                await self._use_entities(self.used)
            await asyncio.sleep(TICK_S)

    async def _use_actions(self, tick: int) -> None:
        """Plain ones, one that fails first, one in a queue of its own, one that is taken back, one
        that is changed."""
        later = self.env.clock.now() + timedelta(hours=1)
        retry = Retry(max=3)
        specs = [
            *(Spec(action=Mock()) for _ in range(ACTIONS_A_TICK - 2)),
            Spec(action=Mock(fail=1), retry=retry),
            Spec(action=Mock(), queue=f"queue{tick}"),
        ]
        await self.scheduler.create_many([Request(spec=spec) for spec in specs])
        far = Request(spec=Spec(action=Mock(), start_at=later), id=f"far{tick}")
        await self.scheduler.create(far)
        await self.scheduler.replace(Request(spec=far.spec, id=f"far{tick}"))
        await self.scheduler.delete(f"far{tick}")
        verb = self.scheduler.pause if tick % 2 else self.scheduler.resume
        await verb("periodic0")

    async def _use_entities(self, tick: int) -> None:
        entities = self.stages.entities
        name = f"e{tick % ENTITIES}"
        try:
            await entities.patch("ad", name, {"a": tick})
        except NotFound:
            await entities.put("ad", name, {"a": tick})
        if tick % 7 == 0:
            await entities.delete("ad", name)

    # -- the measure ------------------------------------------------------------------------------

    def _count_rows(self) -> Sizes:
        connection = self.runner.connection
        return {
            table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in tables_of(self.runner)
        }


def tables_of(runner: SimulationRunner) -> list[str]:
    found = runner.connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    )
    return [name for (name,) in found]


def live(minutes: float) -> GrowingWorld:
    """Live through so many minutes."""
    loop = VirtualLoop()
    try:
        world = GrowingWorld(loop)
        loop.run_until_complete(world.run(minutes))
    finally:
        loop.close()
    return world


def sizes_of(*roots: object) -> Sizes:
    """The largest size of every collection that an object of ours holds, by its class and name."""
    found: Sizes = {}
    seen: set[int] = set()
    waiting: deque[tuple[object, int]] = deque((root, 0) for root in roots)
    while waiting:
        thing, depth = waiting.popleft()
        if id(thing) in seen or depth > DEPTH_MAX:
            continue
        seen.add(id(thing))
        for name, value in _attributes(thing):
            if isinstance(value, dict | list | set | deque):
                place = f"{type(thing).__name__}.{name}"
                found[place] = max(found.get(place, 0), len(value))
            waiting.extend((inner, depth + 1) for inner in _inside(value))
    return found


def _attributes(thing: object) -> Iterator[tuple[str, Any]]:
    """Of our own classes only."""
    kind = type(thing)
    if not kind.__module__.startswith("gnomon.") or isinstance(thing, msgspec.Struct):
        if isinstance(thing, msgspec.Struct) and kind.__name__ == "Store":
            yield from ((name, getattr(thing, name)) for name in thing.__struct_fields__)
        return
    names = [*getattr(thing, "__dict__", {})]
    for base in kind.__mro__:
        names += [name for name in getattr(base, "__slots__", ()) if hasattr(thing, name)]
    for name in names:
        yield name, getattr(thing, name)


def _inside(value: object) -> Iterator[object]:
    """What can be reached through a value."""
    if isinstance(value, Mapping):
        for key, inner in [*value.items()][:VALUES_MAX]:
            yield from (*_inside(key), *_inside(inner))
    elif isinstance(value, list | set | frozenset | tuple | deque):
        for inner in [*value][:VALUES_MAX]:
            yield from _inside(inner)
    elif isinstance(value, MethodType):
        yield value.__self__
    elif isinstance(value, partial):
        yield from _inside(value.func)
    else:
        yield value
