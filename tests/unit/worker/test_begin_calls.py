"""What the store hands over before its answer is performed at once, and once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from gnomon.contracts.store import (
    ArrivalResult,
    BeginRequest,
    BeginResult,
    BegunAttempt,
    HandBegun,
    HeldShard,
    Lane,
    MoveResult,
)
from gnomon.model.errors import StoreUnavailable
from gnomon.worker.attempt_tally import AttemptTally
from gnomon.worker.begin_calls import BeginCalls
from gnomon.worker.config import WorkerConfig
from tests.unit.worker.surroundings import EPOCH, surroundings
from tests.unit.worker.test_slots import Gate, begun, settled, slots_with

LANE = Lane(0, "default", 5)
HELD = HeldShard(shard=0, lease_guid=UUID(int=7))
ONE, TWO, THREE = begun(1), begun(2), begun(3)


class Cluster:
    """A store that has begun three: one comes at once, one later, and the last with the answer, if
    there is one."""

    def __init__(self) -> None:
        self.goes_on = asyncio.Event()
        self.is_lost = False
        self.found: Sequence[BegunAttempt] = ()

    async def _hand(self, hand: HandBegun) -> list[BegunAttempt]:
        hand([ONE])
        await self.goes_on.wait()
        hand([TWO])
        if self.is_lost:
            raise StoreUnavailable("a node is away")
        return [ONE, TWO, THREE]

    async def begin(self, _: object, *, hand: HandBegun, **_more: object) -> BeginResult:
        return BeginResult(begun=await self._hand(hand), next_due={}, now=EPOCH)

    async def move_and_begin(self, _: object, *, hand: HandBegun, **_more: object) -> ArrivalResult:
        moved = MoveResult(count=0, lanes={}, marks={}, more=False, now=EPOCH)
        return ArrivalResult(moved=moved, begun=await self._hand(hand))

    async def find_begun(self, _shards: object, *, batch: UUID) -> Sequence[BegunAttempt]:
        del batch
        return self.found


class Situation:
    """A worker with five slots that asks for three."""

    def __init__(self) -> None:
        self.cluster, self.gate = Cluster(), Gate()
        self.slots, *_ = slots_with(self.gate, limit=5)
        env, _, self.audience = surroundings()
        store: Any = self.cluster
        self.calls = BeginCalls(
            store,
            owner="me",
            slots=self.slots,
            config=WorkerConfig(),
            env=env,
            tally=AttemptTally(),
        )

    def begin(self) -> asyncio.Task[Any]:
        demands = [BeginRequest(lane=LANE, lease_guid=UUID(int=7), limit=3)]
        return asyncio.create_task(self.calls.begin(demands))

    def arrive(self) -> asyncio.Task[Any]:
        return asyncio.create_task(
            self.calls.move_and_begin([HELD], room={"default": 3}, limit=3, first=True)
        )

    @property
    def called(self) -> Counter[str]:
        return Counter(order.id for order in self.gate.orders)

    async def end(self) -> None:
        self.gate.open.set()
        await self.slots.drain(timedelta(seconds=5))


@pytest.mark.parametrize("ask", [Situation.begin, Situation.arrive])
async def test_what_is_handed_does_not_wait_for_the_answer(
    ask: Callable[[Situation], asyncio.Task[Any]],
) -> None:
    """And is not performed again when that comes. The room is kept for those that follow."""
    situation = Situation()
    asking = ask(situation)
    await settled()
    assert Counter(a1=1) == situation.called
    assert (3, 2) == (situation.slots.in_use("default"), situation.slots.free("default"))
    situation.cluster.goes_on.set()
    await asking
    await settled()
    assert Counter(a1=1, a2=1, a3=1) == situation.called
    assert (3, 2) == (situation.slots.in_use("default"), situation.slots.free("default"))
    await situation.end()
    assert 0 == situation.slots.in_use("default")


@pytest.mark.parametrize("ask", [Situation.begin, Situation.arrive])
async def test_what_was_handed_before_a_lost_answer_is_performed_once(
    ask: Callable[[Situation], asyncio.Task[Any]],
) -> None:
    """What is found besides is performed, too, and no room stays promised."""
    situation = Situation()
    situation.cluster.is_lost = True
    situation.cluster.found = [THREE, TWO, ONE]
    situation.cluster.goes_on.set()
    with pytest.raises(StoreUnavailable):
        await ask(situation)
    await settled()
    assert Counter(a1=1, a2=1, a3=1) == situation.called
    assert 3 == situation.slots.in_use("default")
    await situation.end()
    assert 0 == situation.slots.in_use("default")


async def test_all_that_was_begun_is_counted_once() -> None:
    situation = Situation()
    situation.cluster.goes_on.set()
    await situation.begin()
    assert 3 == situation.audience.counts["attempts_begun"]
    await situation.end()
