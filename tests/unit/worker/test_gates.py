"""Gates: what one process may do under a limit, and who waits how long before a target."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest

from gnomon.contracts.executor import AttemptRequest
from gnomon.contracts.store import BegunAttempt, FinishRequest, LimitRequest
from gnomon.model.limits import Limit, LimitKind
from gnomon.model.outcome import Outcome, Succeeded
from gnomon.model.spec import Kafka, Spec
from gnomon.worker.attempt import AttemptRunner
from gnomon.worker.gates import QueueGate, TargetGate, TargetWaiters
from gnomon.worker.slots import Slots
from tests.unit.worker.surroundings import EPOCH, HandClock, surroundings
from tests.unit.worker.test_slots import INSTALLATION, begun, settled

TRUSTED = 1e9


class Hurry:
    """Counts how often the store would be asked soon."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def limit(kind: LimitKind = LimitKind.QUEUE, **fields: Any) -> Limit:
    return Limit(kind=kind, name="mail", **fields)


class Queue:
    """A queue's gate, with everything around it in the test's hand."""

    def __init__(self, **fields: Any) -> None:
        self.clock, self.hurry, self.in_use = HandClock(), Hurry(), 0
        self.gate = QueueGate(limit(**fields), self.clock, self.hurry, lambda: self.in_use)
        self.gate.change(limit(**fields), 1.0)

    def tell(self, allowed: int, *, trusted_until: float = TRUSTED) -> LimitRequest:
        claim = self.gate.claim(100)
        assert claim is not None
        self.gate.tell(allowed, claim, trusted_until)
        return claim


# -- queues ---------------------------------------------------------------------------------------


def test_a_new_gate_is_closed_until_it_was_told() -> None:
    """Rather nothing than too much."""
    queue = Queue(parallel=5)
    assert 0 == queue.gate.room(0)
    queue.gate.starve()
    assert 1 == queue.hurry.count
    assert LimitRequest(held=0, wanted=100) == queue.tell(5)
    queue.in_use = 2
    assert 3 == queue.gate.room(0)


def test_what_was_told_is_trusted_for_a_while_only() -> None:
    """Then others may have it: nothing begins, and only what is under way is held."""
    queue = Queue(parallel=5)
    queue.gate.starve()
    queue.tell(5, trusted_until=queue.clock.seconds + 7)
    queue.in_use = 2
    queue.clock.seconds += 6.9
    assert 3 == queue.gate.room(0)
    queue.clock.seconds += 0.1
    assert 0 == queue.gate.room(0)
    assert LimitRequest(held=2, wanted=2) == queue.gate.claim(100)


def test_a_claim_says_what_may_be_used_until_the_answer() -> None:
    """Not what is used at the moment: more may begin meanwhile."""
    queue = Queue(parallel=5)
    queue.gate.starve()
    queue.tell(5)
    queue.in_use = 1
    assert LimitRequest(held=5, wanted=1) == queue.gate.claim(100)


def test_the_peak_is_wanted_again() -> None:
    """Attempts shorter than the time between two claims need their slots, too."""
    queue = Queue(parallel=9)
    queue.gate.starve()
    queue.tell(9)
    queue.in_use = 4
    queue.gate.took()
    queue.in_use = 0
    assert LimitRequest(held=9, wanted=4) == queue.gate.claim(100)
    assert LimitRequest(held=9, wanted=0) == queue.gate.claim(100)


def test_what_must_be_given_up_is_told_as_soon_as_it_ends() -> None:
    """Others wait for it."""
    queue = Queue(parallel=5)
    queue.gate.starve()
    queue.tell(5)
    queue.in_use = 4
    queue.gate.took()
    queue.tell(2)
    before = queue.hurry.count
    queue.in_use = 3
    queue.gate.ended()
    assert before + 1 == queue.hurry.count
    assert 0 == queue.gate.room(0)
    assert LimitRequest(held=3, wanted=4) == queue.gate.claim(100)


