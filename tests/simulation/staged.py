"""One seed, one world of entities: real workers with drawn stages in virtual time, bad luck, and a
sequential model that says what every entity must be in the end.

Stages are drawn as an acyclic graph of pure functions, each of which owns one field; so whatever
the order of events, there is one document that all of them agree on.
"""

from __future__ import annotations

import asyncio
import random
import zlib
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec

from gnomon.contracts.env import Env
from gnomon.contracts.store import Installation, Store
from gnomon.contracts.store.entities import StateWrite
from gnomon.contracts.store.outbox import OutboxRow
from gnomon.model.errors import NotFound, StoreUnavailable, Unavailable
from gnomon.model.ids import EntityKey
from gnomon.stages import EntityView, SavedVersion, Stage, Stages, Update, Wake
from gnomon.stages.codec import decode_document
from gnomon.stages.config import StagesConfig
from gnomon.stages.delivery import deliver_in_order
from gnomon.stages.entities import Entities
from gnomon.stages.service import StageWorker
from gnomon.stores.sqlite import open_sqlite
from gnomon.testing.faulty import FaultyStore, Misfortune, Watcher
from gnomon.testing.virtual import (
    EPOCH,
    SeededEntropy,
    VirtualClock,
    VirtualLoop,
    VirtualProcess,
)
from gnomon.worker import Worker, WorkerConfig
from tests.simulation.held_entities import EntityHolds
from tests.simulation.runner import SimulationRunner

Document = dict[str, Any]
It = EntityView[Document, Any]

AD, ORDER = "ad", "order"
SHARD_COUNT = 3
TROUBLE_S = 10.0
REST_MAX_S = 200.0  # of intact worlds none needed 30
CONFIG = WorkerConfig(
    lease=timedelta(seconds=4),
    heartbeat=timedelta(seconds=0.4),
    step_down=timedelta(seconds=1.2),
    grace=timedelta(seconds=1),
    poll=timedelta(seconds=1),
    silent=timedelta(seconds=1.2),
    drain=timedelta(seconds=2),
    helpers=False,
)
STAGES_CONFIG = StagesConfig(
    failures_max=1_000,
    retry_min=timedelta(seconds=0.2),
    retry_max=timedelta(seconds=2),
    call_timeout=timedelta(seconds=10),
)
DANGEROUS = {
    "commit", "route", "write", "fire_timers", "give_back", "remove", "advance_backfill",
    "swap_state",
}  # fmt: skip


def value_of(*inputs: object) -> int:
    """What stages compute: any function would do."""
    return zlib.crc32(repr(inputs).encode()) % 1_000


@dataclass(frozen=True, slots=True)
class Plan:
    """One drawn stage: its field is a function of other fields."""

    name: str
    inputs: tuple[str, ...]
    batch: int
    alongside: bool
    is_choosy: bool  # asks itself whether there is anything to do
    is_pushy: bool  # wants to hear of its saves

    def value(self, document: Document) -> int:
        return value_of(self.name, *(document.get(name) for name in self.inputs))


class _Function(Stage[Document, Any]):
    """A stage as drawn."""

    def __init__(self, plan: Plan, world: StagedWorld) -> None:
        self._plan = plan
        self._world = world

    def should_process(self, it: It) -> bool:
        wanted = self._plan.value(it.entity)
        return not self._plan.is_choosy or it.entity.get(self._plan.name) != wanted

    async def process(self, it: It) -> Update[Any]:
        await self._world.struck(self._plan.name)
        return Update({self._plan.name: self._plan.value(it.entity)})


class _Pushy(_Function):
    """The same, with a push."""

    async def after_save(self, saved: SavedVersion[Document, Any]) -> None:
        await self._world.struck("push")
        if not saved.deleted:
            key = str(EntityKey(saved.kind, saved.id))
            self._world.told[self._plan.name].add((key, saved.key.split("/")[2]))


