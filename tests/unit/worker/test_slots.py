"""Slots: each queue within its limit, and nothing in hand is ever dropped silently."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from uuid import UUID

import msgspec
import pytest

from gnomon.contracts.executor import ASKED_TO_END, AttemptRequest, Executor
from gnomon.contracts.store import BegunAttempt, FinishRequest
from gnomon.model.action import State, Status
from gnomon.model.outcome import Outcome, Succeeded
from gnomon.model.spec import Cron, Mock, Spec
from gnomon.model.transition import UNDECIDABLE
from gnomon.worker.attempt import AttemptRunner
from gnomon.worker.loop_turn import TURN_MAX, TURN_S_MAX
from gnomon.worker.slots import (
    STARTED_AT_FIRST,
    QueueSlots,
    Slots,
    TotalSlots,
)
from tests.unit.worker.surroundings import EPOCH, Audience, HandClock, surroundings

INSTALLATION = UUID(int=1)


class Gate:
    """An executor that waits until the test opens it."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.inside = 0
        self.most = 0
        self.orders: list[AttemptRequest] = []

    def serves(self, need: str) -> bool:
        return True

    async def execute(self, order: AttemptRequest) -> Outcome:
        self.orders.append(order)
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            await self.open.wait()
        finally:
            self.inside -= 1
        return Succeeded()

    async def close(self) -> None: ...


class Raising:
    """An executor that raises what a test gives it."""

    def __init__(self, exc: BaseException) -> None:
        self._exc = exc

    def serves(self, need: str) -> bool:
        return True

    async def execute(self, order: AttemptRequest) -> Outcome:
        raise self._exc

    async def close(self) -> None: ...


class Broken:
    """An executor with a bug."""

    def serves(self, need: str) -> bool:
        return True

    async def execute(self, order: AttemptRequest) -> Outcome:
        raise ZeroDivisionError(order.id)

    async def close(self) -> None: ...


def begun(number: int, *, queue: str = "default", timeout_s: float = 15) -> BegunAttempt:
    timeout = timedelta(seconds=timeout_s)
    return BegunAttempt(
        shard=0,
        id=f"a{number}",
        guid=UUID(int=number),
        attempt_id=UUID(int=1000 + number),
        spec=Spec(action=Mock(), queue=queue, timeout=timeout, start_at=EPOCH),
        status=Status(attempts=1, occurrence_at=EPOCH),
        scheduled_at=EPOCH,
        began_at=EPOCH,
        deadline=EPOCH + timeout,
    )


def slots_with(
    executor: Executor | None, *, limit: int = 2, attempts_max: int = 1000
) -> tuple[Slots, list[FinishRequest], HandClock, Audience]:
    env, clock, audience = surroundings()
    ended: list[FinishRequest] = []
    performer = AttemptRunner(
        {} if executor is None else {Mock: executor},
        installation=INSTALLATION,
        env=env,
        send_within=timedelta(seconds=4),
    )
    slots = Slots(
        performer,
        clock=clock,
        concurrency_of=lambda queue: 0 if queue == "closed" else limit,
        ended=lambda _, finish, *__: ended.append(finish),
        attempts_max=attempts_max,
        observer=audience,
    )
    return slots, ended, clock, audience


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_no_more_attempts_at_once_than_the_limit() -> None:
    """Concurrency per queue holds."""
    gate = Gate()
    slots, ended, clock, _ = slots_with(gate)
    for number in range(6):
        slots.take([begun(number)], clock.seconds)
    await settled()
    assert 2 == gate.inside
    assert 6 == slots.in_hand
    gate.open.set()
    await slots.drain(timedelta(seconds=5))
    assert 2 == gate.most
    assert ["succeeded"] * 6 == [finish.outcome for finish in ended]


def times_of(slots: Slots) -> dict[str, tuple[float, float]]:
    """How late each attempt was and how long it took, by the id of its action."""
    times: dict[str, tuple[float, float]] = {}

    def note(begun: BegunAttempt, _: FinishRequest, late_s: float, took_s: float) -> None:
        times[begun.id] = (late_s, took_s)

    slots._ended = note
    return times


async def test_an_attempt_is_late_until_its_executor_is_called_and_lasts_from_then_on() -> None:
    """Waiting for a slot is lateness, no duration; so is waiting for its time, begun ahead."""
    gate = Gate()
    slots, _, clock, _ = slots_with(gate, limit=1)
    times = times_of(slots)
    armed = msgspec.structs.replace(begun(2), waited=timedelta(seconds=0.5))
    slots.take([begun(1), armed], clock.seconds)
    await settled()
    clock.seconds += 2
    gate.open.set()
    await slots.drain(timedelta(seconds=5))
    assert {"a1": (0.0, 2.0), "a2": (2.5, 0.0)} == times


