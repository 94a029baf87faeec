"""Part of the suite: `ActionStore.create`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from gnomon.contracts.store import ActionDraft, Store
from gnomon.model.action import State
from tests.conformance.store.suite.given import HOUR, NOTHING, SECOND, Given

# What may set one draft of a bulk apart.
OWN: dict[str, Any] = {
    "labels": {"team": "post"},
    "queue": "mail",
    "priority": 3,
    "timeout": 7 * SECOND,
    "retention": NOTHING,
    "due_in": -20 * SECOND,
    "expires_in": HOUR,
}


class TestCreate:
    """`create`: new actions, alone and in bulk."""

    async def test_a_created_action_is_returned_and_stored_alike(
        self, store: Store, given: Given
    ) -> None:
        """What create answers is what get shows."""
        draft = await given.draft("letter", due_in=HOUR, labels={"team": "post"}, queue="mail")

        (changed,) = await store.actions.create([draft])

        assert changed is not None
        assert not changed.repeated
        assert None is changed.in_flight
        assert "letter" == changed.action.meta.id
        assert draft.guid == changed.action.meta.guid
        assert draft.shard == changed.action.meta.shard
        assert draft.spec == changed.action.spec
        assert State.ACTIVE is changed.action.status.state
        assert draft.scheduled_at == changed.action.status.scheduled_at
        assert changed.action == await store.actions.get("letter")

    async def test_an_occurrence_keeps_its_time_though_it_is_due_later(
        self, store: Store, given: Given
    ) -> None:
        """By its jitter; beside others that are due when they occur."""
        late, plain = await given.draft("late", due_in=HOUR), await given.draft("plain")
        late = msgspec.structs.replace(late, scheduled_at=late.occurrence_at + SECOND)

        changes = await store.actions.create([late, plain])

        for draft, changed in zip((late, plain), changes, strict=True):
            assert changed is not None
            stored = await store.actions.get(draft.id)
            assert changed.action == stored
            assert stored is not None
            assert draft.scheduled_at == stored.status.scheduled_at
            assert draft.occurrence_at == stored.status.occurrence_at

    @pytest.mark.parametrize("name", OWN)
    async def test_each_of_a_bulk_has_what_is_its_own(
        self, store: Store, given: Given, name: str
    ) -> None:
        """Whatever one of them has that the others do not, first, between them or last; and what
        all of them have."""
        for odd in ({0}, {1}, {2}, set[int](), {0, 1, 2}):
            drafts = [
                await given.draft(**({name: OWN[name]} if place in odd else {}))
                for place in range(3)
            ]
            await self._check_created(store, given, drafts)

    async def _check_created(
        self, store: Store, given: Given, drafts: Sequence[ActionDraft]
    ) -> None:
        changes = await store.actions.create(drafts)

        for draft, changed in zip(drafts, changes, strict=True):
            assert changed is not None
            assert changed.action == await given.action(draft.id)
            assert draft.scheduled_at == changed.action.status.scheduled_at
            assert draft.expires_at == changed.action.status.expires_at
        await given.move()
        lanes = {
            (lane.queue, lane.priority)
            for lane in await store.work.list_lanes(await given.holdings())
        }
        assert {(draft.spec.queue, draft.spec.priority) for draft in drafts} == lanes
        begun = {one.id: one for one in (await given.begin()).begun}
        for draft in drafts:
            attempt, spec = begun[draft.id], draft.spec
            assert spec == attempt.spec
            assert spec.timeout == attempt.deadline - attempt.began_at
            await given.recorded(attempt)
            is_kept = await store.actions.get(draft.id) is not None
            assert is_kept == (draft.retention > NOTHING)

    async def test_nothing_to_create_is_no_error(self, store: Store) -> None:
        """An empty bulk has an empty answer."""
        assert [] == list(await store.actions.create([]))

    async def test_answers_come_in_the_order_of_the_drafts(
        self, store: Store, given: Given
    ) -> None:
        """One element per draft, in order."""
        names = ["zebra", "ant", "mole"]

        answers = await store.actions.create([await given.draft(name) for name in names])

        assert names == [answer.action.meta.id for answer in answers if answer is not None]

    async def test_a_created_action_is_appended_to_the_incoming_queue(
        self, store: Store, given: Given
    ) -> None:
        """Each stored action gives one row to move."""
        await store.actions.create([await given.draft() for _ in range(5)])

        assert 5 == await given.move()

    async def test_an_id_that_is_active_is_refused_and_the_others_are_stored(
        self, store: Store, given: Given
    ) -> None:
        """None where an id lives under another guid; the rest of the bulk is stored."""
        await given.created("taken")
        drafts = [await given.draft(name) for name in ("before", "taken", "after")]

        before, taken, after = await store.actions.create(drafts)

        assert None is taken
        assert before is not None
        assert after is not None
        assert 3 == await given.move()

    async def test_a_refused_draft_changes_nothing(self, store: Store, given: Given) -> None:
        """The action that lives stays as it is."""
        lives = await given.created("taken", queue="mine")

        await store.actions.create([await given.draft("taken", queue="yours")])

        assert lives == await store.actions.get("taken")

    async def test_an_id_that_is_paused_is_refused(self, store: Store, given: Given) -> None:
        """Paused actions keep their id."""
        await given.paused("resting")

        assert [None] == list(await store.actions.create([await given.draft("resting")]))

    async def test_an_id_twice_in_one_bulk_is_stored_once(self, store: Store, given: Given) -> None:
        """The first draft wins, the second is refused."""
        first, second = await given.draft("twin"), await given.draft("twin")

        answers = await store.actions.create([first, second])

        assert answers[0] is not None
        assert None is answers[1]
        assert first.guid == (await given.action("twin")).meta.guid
        assert 1 == await given.move()

    async def test_a_keyed_repeat_of_a_live_action_changes_nothing(
        self, store: Store, given: Given
    ) -> None:
        """The same key again: the stored action comes back, marked as repeated."""
        draft = await given.draft("keyed", keyed=True)
        (first,) = await store.actions.create([draft])

        (again,) = await store.actions.create([draft])

        assert first is not None
        assert again is not None
        assert again.repeated
        assert first.action == again.action
        assert 1 == await given.queue_row_count()

    async def test_a_keyed_repeat_of_a_finished_action_does_not_fire_again(
        self, store: Store, given: Given
    ) -> None:
        """A key that was applied stays applied after its action ended."""
        draft = await given.draft("keyed", keyed=True)
        await store.actions.create([draft])
        await given.move()
        await given.recorded(await given.begun_again("keyed"))

        (again,) = await store.actions.create([draft])

        assert again is not None
        assert again.repeated
        assert State.DONE is again.action.status.state
        assert 0 == await given.queue_row_count()

    async def test_keyed_repeats_and_new_ones_mix_in_a_bulk(
        self, store: Store, given: Given
    ) -> None:
        """Repeats are recognised one by one."""
        old = await given.draft("old", keyed=True)
        await store.actions.create([old])

        answers = await store.actions.create([await given.draft("new", keyed=True), old])

        assert [False, True] == [answer.repeated for answer in answers if answer is not None]
        assert 2 == await given.move()

    async def test_a_key_whose_generation_was_replaced_is_still_recognised(
        self, store: Store, given: Given
    ) -> None:
        """Replacing an action does not free the key that made it."""
        draft = await given.draft("keyed", keyed=True)
        await store.actions.create([draft])
        changed = await given.replaced("keyed")

        (again,) = await store.actions.create([draft])

        assert again is not None
        assert again.repeated
        assert changed.action.meta.guid == (await given.action("keyed")).meta.guid

    async def test_repeating_an_unkeyed_create_is_safe(self, store: Store, given: Given) -> None:
        """After a lost answer the same call again stores nothing a second time."""
        drafts = [await given.draft(f"lost-{number}") for number in range(3)]
        await store.actions.create(drafts)

        await store.actions.create(drafts)

        assert 3 == await given.queue_row_count()

    async def test_the_id_of_a_finished_action_may_be_used_again(
        self, store: Store, given: Given
    ) -> None:
        """Only active and paused actions hold their id."""
        await given.finished("again")

        second = await given.created("again")

        assert second == await store.actions.get("again")
        assert State.ACTIVE is second.status.state
