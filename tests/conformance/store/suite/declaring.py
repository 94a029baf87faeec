"""Part of the suite: what programs declare, and how the stored actions follow."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from functools import partial
from typing import Any

from gnomon.contracts.store import ActionDeclaration, AuditSelection, Selection, Store
from gnomon.model.action import Action, State
from gnomon.model.declaration import DeclareResult, Removal
from gnomon.model.pause import PauseTerms, decide_resume
from gnomon.model.spec import Retry
from gnomon.scheduler.admission import decide_revision
from tests.conformance.store.suite.given import HOUR, Given, every
from tests.conformance.store.suite.races import rivals

ALIVE = timedelta(hours=1)
GONE = timedelta(0)  # nobody counts as living


async def declared(store: Store, given: Given, name: str = "tick", **told: Any) -> DeclareResult:
    """Let an action follow a declaration."""
    fields: dict[str, Any] = {"policy": every(HOUR), "due_in": HOUR} | told.pop("fields", {})
    draft = await given.draft(name, **fields)
    return await store.programs.declare_action(
        ActionDeclaration(
            program=told.get("program", "shop"),
            set_no=told.get("set_no", 1),
            fingerprint=told.get("fingerprint", "a"),
            draft=draft,
        ),
        decide=partial(decide_revision, draft),
        alive_for=told.get("alive_for", ALIVE),
    )


async def paused_for_an_hour(store: Store, given: Given) -> Action:
    terms = PauseTerms(reason="the move", until=HOUR)
    guid = given.entropy.guid()
    return (await store.actions.pause("tick", guid, terms=terms, if_match=None)).action


async def removed(
    store: Store, given: Given, *, removal: Removal = "pause", set_no: int = 2
) -> DeclareResult:
    return await store.programs.remove_declared(
        "tick", given.entropy.guid(), program="shop", set_no=set_no, removal=removal
    )


class TestDeclareSet:
    """`declare_set`: which set of a program is the current one."""

    async def test_who_declares_nothing_leaves_no_row(self, store: Store) -> None:
        """Most programs declare nothing."""
        assert None is await store.programs.declare_set("shop", "", alive_for=ALIVE)
        assert None is await store.programs.declare_set("shop", "", alive_for=GONE)

    async def test_a_new_set_is_the_current_one_at_once(self, store: Store) -> None:
        """A release with other declarations; the set of the release before is late from then on."""
        first = await store.programs.declare_set("shop", "old", alive_for=ALIVE)
        second = await store.programs.declare_set("shop", "new", alive_for=ALIVE)
        again = await store.programs.declare_set("shop", "old", alive_for=ALIVE)

        assert first is not None
        assert second is not None
        assert (1, "old") == (first.set_no, first.fingerprint)
        assert (2, "new") == (second.set_no, second.fingerprint)
        assert second == again

    async def test_a_known_set_waits_until_nobody_declares_the_current_one(
        self, store: Store
    ) -> None:
        """A roll-back, as against an old worker that starts again during a deploy."""
        await store.programs.declare_set("shop", "old", alive_for=ALIVE)
        await store.programs.declare_set("shop", "new", alive_for=ALIVE)
        current = await store.programs.declare_set("shop", "old", alive_for=ALIVE)
        back = await store.programs.declare_set("shop", "old", alive_for=GONE)

        assert current is not None
        assert back is not None
        assert (2, "new") == (current.set_no, current.fingerprint)
        assert (3, "old") == (back.set_no, back.fingerprint)

    async def test_programs_know_nothing_of_each_other(self, store: Store) -> None:
        """A set belongs to its program."""
        await store.programs.declare_set("shop", "a", alive_for=ALIVE)
        other = await store.programs.declare_set("mail", "b", alive_for=ALIVE)

        assert other is not None
        assert (1, "b") == (other.set_no, other.fingerprint)

    async def test_many_who_start_at_once_agree(self, store: Store, given: Given) -> None:
        """One set, one number, whoever was first."""
        stores = await rivals(store, given)
        sets = await asyncio.gather(
            *(one.programs.declare_set("shop", "a", alive_for=ALIVE) for one in stores)
        )

        assert {1} == {one.set_no for one in sets if one is not None}
        assert len(stores) == sum(one is not None for one in sets)


class TestDeclareAction:
    """`declare_action`: an action follows its declaration, and nothing else."""

    async def test_it_is_created_once(self, store: Store, given: Given) -> None:
        """By many processes at once: one makes it, and the others find it."""
        results = await asyncio.gather(
            *(declared(one, given) for one in await rivals(store, given))
        )

        assert 1 == Counter(results)[DeclareResult.CREATED]
        assert {DeclareResult.CREATED, DeclareResult.KEPT} == set(results)
        assert State.ACTIVE is (await given.action("tick")).status.state
        assert ["tick"] == [note.id for note in await store.programs.list_declared("shop")]

    async def test_what_somebody_changed_stays_until_the_declaration_changes(
        self, store: Store, given: Given
    ) -> None:
        """An operator's pause and his own spec survive a restart of the same release, and a
        release that declares the action as before."""
        await declared(store, given)
        await given.replaced("tick", policy=every(3 * HOUR), due_in=HOUR)
        await store.actions.pause("tick", given.entropy.guid(), if_match=None)
        before = await given.action("tick")

        assert DeclareResult.KEPT is await declared(store, given)
        assert DeclareResult.KEPT is await declared(store, given, set_no=2)
        assert before == await given.action("tick")

    async def test_a_changed_declaration_keeps_counters_and_plan(
        self, store: Store, given: Given
    ) -> None:
        """Another retry or timeout is no reason to begin anew."""
        await declared(store, given, fields={"due_in": -HOUR})
        await given.move()
        (begun,) = (await given.begin()).begun
        await given.recorded(begun)
        before = await given.action("tick")

        fields = {"retry": Retry(max=3), "due_in": 2 * HOUR}
        result = await declared(store, given, fingerprint="b", set_no=2, fields=fields)
        after = await given.action("tick")

        assert DeclareResult.CHANGED is result
        assert 3 == after.spec.retry.max
        assert (1, 1) == (after.status.attempts, after.status.succeeded)
        assert before.status.scheduled_at == after.status.scheduled_at
        assert before.status.occurrence_at == after.status.occurrence_at
        assert before.spec.start_at == after.spec.start_at
        assert before.meta.guid != after.meta.guid

    async def test_another_policy_is_another_plan(self, store: Store, given: Given) -> None:
        """It is planned anew, and comes as the draft says."""
        await declared(store, given)
        fields = {"policy": every(2 * HOUR), "due_in": -HOUR}

        await declared(store, given, fingerprint="b", set_no=2, fields=fields)
        await given.move()
        (begun,) = (await given.begin()).begun

        assert every(2 * HOUR) == begun.spec.policy

    async def test_a_paused_one_is_changed_and_stays_paused(
        self, store: Store, given: Given
    ) -> None:
        """The declaration says what is to be done; that it is not to be done is the operator's."""
        await declared(store, given)
        await store.actions.pause("tick", given.entropy.guid(), if_match=None)

        await declared(store, given, fingerprint="b", set_no=2, fields={"retry": Retry(max=3)})
        after = await given.action("tick")

        assert State.PAUSED is after.status.state
        assert None is after.status.scheduled_at
        assert 3 == after.spec.retry.max

    async def test_an_attempt_under_way_is_left_to_end(self, store: Store, given: Given) -> None:
        """Then the same call changes it."""
        await declared(store, given, fields={"due_in": -HOUR})
        await given.move()
        (begun,) = (await given.begin()).begun

        during = await declared(store, given, fingerprint="b", set_no=2)
        (noted,) = await store.programs.list_declared("shop")
        await given.recorded(begun)
        after = await declared(store, given, fingerprint="b", set_no=2)

        assert DeclareResult.RUNNING is during
        assert (1, "a") == (noted.set_no, noted.fingerprint)
        assert DeclareResult.CHANGED is after

    async def test_who_is_late_changes_nothing(self, store: Store, given: Given) -> None:
        """A worker of the release before cannot undo what the new one has written."""
        await declared(store, given, set_no=2, fingerprint="new")

        assert DeclareResult.LATE is await declared(store, given, set_no=1, fingerprint="old")
        (noted,) = await store.programs.list_declared("shop")
        assert (2, "new") == (noted.set_no, noted.fingerprint)

    async def test_what_has_ended_is_not_brought_back(self, store: Store, given: Given) -> None:
        """Neither what was cancelled nor what its limits ended, unless the declaration changed."""
        await declared(store, given)
        await store.actions.delete("tick", if_match=None)

        assert DeclareResult.KEPT is await declared(store, given)
        assert State.CANCELLED is (await given.action("tick")).status.state
        assert DeclareResult.CREATED is await declared(store, given, set_no=2, fingerprint="b")
        assert State.ACTIVE is (await given.action("tick")).status.state

    async def test_an_action_of_others_is_left_alone(self, store: Store, given: Given) -> None:
        """Its id is taken, and nothing is noted of it."""
        action = await given.created("tick", policy=every(HOUR))

        assert DeclareResult.TAKEN is await declared(store, given)
        assert action.meta.guid == (await given.action("tick")).meta.guid
        assert [] == list(await store.programs.list_declared("shop"))

    async def test_an_action_of_a_living_program_is_its_own(
        self, store: Store, given: Given
    ) -> None:
        """Another program gets it only when nobody is left who declares it."""
        await store.programs.declare_set("shop", "set", alive_for=ALIVE)
        await declared(store, given)

        living = await declared(store, given, program="mail", fingerprint="b")
        gone = await declared(store, given, program="mail", fingerprint="b", alive_for=GONE)

        assert DeclareResult.TAKEN is living
        assert DeclareResult.CHANGED is gone
        assert ["tick"] == [note.id for note in await store.programs.list_declared("mail")]
        assert [] == list(await store.programs.list_declared("shop"))

    async def test_the_audit_knows_of_it(self, store: Store, given: Given) -> None:
        """One entry for each change, none for what was left as it is."""
        await declared(store, given)
        await declared(store, given)
        await declared(store, given, fingerprint="b", set_no=2)
        await removed(store, given, set_no=3)

        entries = await store.tokens.list_audit(AuditSelection(), limit=10)
        verbs = sorted(entry.verb for entry in entries if entry.id == "tick")
        assert ["declare", "declare", "remove_declared"] == verbs


