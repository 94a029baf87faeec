"""One entity is held for half a minute: what its worker does meanwhile, call by call."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Collection
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
import pytest

from gnomon.contracts.env import Env
from gnomon.contracts.observer import SilentObserver
from gnomon.contracts.store.outbox import OutboxRow
from gnomon.model.errors import StoreUnavailable
from gnomon.model.ids import EntityKey
from gnomon.stages import EntityView, Stage, Stages, Update
from gnomon.stages.codec import decode_document
from gnomon.stages.delivery import deliver_in_order
from gnomon.stages.reconciler import DECLARE_EVERY_S
from gnomon.stages.service import StageWorker
from gnomon.stores.sqlite import open_sqlite
from gnomon.testing.faulty import FaultyStore, Watcher
from gnomon.testing.virtual import SeededEntropy, VirtualClock, VirtualLoop, VirtualProcess
from gnomon.worker import Worker
from tests.simulation.held_entities import EntityHolds
from tests.simulation.runner import SimulationRunner
from tests.simulation.staged import CONFIG, SHARD_COUNT, Home

Document = dict[str, Any]
HOLD_S = 30.0
STEPS_S = 0.1
HELD, FREE = "held", "free"
CALLS_A_SECOND_MAX = 100  # of all verbs of the store; some 20 are enough for a worker at rest


class Doubled(Stage[Document, None]):
    """Doubles a number, on request again and again; of a negative one it makes nothing."""

    name, watch, writes = "doubled", ("a",), ("b",)

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    async def process(self, it: EntityView[Document, None]) -> Update[None]:
        self.calls[it.id] += 1
        if it.entity["a"] < 0:
            raise ValueError("negative")
        wake = it.now + timedelta(seconds=2) if it.entity.get("later") else None
        return Update({"b": 2 * it.entity["a"]}, wake=wake)


class Choosy:
    """A receiver that takes nothing of one entity."""

    def __init__(self) -> None:
        self.refused = 0
        self.taken: list[int] = []  # versions of the other

    async def send(self, rows: Collection[OutboxRow]) -> Any:
        return await deliver_in_order(list(rows), self._take)

    async def _take(self, row: OutboxRow) -> None:
        if EntityKey.parse(row.entity_key).id == HELD:
            self.refused += 1
            raise ValueError("no")
        self.taken.append(row.version)

    async def close(self) -> None: ...


class Heard(SilentObserver):
    def __init__(self) -> None:
        self.events: Counter[str] = Counter()

    def event(self, name: str, /, **_fields: object) -> None:
        self.events[name] += 1


class HeldRegister:
    """Nothing can be declared while somebody holds what a new revision frees."""

    def __init__(self, inner: Any, world: HeldWorld) -> None:
        self._inner = inner
        self._world = world

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._inner, verb)

    async def declare(self, stages: Any) -> Any:
        if self._world.is_declaring_held:
            raise StoreUnavailable("declare: another transaction holds it at the moment")
        return await self._inner.declare(stages)


class HeldWorld(Watcher):
    """A worker, two entities, and a hand on one of them."""

    def __init__(self, loop: VirtualLoop, relay: Any = None) -> None:
        self.loop = loop
        self.calls: Counter[str] = Counter()
        self.heard = Heard()
        self.stage = Doubled()
        entropy = SeededEntropy(random.Random(1))
        self.env = Env(clock=VirtualClock(loop), entropy=entropy, observer=self.heard)
        self.runner = SimulationRunner()
        self.holds = EntityHolds(0, [], Counter())
        self.is_declaring_held = False
        self.relay = relay

    def performed(self, store: FaultyStore, verb: str, *_: Any) -> None:
        self.calls[verb] += 1

    async def start(self) -> None:
        inner = open_sqlite(
            ":memory:", clock=self.env.clock, entropy=self.env.entropy, runner=self.runner
        )
        await inner.installation.migrate(shard_count=SHARD_COUNT)
        around = self.holds.around(inner)
        register = HeldRegister(around.register, self)
        store = msgspec.structs.replace(around, register=register)
        faulty = FaultyStore(store, source=random.Random(2), watcher=self)
        home = Home(faulty.store, await inner.installation.open(), self.env)
        self.ads: Stages[Any] = Stages(home, "ad", relay=self.relay)
        self.ads.add(self.stage)
        worker = Worker(
            faulty.store, home.installation, {}, env=self.env, owner="w", config=CONFIG,
            companions=[partial(StageWorker.of, home)],
        )  # fmt: skip
        self.stop = asyncio.Event()
        process = VirtualProcess(self.loop, "w")
        self.task = process.start(worker.work(self.stop), name="w")

    async def end(self) -> None:
        self.stop.set()
        await self.task
        self.runner.connection.close()

    async def until_doubled(self, name: str) -> float:
        """How long it takes until the stage has saved what it made of the entity."""
        began = self.loop.time()
        while True:
            row = self.runner.connection.execute(
                "SELECT doc FROM entity WHERE entity_key = ?", (f"ad/{name}",)
            ).fetchone()
            document = decode_document(row[0])
            if document.get("b") == 2 * document["a"]:
                return self.loop.time() - began
            await asyncio.sleep(STEPS_S)

    def attempts_of(self, name: str) -> int:
        (attempts,) = self.runner.connection.execute(
            "SELECT attempts FROM stage_queue WHERE entity_key = ?", (f"ad/{name}",)
        ).fetchone()
        return int(attempts)


def lived(story: Any, relay: Any = None) -> HeldWorld:
    loop = VirtualLoop()
    try:
        world = HeldWorld(loop, relay)

        async def tell() -> None:
            await world.start()
            await story(world)
            await world.end()

        loop.run_until_complete(tell())
    finally:
        loop.close()
    return world


async def _hold_the_commit(world: HeldWorld) -> None:
    """The change is routed, and then somebody takes the entity, before the stage has answered."""
    await world.ads.put(HELD, {"a": 1})
    await world.ads.put(FREE, {"a": 1})
    await world.until_doubled(HELD)
    world.stage.calls.clear()
    world.calls.clear()
    world.heard.events.clear()
    await world.ads.patch(HELD, {"a": 2})
    while not world.calls["route"]:
        await asyncio.sleep(0)
    world.holds.hold(f"ad/{HELD}")


def test_a_held_commit_waits_alone() -> None:
    """Others are saved at once; the stage is called once, the commit is tried a few times, and soon
    after the transaction is over it is saved."""
    late: list[float] = []

    async def story(world: HeldWorld) -> None:
        await _hold_the_commit(world)
        began = world.loop.time()
        number = 1
        while world.loop.time() < began + HOLD_S:
            number += 1
            await world.ads.patch(FREE, {"a": number})
            late.append(await world.until_doubled(FREE))
            await asyncio.sleep(1.0)
        assert world.holds.tries[f"ad/{HELD}"] < 30
        assert sum(world.calls.values()) < CALLS_A_SECOND_MAX * HOLD_S
        world.holds.release()
        late.append(await world.until_doubled(HELD) / 3)

    world = lived(story)
    assert max(late) <= 1.0
    assert 1 == world.stage.calls[HELD]
    assert 1 == world.heard.events["entity_held"]


def test_a_held_failure_is_counted_once() -> None:
    """It cannot be written that the stage failed: that is tried again, the stage is not."""

    async def story(world: HeldWorld) -> None:
        await world.ads.put(HELD, {"a": 1})
        await world.until_doubled(HELD)
        world.calls.clear()
        await world.ads.patch(HELD, {"a": -1})
        while not world.calls["route"]:
            await asyncio.sleep(0)
        world.stage.calls.clear()
        world.holds.hold(f"ad/{HELD}")
        await asyncio.sleep(HOLD_S)
        assert (1, 0) == (world.stage.calls[HELD], world.attempts_of(HELD))
        world.holds.release()
        while not world.attempts_of(HELD):
            await asyncio.sleep(STEPS_S)
        assert 1 == world.stage.calls[HELD]

    lived(story)


def test_a_held_change_is_routed_soon_after() -> None:
    """Somebody holds what he has just changed in another way; others are asked about at once."""
    late: list[float] = []

    async def story(world: HeldWorld) -> None:
        await world.ads.put(FREE, {"a": 1})
        world.holds.hold(f"ad/{HELD}")
        await world.ads.put(HELD, {"a": 1})
        await asyncio.sleep(HOLD_S)
        assert world.holds.tries[f"ad/{HELD}"] < 60  # by its change, and by the stage's backfill
        await world.ads.patch(FREE, {"a": 2})
        late.append(await world.until_doubled(FREE))
        world.holds.release()
        late.append(await world.until_doubled(HELD) / 3)
        assert sum(world.calls.values()) < CALLS_A_SECOND_MAX * world.loop.time()

    lived(story)
    assert max(late) <= 1.0


def test_what_was_not_taken_is_not_sent_again_while_the_entity_is_held() -> None:
    """It cannot be put off, but it is left out; other saves leave."""
    relay = Choosy()

    async def story(world: HeldWorld) -> None:
        await world.ads.put(FREE, {"a": 1})
        await world.until_doubled(FREE)
        await asyncio.sleep(1)
        await world.ads.put(HELD, {"a": 1})
        world.holds.hold(f"ad/{HELD}")
        await asyncio.sleep(5)
        world.calls.clear()
        refused, taken = relay.refused, len(relay.taken)
        await world.ads.patch(FREE, {"a": 2})
        await asyncio.sleep(HOLD_S)
        assert 1 == refused == relay.refused
        assert taken + 2 == len(relay.taken)
        assert world.calls["put_off"] < HOLD_S
        world.holds.release()
        await asyncio.sleep(5)
        assert 1 < relay.refused

    world = lived(story, relay)
    assert 2 == world.heard.events["entity_held"]  # at its change, and at its save


def test_timers_that_somebody_holds_are_looked_for_calmly() -> None:
    """The store fires none of them, though some are due."""

    async def story(world: HeldWorld) -> None:
        await world.ads.put(HELD, {"a": 1, "later": True})
        await world.until_doubled(HELD)
        world.holds.are_timers_held = True
        await asyncio.sleep(3)
        world.calls.clear()
        await asyncio.sleep(HOLD_S)
        assert HOLD_S < world.calls["fire_timers"] < 10 * HOLD_S
        assert sum(world.calls.values()) < CALLS_A_SECOND_MAX * HOLD_S
        world.holds.are_timers_held = False
        world.stage.calls.clear()
        await asyncio.sleep(1)
        assert 1 == world.stage.calls[HELD]

    lived(story)


@pytest.mark.parametrize("is_routed", [True, False])
def test_what_was_held_for_a_moment_is_late_by_a_moment(*, is_routed: bool) -> None:
    """Nearly everybody who holds an entity is about to commit: nobody waits for the next poll."""
    late: list[float] = []

    async def story(world: HeldWorld) -> None:
        if is_routed:
            await _hold_the_commit(world)
        else:
            await world.ads.put(HELD, {"a": 1})
            await world.until_doubled(HELD)
            await asyncio.sleep(3)  # the backfill of the stage is over
            await world.ads.patch(HELD, {"a": 2})
            world.holds.hold(f"ad/{HELD}")
        while not world.holds.tries:
            await asyncio.sleep(0.001)
        world.holds.release()
        late.append(await world.until_doubled(HELD))

    lived(story)
    assert late[0] <= 2 * STEPS_S


def test_stages_work_though_they_cannot_be_declared() -> None:
    """Somebody holds an entity whose saves a new revision frees; that is tried again calmly."""

    async def story(world: HeldWorld) -> None:
        await world.ads.put(FREE, {"a": 1})
        await world.until_doubled(FREE)
        world.is_declaring_held = True
        await asyncio.sleep(DECLARE_EVERY_S + 5)
        assert 2 < world.heard.events["reconcile_failed"] < 10
        await world.ads.patch(FREE, {"a": 2})
        assert 1.0 >= await world.until_doubled(FREE)

    lived(story)
