"""Verbs on everything that matches: in steps, each action by itself, and never the wrong ones."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

import pytest

from gnomon.contracts.store import ActionPage, ChangeResult, Selection
from gnomon.model.action import Action, Meta, State, Status
from gnomon.model.errors import (
    Conflict,
    Exhausted,
    Forbidden,
    GnomonError,
    InvalidRequest,
    NotFound,
    StoreUnavailable,
)
from gnomon.model.spec import Mock, Spec
from gnomon.scheduler.selected import (
    AT_ONCE,
    PAGE,
    STEP_S,
    StepResult,
    Verb,
    change_step,
    selection_for,
    verb_of,
)
from tests.unit.worker.surroundings import HandClock

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def action(number: int) -> Action:
    meta = Meta(id=f"a{number:03}", guid=UUID(int=number), shard=0, created_at=NOW, updated_at=NOW)
    return Action(meta=meta, spec=Spec(action=Mock()), status=Status())


class Shelf:
    """Actions in pages, and what becomes of each."""

    def __init__(self, count: int, errors: dict[int, GnomonError] | None = None) -> None:
        self.actions = [action(number) for number in range(count)]
        self.errors = errors or {}
        self.changed: list[str] = []
        self.at_once = 0
        self.clock = HandClock()

    async def list_page(self, _: Selection, *, after: str | None, limit: int) -> ActionPage:
        left = [it for it in self.actions if after is None or it.meta.id > after]
        more = left[limit - 1].meta.id if len(left) > limit else None
        return ActionPage(actions=left[:limit], next=more)

    async def change(self, it: Action) -> ChangeResult:
        error = self.errors.get(it.meta.guid.int)
        if error is not None:
            raise error
        self.changed.append(it.meta.id)
        return ChangeResult(action=it)

    async def step(self, *, after: str | None = None, limit: int = 1000) -> StepResult:
        return await change_step(
            self.change, Selection(),
            list_page=self.list_page, clock=self.clock, after=after, limit=limit,
        )  # fmt: skip


async def steps(shelf: Shelf, limit: int) -> Sequence[StepResult]:
    """All of it."""
    taken = [await shelf.step(limit=limit)]
    while taken[-1].next is not None:
        taken.append(await shelf.step(after=taken[-1].next, limit=limit))
    return taken


async def test_steps_change_each_once_and_end() -> None:
    """In order of the ids, so many at a time."""
    shelf = Shelf(2 * PAGE + 5)
    taken = await steps(shelf, 50)
    assert [50, 35] == [step.changed for step in taken]
    assert [it.meta.id for it in shelf.actions] == sorted(shelf.changed)


async def test_what_others_changed_is_passed_over() -> None:
    """It does not match any more, so it is not what was meant."""
    shelf = Shelf(5, {1: Conflict("a001", expected="x", found="y"), 3: NotFound("action", "a003")})
    assert StepResult(changed=3, passed_over=2) == await shelf.step()


async def test_a_refusal_spoils_no_other_and_is_told() -> None:
    """What the caller may not change, or somebody holds, stays; the others are changed."""
    errors: dict[int, GnomonError] = {
        2: Forbidden("no scope", scope="sql:x"),
        4: StoreUnavailable("held"),
    }
    step = await Shelf(6, errors).step()
    assert (4, 2) == (step.changed, step.refused)
    assert step.problem is not None
    assert "no scope" in step.problem


@pytest.mark.parametrize(
    "errors",
    [
        {2: Exhausted("quota", value=1, retry_after_s=1.0)},
        {number: StoreUnavailable("gone") for number in range(3)},
    ],
)
async def test_what_concerns_all_ends_the_step(errors: dict[int, GnomonError]) -> None:
    """A quota that is used up, a database that is gone: it is not tried two million times."""
    with pytest.raises((Exhausted, StoreUnavailable)):
        await Shelf(3, errors).step()


async def test_a_step_ends_in_time() -> None:
    """Held rows make it slow: then it is shorter, and the next one goes on."""
    shelf = Shelf(3 * PAGE)
    list_page = shelf.list_page

    async def slow(selection: Selection, *, after: str | None, limit: int) -> ActionPage:
        shelf.clock.seconds += STEP_S
        return await list_page(selection, after=after, limit=limit)

    shelf.list_page = slow  # type: ignore[method-assign, assignment]
    assert [PAGE] * 3 == [step.changed for step in await steps(shelf, 1000)]
    assert AT_ONCE < PAGE


def test_a_verb_acts_on_what_it_can_act_on() -> None:
    """Without a state that is all of it, but of the finished ones only the dead are retried."""
    assert (State.DEAD,) == selection_for(Verb.RETRY, Selection()).states
    assert (State.ACTIVE, State.PAUSED) == selection_for(Verb.DELETE, Selection()).states
    expired = Selection(states=(State.EXPIRED,), queue="mail")
    assert expired == selection_for(Verb.RETRY, expired)


def test_a_state_that_the_verb_cannot_act_on_is_refused() -> None:
    """Rather than to change nothing and say that all went well."""
    with pytest.raises(InvalidRequest, match="retry is for dead or expired or cancelled actions"):
        selection_for(Verb.RETRY, Selection(states=(State.ACTIVE, State.DEAD)))
    with pytest.raises(InvalidRequest, match="verb: must be one of delete, pause"):
        verb_of("remove")