def test_nothing_is_said_when_there_is_nothing_to_say() -> None:
    """An idle process leaves the store alone, once it has given everything back."""
    queue = Queue(parallel=5)
    assert None is queue.gate.claim(100)
    queue.gate.starve()
    queue.tell(5)
    assert LimitRequest(held=5, wanted=0) == queue.tell(0)
    assert LimitRequest(held=0, wanted=0) == queue.tell(0)
    assert None is queue.gate.claim(100)


def test_who_was_refused_does_not_hurry() -> None:
    """Nor does who has all there is: it would be of no use."""
    queue = Queue(parallel=5)
    queue.gate.starve()
    queue.tell(2)
    queue.in_use = 2
    assert queue.gate.is_denied
    before = queue.hurry.count
    queue.gate.starve()
    queue.tell(5)
    queue.in_use = 5
    queue.gate.starve()
    assert before == queue.hurry.count


def test_a_rate_lets_begin_what_its_bucket_holds() -> None:
    """What is being begun has its tokens already."""
    queue = Queue(rate=10.0, burst=5)
    queue.clock.seconds += 10
    assert 5 == queue.gate.room(0)
    assert 3 == queue.gate.room(2)
    for _ in range(5):
        queue.gate.took()
    assert 0 == queue.gate.room(0)
    assert pytest.approx(0.1) == queue.gate.reopens_s()
    assert None is queue.gate.claim(100)


# -- targets --------------------------------------------------------------------------------------


class Target:
    """A target's gate."""

    def __init__(self, allowed: int = 1, *, slots: int = 100, **fields: Any) -> None:
        self.clock, self.hurry = HandClock(), Hurry()
        self.limit = limit(LimitKind.TARGET, **({"parallel": 9} | fields))
        self.room = TargetWaiters(lambda _: slots)
        self.gate = TargetGate(self.limit, self.clock, self.hurry, self.room)
        self.gate.change(self.limit, 1.0)
        if self.limit.parallel is not None:
            self.tell(allowed)

    def tell(self, allowed: int) -> None:
        self.gate.tell(allowed, LimitRequest(held=0, wanted=9), TRUSTED)
        self.gate.admit()

    async def enter(self, patience_s: float = 60.0) -> timedelta | None:
        return await self.gate.enter("default", patience_s)


async def test_the_next_one_comes_in_when_one_leaves() -> None:
    """In the order in which they came."""
    target = Target(1)
    assert None is await target.enter()
    order: list[int] = []

    async def come(number: int) -> None:
        assert None is await target.enter()
        order.append(number)

    waiting = [asyncio.create_task(come(number)) for number in range(3)]
    await settled()
    assert ([], 3) == (order, target.gate.waiting)
    for _ in range(3):
        target.gate.leave()
        await settled()
    await asyncio.gather(*waiting)
    assert [0, 1, 2] == order
    assert 1 == target.gate.in_use


async def test_a_higher_allowance_lets_waiters_in_at_once() -> None:
    """As many as it allows."""
    target = Target(0)
    waiting = [asyncio.create_task(target.enter()) for _ in range(3)]
    await settled()
    target.tell(2)
    await settled()
    assert [True, True, False] == [task.done() for task in waiting]
    target.gate.open()
    await asyncio.gather(*waiting)
    assert 3 == target.gate.in_use


async def test_who_waits_in_vain_is_told_when_to_come_back() -> None:
    """Those after him later, by the pace of the target; and he is not in."""
    target = Target(0)
    pauses = [await target.enter(0.001) for _ in range(3)]
    seconds = [pause.total_seconds() for pause in pauses if pause is not None]
    assert [pytest.approx(1.0), pytest.approx(1.05), pytest.approx(1.1)] == seconds
    assert (0, 0) == (target.gate.in_use, target.gate.waiting)


async def test_the_place_of_who_comes_back_soon_is_kept() -> None:
    """Otherwise a process with a single action would never be the one that has waited longest."""
    target = Target(0)
    assert None is not await target.enter(0)
    target.clock.seconds += 2
    target.gate.claim()
    assert LimitRequest(held=0, wanted=1) == target.gate.claim()
    target.clock.seconds += 2
    assert LimitRequest(held=0, wanted=0) == target.gate.claim()