async def test_what_is_cut_short_lasted_from_the_call_of_its_executor() -> None:
    """And what never had a slot took no time."""
    slots, _, clock, _ = slots_with(Gate(), limit=1)
    times = times_of(slots)
    clock.seconds += 1
    slots.take([begun(1), begun(2)], clock.seconds - 1)
    await settled()
    clock.seconds += 2
    await slots.drain(timedelta(0))
    assert {"a1": (1.0, 2.0), "a2": (3.0, 0.0)} == times


async def test_what_is_too_late_to_be_sent_took_no_time() -> None:
    """Its executor is never called."""
    slots, _, clock, _ = slots_with(Gate())
    times = times_of(slots)
    slots.take([begun(1)], clock.seconds - 10)
    await settled()
    assert {"a1": (10.0, 0.0)} == times


async def test_those_that_are_first_come_before_all_that_wait() -> None:
    """An arrival in the middle of a backlog has the next slot."""
    gate = Gate()
    slots, ended, clock, _ = slots_with(gate)
    slots.take([begun(number) for number in range(4)], clock.seconds)
    await settled()
    slots.take([begun(9)], clock.seconds, first=True)
    gate.open.set()
    await slots.drain(timedelta(seconds=5))
    assert "a9" in [finish.id for finish in ended][:3]


async def test_queues_do_not_wait_for_each_other() -> None:
    """A full queue leaves the slots of another free."""
    gate = Gate()
    slots, _, clock, _ = slots_with(gate)
    for number in range(3):
        slots.take([begun(number, queue="full")], clock.seconds)
    slots.take([begun(9, queue="other")], clock.seconds)
    await settled()
    assert 3 == gate.inside
    assert 0 == slots.free("full")
    assert 1 == slots.free("other")
    assert 0 == slots.free("closed")
    gate.open.set()
    await slots.drain(timedelta(seconds=5))


async def test_an_attempt_that_waited_too_long_is_abandoned_and_not_sent() -> None:
    """Directly before sending, the monotonic clock is looked at."""
    gate = Gate()
    slots, ended, clock, _ = slots_with(gate)
    slots.take([begun(1)], clock.seconds - 4.1)
    await settled()
    assert [] == gate.orders
    assert ["abandoned"] == [finish.outcome for finish in ended]
    assert State.ACTIVE == ended[0].verdict.state


async def test_a_hanging_executor_is_cut_off_at_the_timeout() -> None:
    """Every attempt has a hard deadline enforced by the worker."""
    gate = Gate()
    slots, ended, clock, _ = slots_with(gate)
    slots.take([begun(1, timeout_s=0.01)], clock.seconds)
    await slots.drain(timedelta(seconds=5))
    assert ["failed"] == [finish.outcome for finish in ended]
    assert "timed out after 0.01 s" == ended[0].error


async def test_an_executor_that_raises_fails_the_attempt_only() -> None:
    """A bug in an executor is a failed attempt, seen by the observer."""
    slots, ended, clock, audience = slots_with(Broken())
    slots.take([begun(1)], clock.seconds)
    await slots.drain(timedelta(seconds=5))
    assert "ZeroDivisionError: a1" == ended[0].error
    assert ["executor_raised", "action_dead"] == audience.events


async def test_an_effect_without_executor_is_handed_back() -> None:
    """A worker that cannot perform something says what it takes, and others may try."""
    slots, ended, clock, _ = slots_with(None)
    slots.take([begun(1)], clock.seconds)
    await slots.drain(timedelta(seconds=5))
    assert ("unserved", "kind mock", None) == (ended[0].outcome, ended[0].need, ended[0].error)


async def test_drain_interrupts_what_does_not_end_and_abandons_what_was_not_sent() -> None:
    """At shutdown every attempt in hand gets a result, so that others can go on at once."""
    gate = Gate()
    slots, ended, clock, _ = slots_with(gate, limit=1)
    slots.take([begun(1)], clock.seconds)
    slots.take([begun(2)], clock.seconds)
    await settled()
    await slots.drain(timedelta(seconds=0))
    outcomes = {finish.id: finish.outcome for finish in ended}
    assert {"a1": "interrupted", "a2": "abandoned"} == outcomes
    assert 0 == slots.in_hand
    assert all(finish.verdict.scheduled_at is not None for finish in ended)


