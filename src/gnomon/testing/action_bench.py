"""A bench for actions: your app on SQLite in memory, under a clock that you move.

with ActionBench(app) as bench:
    await app.schedule(remind("ann"), in_="3h")
    await bench.advance(hours=3)
    assert ["remind"] == [attempt.function for attempt in bench.attempts]

While it is there, the app is open on the bench's store. Its own database is not touched, whatever
the program under test does with the app.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Self, TypeVar, get_args
from uuid import UUID

import msgspec

from gnomon.app import App
from gnomon.at_once import at_once
from gnomon.boundary import performed
from gnomon.clock import uuid7
from gnomon.contracts.executor import AttemptRequest, Executor
from gnomon.contracts.store import (
    ActionWrites,
    BeginRequest,
    BegunAttempt,
    FinishRequest,
    HeldShard,
    Lane,
    LeaseRequest,
    Selection,
    Store,
)
from gnomon.executors.mock import MockExecutor
from gnomon.executors.python import PythonExecutor
from gnomon.model.action import Action, State
from gnomon.model.errors import InvalidRequest
from gnomon.model.need import FUNCTION
from gnomon.model.outcome import Cancel, Failed, Outcome, Succeeded, cut
from gnomon.model.spec import Effect, Mock, Policy, Python
from gnomon.scheduler.program import ProgramKeeper
from gnomon.stores.sqlite import InlineRunner, open_sqlite
from gnomon.stores.sqlite.connection import Call, transact
from gnomon.testing.bench_clock import BenchClock
from gnomon.worker.attempt import AttemptRunner, DeadlineGuard
from gnomon.worker.config import WorkerConfig
from gnomon.worker.guest import Served
from gnomon.worker.settlement import settlement_of

T = TypeVar("T")

OWNER = "bench"
PAGE = 1_000
STEPS_MAX = 1_000_000
LIVE = (State.ACTIVE, State.PAUSED)
ENDED = tuple(state for state in State if state.is_terminal)


class Scheduled(msgspec.Struct, frozen=True, kw_only=True):
    """An action as plain values. Of a call of a function: which, and with what."""

    id: str
    state: str
    scheduled_at: datetime | None  # when it is due next
    effect: Effect
    function: str | None
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    policy: Policy
    queue: str
    priority: int
    labels: Mapping[str, str]
    reason: str | None  # why it ended


class Performed(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that the bench made."""

    id: str
    attempt_no: int
    at: datetime
    effect: Effect
    function: str | None
    outcome: str  # succeeded, failed, cancelled
    error: str | None
    answer: str | None


