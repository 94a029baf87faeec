"""Part of the suite: pause, resume, run now."""

from __future__ import annotations

from datetime import datetime

from gnomon.contracts.store import Recorded, Store
from gnomon.model.action import Action, State
from gnomon.model.errors import Conflict, FailedPrecondition, NotFound
from gnomon.model.outcome import Failed
from tests.conformance.store.suite.given import HOUR, SECOND, Given, every, refusal, retrying

Decision = tuple[datetime, datetime, datetime | None]


def at_once(_: Action, now: datetime) -> Decision:
    """Resume now."""
    return now, now, None


class TestPause:
    """`pause`: nothing begins."""

    async def test_a_paused_action_does_not_begin(self, store: Store, given: Given) -> None:
        """Nothing begins until it is resumed, whichever queue its row was in."""
        for name in ("moved", "waiting"):
            await given.created(name)
            if name == "moved":
                await given.move()
            await store.actions.pause(name, given.entropy.guid(), if_match=None)

        assert 0 == await given.move()
        assert [] == list((await given.begin()).begun)
        assert State.PAUSED is (await given.action("moved")).status.state

    async def test_pausing_gives_a_new_generation_and_keeps_the_counters(
        self, store: Store, given: Given
    ) -> None:
        """The guid changes, what was counted does not."""
        begun = await given.begun("rest", policy=every(HOUR))
        await given.recorded(begun)
        before = await given.action("rest")
        guid = given.entropy.guid()

        changed = await store.actions.pause("rest", guid, if_match=before.meta.guid)

        assert guid == changed.action.meta.guid
        assert 1 == changed.action.status.attempts
        assert 1 == changed.action.status.succeeded
        assert before.status.occurrence_no == changed.action.status.occurrence_no
        assert before.status.occurrence_at == changed.action.status.occurrence_at
        assert changed.action == await store.actions.get("rest")

    async def test_a_paused_action_is_returned_unchanged(self, store: Store, given: Given) -> None:
        """Pausing twice is pausing once."""
        paused = await given.paused("rest")

        again = await store.actions.pause("rest", given.entropy.guid(), if_match=None)

        assert paused == again.action

    async def test_what_does_not_live_is_not_found(self, store: Store, given: Given) -> None:
        """Unknown and finished ids alike."""
        await given.finished("done")

        for name in ("none", "done"):
            call = store.actions.pause(name, given.entropy.guid(), if_match=None)
            assert isinstance(await refusal(call), NotFound)

    async def test_another_generation_is_a_conflict(self, store: Store, given: Given) -> None:
        """`if_match` guards pausing too."""
        await given.created("rest")
        guids = given.entropy.guid(), given.entropy.guid()

        error = await refusal(store.actions.pause("rest", guids[0], if_match=guids[1]))

        assert isinstance(error, Conflict)

    async def test_the_attempt_in_flight_is_superseded(self, store: Store, given: Given) -> None:
        """It is named, closed in the log, and its result is late."""
        begun = await given.begun("rest", policy=every(HOUR))

        changed = await store.actions.pause("rest", given.entropy.guid(), if_match=None)

        assert changed.in_flight is not None
        assert begun.attempt_id == changed.in_flight.attempt_id
        assert Recorded.LATE is await given.recorded(begun)
        assert 0 == (await given.action("rest")).status.succeeded
        assert [] == list(await store.installation.doctor())