async def test_the_executor_is_told_key_number_and_deadline() -> None:
    """The receiver gets what it needs to recognise repeats and to refuse late ones."""
    gate = Gate()
    gate.open.set()
    slots, _, clock, _ = slots_with(gate)
    slots.take([begun(1)], clock.seconds - 1)
    await slots.drain(timedelta(seconds=5))
    (order,) = gate.orders
    assert ("a1", 1, 1) == (order.id, order.attempt_no, order.occurrence_no)
    assert order.key.startswith("act_")
    assert 36 == len(order.key)
    assert EPOCH + timedelta(seconds=15) == order.deadline
    assert 14.0 == order.timeout_s


async def test_an_action_that_cannot_be_decided_is_performed_once_and_dead() -> None:
    """A time zone that this host does not know repeats no effect and ends no slot."""
    gate = Gate()
    gate.open.set()
    slots, ended, clock, _ = slots_with(gate, limit=1)
    cron = Cron(expression="* * * * *", timezone="Europe/Kyyv")
    poison = msgspec.structs.replace(begun(1).spec, policy=cron)
    slots.take([msgspec.structs.replace(begun(1), spec=poison)], clock.seconds)
    slots.take([begun(2)], clock.seconds)
    await slots.drain(timedelta(seconds=5))
    assert ["succeeded", "succeeded"] == [finish.outcome for finish in ended]
    assert State.DEAD == ended[0].verdict.state
    assert (ended[0].verdict.reason or "").startswith(UNDECIDABLE)


@pytest.mark.parametrize("exc", [asyncio.CancelledError(), SystemExit(3)], ids=repr)
async def test_an_executor_that_cancels_or_exits_fails_its_attempt(exc: BaseException) -> None:
    """Only the shutdown is a planned interruption: all else counts, or it would go on for ever."""
    slots, ended, clock, _ = slots_with(Raising(exc), limit=1)
    slots.take([begun(1)], clock.seconds)
    slots.take([begun(2)], clock.seconds)
    await slots.drain(timedelta(seconds=5))
    assert ["failed", "failed"] == [finish.outcome for finish in ended]


# -- pace, total and what is lost -----------------------------------------------------------------


async def test_a_pace_is_known_soon() -> None:
    """Until then no more is begun than there are slots: that is for hundredths of a second."""
    gate = Gate()
    gate.open.set()
    slots, _, clock, _ = slots_with(gate, limit=10)
    for number in range(20):
        clock.seconds += 0.001
        slots.take([begun(number)], clock.seconds)
        await settled()
    assert 200 < slots.free("default")
    await slots.drain(timedelta(seconds=5))


class Quick:
    """An executor that never waits. It counts how many calls there are between two turns of the
    loop."""

    def __init__(self, took_s: float = 0.0) -> None:
        self.calls: list[int] = [0]
        self.clock: HandClock | None = None
        self._took_s = took_s

    def serves(self, need: str) -> bool:
        return True

    async def execute(self, order: AttemptRequest) -> Outcome:
        self.calls[-1] += 1
        if self.clock is not None:
            self.clock.seconds += self._took_s
        return Succeeded()

    async def close(self) -> None: ...

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.calls.append(0)


async def test_attempts_that_never_wait_let_the_loop_turn_together() -> None:
    """The loop brings what comes next and records what has ended: a hundred slots, each with some
    attempts in its turn, kept it from that until all were performed."""
    quick = Quick()
    slots, ended, clock, _ = slots_with(quick, limit=100)
    watching = asyncio.create_task(quick.watch())
    slots.take([begun(number) for number in range(2_000)], clock.seconds)
    await slots.drain(timedelta(seconds=5))
    watching.cancel()
    assert 2_000 == len(ended) == sum(quick.calls)
    assert max(quick.calls) < TURN_MAX + STARTED_AT_FIRST
    assert len(quick.calls) < 2 * 2_000 / TURN_MAX  # and it does not turn for every attempt


async def test_attempts_that_compute_let_the_loop_turn_soon() -> None:
    quick = Quick(TURN_S_MAX / 4)
    slots, ended, clock, _ = slots_with(quick, limit=100)
    quick.clock = clock
    watching = asyncio.create_task(quick.watch())
    slots.take([begun(number) for number in range(100)], clock.seconds)
    await slots.drain(timedelta(seconds=5))
    watching.cancel()
    assert 100 == len(ended)
    assert max(quick.calls) <= 5 + STARTED_AT_FIRST