async def test_no_more_than_half_of_a_queues_slots_wait() -> None:
    """The others are for those who go elsewhere."""
    target = Target(0, slots=5)
    waiting = [asyncio.create_task(target.enter()) for _ in range(2)]
    await settled()
    assert None is not await target.enter()
    assert None is not await target.enter(0.0)
    target.gate.open()
    await asyncio.gather(*waiting)


async def test_who_is_cancelled_while_waiting_takes_nothing_with_him() -> None:
    """Neither a place in the row nor one inside."""
    target = Target(0)
    first, second = (asyncio.create_task(target.enter()) for _ in range(2))
    await settled()
    first.cancel()
    await settled()
    assert 1 == target.gate.waiting
    target.tell(1)
    second.cancel()  # it has its turn already, but does not know yet
    await settled()
    assert (0, 0) == (target.gate.in_use, target.gate.waiting)
    assert None is await target.enter()


async def test_a_rate_lets_the_next_waiter_in_by_a_timer() -> None:
    """Nobody has to leave for that."""
    target = Target(parallel=None, rate=200.0, burst=1)
    target.clock.seconds += 1
    assert None is await target.enter()
    waiter = asyncio.create_task(target.enter())
    await settled()
    assert not waiter.done()
    target.clock.seconds += 0.006
    assert None is await waiter
    assert 2 == target.gate.in_use


async def test_those_who_were_there_before_the_gate_count() -> None:
    """Until they are gone."""
    target = Target(2)
    ids = [UUID(int=number) for number in range(3)]
    target.gate.find_elders(ids)
    assert 3 == target.gate.in_use
    assert None is not await target.enter(0)
    target.gate.forget_elders({ids[0], UUID(int=99)})
    assert 1 == target.gate.in_use
    assert None is await target.enter(0)


# -- attempts -------------------------------------------------------------------------------------


class Sink:
    """An executor that counts."""

    def __init__(self) -> None:
        self.orders: list[AttemptRequest] = []

    def serves(self, need: str) -> bool:
        return True

    async def execute(self, order: AttemptRequest) -> Outcome:
        self.orders.append(order)
        return Succeeded()

    async def close(self) -> None: ...


def to_mail(number: int, *, timeout_s: float = 15) -> BegunAttempt:
    spec = Spec(
        action=Kafka(target="mail", topic="t", value="v"),
        start_at=EPOCH,
        timeout=timedelta(seconds=timeout_s),
    )
    return msgspec.structs.replace(begun(number, timeout_s=timeout_s), spec=spec)


def slots_before(target: Target) -> tuple[Slots, Sink, list[FinishRequest]]:
    env = replace(surroundings()[0], clock=target.clock)
    sink = Sink()
    ended: list[FinishRequest] = []
    performer = AttemptRunner(
        {Kafka: sink},
        installation=INSTALLATION,
        env=env,
        send_within=timedelta(seconds=4),
        gates={"mail": target.gate},
    )
    slots = Slots(
        performer,
        clock=target.clock,
        concurrency_of=lambda _: 10,
        ended=lambda _, finish, *__: ended.append(finish),
    )
    return slots, sink, ended


async def test_an_attempt_that_finds_its_target_full_is_handed_back_for_later() -> None:
    """Not sent, no failure, and due again after the pause."""
    target = Target(0)
    slots, sink, ended = slots_before(target)
    slots.take([to_mail(1, timeout_s=0.01)], target.clock.seconds)
    await slots.drain(timedelta(seconds=5))
    assert [] == sink.orders
    assert ("abandoned", "the target mail is at its limit") == (ended[0].outcome, ended[0].error)
    assert EPOCH + timedelta(seconds=1) == ended[0].verdict.scheduled_at
    assert (0, 1) == (ended[0].verdict.failed, ended[0].verdict.interrupted)