class TestResume:
    """`resume`: as the caller decides."""

    async def test_a_resumed_action_begins_again(self, store: Store, given: Given) -> None:
        """It is appended to the incoming queue under its new guid."""
        await given.paused("back")
        guid = given.entropy.guid()

        changed = await store.actions.resume("back", guid, decide=at_once, if_match=None)

        assert State.ACTIVE is changed.action.status.state
        assert 1 == await given.move()
        assert guid == (await given.begun_once_due("back")).guid

    async def test_the_caller_decides_its_times(self, store: Store, given: Given) -> None:
        """`decide` sees the action and the database's present, and its answer is stored."""
        paused = await given.paused("back")
        seen: list[Action] = []

        def decide(action: Action, now: datetime) -> Decision:
            seen.append(action)
            return now + HOUR, now + SECOND, now + 2 * HOUR

        changed = await store.actions.resume(
            "back", given.entropy.guid(), decide=decide, if_match=paused.meta.guid
        )

        status = changed.action.status
        assert paused == seen[0]
        assert status.scheduled_at is not None
        assert status.occurrence_at is not None
        assert status.expires_at is not None
        assert HOUR - SECOND == status.scheduled_at - status.occurrence_at
        assert HOUR == status.expires_at - status.scheduled_at

    async def test_counters_survive_the_pause(self, store: Store, given: Given) -> None:
        """attempts = succeeded + failed + interrupted, before and after."""
        begun = await given.begun("back", policy=every(HOUR))
        await given.recorded(begun)
        await store.actions.pause("back", given.entropy.guid(), if_match=None)
        await store.actions.resume("back", given.entropy.guid(), decide=at_once, if_match=None)
        await given.move()

        again = await given.begun_once_due("back")

        assert 2 == again.status.attempts
        assert 1 == again.status.succeeded
        assert [] == list(await store.installation.doctor())

    async def test_an_active_action_is_returned_unchanged(self, store: Store, given: Given) -> None:
        """There is nothing to resume."""
        active = await given.created("back")

        changed = await store.actions.resume(
            "back", given.entropy.guid(), decide=at_once, if_match=None
        )

        assert active == changed.action
        assert 1 == await given.move()

    async def test_what_does_not_live_is_not_found(self, store: Store, given: Given) -> None:
        """Unknown ids cannot be resumed."""
        call = store.actions.resume("none", given.entropy.guid(), decide=at_once, if_match=None)

        assert isinstance(await refusal(call), NotFound)

    async def test_another_generation_is_a_conflict(self, store: Store, given: Given) -> None:
        """`if_match` guards resuming too."""
        await given.paused("back")
        guids = given.entropy.guid(), given.entropy.guid()

        call = store.actions.resume("back", guids[0], decide=at_once, if_match=guids[1])

        assert isinstance(await refusal(call), Conflict)
        assert State.PAUSED is (await given.action("back")).status.state


class TestRunNow:
    """`run_now`: an occurrence of its own, at once."""

    async def test_it_is_due_at_once(self, store: Store, given: Given) -> None:
        """An action planned for later begins now, under the new guid, and only so."""
        await given.moved("soon", due_in=HOUR)
        guid = given.entropy.guid()

        await store.actions.run_now("soon", guid, if_match=None)
        await given.move()

        assert guid == (await given.begun_once_due("soon")).guid
        assert [] == list((await given.begin()).begun)

    async def test_its_first_occurrence_keeps_its_number(self, store: Store, given: Given) -> None:
        """Nothing was attempted yet: it is the first occurrence, early."""
        await given.created("soon", due_in=HOUR)

        changed = await store.actions.run_now("soon", given.entropy.guid(), if_match=None)

        assert 1 == changed.action.status.occurrence_no

    async def test_after_an_attempt_it_is_an_occurrence_of_its_own(
        self, store: Store, given: Given
    ) -> None:
        """occurrence_no grows by one, counters are kept, retries start anew."""
        begun = await given.begun("soon", retry=retrying(5))
        await given.recorded(begun, Failed(error="no"))

        changed = await store.actions.run_now("soon", given.entropy.guid(), if_match=None)

        assert 2 == changed.action.status.occurrence_no
        assert 1 == changed.action.status.attempts
        assert 1 == changed.action.status.failed
        assert changed.action == await store.actions.get("soon")

    async def test_a_paused_action_is_refused(self, store: Store, given: Given) -> None:
        """It must be resumed first."""
        await given.paused("rest")

        error = await refusal(store.actions.run_now("rest", given.entropy.guid(), if_match=None))

        assert isinstance(error, FailedPrecondition)
        assert "paused" == error.state

    async def test_an_action_with_an_attempt_in_flight_is_refused(
        self, store: Store, given: Given
    ) -> None:
        """It is being attempted already."""
        begun = await given.begun("busy")

        error = await refusal(store.actions.run_now("busy", given.entropy.guid(), if_match=None))

        assert isinstance(error, FailedPrecondition)
        assert Recorded.APPLIED is await given.recorded(begun)

    async def test_what_does_not_live_is_not_found(self, store: Store, given: Given) -> None:
        """Unknown and finished ids alike."""
        await given.finished("done")

        for name in ("none", "done"):
            call = store.actions.run_now(name, given.entropy.guid(), if_match=None)
            assert isinstance(await refusal(call), NotFound)

    async def test_another_generation_is_a_conflict(self, store: Store, given: Given) -> None:
        """`if_match` guards it too."""
        await given.created("soon", due_in=HOUR)
        guids = given.entropy.guid(), given.entropy.guid()

        error = await refusal(store.actions.run_now("soon", guids[0], if_match=guids[1]))

        assert isinstance(error, Conflict)