async def test_attempts_that_wait_have_all_slots_within_some_turns() -> None:
    """One slot that goes on with quick ones does not keep the others from being started."""
    gate = Gate()
    slots, ended, clock, _ = slots_with(gate, limit=100)
    slots.take([begun(number) for number in range(300)], clock.seconds)
    await settled()
    assert 100 == gate.inside
    gate.open.set()
    await slots.drain(timedelta(seconds=5))
    assert 300 == len(ended)


async def test_what_was_handed_back_before_is_abandoned() -> None:
    """Its row has a need: only who serves that begins it, and none of them hands it back."""
    slots, ended, clock, _ = slots_with(Gate(), limit=1)
    slots.take([begun(1)], clock.seconds)
    slots.take([msgspec.structs.replace(begun(2), need="kind mock")], clock.seconds)
    await settled()
    clock.seconds += 4.1
    slots.tidy()
    assert ["abandoned"] == [finish.outcome for finish in ended]
    await slots.drain(timedelta(seconds=0))


def test_one_slow_attempt_says_little_of_what_can_be_performed() -> None:
    """A wait for the processor in one of many is no reason to arm a tenth of a burst; but when all
    of them are slow it is soon known."""
    queue = QueueSlots("default", 10, TotalSlots(100))
    for _ in range(100):
        queue.count_end(0.0, 20e-6, is_alone=True)
    queue.count_end(0.0, 5e-3, is_alone=True)
    assert queue.each_s < 25e-6
    for _ in range(100):
        queue.count_end(0.0, 5e-3, is_alone=True)
    assert queue.each_s > 3e-3


async def test_what_was_handed_back_unsent_is_no_pace() -> None:
    """After quick attempts come slow ones: little is begun ahead, however many are handed back.
    They are due when they were, before what came since, and not counted."""
    gate = Gate()
    gate.open.set()
    slots, ended, clock, _ = slots_with(gate, limit=10)
    for number in range(600):
        clock.seconds += 0.001
        slots.take([begun(number)], clock.seconds)
        await settled()
    assert 200 < slots.free("default")
    gate.open.clear()
    for number in range(1000, 1300):
        slots.take([begun(number)], clock.seconds)
    await settled()
    clock.seconds += 4.1
    slots.tidy()
    handed_back = [finish for finish in ended if finish.outcome == "unserved"]
    assert 290 == len(handed_back)
    assert {begun(1).status.scheduled_at} == {finish.verdict.scheduled_at for finish in handed_back}
    assert {0} == {finish.verdict.interrupted for finish in handed_back}
    assert {""} == {finish.need for finish in handed_back}
    assert 10 > slots.free("default")
    gate.open.set()
    await settled()
    clock.seconds += 0.2
    assert 20 > slots.free("default") - 10
    await slots.drain(timedelta(seconds=5))


async def test_all_queues_together_stay_within_the_total() -> None:
    """A thousand queue names make no hundred thousand attempts at once; each gets its turn."""
    gate = Gate()
    slots, _, clock, _ = slots_with(gate, limit=4, attempts_max=10)
    names = [f"q{number:03}" for number in range(50)]
    turns: Counter[str] = Counter()
    number = 0
    for _ in range(30):
        room = slots.share(names, slots.free)
        assert 10 >= sum(room.values())
        for queue, count in room.items():
            turns[queue] += count
            for _ in range(count):
                number += 1
                slots.take([begun(number, queue=queue)], clock.seconds)
        assert {} == slots.share(names, slots.free)
        await settled()
        assert 10 == gate.inside
        gate.open.set()
        await settled()
        gate.open.clear()
    assert set(names) == set(turns)
    assert 10 == gate.most


async def test_the_total_does_not_hold_back_what_is_begun_ahead() -> None:
    """What waits for a slot of its own queue is not performed, so it is not counted."""
    gate = Gate()
    gate.open.set()
    slots, _, clock, _ = slots_with(gate, limit=10, attempts_max=10)
    for number in range(600):
        clock.seconds += 0.001
        slots.take([begun(number)], clock.seconds)
        await settled()
    assert 200 < slots.free("default")


async def test_queues_that_are_idle_are_forgotten() -> None:
    """Users name queues: the worker keeps nothing of those that it has nothing of."""
    gate = Gate()
    gate.open.set()
    slots, _, clock, _ = slots_with(gate)
    for number in range(100):
        slots.take([begun(number, queue=f"q{number}")], clock.seconds)
    await settled()
    clock.seconds += 60
    assert 100 == len(slots.tidy())
    assert {} == slots.tidy()


