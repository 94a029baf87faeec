"""One seed, one world: real workers, schedulers and SQL in virtual time, with seeded bad luck."""

from __future__ import annotations

import asyncio
import gc
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple
from unittest.mock import patch

import msgspec

from gnomon.contracts.env import Env
from gnomon.contracts.store import ArrivalResult, BeginResult, Store
from gnomon.model.errors import StoreUnavailable
from gnomon.scheduler import Scheduler
from gnomon.stores.sqlite import open_sqlite
from gnomon.testing.faulty import Arguments, FaultyStore, Misfortune, Watcher
from gnomon.testing.virtual import SeededEntropy, VirtualClock, VirtualLoop, VirtualProcess
from gnomon.worker import Worker, WorkerConfig
from gnomon.worker import dead_workers as undertaker_module
from gnomon.worker import guest as guest_module
from gnomon.worker import pump as pump_module
from gnomon.worker import worker as worker_module
from tests.simulation.crowd import Crowd, CrowdedWork, LateActions, Others
from tests.simulation.drawing import SKEW_S, draw_config, draw_weather
from tests.simulation.history import Event, History, Violation
from tests.simulation.holding import Holds
from tests.simulation.invariants import Rules
from tests.simulation.machines import Machines, Witness
from tests.simulation.mixing import KINDS, Fleet
from tests.simulation.outages import outage
from tests.simulation.pools import Reads
from tests.simulation.receiver import Receiver
from tests.simulation.runner import SimulationRunner
from tests.simulation.steps import SteppedClock, Steps
from tests.simulation.stored import StoredRules
from tests.simulation.users import User
from tests.simulation.zones import without_zone

SELDOM_S = 2.0  # between two looks at others: seldom enough not to be most of what happens
FRESH_FOR = pump_module.FRESH_FOR
HELD_WORLDS = 0.3  # in so many of them a user's transactions hold actions
ARMED_WORLDS = 0.4  # in so many of them whatever is due soon is begun ahead
TROUBLE_S = (25.0, 60.0)  # how long faults go on
REST_MAX_S = 120.0  # then the world must come to rest within this
CHECK_EVERY_S = 1.0
ROUNDS_MAX = 1_000  # of the loop in a virtual second: more is a process that never sleeps
# How dangerous a verb is, as a factor: what writes is where a fault hurts.
FACTORS = {
    "move_and_begin": 1.0,
    "begin": 1.0,
    "confirm": 1.0,
    "finish": 1.0,
    "move": 1.0,
    "settle": 1.0,
    "list_lapsed": 1.0,
    "extend": 1.0,
    "acquire": 1.0,
    "between": 5.0,
}
SELDOM = 0.1  # of the other verbs


class Outcome(NamedTuple):
    """What one seed gave."""

    seed: int
    history: History

    @property
    def violations(self) -> list[Violation]:
        return self.history.violations

    @property
    def coverage(self) -> Counter[str]:
        return self.history.coverage

    @property
    def events(self) -> list[Event]:
        return self.history.events


class Ablation:
    """A guard to switch off; this one leaves all of them on."""

    name = "none"
    is_gullible = False  # believes a machine about the processes of another
    has_one_pool = False  # of connections, for whatever is asked for

    def config(self, config: WorkerConfig) -> WorkerConfig:
        return config

    def patch(self) -> AbstractContextManager[object]:
        """A part of the worker without the guard, for as long as the world lasts."""
        return nullcontext()

    def store(self, store: Store, world: World) -> Store:
        """The engine without the guard; `world.between` lets others come between two steps."""
        return store

    def worker(self, worker: Worker) -> None:
        """Take the guard out of a worker."""


