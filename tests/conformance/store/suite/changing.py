"""Part of the suite: replace and delete."""

from __future__ import annotations

from datetime import timedelta

from gnomon.contracts.store import Recorded, Selection, Store
from gnomon.model.action import State
from gnomon.model.errors import Conflict, NotFound
from gnomon.model.outcome import Failed
from tests.conformance.store.suite.given import NOTHING, Given, polls, refusal, retrying


class TestReplace:
    """`replace`: a new generation."""

    async def test_a_replacement_is_a_new_generation_with_zeroed_counters(
        self, store: Store, given: Given
    ) -> None:
        """New guid, new spec, nothing counted."""
        begun = await given.begun("plan", retry=retrying(3))
        await given.recorded(begun, Failed(error="no"))
        draft = await given.draft("plan", queue="other")

        changed = await store.actions.replace(draft, if_match=None)

        assert draft.guid == changed.action.meta.guid
        assert "other" == changed.action.spec.queue
        assert 0 == changed.action.status.attempts
        assert 0 == changed.action.status.failed
        assert 0 == changed.action.status.consecutive_failures
        assert changed.action == await store.actions.get("plan")

    async def test_after_a_replacement_only_the_new_generation_begins(self, given: Given) -> None:
        """Once it returned, no attempt of the old generation begins."""
        await given.moved("plan")
        changed = await given.replaced("plan")
        await given.move()

        result = await given.begin()

        assert [changed.action.meta.guid] == [begun.guid for begun in result.begun]

    async def test_a_replacement_before_the_move_leaves_one_row(
        self, store: Store, given: Given
    ) -> None:
        """The incoming row of the old generation is dropped, not moved."""
        await given.created("plan")
        await given.replaced("plan")

        assert 1 == await given.move()
        assert [] == list(await store.installation.doctor())

    async def test_a_matching_generation_is_replaced(self, store: Store, given: Given) -> None:
        """`if_match` with the present guid lets the change through."""
        action = await given.created("plan")
        draft = await given.draft("plan")

        changed = await store.actions.replace(draft, if_match=action.meta.guid)

        assert draft.guid == changed.action.meta.guid

    async def test_another_generation_is_a_conflict(self, store: Store, given: Given) -> None:
        """`if_match` with another guid changes nothing and names both."""
        action = await given.created("plan")
        wrong = given.entropy.guid()

        error = await refusal(store.actions.replace(await given.draft("plan"), if_match=wrong))

        assert isinstance(error, Conflict)
        assert str(wrong) == error.expected
        assert str(action.meta.guid) == error.found
        assert action == await store.actions.get("plan")

    async def test_what_does_not_exist_is_created(self, store: Store, given: Given) -> None:
        """Replace makes the action if there is none."""
        changed = await given.replaced("fresh")

        assert not changed.repeated
        assert changed.action == await store.actions.get("fresh")
        assert 1 == await given.move()

    async def test_what_does_not_exist_matches_nothing(self, store: Store, given: Given) -> None:
        """With `if_match` there must be something to match."""
        draft = await given.draft("fresh")

        error = await refusal(store.actions.replace(draft, if_match=given.entropy.guid()))

        assert isinstance(error, NotFound)
        assert None is await store.actions.get("fresh")

    async def test_a_finished_action_is_created_anew(self, given: Given) -> None:
        """Finished counts as absent."""
        await given.finished("done")

        changed = await given.replaced("done")

        assert State.ACTIVE is changed.action.status.state
        assert 0 == changed.action.status.attempts

    async def test_a_paused_action_becomes_active(self, given: Given) -> None:
        """A new generation starts active."""
        await given.paused("resting")

        changed = await given.replaced("resting")
        await given.move()

        assert State.ACTIVE is changed.action.status.state
        assert 1 == len((await given.begin()).begun)

    async def test_the_attempt_in_flight_is_named(self, given: Given) -> None:
        """The answer says what may still arrive, and until when."""
        begun = await given.begun("plan")

        changed = await given.replaced("plan")

        assert changed.in_flight is not None
        assert begun.attempt_id == changed.in_flight.attempt_id
        assert begun.began_at == changed.in_flight.began_at
        assert begun.deadline == changed.in_flight.deadline

    async def test_the_attempt_in_flight_is_closed_as_superseded(
        self, store: Store, given: Given
    ) -> None:
        """The attempt log says what became of it."""
        begun = await given.begun("plan")
        await given.replaced("plan")

        (logged,) = await store.actions.list_attempts("plan", limit=10)

        assert begun.attempt_id == logged.attempt_id
        assert "superseded" == logged.outcome

    async def test_the_result_of_a_superseded_attempt_is_late(
        self, store: Store, given: Given
    ) -> None:
        """It goes to the log and touches the new generation not at all."""
        begun = await given.begun("plan")
        changed = await given.replaced("plan")

        assert Recorded.LATE is await given.recorded(begun)
        assert changed.action == await store.actions.get("plan")
        (logged,) = await store.actions.list_attempts("plan", limit=10)
        assert "late_succeeded" == logged.outcome

    async def test_a_keyed_repeat_changes_nothing(self, store: Store, given: Given) -> None:
        """The same key again is acknowledged, even with the guid it had matched then."""
        action = await given.created("plan")
        draft = await given.draft("plan", keyed=True)
        first = await store.actions.replace(draft, if_match=action.meta.guid)

        again = await store.actions.replace(draft, if_match=action.meta.guid)

        assert again.repeated
        assert first.action == again.action
        assert 1 == await given.move()