def stage_of(plan: Plan, world: StagedWorld) -> Stage[Document, Any]:
    base = _Pushy if plan.is_pushy else _Function
    options = {
        "name": plan.name, "watch": plan.inputs, "writes": (plan.name,), "batch": plan.batch,
        "alongside": plan.alongside,
    }  # fmt: skip
    made = type(f"Drawn_{plan.name}", (base,), options)
    found: Stage[Document, Any] = made(plan, world)
    return found


class Timed(Stage[Document, None]):
    """Takes over `a` at the second that `a` names."""

    name, watch, writes = "timed", ("a",), ("timed",)

    def should_process(self, it: EntityView[Document, None]) -> bool | Wake:
        return it.entity.get("timed") != it.entity["a"] and Wake(self._at(it))

    async def process(self, it: EntityView[Document, None]) -> Update[None]:
        if it.now < self._at(it):
            return Update(wake=self._at(it))
        return Update({"timed": it.entity["a"]}, wake=None)

    def _at(self, it: EntityView[Document, None]) -> Any:
        return EPOCH + timedelta(seconds=it.entity["a"])


class Stated(Stage[Document, int]):
    """Adds what others put into its state."""

    name, watch, writes = "stated", ("b",), ("stated",)

    def should_process(self, it: EntityView[Document, int]) -> bool:
        return bool(it.entity.get("stated") != self._value(it))

    async def process(self, it: EntityView[Document, int]) -> Update[int]:
        return Update({"stated": self._value(it)})

    def _value(self, it: EntityView[Document, int]) -> int:
        return int(it.entity["b"]) + 1_000 * (it.state or 0)


class Ordered(Stage[Document, None]):
    """Looks after the other kind, whose entities have the same ids and fields."""

    name, watch, writes = "ordered", ("a",), ("ordered",)

    async def process(self, it: EntityView[Document, None]) -> Update[None]:
        return Update({"ordered": value_of(it.kind, it.entity["a"])})


def draw_plans(dice: random.Random) -> list[Plan]:
    """An acyclic graph: each stage reads fields of users and of stages before it."""
    plans: list[Plan] = []
    for number in range(dice.randint(2, 4)):
        known = ["a", "b", "c", *(plan.name for plan in plans)]
        inputs = dice.sample(known, dice.randint(1, min(3, len(known))))
        plans.append(
            Plan(
                name=f"s{number}",
                inputs=tuple(inputs),
                batch=dice.choice((1, 1, 4)),
                alongside=dice.random() < 0.2,
                is_choosy=dice.random() < 0.5,
                is_pushy=dice.random() < 0.5,
            )
        )
    return plans


@dataclass(slots=True)
class Wanted:
    """What users have made of an entity, as far as they were answered."""

    fields: Document | None = None
    state: int = 0
    was_deleted: bool = False


class Home:
    """Where one process's stages live."""

    def __init__(self, store: Store, installation: Installation, env: Env) -> None:
        self.store = store
        self.installation = installation
        self.env = env
        self.stages_config = STAGES_CONFIG
        self.attached: list[Stages[Any]] = []


class Node:
    """One worker's machine."""

    def __init__(self, world: StagedWorld, name: str) -> None:
        self._world = world
        self._name = name
        self._starts = 0
        self.start()

    def start(self) -> None:
        world = self._world
        self._starts += 1
        owner = f"{self._name}.{self._starts}"
        self.process = VirtualProcess(world.loop, owner)
        self.store = FaultyStore(
            world.holds.around(world.store),
            source=random.Random(world.dice.random()),
            misfortune=world.misfortune,
            watcher=world,
            name=owner,
        )
        world.node_of[owner] = self
        env = Env(clock=VirtualClock(world.loop, booted_s=1e3), entropy=world.entropy)
        home = Home(self.store.store, world.installation, env)
        relay = world.relay if world.relays_here() else None
        ads: Stages[Any] = Stages(home, AD, relay=relay)
        orders: Stages[Any] = Stages(home, ORDER)
        for stage in world.stages_served():
            (orders if isinstance(stage, Ordered) else ads).add(stage)
        self.stop = asyncio.Event()
        worker = Worker(
            self.store.store,
            world.installation,
            {},
            env=env,
            owner=owner,
            config=CONFIG,
            companions=[partial(StageWorker.of, home)],
        )
        self.task = self.process.start(self._live(worker), name=owner)

    async def _live(self, worker: Worker) -> None:
        try:
            await worker.work(self.stop)
        except StoreUnavailable:
            self._world.loop.call_soon(self.crash)  # it could not even start
        except asyncio.CancelledError:
            raise
        except BaseException as exc:
            self._world.violations.append(f"a worker raised {exc!r}")
            raise

    def crash(self) -> None:
        if self.process.dead:
            return
        self._world.coverage["crash"] += 1
        self.store.is_dead = True
        self.process.kill()
        self._world.loop.call_later(self._world.dice.uniform(0.1, 6), self._come_back)

    def _come_back(self) -> None:
        if not self._world.is_over:
            self.start()