class ActionBench:
    """Your app, a store in memory, and the time in your hands."""

    def __init__(
        self,
        app: App | None = None,
        *,
        now: str | datetime = "2026-01-01",
        raise_failures: bool = True,
        receive: Callable[[Effect], object] | None = None,
    ) -> None:
        self.app = app or App("sqlite:///:memory:")
        _check_free(self.app)
        self.clock = BenchClock(now)
        self.raise_failures = raise_failures  # False: to see retries, and what becomes dead
        self.receive = receive  # what effects that are no functions do; what it raises is a failure
        self.sent: list[Effect] = []  # those effects, in order
        self.attempts: list[Performed] = []  # what was attempted, in order
        self._own_env = self.app.env
        self.env = replace(self._own_env, clock=self.clock, entropy=BenchEntropy())
        self._runner = _BenchRunner()
        weakref.finalize(self, self._runner.connection.close)
        self.store: Store = msgspec.structs.replace(
            open_sqlite(
                ":memory:", clock=self.clock, entropy=self.env.entropy, runner=self._runner
            ),
            joining=self._joining,
        )
        self._raised: list[BaseException] = []  # by the attempt that is under way
        self._take_over()

    def __repr__(self) -> str:
        return f"ActionBench({self.now.isoformat()})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        self.close()

    @property
    def now(self) -> datetime:
        """The bench's present."""
        return self.clock.now()

    def close(self) -> None:
        """Forget everything, and give the app back as it was. Safe to repeat."""
        if self.app.stand_in is not self:
            return
        self.app.blocking.close()
        at_once(self.app.close())
        self.app.stand_in, self.app.env = None, self._own_env
        at_once(self._executors[Python].close())
        self._runner.connection.close()

    # -- what there is ----------------------------------------------------------------------------

    @property
    def scheduled(self) -> list[Scheduled]:
        """What is active or paused, in order of its due time."""
        actions = [_shown(action) for action in self._listed(LIVE)]
        return sorted(actions, key=lambda action: (action.scheduled_at is None, _due(action)))

    @property
    def ended(self) -> list[Scheduled]:
        """What is done, dead, cancelled or expired, and not forgotten yet; in order of its end."""
        actions = sorted(self._listed(ENDED), key=lambda action: str(action.status.finished_at))
        return [_shown(action) for action in actions]

    def __getitem__(self, id: str) -> Action:
        """An action, as it is now. Errors: KeyError."""
        action = at_once(self.store.actions.get(id))
        if action is None:
            raise KeyError(id)
        return action

    def _listed(self, states: tuple[State, ...]) -> list[Action]:
        actions: list[Action] = []
        selection, after = Selection(states=states), None
        while True:
            page = at_once(self.store.actions.list(selection, after=after, limit=PAGE))
            actions += page.actions
            after = page.next
            if after is None:
                return actions

    # -- time -------------------------------------------------------------------------------------

    async def run_due(self) -> int:
        """Attempt everything that is due now, one after the other; how many attempts it took.

        What fails is raised here, and the rest stays due, unless `raise_failures` is False.
        """
        await self.app.open()  # what is called may want to schedule
        await self._bring_in_step()
        before = len(self.attempts)
        for _ in range(STEPS_MAX):
            lane = self._due_lane()
            if lane is None:
                return len(self.attempts) - before
            begun = await self._begin(lane)
            if begun is not None:
                await self._attempt(begun)
            else:
                await self._settle()
        raise AssertionError(f"something is due again and again: {STEPS_MAX} attempts")

    async def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> int:
        """Let time pass, and everything happen at its time; how many attempts it took."""
        end = self.now + timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        count = await self.run_due()
        while (at := min(self._lanes().values(), default=end)) < end:
            self.clock.move_to(at)
            count += await self.run_due()
        self.clock.move_to(end)
        return count + await self.run_due()

    def _lanes(self) -> Mapping[Lane, datetime]:
        """Where something waits that can be attempted here, and the earliest time."""
        at_once(self.store.work.move([self._held], limit=STEPS_MAX))
        lanes = at_once(self.store.work.list_lanes([self._held]))
        return {lane: at for lane, at in lanes.items() if self._served.serves_lane(lane)}

    def _due_lane(self) -> Lane | None:
        """The lane to begin from: of those that are due the first in priority, then in time."""
        due = {lane: at for lane, at in self._lanes().items() if at <= self.now}
        order = {lane: (lane.priority, at, lane) for lane, at in due.items()}
        return min(order, key=lambda lane: order[lane], default=None)

    # -- one attempt ------------------------------------------------------------------------------

    async def _begin(self, lane: Lane) -> BegunAttempt | None:
        config = WorkerConfig()
        result = await self.store.work.begin(
            [BeginRequest(lane=lane, lease_guid=self._held.lease_guid, limit=1)],
            batch=self.env.entropy.token(),
            owner=OWNER,
            grace=config.grace,
            window=config.window,
            silent=config.silent,
        )
        return result.begun[0] if result.begun else None

    async def _attempt(self, begun: BegunAttempt) -> None:
        task = asyncio.current_task()
        assert task is not None
        guard = DeadlineGuard(task)
        self._raised.clear()
        try:
            finish = await self._performer.perform(begun, self.clock.monotonic(), guard)
        finally:
            guard.close()
        await self.store.work.finish([finish], owner=OWNER)
        self._tell(begun, finish)

    def _tell(self, begun: BegunAttempt, finish: FinishRequest) -> None:
        where = f"attempt {finish.attempt_no} of the action {finish.id}"
        if finish.outcome == "unserved":
            raise AssertionError(f"{where}: the app has no {finish.need}; declare it before")
        effect = begun.spec.action
        self.attempts.append(
            Performed(
                id=begun.id,
                attempt_no=finish.attempt_no,
                at=begun.began_at,
                effect=effect,
                function=effect.function if isinstance(effect, Python) else None,
                outcome=finish.outcome,
                error=finish.error,
                answer=finish.answer,
            )
        )
        if finish.outcome == "failed" and self.raise_failures:
            raise self._failure(where, finish)

    def _failure(self, where: str, finish: FinishRequest) -> BaseException:
        if not self._raised:
            return AssertionError(f"{where} failed: {finish.error}")
        error = self._raised[0]
        error.add_note(f"raised in {where}")
        return error

    async def _settle(self) -> None:
        """Something is due that cannot begin: it has expired, or an old generation left it."""
        lapsed = await self.store.work.list_lapsed([self._held], limit=PAGE)
        applied = await self.store.work.settle([settlement_of(row) for row in lapsed])
        gone = await self.store.work.delete_stale([self._held], limit=PAGE)
        if not applied and not gone:
            raise AssertionError("something is due and can be neither begun nor settled")

    async def _bring_in_step(self) -> None:
        """What `@app.cron` and `@app.every` declare is there, as it is where a worker works."""
        keeper = ProgramKeeper(self.app.scheduler, self.app.program, self.env)
        await keeper.bring_in_step(alive_for=timedelta(0))

    # -- standing in for the app's database -------------------------------------------------------

    def _take_over(self) -> None:
        at_once(self.store.installation.migrate(shard_count=1))
        (lock,) = at_once(self.store.leases.list_locks())
        request = LeaseRequest(seen=lock, lease_guid=self.env.entropy.token())
        (held,) = at_once(
            self.store.leases.acquire([request], owner=OWNER, lease_for=timedelta(seconds=10))
        )
        self._held = HeldShard(shard=held.shard, lease_guid=held.lease_guid)
        self.app.stand_in, self.app.env = self, self.env
        at_once(self.app.open())
        at_once(self._bring_in_step())
        self._executors = self._executors_of()
        self._served = Served(self._executors, WorkerConfig())
        self._performer = AttemptRunner(
            self._executors,
            installation=self.app.installation.id,
            env=self.env,
            send_within=WorkerConfig().send_within,
        )

    def _executors_of(self) -> Mapping[type[Effect], Executor]:
        receiver = _Receiver(self)
        return {
            **dict.fromkeys(get_args(Effect), receiver),
            Mock: MockExecutor(),
            Python: PythonExecutor(
                self.app.registry, self.clock, observer=self.env.observer, raised=self._note_raised
            ),
        }

    def _note_raised(self, error: BaseException) -> None:
        if not isinstance(error, Cancel):
            self._raised.append(error)

    async def open(self) -> Store:
        """For the app: the bench's store, which outlives its being closed."""
        return msgspec.structs.replace(self.store, close=_left_open)

    async def work(self, stop: asyncio.Event) -> None:
        """For the app: nothing is attempted unless the test says so."""
        await stop.wait()

    def _joining(self, connection: object) -> ActionWrites:  # noqa: ARG002 - of another database
        """Whatever the connection: what is scheduled with it is in the bench at once."""
        return self.store.actions