async def test_a_lost_attempt_is_cut_short_and_its_slot_goes_on() -> None:
    """A newer attempt runs elsewhere: this one is cancelled, and the next one gets its slot."""
    gate = Gate()
    slots, ended, clock, _ = slots_with(gate, limit=1)
    slots.take([begun(1)], clock.seconds)
    slots.take([begun(2)], clock.seconds)
    await settled()
    slots.lose({begun(1).attempt_id})
    await settled()
    assert [("a1", "interrupted")] == [(finish.id, finish.outcome) for finish in ended]
    assert 1 == gate.inside
    gate.open.set()
    await slots.drain(timedelta(seconds=5))
    assert [("a1", "interrupted"), ("a2", "succeeded")] == [
        (finish.id, finish.outcome) for finish in ended
    ]


async def test_a_bug_in_a_slot_is_told() -> None:
    """Nobody waits for a slot, so what ends it is not left to the garbage collector."""
    slots, _, clock, audience = slots_with(Gate())

    def broken(_: BegunAttempt, __: FinishRequest, *___: float) -> None:
        raise ZeroDivisionError

    slots._ended = broken
    gate = slots._performer._executors[Mock]
    assert isinstance(gate, Gate)
    gate.open.set()
    slots.take([begun(1)], clock.seconds)
    await settled()
    assert ["worker_bug"] == audience.events


# -- asked to end ---------------------------------------------------------------------------------


class Stubborn(Gate):
    """An executor that swallows the first cancellation, and remembers what each said."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[object] = []

    async def execute(self, order: AttemptRequest) -> Outcome:
        try:
            return await super().execute(order)
        except asyncio.CancelledError as exc:
            self.told.append(exc.args)
        return await super().execute(order)


async def test_an_attempt_that_was_asked_to_end_is_cancelled_and_its_slot_goes_on() -> None:
    """Its executor is cancelled, which says why; the next attempt of the slot is not meant."""
    gate = Gate()
    slots, ended, clock, _ = slots_with(gate, limit=1)
    slots.take([begun(1), begun(2)], clock.seconds)
    await settled()
    slots.end({begun(1).attempt_id})
    await settled()
    assert [("a1", "cancelled")] == [(finish.id, finish.outcome) for finish in ended]
    assert 1 == gate.inside
    gate.open.set()
    await slots.drain(timedelta(seconds=5))
    assert [("a1", "cancelled"), ("a2", "succeeded")] == [
        (finish.id, finish.outcome) for finish in ended
    ]


async def test_an_attempt_that_waits_for_its_slot_gets_none_if_it_was_asked_to_end() -> None:
    """Nothing is sent for it."""
    gate = Gate()
    slots, ended, clock, _ = slots_with(gate, limit=1)
    slots.take([begun(1), begun(2)], clock.seconds)
    await settled()
    slots.end({begun(2).attempt_id})
    ends = [(finish.id, finish.outcome, finish.error) for finish in ended]
    assert [("a2", "cancelled", "cancelled before it was performed")] == ends
    gate.open.set()
    await slots.drain(timedelta(seconds=5))
    assert ["a1"] == [order.id for order in gate.orders]
    assert 0 == slots.in_hand


async def test_an_attempt_is_asked_to_end_once_and_may_go_on() -> None:
    """Who swallows it goes on to its own end, however often the ask is heard."""
    gate = Stubborn()
    slots, ended, clock, _ = slots_with(gate, limit=1)
    slots.take([begun(1)], clock.seconds)
    await settled()
    for _ in range(3):
        slots.end({begun(1).attempt_id})
        await settled()
    assert [(ASKED_TO_END,)] == gate.told
    assert 1 == gate.inside
    gate.open.set()
    await slots.drain(timedelta(seconds=5))
    assert [("a1", "succeeded")] == [(finish.id, finish.outcome) for finish in ended]


async def test_who_does_not_end_as_asked_is_cancelled_at_its_deadline() -> None:
    """The time-out stays in force, and the slot goes on as if nothing had been."""
    gate = Stubborn()
    slots, ended, clock, _ = slots_with(gate, limit=1)
    slots.take([begun(1, timeout_s=0.05)], clock.seconds)
    await settled()
    slots.end({begun(1).attempt_id})
    async with asyncio.timeout(10):
        await slots.freed()
    assert [("a1", "cancelled")] == [(finish.id, finish.outcome) for finish in ended]
    slots.take([begun(2)], clock.seconds)
    await settled()
    gate.open.set()
    await slots.drain(timedelta(seconds=5))
    assert [("a2", "succeeded")] == [(finish.id, finish.outcome) for finish in ended[1:]]