async def test_an_attempt_that_gets_its_turn_is_sent_and_leaves() -> None:
    """Its time runs from its begin, as ever."""
    target = Target(1)
    slots, sink, ended = slots_before(target)
    slots.take([to_mail(1)], target.clock.seconds)
    await slots.drain(timedelta(seconds=5))
    assert (1, 0) == (len(sink.orders), target.gate.in_use)
    assert "succeeded" == ended[0].outcome


async def test_an_attempt_whose_turn_comes_too_late_is_not_sent() -> None:
    """The last look at the clock is after the wait; and the place is given back."""
    target = Target(0)
    slots, sink, ended = slots_before(target)
    slots.take([to_mail(1)], target.clock.seconds)
    await settled()
    assert 1 == target.gate.waiting
    target.clock.seconds += 4.1
    target.tell(1)
    await slots.drain(timedelta(seconds=5))
    assert ([], 0) == (sink.orders, target.gate.in_use)
    assert ("abandoned", "too late to send") == (ended[0].outcome, ended[0].error)


async def test_who_was_asked_to_end_before_the_target_is_not_sent() -> None:
    """It is let through, and does not go: nothing is sent for what was cancelled."""
    target = Target(0)
    slots, sink, ended = slots_before(target)
    slots.take([to_mail(1)], target.clock.seconds)
    await settled()
    slots.end({to_mail(1).attempt_id})
    target.tell(1)
    await slots.drain(timedelta(seconds=5))
    assert ([], ["cancelled"]) == (sink.orders, [finish.outcome for finish in ended])


# -- slots ----------------------------------------------------------------------------------------


async def test_what_is_being_begun_has_its_room_already() -> None:
    """Nobody else may count on it; what did not come is free again."""
    env, clock, _ = surroundings()
    performer = AttemptRunner(
        {}, installation=INSTALLATION, env=env, send_within=timedelta(seconds=4)
    )
    gates: dict[str, QueueGate] = {}
    slots = Slots(
        performer, clock=clock, concurrency_of=lambda _: 10, ended=lambda *_: None, gates=gates
    )
    hurry = Hurry()
    gates["default"] = gate = QueueGate(
        limit(parallel=4), clock, hurry, lambda: slots.in_use("default")
    )
    gate.tell(4, LimitRequest(held=0, wanted=10), TRUSTED)
    assert 4 == slots.free("default")
    promise = slots.promise({"default": 3})
    assert (1, 3) == (slots.free("default"), slots.in_use("default"))
    promise.close()
    promise.close()
    assert 4 == slots.free("default")
    slots.take([begun(1)], clock.seconds)
    assert 3 == slots.free("default")
    await slots.drain(timedelta(seconds=5))


async def test_a_limit_that_was_not_asked_yet_makes_no_queue_full() -> None:
    """It is asked when something is due; then one waits for its answer."""
    env, clock, _ = surroundings()
    performer = AttemptRunner(
        {}, installation=INSTALLATION, env=env, send_within=timedelta(seconds=4)
    )
    hurry = Hurry()
    gates = {"default": QueueGate(limit(parallel=4), clock, hurry, lambda: 0)}
    slots = Slots(
        performer, clock=clock, concurrency_of=lambda _: 10, ended=lambda *_: None, gates=gates
    )
    assert (0, False, 0) == (slots.free("default"), slots.is_full("default"), hurry.count)
    assert 0 == slots.ask("default")
    assert (True, 1) == (slots.is_full("default"), hurry.count)


async def test_nothing_begins_before_the_limits_are_known() -> None:
    """Slots that are closed have no room, and open once for all."""
    env, clock, _ = surroundings()
    performer = AttemptRunner(
        {}, installation=INSTALLATION, env=env, send_within=timedelta(seconds=4)
    )
    slots = Slots(
        performer, clock=clock, concurrency_of=lambda _: 10, ended=lambda *_: None, is_open=False
    )
    assert (0, True) == (slots.free("default"), slots.is_full("default"))
    slots.open()
    assert (10, False) == (slots.free("default"), slots.is_full("default"))