class TestRemoveDeclared:
    """`remove_declared`: what the code does not have any more."""

    async def test_it_is_paused_with_a_reason(self, store: Store, given: Given) -> None:
        """So that nobody wonders, and nothing is lost."""
        await declared(store, given)

        assert DeclareResult.CHANGED is await removed(store, given)
        action = await given.action("tick")
        page = await store.actions.list(Selection(), after=None, limit=10)

        assert State.PAUSED is action.status.state
        assert "the program shop does not declare it any more" == action.status.reason
        assert [action.status.reason] == [one.status.reason for one in page.actions]

    async def test_a_roll_back_lets_it_go_on(self, store: Store, given: Given) -> None:
        """With its counters, and without a reason."""
        await declared(store, given)
        await removed(store, given)

        assert DeclareResult.CHANGED is await declared(store, given, set_no=3)
        after = await given.action("tick")

        assert State.ACTIVE is after.status.state
        assert None is after.status.reason
        assert after.status.scheduled_at is not None

    async def test_a_roll_back_does_not_wake_what_somebody_else_paused(
        self, store: Store, given: Given
    ) -> None:
        """Before the removal, or after it."""
        await declared(store, given)
        await store.actions.pause("tick", given.entropy.guid(), if_match=None)
        await removed(store, given)
        await declared(store, given, set_no=3)
        before = await given.action("tick")
        guid = given.entropy.guid
        await store.actions.resume("tick", guid(), decide=decide_resume, if_match=None)
        await removed(store, given, set_no=4)
        await store.actions.resume("tick", guid(), decide=decide_resume, if_match=None)
        await store.actions.pause("tick", guid(), if_match=None)
        await declared(store, given, set_no=5)

        assert State.PAUSED is before.status.state
        assert State.PAUSED is (await given.action("tick")).status.state
        assert None is (await given.action("tick")).status.reason

    async def test_a_pause_that_would_end_is_one_for_good(self, store: Store, given: Given) -> None:
        """Else its end would bring back what the program does not declare any more."""
        await declared(store, given)
        await paused_for_an_hour(store, given)
        await removed(store, given)
        status = (await given.action("tick")).status

        assert (State.PAUSED, None) == (status.state, status.paused_until)
        assert "the program shop does not declare it any more" == status.reason

    async def test_a_changed_declaration_leaves_the_terms_of_a_pause(
        self, store: Store, given: Given
    ) -> None:
        """Why, and until when, though it is another generation."""
        await declared(store, given)
        before = await paused_for_an_hour(store, given)
        told: dict[str, Any] = {
            "set_no": 2,
            "fingerprint": "other",
            "fields": {"retry": Retry(max=3)},
        }

        assert DeclareResult.CHANGED is await declared(store, given, **told)
        after = await given.action("tick")

        assert before.meta.guid != after.meta.guid
        assert 3 == after.spec.retry.max
        for field in ("state", "reason", "paused_until"):
            assert getattr(before.status, field) == getattr(after.status, field)

    async def test_who_wakes_it_again_is_not_overruled(self, store: Store, given: Given) -> None:
        """The next release finds it removed already, and leaves it."""
        await declared(store, given)
        await removed(store, given)
        guid = given.entropy.guid()
        await store.actions.resume("tick", guid, decide=decide_resume, if_match=None)

        assert DeclareResult.KEPT is await removed(store, given, set_no=3)
        assert State.ACTIVE is (await given.action("tick")).status.state

    async def test_it_is_deleted_if_the_program_says_so(self, store: Store, given: Given) -> None:
        """And made anew if it comes back."""
        await declared(store, given)

        assert DeclareResult.CHANGED is await removed(store, given, removal="delete")
        assert State.CANCELLED is (await given.action("tick")).status.state
        assert [] == list(await store.programs.list_declared("shop"))
        assert DeclareResult.CREATED is await declared(store, given, set_no=3)

    async def test_it_is_kept_if_the_program_says_so(self, store: Store, given: Given) -> None:
        """It goes on, and follows again if it comes back."""
        await declared(store, given)

        assert DeclareResult.KEPT is await removed(store, given, removal="keep")
        assert State.ACTIVE is (await given.action("tick")).status.state
        result = await declared(store, given, set_no=3, fingerprint="b")
        assert DeclareResult.CHANGED is result

    async def test_an_attempt_under_way_is_left_to_end(self, store: Store, given: Given) -> None:
        """It counts, and then the action is paused."""
        await declared(store, given, fields={"due_in": -HOUR})
        await given.move()
        (begun,) = (await given.begin()).begun

        during = await removed(store, given)
        await given.recorded(begun)

        assert DeclareResult.RUNNING is during
        assert DeclareResult.CHANGED is await removed(store, given)
        assert 1 == (await given.action("tick")).status.succeeded

    async def test_who_is_late_removes_nothing(self, store: Store, given: Given) -> None:
        """Nor does another program, nor a call for an id that nobody declared."""
        await declared(store, given, set_no=2)
        guid = given.entropy.guid()
        other = await store.programs.remove_declared(
            "tick", guid, program="mail", set_no=9, removal="delete"
        )
        unknown = await store.programs.remove_declared(
            "tock", guid, program="shop", set_no=9, removal="delete"
        )

        assert DeclareResult.LATE is await removed(store, given, set_no=2)
        assert (DeclareResult.LATE, DeclareResult.LATE) == (other, unknown)
        assert State.ACTIVE is (await given.action("tick")).status.state
        assert 1 == len(await store.programs.list_declared("shop"))
