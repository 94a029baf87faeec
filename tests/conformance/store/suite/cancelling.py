"""Part of the suite: an action is cancelled, and its attempt under way is asked to end."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from gnomon.contracts.store import BegunAttempt, Recorded, Store
from gnomon.model.action import State
from gnomon.model.outcome import Cancelled, Failed
from tests.conformance.store.suite.given import OWNER, SECOND, Given, retrying

TOLD = Cancelled(reason="as asked")


async def asked_of(
    store: Store, begun: BegunAttempt, *, owner: str = OWNER, later: timedelta = timedelta(0)
) -> set[UUID]:
    """What the worker of an attempt hears."""
    since = begun.began_at + later
    return set(await store.work.list_cancelling([begun.shard], owner=owner, since=since))


async def outcomes(store: Store, name: str) -> list[str]:
    return [attempt.outcome for attempt in await store.actions.list_attempts(name, limit=10)]


class TestCancelRunning:
    """`delete` with `running`, and `list_cancelling`."""

    async def test_the_worker_of_the_attempt_hears_of_it(self, store: Store, given: Given) -> None:
        """The action is gone from the active ones at once; the attempt is asked to end, and its
        worker hears it until it has told how that went."""
        begun = await given.begun("long")

        changed = await store.actions.delete("long", if_match=None, running=True)

        assert changed.asked
        assert changed.in_flight is not None
        assert begun.attempt_id == changed.in_flight.attempt_id
        assert State.CANCELLED is (await given.action("long")).status.state
        for _ in range(2):
            assert {begun.attempt_id} == await asked_of(store, begun)
        assert ["cancelling"] == await outcomes(store, "long")

    async def test_an_attempt_that_ends_as_asked_is_cancelled(
        self, store: Store, given: Given
    ) -> None:
        """The log says so, nobody is asked any more, and the action stays as it was."""
        begun = await given.begun("long")
        changed = await store.actions.delete("long", if_match=None, running=True)

        assert Recorded.LATE is await given.recorded(begun, TOLD)
        assert Recorded.REPEATED is await given.recorded(begun, TOLD)

        assert ["cancelled"] == await outcomes(store, "long")
        assert set() == await asked_of(store, begun)
        status = (await given.action("long")).status
        assert changed.action.status == status
        assert (State.CANCELLED, 1, 1) == (status.state, status.attempts, status.interrupted)
        assert [] == list(await store.installation.doctor())

    async def test_one_that_does_not_listen_tells_its_own_end(
        self, store: Store, given: Given
    ) -> None:
        """It had just finished, or goes on to its end: that is late, and does not bring the action
        back."""
        for name, outcome, told in [
            ("done", None, "late_succeeded"),
            ("failed", Failed(error="no"), "late_failed"),
        ]:
            begun = await given.begun(name, retry=retrying(3))
            await store.actions.delete(name, if_match=None, running=True)

            assert Recorded.LATE is await given.recorded(begun, outcome)

            assert [told] == await outcomes(store, name)
            assert set() == await asked_of(store, begun)
            assert State.CANCELLED is (await given.action(name)).status.state

    async def test_what_does_not_run_is_cancelled_and_nobody_is_asked(
        self, store: Store, given: Given
    ) -> None:
        """Before its time, between two attempts, paused."""
        begun = await given.begun("between", retry=retrying(3))
        await given.recorded(begun, Failed(error="no"))
        await given.created("early")
        await given.created("paused")
        await store.actions.pause("paused", given.entropy.guid(), if_match=None)

        for name in ("early", "between", "paused"):
            changed = await store.actions.delete(name, if_match=None, running=True)
            assert (None, False) == (changed.in_flight, changed.asked)
            assert State.CANCELLED is changed.action.status.state
        assert set() == await asked_of(store, begun)

    async def test_without_running_the_attempt_goes_on(self, store: Store, given: Given) -> None:
        """As ever: it is named, and nobody asks it to end."""
        begun = await given.begun("long")

        changed = await store.actions.delete("long", if_match=None)

        assert not changed.asked
        assert set() == await asked_of(store, begun)
        assert Recorded.LATE is await given.recorded(begun, TOLD)
        assert ["late_cancelled"] == await outcomes(store, "long")

    async def test_others_hear_nothing(self, store: Store, given: Given) -> None:
        """Nor does one whose attempts all began later: it need not look at what is old."""
        begun = await given.begun("long")
        await store.actions.delete("long", if_match=None, running=True)

        assert set() == await asked_of(store, begun, owner="another")
        assert set() == await asked_of(store, begun, later=SECOND)

    async def test_the_next_action_of_the_id_is_left_alone(
        self, store: Store, given: Given
    ) -> None:
        """The ask is about one attempt; whoever uses the id again is not meant."""
        first = await given.begun("again")
        await store.actions.delete("again", if_match=None, running=True)
        second = await given.begun("again")

        assert {first.attempt_id} == await asked_of(store, first)
        assert Recorded.LATE is await given.recorded(first, TOLD)
        assert Recorded.APPLIED is await given.recorded(second)
        assert State.DONE is (await given.action("again")).status.state

    async def test_an_ask_in_a_transaction_that_is_rolled_back_was_none(
        self, store: Store, given: Given
    ) -> None:
        """In the caller's own transaction it counts when that commits."""
        if given.caller_transaction is None:
            pytest.skip("this engine joins no transaction here")
        begun = await given.begun("long")
        async with given.caller_transaction() as caller:
            joined = store.joining(caller.connection)
            assert (await joined.delete("long", if_match=None, running=True)).asked
            await caller.roll_back()
        assert set() == await asked_of(store, begun)

        async with given.caller_transaction() as caller:
            joined = store.joining(caller.connection)
            await joined.delete("long", if_match=None, running=True)
            await caller.commit()
        assert {begun.attempt_id} == await asked_of(store, begun)