class BenchEntropy:
    """Random ids that are none: the same for every bench, and in the order in which they were
    drawn, so that what is due at the same time happens in the order of scheduling."""

    def __init__(self) -> None:
        self._count = 0

    def guid(self) -> UUID:
        return uuid7(self._drawn(), bytes(10))

    def guids(self, count: int) -> list[UUID]:
        return [self.guid() for _ in range(count)]

    def token(self) -> UUID:
        return UUID(int=self._drawn(), version=4)

    def fraction(self) -> float:
        return 0.5

    def _drawn(self) -> int:
        self._count += 1
        return self._count


class _BenchRunner(InlineRunner):
    """One transaction after the other, from whichever thread: plain functions have their own."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    async def write(self, call: Call[T], *, urgent: bool = False) -> T:  # noqa: ARG002 - nobody waits
        with self._lock:
            return transact(self.connection, call)

    async def read(self, call: Call[T]) -> T:
        return await self.write(call)


class _Receiver:
    """Performs effects that would leave the program: keeps them, and answers as the test says."""

    def __init__(self, bench: ActionBench) -> None:
        self._bench = bench

    def serves(self, need: str) -> bool:
        return not need.startswith(FUNCTION)

    async def execute(self, order: AttemptRequest) -> Outcome:
        self._bench.sent.append(order.effect)
        if self._bench.receive is None:
            return Succeeded()
        answer, error = performed(partial(self._bench.receive, order.effect))
        if error is None:
            return Succeeded(answer=None if answer is None else cut(str(answer)))
        self._bench._note_raised(error)  # noqa: SLF001 - its own receiver
        return Failed(error=cut(f"{type(error).__name__}: {error}"))

    async def close(self) -> None:
        """Nothing is held."""


def _check_free(app: App) -> None:
    if app.stand_in is not None:
        raise InvalidRequest("the app is on a bench already: close that one first")
    if app.is_open or app.blocking.is_open:
        raise InvalidRequest("the app is open on its own database: close it before the bench")


def _shown(action: Action) -> Scheduled:
    effect = action.spec.action
    call = effect if isinstance(effect, Python) else None
    return Scheduled(
        id=action.meta.id,
        state=action.status.state.value,
        scheduled_at=action.status.scheduled_at,
        effect=effect,
        function=call.function if call else None,
        args=call.args if call else [],
        kwargs=call.kwargs if call else {},
        policy=action.spec.policy,
        queue=action.spec.queue,
        priority=action.spec.priority,
        labels=action.spec.labels,
        reason=action.status.reason,
    )


def _due(action: Scheduled) -> str:
    return "" if action.scheduled_at is None else action.scheduled_at.isoformat()


async def _left_open() -> None:
    """The store belongs to the bench."""