class Relayed:
    """Takes every save, now and then refuses one, and sees to the order."""

    def __init__(self, world: StagedWorld) -> None:
        self._world = world
        self.versions: dict[tuple[str, int], int] = {}
        self.by_stage: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)

    async def send(self, rows: Sequence[OutboxRow]) -> Sequence[Exception | None]:
        return await deliver_in_order(rows, self._take)

    async def _take(self, row: OutboxRow) -> None:
        await self._world.struck("relay")
        place = (row.entity_key, row.epoch)
        last = self.versions.get(place, 0)
        if row.version > last + 1:
            self._world.violations.append(f"{place}: version {row.version} after {last}")
        if row.version < last:
            self._world.coverage["repeated save"] += 1
        self.versions[place] = max(last, row.version)
        if row.author.startswith("stage:") and row.paths:
            saved = (row.entity_key, row.key.split("/")[2])
            self.by_stage[row.author.removeprefix("stage:")].add(saved)

    async def close(self) -> None: ...


class StagedWorld(Watcher):
    """All of it."""

    def __init__(self, seed: int, loop: VirtualLoop) -> None:
        self.loop = loop
        self.dice = dice = random.Random(seed)
        self.violations: list[str] = []
        self.coverage: Counter[str] = Counter()
        self.holds = EntityHolds(seed, self.violations, self.coverage)
        self.told: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        self.node_of: dict[str, Node] = {}
        self.is_over = False
        self.is_fair = False
        self.plans = draw_plans(dice)
        self.entropy = SeededEntropy(random.Random(dice.random()))
        self.relay = Relayed(self)
        self.misfortune = Misfortune(
            delay_s=dice.choice((0.002, 0.05, 0.2)),
            refused=dice.choice((0.0, 0.02, 0.06)),
            unanswered=dice.choice((0.0, 0.02, 0.06)),
            hint_lost=dice.choice((0.0, 0.3, 1.0)),
        )
        self.crash_at_call = dice.choice((0.0, 0.01, 0.03))
        self.freeze_at_call = dice.choice((0.0, 0.01, 0.02))
        self.trouble = dice.choice((0.0, 0.05, 0.2))  # of stages and receivers
        self.is_mixed = dice.choice((0.0, 0.0, 0.7))  # how many workers lack some stages
        self.wanted = {
            EntityKey(kind, f"e{number}"): Wanted()
            for kind, most in ((AD, 4), (ORDER, 2))
            for number in range(dice.randint(1, most))
        }

    async def run(self) -> None:
        self.runner = SimulationRunner()
        self.store = open_sqlite(
            ":memory:", clock=VirtualClock(self.loop), entropy=self.entropy, runner=self.runner
        )
        await self.store.installation.migrate(shard_count=SHARD_COUNT)
        self.installation = await self.store.installation.open()
        self.nodes = [Node(self, f"w{number}") for number in range(self.dice.randint(1, 3))]
        users = [self.loop.create_task(self._use(each)) for each in self.wanted]
        keys = [str(key) for key in self.wanted]
        holding = self.loop.create_task(self.holds.keep_holding(lambda: keys))
        await asyncio.wait(users)
        holding.cancel()
        self.holds.release()
        for user in users:
            user.result()
        self._end_trouble()
        if self.is_mixed:
            self._roll_forward()
        await self._come_to_rest()
        self._check()
        self.is_over = True
        for node in self.nodes:
            node.store.is_dead = True
            node.process.kill()
        await asyncio.sleep(0.001)
        self.runner.connection.close()

    # -- which worker serves what -----------------------------------------------------------------

    def stages_served(self) -> list[Stage[Document, Any]]:
        """What a worker that starts now has code for: of a mixed fleet only some, or nothing."""
        every = [*(stage_of(plan, self) for plan in self.plans), Timed(), Stated(), Ordered()]
        if self.is_fair or self.dice.random() >= self.is_mixed:
            return every
        part = self.dice.choice((0.0, 0.5, 0.8))
        some = [each for each in every if self.dice.random() < part]
        self.coverage["serves some stages" if some else "serves no stage"] += 1
        return some

    def relays_here(self) -> bool:
        """Whether a worker that starts now has a relay."""
        has_one = self.is_fair or self.dice.random() >= self.is_mixed / 2
        self.coverage["has no relay"] += not has_one
        return has_one

    def _roll_forward(self) -> None:
        """Somebody serves everything in the end, though not every owner of a shard."""
        self.nodes.append(Node(self, "whole"))

    # -- users ------------------------------------------------------------------------------------

    async def _use(self, key: EntityKey) -> None:
        """One user looks after one entity, and knows what it must be."""
        dice = random.Random(f"{key}{self.dice.random()}")
        wanted = self.wanted[key]
        source = random.Random(dice.random())
        store = self.holds.for_users(self.store)
        faulty = FaultyStore(store, source=source, misfortune=self.misfortune, name=str(key))
        entities = Entities(faulty.store, self.installation, entropy=self.entropy, has_relay=True)
        end_s = self.loop.time() + TROUBLE_S
        while self.loop.time() < end_s or wanted.fields is None:
            await self._change(entities, key, wanted, dice)
            await asyncio.sleep(dice.expovariate(0.7))

    async def _change(
        self, entities: Entities, key: EntityKey, wanted: Wanted, dice: random.Random
    ) -> None:
        if wanted.fields is None:
            wanted.fields = {name: self._drawn(name, dice) for name in "abc"}
            await insist(lambda: entities.put(*key, wanted.fields))
        elif dice.random() < 0.1 and not wanted.state:
            wanted.fields, wanted.was_deleted = None, True
            self.coverage["delete"] += 1
            await insist(lambda: entities.delete(*key))
        elif dice.random() < 0.25 and not wanted.was_deleted and self._has_state(key):
            wanted.state = dice.randint(1, 9)
            await insist(lambda: self._swap(entities, key, wanted.state))
        else:
            name = dice.choice("abc")
            patch = {name: self._drawn(name, dice)}
            wanted.fields |= patch
            await insist(lambda: entities.patch(*key, patch))

    def _has_state(self, key: EntityKey) -> bool:
        """Whether a stage is known that keeps one; in a mixed fleet nobody may have declared it."""
        known = "SELECT 1 FROM stage WHERE name = 'stated' AND kind = ?"
        return self.runner.connection.execute(known, (key.kind,)).fetchone() is not None

    def _drawn(self, name: str, dice: random.Random) -> int:
        """`a` is a second of this world, mostly still to come."""
        return dice.randint(1, 20) if name == "a" else dice.randint(1, 99)

    async def _swap(self, entities: Entities, key: EntityKey, value: int) -> None:
        stored = False
        while not stored:
            _, state = await entities.state(*key, "stated")
            if state is not None and msgspec.json.decode(state.body) == value:
                return
            write = StateWrite(body=msgspec.json.encode(value), revision=1)
            version = 0 if state is None else state.version
            swapped = await entities.swap_state(*key, "stated", write, version=version)
            stored = swapped is not None

    # -- trouble ----------------------------------------------------------------------------------

    async def struck(self, what: str) -> None:
        """A stage or a receiver may be slow, or fail."""
        if self.is_fair:
            return
        await asyncio.sleep(self.dice.random() * 0.05)
        drawn = self.dice.random()
        if drawn < self.trouble:
            self.coverage[f"{what} failed"] += 1
            raise ValueError(f"{what} failed")
        if drawn < self.trouble * 1.1:
            await asyncio.sleep(6)

    def before(self, store: FaultyStore, verb: str) -> bool:
        return self._strike(store, verb)

    def after(self, store: FaultyStore, verb: str) -> bool:
        return self._strike(store, verb)

    def _strike(self, store: FaultyStore, verb: str) -> bool:
        """A process may end or stop just where it hurts."""
        node = self.node_of.get(store.name)
        if node is None or self.is_fair or node.store is not store or node.process.dead:
            return False
        drawn = self.dice.random() * (1 if verb in DANGEROUS else 10)
        if drawn < self.crash_at_call:
            node.crash()
            self.coverage[f"crash at {verb}"] += 1
        elif drawn < self.crash_at_call + self.freeze_at_call:
            self.coverage["freeze"] += 1
            node.process.freeze(self.dice.uniform(1, 12))
        else:
            return False
        return True

    def _end_trouble(self) -> None:
        self.is_fair = True
        self.misfortune.refused = self.misfortune.unanswered = 0.0

    async def _come_to_rest(self) -> None:
        end_s = self.loop.time() + REST_MAX_S
        while self.loop.time() < end_s:
            await asyncio.sleep(0.5)
            if self.unrest() is None:
                return
        self.violations.append(f"no rest: {self.unrest()}")

    def unrest(self) -> str | None:
        """What is still to be done."""
        for table in (
            "changed_entity", "stage_queue", "stage_outbox", "stage_backfill WHERE ended = 0"
        ):  # fmt: skip
            row = self.runner.connection.execute(f"SELECT * FROM {table} LIMIT 1").fetchone()
            if row is not None:
                return f"{table}: {row}"
        return None

    # -- the model --------------------------------------------------------------------------------

    def _check(self) -> None:
        for key, wanted in self.wanted.items():
            row = self.runner.connection.execute(
                "SELECT doc, epoch, version FROM entity WHERE entity_key = ?", (str(key),)
            ).fetchone()
            assert row is not None
            document, epoch, version = row
            expected = self._expected(key.kind, wanted)
            actual = decode_document(document)
            if expected != actual:
                self.violations.append(f"{key} is {actual}, and should be {expected}")
            if version != self.relay.versions.get((str(key), epoch)):
                self.violations.append(f"{key}: the relay has not heard of v{version}")
        for plan in self.plans:
            missing = self.relay.by_stage[plan.name] - self.told[plan.name]
            if plan.is_pushy and missing:
                self.violations.append(f"{plan.name} was not told of {sorted(missing)}")

    def _expected(self, kind: str, wanted: Wanted) -> Document:
        """What all stages of a kind agree on, computed one after the other."""
        assert wanted.fields is not None
        document = dict(wanted.fields)
        if kind == ORDER:
            return document | {"ordered": value_of(kind, document["a"])}
        for plan in self.plans:
            document[plan.name] = plan.value(document)
        document["timed"] = document["a"]
        document["stated"] = document["b"] + 1_000 * wanted.state
        return document


async def insist(call: Callable[[], Awaitable[object]]) -> None:
    """Repeat a change until it is answered; what an unanswered one had done already is fine."""
    while True:
        try:
            await call()
        except Unavailable:
            await asyncio.sleep(0.1)
        except NotFound:  # a delete that had happened
            return
        else:
            return


def live_through(seed: int) -> StagedWorld:
    """One world from its beginning to its end."""
    loop = VirtualLoop()
    strays: list[str] = []
    loop.set_exception_handler(lambda _, context: strays.append(str(context)))
    world = StagedWorld(seed, loop)
    try:
        loop.run_until_complete(world.run())
    finally:
        loop.close()
    world.violations += strays
    return world
