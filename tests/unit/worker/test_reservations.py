"""A process knows what it has in hand: it never calls its own attempts interrupted."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

import msgspec

from gnomon.contracts.env import Env
from gnomon.contracts.store import ActionStore, BegunAttempt, LapsedRow, ReservedAttempt, WorkStore
from gnomon.model.action import Action, Attempt, Meta
from gnomon.model.outcome import Succeeded
from gnomon.worker.attempt import finish_of
from gnomon.worker.config import WorkerConfig
from gnomon.worker.recorder import ResultRecorder
from gnomon.worker.reservations import DOUBTED_MAX_S, Reservations
from tests.unit.worker.surroundings import EPOCH, Audience, CountingEntropy
from tests.unit.worker.test_slots import Gate, begun, settled, slots_with


class Rows:
    """A store of reservations that remembers what it was asked to prolong."""

    def __init__(self) -> None:
        self.asked: list[UUID] = []
        self.lost: set[UUID] = set()
        self.actions: dict[str, Action] = {}

    async def extend(
        self, attempts: Sequence[ReservedAttempt], *, window: timedelta, grace: timedelta
    ) -> Collection[UUID]:
        assert window + grace > timedelta(0)
        self.asked += [attempt.attempt_id for attempt in attempts]
        return set(self.asked) - self.lost

    async def get(self, id: str) -> Action | None:
        return self.actions.get(id)


def lapsed(attempt: BegunAttempt) -> LapsedRow:
    return LapsedRow(
        shard=attempt.shard,
        id=attempt.id,
        guid=attempt.guid,
        spec=attempt.spec,
        status=attempt.status,
        attempt=Attempt(
            attempt_id=attempt.attempt_id, attempt_no=1, occurrence_no=1, began_at=EPOCH
        ),
        running=True,
        scheduled_at=EPOCH,
        now=EPOCH,
    )


class Place:
    """Slots, a recorder and the reservations of both."""

    def __init__(self) -> None:
        self.rows, self.gate, self.audience = Rows(), Gate(), Audience()
        self.slots, self.ended, self.clock, _ = slots_with(self.gate, limit=9)
        store = cast("WorkStore", cast("Any", self.rows))
        self.recorder = ResultRecorder(
            store, owner="me", batch=10, observer=self.audience, recorded=lambda _, __: None
        )
        self.reservations = Reservations(
            store,
            cast("ActionStore", cast("Any", self.rows)),
            slots=self.slots,
            recorder=self.recorder,
            config=WorkerConfig(window=timedelta(milliseconds=30)),
            env=Env(clock=self.clock, entropy=CountingEntropy(), observer=self.audience),
        )

    async def take(self, *attempts: BegunAttempt) -> None:
        for attempt in attempts:
            self.slots.take([attempt], self.clock.seconds)
        await settled()


async def test_what_is_in_hand_is_prolonged_and_not_settled() -> None:
    """In a slot, or its result not written yet: it is no interruption. The others are."""
    place = Place()
    await place.take(begun(1))
    place.recorder.put(finish_of(begun(2), Succeeded(), ended_after=timedelta(seconds=1)))
    found = [lapsed(begun(number)) for number in (1, 2, 3)]
    expired = msgspec.structs.replace(lapsed(begun(4)), running=False, attempt=None)
    assert ["a3", "a4"] == [row.id for row in await place.reservations.keep_own([*found, expired])]
    assert [begun(1).attempt_id, begun(2).attempt_id] == place.rows.asked
    assert 2 == place.audience.counts["reservations_outlived"]
    await place.slots.drain(timedelta(0))


async def test_an_attempt_that_another_worker_took_over_is_cancelled_here() -> None:
    """Told once, cut short, and its slot is free; what is still its own goes on."""
    place = Place()
    mine, taken = begun(1), begun(2)
    await place.take(mine, taken)
    place.rows.lost = {taken.attempt_id}
    meta = Meta(id=taken.id, guid=taken.guid, shard=0, created_at=EPOCH, updated_at=EPOCH)
    place.rows.actions[taken.id] = Action(meta=meta, spec=taken.spec, status=taken.status)
    await place.reservations.extend_long()
    await settled()
    assert ["a2"] == [finish.id for finish in place.ended]
    assert ["interrupted"] == [finish.outcome for finish in place.ended]
    assert ["attempt_lost"] == place.audience.events
    assert 1 == place.gate.inside
    await place.slots.drain(timedelta(0))


async def test_an_attempt_whose_action_was_replaced_goes_on_to_its_end() -> None:
    """It had begun before the change: the answer to the change named it."""
    place = Place()
    await place.take(begun(1))
    place.rows.lost = {begun(1).attempt_id}
    await place.reservations.extend_long()
    await place.reservations.extend_long()
    await settled()
    assert 1 == place.gate.inside
    assert ["attempt_lost"] == place.audience.events
    await place.slots.drain(timedelta(0))


async def test_a_process_that_stood_still_is_in_doubt_until_its_attempts_have_ended() -> None:
    """Elsewhere it would repeat what it has in hand. What is still its own, nobody can begin."""
    place = Place()
    mine, taken = begun(1), begun(2)
    await place.take(mine, taken)
    told = finish_of(begun(3), Succeeded(), ended_after=timedelta(seconds=1))
    place.recorder.put(told)
    assert not await place.reservations.are_in_doubt()
    assert [] == place.rows.asked
    place.rows.lost = {taken.attempt_id}
    place.clock.seconds += 1.0
    assert await place.reservations.are_in_doubt()
    assert [mine.attempt_id, taken.attempt_id] == place.rows.asked
    place.gate.open.set()
    await settled()
    assert 2 == len(place.ended)
    assert await place.reservations.are_in_doubt(), "a result is not written"
    place.recorder._unwritten.clear()
    assert not await place.reservations.are_in_doubt()
    await place.slots.drain(timedelta(0))


async def test_an_attempt_that_never_ends_is_not_waited_for_for_ever() -> None:
    place = Place()
    await place.take(begun(1))
    place.rows.lost = {begun(1).attempt_id}
    place.clock.seconds += 1.0
    await place.reservations.extend_long()
    assert await place.reservations.are_in_doubt()
    place.clock.seconds += DOUBTED_MAX_S + 1.0
    place.reservations._extended_s = place.clock.seconds
    assert not await place.reservations.are_in_doubt()
    await place.slots.drain(timedelta(0))