class Node:
    """One worker's machine: its process comes and goes, its clock is wrong for ever."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self.name = name
        skew_s = world.dice.uniform(*SKEW_S) * world.dice.choice((-1, 1))
        booted_s = world.dice.uniform(0, 1e6)
        skew = timedelta(seconds=skew_s)
        self._clock = VirtualClock(world.loop, skew=skew, booted_s=booted_s)
        self._starts = 0
        self.start()

    def start(self) -> None:
        world = self._world
        self._starts += 1
        owner = f"{self.name}.{self._starts}"
        self.process = VirtualProcess(world.loop, owner)
        self.store = world.faulty_store(owner, self)
        self.stop = asyncio.Event()
        kinds = world.fleet.kinds_of(self.name)
        executor = world.receiver.executor(self.process, self.store, kinds)
        processes = world.machines.processes(
            self.name, self.process, world.loop.time(), gullible=world.ablation.is_gullible
        )
        self.pooled = store = world.reads.around(
            self.store.store, is_one=world.ablation.has_one_pool
        )
        self.worker = Worker(
            without_zone(store) if self.name in world.ignorant else store,
            world.installation,
            {kind: executor for kind in KINDS if kind in kinds},
            env=Env(
                clock=self._clock,
                entropy=world.entropy,
                observer=Witness(owner, world.history),
                processes=processes,
            ),
            owner=owner,
            config=world.fleet.config_of(self.name, world.config),
        )
        world.ablation.worker(self.worker)
        self.task = self.process.start(self._live(self.worker, self.stop), name=owner)
        world.history.note(owner, "started")

    async def _live(self, worker: Worker, stop: asyncio.Event) -> None:
        try:
            await worker.work(stop)
        except asyncio.CancelledError:
            raise
        except StoreUnavailable:
            self._world.loop.call_soon(self.crash)  # it could not even start
        except BaseException as exc:
            self._world.history.violate("worker_raised", self.name, _shown(exc))
            raise

    @property
    def is_up(self) -> bool:
        return not self.process.dead and not self.stop.is_set()

    def crash(self) -> None:
        """The process disappears; it comes back after a while."""
        world = self._world
        world.history.note(self.process.name, "crash")
        world.history.reach("crash")
        world.history.reach("crash with attempts", self.worker.in_hand)
        self.store.is_dead = True
        self.process.kill()
        world.loop.call_later(world.dice.uniform(0.05, 15), self._restart)

    def _restart(self) -> None:
        if not self._world.is_over:
            self.start()

    def freeze(self, for_s: float) -> None:
        world = self._world
        world.history.note(self.process.name, "freeze", for_s)
        world.history.reach("freeze")
        world.history.reach("freeze beyond lease", for_s > world.config.lease.total_seconds())
        self.process.freeze(for_s)

    def stall(self, for_s: float) -> None:
        world = self._world
        world.history.note(self.process.name, "stall", for_s)
        world.history.reach("stall")
        self.store.stalled_until = world.loop.time() + for_s

    async def restart_cleanly(self) -> None:
        """A planned shutdown, as for a new release."""
        process = self.process
        self._world.history.note(process.name, "shutdown")
        self._world.history.reach("shutdown")
        self.stop.set()
        await asyncio.wait([self.task])
        if process is self.process and not process.dead and not self._world.is_over:
            process.dead = True
            self.start()


def _shown(exc: BaseException) -> str:
    if isinstance(exc, BaseExceptionGroup):
        return "; ".join(_shown(inner) for inner in exc.exceptions)
    return repr(exc)


class World(Watcher):
    """All of it."""

    def __init__(self, seed: int, loop: VirtualLoop, ablation: Ablation) -> None:
        self.seed = seed
        self.loop = loop
        self.ablation = ablation
        self.dice = random.Random(seed)
        self.weather = draw_weather(self.dice)
        promised = draw_config(self.dice)
        # Drawn apart, so that the worlds of older seeds stay what they are.
        self.more_dice = random.Random(f"more {seed}")
        self.has_outage = not self.weather.is_calm and self.more_dice.random() < 0.4
        self.ignorant = frozenset({"w1"} if self.more_dice.random() < 0.3 else ())  # of a zone
        if self.has_outage:  # looks soon afterwards, before reservations are prolonged
            promised = replace(promised, window=timedelta(seconds=9), sweep=timedelta(seconds=2))
        self.promised = promised
        self.crowd_dice = random.Random(f"crowd {seed}")  # of its own, not to disturb the others
        self.is_crowded = self.crowd_dice.random() < 0.5 or self.weather.is_calm
        if self.is_crowded and self.weather.store.delay_s < 0.1 and self.crowd_dice.random() < 0.6:
            promised = replace(promised, begin_batch=1)
        if random.Random(f"armed {seed}").random() < ARMED_WORLDS:
            promised = replace(promised, burst_least=1)
        self.config = ablation.config(promised)
        self.entropy = SeededEntropy(random.Random(self.dice.random()))
        self.history = History(loop.time)
        self.machines = Machines(seed, self.history)
        self.fleet = Fleet(seed, self.history)
        self.clock = SteppedClock(loop)  # the database's
        self.reads = Reads(seed, self.history, is_calm=self.weather.is_calm)
        self.steps = Steps(seed, is_calm=self.weather.is_calm)
        self.holds = Holds(seed, self.history, self.clock.now)
        self.fair = Misfortune(delay_s=self.weather.store.delay_s)
        self.is_dense = self.weather.is_calm or self.dice.random() < 0.2
        self.is_over = False
        self.is_fair = False  # the faults have stopped
        self.nodes: list[Node] = []
        self._node_of: dict[str, Node] = {}
        self._chaos_tasks: set[asyncio.Task[None]] = set()

    # -- the course of the world ------------------------------------------------------------------

    async def run(self) -> None:
        await self._build()
        trouble_s = self.dice.uniform(*TROUBLE_S)
        users = [self._start_user(number) for number in range(self.dice.randint(1, 2))]
        chaos = self.loop.create_task(self._chaos(), name="chaos")
        users += self._start_others()
        if self.weather.is_calm or self.holds.dice.random() < HELD_WORLDS:
            holder = self.loop.create_task(
                self.holds.keep_holding(self.rules.running_first), name="holder"
            )
            self._chaos_tasks.add(holder)
            users.append(holder)
        users.append(self.loop.create_task(outage(self), name="outage"))
        users.append(self.loop.create_task(self.steps.keep_stepping(self), name="steps"))
        users.append(self.loop.create_task(self.reads.keep_reading(self), name="reads"))
        if await self._watch_until(self.loop.time() + trouble_s):
            self._end_trouble([*users, chaos])
            if await self._come_to_rest():
                await self._shut_down()
        self.is_over = True
        for node in self.nodes:
            node.store.is_dead = True
            node.process.kill()
        for task in [*users, chaos, *self._chaos_tasks, *self.reads.tasks]:
            task.cancel()
        await asyncio.sleep(0.001)

    async def _build(self) -> None:
        runner = SimulationRunner()
        self.runner = runner
        engine = open_sqlite(":memory:", clock=self.clock, entropy=self.entropy, runner=runner)
        held = self.holds.around(engine, runner.connection.execute)
        self.store = self.ablation.store(self._crowded(held), self)
        shard_count = 2 if self.is_dense else self.dice.randint(2, 4)
        await self.store.installation.migrate(shard_count=shard_count)
        self.installation = await self.store.installation.open()
        self.rules = Rules(self.history, self.clock.now, shard_count, self.loop.time)
        self.rules.was_held = self.holds.was_held
        if self.weather.is_calm:
            self.rules.is_calm = True
            self.rules.recorded_within = timedelta(seconds=3 + 8 * self.weather.store.delay_s)
        self.stored = StoredRules(runner.connection, self.rules, self.clock, self.config.lease)
        self.receiver = Receiver(
            loop=self.loop,
            history=self.history,
            rules=self.rules,
            dice=random.Random(self.dice.random()),
            send_within=self.promised.send_within,
            window=self.promised.window,
            grace=self.promised.grace,
            bad=self.dice.choice((0.0, 0.2, 0.5)),
            is_slow=self.has_outage,
            was_set_since=self.clock.was_set_since,
        )
        self.rules.is_in_hand = self.receiver.is_in_hand
        self.rules.was_sent = self.receiver.was_sent
        self.rules.refused_queues = self.fleet.refused_queues
        self.nodes = [Node(self, f"w{number}") for number in range(1, self.dice.randint(2, 3) + 1)]
        pump_module.FRESH_FOR = FRESH_FOR
        if self.weather.is_calm and self.config.concurrency >= 20:
            # Looking every second would hide whatever is not known at once.
            pump_module.FRESH_FOR = timedelta(0)
            lateness_max = timedelta(seconds=1 + 4 * self.weather.store.delay_s)
            self.loop.call_later(6, setattr, self.rules, "lateness_max", lateness_max)

    def _start_user(self, number: int) -> asyncio.Task[None]:
        name = f"u{number}"
        skew = timedelta(seconds=self.dice.uniform(*SKEW_S) * self.dice.choice((-1, 1)))
        scheduler = Scheduler(
            self.faulty_store(name, None).store,
            self.installation,
            clock=VirtualClock(self.loop, skew=skew),
            entropy=self.entropy,
        )
        count = 10 if self.is_dense else self.dice.randint(3, 5)
        user = User(
            name,
            scheduler,
            ids=[f"a{self.dice.randint(0, 9)}" for _ in range(count)],
            dice=random.Random(self.dice.random()),
            history=self.history,
            sealed=self.receiver.sealed.add,
            now=self.clock.now,
            dense=self.is_dense,
            zoned_share=0.3 if self.ignorant else 0.0,
            long_share=0.5 if self.has_outage else 0.0,
        )
        mean_s = self.dice.choice((1.0, 3.0, 8.0))

        async def life() -> None:
            await user.create_all(12)
            await user.change_things(mean_s)

        return VirtualProcess(self.loop, name).start(life(), name=name)

    def _crowded(self, engine: Store) -> Store:
        """The engine as a server that others use too."""
        self.crowd = Crowd(self.runner.connection.execute, self.clock.now)
        if not self.is_crowded:
            return engine
        self.crowd.tells = self.crowd_dice.random() < 0.6
        work: Any = CrowdedWork(engine.work, self.crowd, self.history)
        return msgspec.structs.replace(engine, work=work)

    def _start_others(self) -> list[asyncio.Task[None]]:
        """Users whose transactions take their time."""
        if not self.is_crowded:
            return []
        late: Any = LateActions(self.store.actions, self.crowd)
        stores = (self.store, msgspec.structs.replace(self.store, actions=late))
        plain, slow = (
            Scheduler(
                FaultyStore(store, source=self.crowd_dice, watcher=self, name="others").store,
                self.installation,
                clock=self.clock,
                entropy=self.entropy,
            )
            for store in stores
        )
        self.others = Others(
            plain,
            slow,
            late,
            self.crowd,
            dice=self.crowd_dice,
            rules=self.rules,
            found_within=self.config.poll if self.crowd.tells else self.config.sweep,
        )
        return [
            self.loop.create_task(self.others.commit_late(), name="late"),
            self.loop.create_task(self.others.hold(), name="hold"),
        ]

    async def _watch_until(self, end_s: float) -> bool:
        """Let it go on, looking every second; False as soon as a rule is broken."""
        rounds = 0
        while self.loop.time() < end_s:
            await self._next_look()
            rounds += 1
            if rounds % 10:
                self.stored.check_quickly()
            else:
                self.stored.check()
            if self.history.violations:
                return False
        return True

    async def _next_look(self) -> None:
        before = self.loop.rounds
        await asyncio.sleep(CHECK_EVERY_S)
        if self.loop.rounds - before > ROUNDS_MAX:
            self.history.violate("no_sleep", f"{self.loop.rounds - before} rounds in a second")

    def _end_trouble(self, troublemakers: list[asyncio.Task[None]]) -> None:
        self.history.note("world", "faults stop")
        self.is_fair = True
        self.rules.lateness_max = timedelta.max  # users are stopped before they could give a hint
        for task in troublemakers:
            task.cancel()
        if self.is_crowded:
            self.others.let_go()
        self.receiver.bad = 0.0
        self.receiver.is_swift = True
        for node in self.nodes:
            node.store.misfortune = self.fair

    async def _come_to_rest(self) -> bool:
        end_s = self.loop.time() + REST_MAX_S
        calm_rounds = 0
        while self.loop.time() < end_s:
            await self._next_look()
            self.stored.check_quickly()
            if self.history.violations:
                return False
            is_calm = self._are_all_up() and self.stored.unrest() is None
            calm_rounds = calm_rounds + 1 if is_calm else 0
            if calm_rounds >= 3:
                self.history.reach(
                    f"rest {int(10 - (end_s - self.loop.time() - REST_MAX_S)) // 10}0 s"
                )
                self.stored.check_at_rest()
                self.receiver.check_duplicates()
                return not self.history.violations
        self.history.violate("no_rest", self.stored.unrest())
        return False

    def _are_all_up(self) -> bool:
        now = self.loop.time()
        return all(
            node.is_up and node.process.frozen_until <= now and node.store.stalled_until <= now
            for node in self.nodes
        )

    async def _shut_down(self) -> None:
        """Everybody leaves cleanly: nothing is running afterwards, and no shard is held."""
        self.is_over = True
        for node in self.nodes:
            node.stop.set()
        await asyncio.wait([node.task for node in self.nodes])
        self.stored.check_at_rest()
        self.stored.check_left_behind({node.worker.leases.owner for node in self.nodes})

    # -- faults -----------------------------------------------------------------------------------

    def faulty_store(self, name: str, node: Node | None) -> FaultyStore:
        made = FaultyStore(
            self.store,
            source=random.Random(self.dice.random()),
            misfortune=self.fair if self.is_fair else self.weather.store,
            watcher=self,
            name=name,
        )
        if node is not None:
            self._node_of[name] = node
        return made

    async def _chaos(self) -> None:
        weather, dice = self.weather, self.dice
        kinds = ("crash", "freeze", "stall", "restart")
        rates = [
            weather.crash_per_s, weather.freeze_per_s, weather.stall_per_s, weather.restart_per_s,
        ]  # fmt: skip
        total = sum(rates)
        while True:
            await asyncio.sleep(dice.expovariate(total) if total else 3600)
            node = dice.choice(self.nodes)
            (kind,) = dice.choices(kinds, rates)
            if not node.is_up:
                continue
            match kind:
                case "crash":
                    node.crash()
                case "freeze":
                    node.freeze(self._freeze_s())
                case "stall":
                    node.stall(dice.uniform(1, 12))
                case _:
                    task = self.loop.create_task(node.restart_cleanly(), name="restart")
                    self._chaos_tasks.add(task)
                    task.add_done_callback(self._chaos_tasks.discard)

    def _freeze_s(self) -> float:
        return self.dice.uniform(1, self.weather.freeze_max_s)

    def before(self, store: FaultyStore, verb: str) -> bool:
        return self._strike(store, verb)

    def after(self, store: FaultyStore, verb: str) -> bool:
        return self._strike(store, verb)

    def _strike(self, store: FaultyStore, verb: str) -> bool:
        """Something may happen to the process just where it hurts."""
        node = self._node_of.get(store.name)
        if node is None or self.is_fair or node.store is not store or not node.is_up:
            return False
        factor = FACTORS.get(verb, SELDOM)
        drawn = self.dice.random() / factor
        if drawn < self.weather.crash_at_call:
            node.crash()
        elif drawn < self.weather.crash_at_call + self.weather.freeze_at_call:
            node.freeze(self._freeze_s())
        else:
            return False
        return True

    async def between(self) -> None:
        """For ablations: the moment between two steps that should have been one."""
        process = VirtualProcess.current()
        node = None if process is None else self._node_of.get(process.name)
        if node is not None:
            self._strike(node.store, "between")
        await asyncio.sleep(self.dice.random() * max(self.weather.store.delay_s, 0.01))

    # -- what is seen -----------------------------------------------------------------------------

    def performed(self, store: FaultyStore, verb: str, arguments: Arguments, result: Any) -> None:
        self.rules.performed(store, verb, arguments, result)

    def refused(self, store: FaultyStore, verb: str) -> None:
        self._count_failure(store, verb)

    def lost(self, store: FaultyStore, verb: str, arguments: Arguments, result: Any) -> None:
        self._count_failure(store, verb)
        began = isinstance(result, BeginResult | ArrivalResult)
        if verb in ("move_and_begin", "begin", "find_begun"):
            self.rules.forget(result.begun if began else result)
        if verb in ("create", "finish") or (began and result.begun):
            self.history.reach(f"lost answer of {verb}")
            self.history.note(store.name, "lost answer", verb)

    def _count_failure(self, store: FaultyStore, verb: str) -> None:
        if verb in ("finish", "extend"):
            known = self.receiver.failed_calls
            known[store.name] = known.get(store.name, 0) + 1


def run_seed(seed: int, ablation: Ablation | None = None) -> Outcome:
    """Live through one world."""
    loop = VirtualLoop()
    was_enabled = gc.isenabled()
    gc.disable()  # garbage would be collected at moments of its own choosing
    world = World(seed, loop, ablation or Ablation())
    loop.set_exception_handler(lambda _, context: _note_stray(world, context))
    try:
        with seldom_looks(), world.ablation.patch():
            loop.run_until_complete(world.run())
    except Exception as exc:
        world.history.violate("world_raised", _shown(exc))
    finally:
        loop.close()
        world.runner.connection.close()
        if was_enabled:
            gc.enable()
    history = world.history
    history.reach("calm", world.weather.is_calm)
    history.reach("events", len(history.events))
    return Outcome(seed, history)


@contextmanager
def seldom_looks() -> Iterator[None]:
    """Workers look at one another less often than in life."""
    with (
        patch.object(worker_module, "HELP_EVERY_S", SELDOM_S),
        patch.object(guest_module, "VISIT_EVERY_S", SELDOM_S),
        patch.object(undertaker_module, "LOOK_EVERY_S", SELDOM_S),
    ):
        yield


def _note_stray(world: World, context: dict[str, Any]) -> None:
    """An exception that nobody waited for."""
    world.history.violate("stray_exception", context.get("message"), context.get("exception"))
