"""Part of the suite: a user's open transaction holds actions, and workers go on without them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gnomon.contracts.store import Recorded, Store
from gnomon.model.action import State
from gnomon.model.outcome import Failed, Outcome, Succeeded, Unserved
from tests.conformance.store.suite.given import (
    HOUR,
    OWNER,
    SECOND,
    CallerTransaction,
    Given,
    every,
    retrying,
)


class TestHeld:
    """Whatever a user holds, for as long as he likes: nobody else waits for it."""

    async def test_a_held_result_does_not_hold_up_the_others(
        self, store: Store, given: Given
    ) -> None:
        """Results of all kinds: what ends, what goes on, what is told at length, what is not
        served."""
        told = (Succeeded(), Succeeded(answer="yes"), Failed(error="no"), Unserved("function f"))
        for outcome in told:
            await self._held_beside_others(store, given, outcome)

    async def _held_beside_others(self, store: Store, given: Given, outcome: Outcome) -> None:
        kind = f"{type(outcome).__name__}-{getattr(outcome, 'answer', None)}"
        held = await given.begun(f"x-{kind}", retry=retrying(1))
        free = await given.begun(f"y-{kind}", retry=retrying(1))
        finishes = [await given.finish_of(one, outcome) for one in (held, free)]
        async with deleting(store, given, held.id) as transaction:
            if transaction is None:
                return
            answers = await store.work.finish(finishes, owner=OWNER)
            assert [Recorded.HELD, Recorded.APPLIED] == list(answers)
            assert [Recorded.HELD] == list(await store.work.finish(finishes[:1], owner=OWNER))
            await transaction.roll_back()

        assert [Recorded.APPLIED] == list(await store.work.finish(finishes[:1], owner=OWNER))
        assert [] == list(await store.installation.doctor())

    async def test_what_the_user_ended_is_late(self, store: Store, given: Given) -> None:
        """He commits, and the result that waited has no action any more."""
        begun = await given.begun("x")
        finish = await given.finish_of(begun)
        async with deleting(store, given, "x") as transaction:
            if transaction is None:
                return
            assert [Recorded.HELD] == list(await store.work.finish([finish], owner=OWNER))
            await transaction.commit()

        assert [Recorded.LATE] == list(await store.work.finish([finish], owner=OWNER))
        assert State.CANCELLED is (await given.action("x")).status.state
        assert 0 == await given.queue_row_count()

    async def test_a_held_result_is_not_taken_for_interrupted(
        self, store: Store, given: Given
    ) -> None:
        """Its reservation is prolonged by asking, or it would be attempted a second time."""
        begun = await given.overrun("x")
        finish = await given.finish_of(begun)
        async with deleting(store, given, "x") as transaction:
            if transaction is None:
                return
            assert [Recorded.HELD] == list(await store.work.finish([finish], owner=OWNER))
            await transaction.roll_back()

        assert [] == list(await store.work.list_lapsed(await given.holdings(), limit=10))
        assert [Recorded.APPLIED] == list(await store.work.finish([finish], owner=OWNER))

    async def test_held_rows_are_not_settled_and_the_others_are(
        self, store: Store, given: Given
    ) -> None:
        """Neither what expired nor what was interrupted; nothing is waited for."""
        await given.overrun("ran")
        await given.overrun("ran-too")
        await given.moved("late", expires_in=-SECOND)
        await given.moved("late-too", expires_in=-SECOND)
        lapsed = [await given.lapsed(name) for name in ("ran", "ran-too", "late", "late-too")]
        settlements = [await given.settlement(one) for one in lapsed]
        async with deleting(store, given, "ran", "late") as transaction:
            if transaction is None:
                return
            found = await store.work.list_lapsed(await given.holdings(), limit=10)
            assert {"ran-too", "late-too"} == {one.id for one in found}
            assert 2 == await store.work.settle(settlements)
            await transaction.roll_back()

        found = await store.work.list_lapsed(await given.holdings(), limit=10)
        assert {"ran", "late"} == {one.id for one in found}
        assert [] == list(await store.installation.doctor())

    async def test_held_rows_are_not_begun_and_the_others_are(
        self, store: Store, given: Given
    ) -> None:
        """Also where they are the oldest of their lane."""
        held = given.name_in(0)
        await given.moved(held, due_in=-HOUR)
        await given.moved(given.name_in(0, "free"))
        async with deleting(store, given, held) as transaction:
            if transaction is None:
                return
            (begun,) = (await given.begin()).begun
            assert begun.id.startswith("free")
            await transaction.roll_back()

        assert [held] == [begun.id for begun in (await given.begin()).begun]

    async def test_a_long_attempt_is_extended_though_its_action_is_held(
        self, store: Store, given: Given
    ) -> None:
        """The reservation belongs to the attempt."""
        begun = await given.overrun("x", policy=every(HOUR))
        async with deleting(store, given, "x") as transaction:
            if transaction is None:
                return
            kept = await store.work.extend([begun], window=HOUR, grace=SECOND)
            assert {begun.attempt_id} == set(kept)
            await transaction.roll_back()

        assert [] == list(await store.work.list_lapsed(await given.holdings(), limit=10))


@asynccontextmanager
async def deleting(
    store: Store, given: Given, *names: str
) -> AsyncIterator[CallerTransaction | None]:
    """A user's transaction that has deleted actions, still open; None where it would hold the whole
    store: there is one writer at a time then, whoever it is."""
    if given.caller_transaction is None or not store.capabilities.parallel_writers:
        yield None
        return
    async with given.caller_transaction() as transaction:
        for name in names:
            await store.joining(transaction.connection).delete(name, if_match=None)
        yield transaction