class TestDelete:
    """`delete`: the end by the user's wish."""

    async def test_a_deleted_action_stays_visible_as_cancelled(
        self, store: Store, given: Given
    ) -> None:
        """The answer and the archive agree."""
        await given.created("gone")

        changed = await store.actions.delete("gone", if_match=None)

        shown = await given.action("gone")
        assert State.CANCELLED is changed.action.status.state
        assert State.CANCELLED is shown.status.state
        assert shown.status.finished_at is not None

    async def test_nothing_of_it_begins_afterwards(self, store: Store, given: Given) -> None:
        """Neither from the incoming nor from the processing queue."""
        await given.moved("moved")
        await given.created("waiting")
        await store.actions.delete("moved", if_match=None)
        await store.actions.delete("waiting", if_match=None)

        assert 0 == await given.move()
        assert [] == list((await given.begin()).begun)

    async def test_what_does_not_live_is_not_found(self, store: Store, given: Given) -> None:
        """Unknown and finished ids alike."""
        await given.finished("done")

        assert isinstance(await refusal(store.actions.delete("none", if_match=None)), NotFound)
        assert isinstance(await refusal(store.actions.delete("done", if_match=None)), NotFound)

    async def test_another_generation_is_a_conflict(self, store: Store, given: Given) -> None:
        """`if_match` guards deletion too."""
        action = await given.created("kept")

        error = await refusal(store.actions.delete("kept", if_match=given.entropy.guid()))

        assert isinstance(error, Conflict)
        assert action == await store.actions.get("kept")

    async def test_a_matching_generation_is_deleted(self, store: Store, given: Given) -> None:
        """`if_match` with the present guid lets the deletion through."""
        action = await given.created("gone")

        changed = await store.actions.delete("gone", if_match=action.meta.guid)

        assert action.meta.guid == changed.action.meta.guid

    async def test_a_paused_action_can_be_deleted(self, store: Store, given: Given) -> None:
        """Paused actions live, and so can end."""
        await given.paused("resting")

        await store.actions.delete("resting", if_match=None)

        assert State.CANCELLED is (await given.action("resting")).status.state

    async def test_the_attempt_in_flight_is_named_and_its_result_late(
        self, store: Store, given: Given
    ) -> None:
        """It may arrive, but it does not bring the action back."""
        begun = await given.begun("gone")

        changed = await store.actions.delete("gone", if_match=None)

        assert changed.in_flight is not None
        assert begun.attempt_id == changed.in_flight.attempt_id
        assert Recorded.LATE is await given.recorded(begun)
        status = (await given.action("gone")).status
        assert changed.action.status == status
        assert (State.CANCELLED, 1, 1) == (status.state, status.attempts, status.interrupted)

    async def test_without_retention_nothing_stays(self, store: Store, given: Given) -> None:
        """A retention of zero leaves no trace to show."""
        await given.created("gone", retention=NOTHING)

        await store.actions.delete("gone", if_match=None)

        assert None is await store.actions.get("gone")

    async def test_after_its_retention_it_is_invisible(self, store: Store, given: Given) -> None:
        """Purged or not."""
        await given.created("gone", retention=timedelta(milliseconds=20))
        await store.actions.delete("gone", if_match=None)

        async for _ in polls():
            if await store.actions.get("gone") is None:
                break

        assert None is await store.actions.get("gone")
        assert [] == (await store.actions.list(Selection(), after=None, limit=10)).actions
