"""Verbs on everything that matches a selection, in bounded steps.

A step takes some actions in order of their ids and uses the verb on each by itself: there is no
transaction over all of them, so none is too large, a step that fails has done what it did, and the
next one goes on behind it. Whoever changes something meanwhile is not overtaken: the verb is used
on the generation that matched, or not at all. What was changed does not match any more, so doing it
all again does no harm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType

import msgspec

from gnomon.contracts.clock import Clock
from gnomon.contracts.store import ActionPage, ChangeResult, Selection
from gnomon.model.action import Action, State
from gnomon.model.errors import (
    AlreadyExists,
    Conflict,
    FailedPrecondition,
    Forbidden,
    GnomonError,
    InvalidRequest,
    NotFound,
    Unavailable,
)

STEP_MAX = 1_000
STEP_S = 5.0  # a step ends early rather than keep its caller waiting
PAGE = 40  # what is looked at before the time is
AT_ONCE = 8  # changes of one caller at the same time: the others want to change something, too


class Verb(StrEnum):
    """What can be done to everything that matches."""

    DELETE = "delete"
    PAUSE = "pause"
    RESUME = "resume"
    RUN_NOW = "run_now"
    RETRY = "retry"


# The states that a verb acts on, unless a selection names some of them; `retry` is more careful.
STATES: Mapping[Verb, tuple[State, ...]] = MappingProxyType(
    {
        Verb.DELETE: (State.ACTIVE, State.PAUSED),
        Verb.PAUSE: (State.ACTIVE,),
        Verb.RESUME: (State.PAUSED,),
        Verb.RUN_NOW: (State.ACTIVE,),
        Verb.RETRY: (State.DEAD,),
    }
)
RETRIABLE = (State.DEAD, State.EXPIRED, State.CANCELLED)

OVERTAKEN = (AlreadyExists, Conflict, FailedPrecondition, NotFound)
REFUSED = (Forbidden, Unavailable)

Change = Callable[[Action], Awaitable[ChangeResult]]
ListPage = Callable[..., Awaitable[ActionPage]]


class StepResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one step did; `next` continues, None at the end."""

    changed: int = 0
    passed_over: int = 0  # somebody else had changed it, or it runs just now
    refused: int = 0
    problem: str | None = None  # why the first of those was refused
    next: str | None = None


def verb_of(name: str) -> Verb:
    """Errors: InvalidRequest."""
    try:
        return Verb(name)
    except ValueError:
        raise InvalidRequest(f"verb: must be one of {', '.join(Verb)} (got {name!r})") from None


def check_options(verb: str, *, reason: object, until: object) -> None:
    """What is said of a pause is for that verb. Errors: InvalidRequest."""
    for name, value in (("reason", reason), ("until", until)):
        if value is not None and verb != Verb.PAUSE:
            raise InvalidRequest(f"{name}: is for pause only (got {verb})")


def selection_for(verb: Verb, selection: Selection) -> Selection:
    """What the verb is to act on: the states that it can act on, of those that are named. Errors:
    InvalidRequest if it can act on none of them."""
    possible = RETRIABLE if verb is Verb.RETRY else STATES[verb]
    wrong = [state for state in selection.states if state not in possible]
    if wrong:
        raise InvalidRequest(
            f"state: {verb} is for {' or '.join(possible)} actions (got {', '.join(wrong)})"
        )
    return (
        selection if selection.states else msgspec.structs.replace(selection, states=STATES[verb])
    )


async def change_step(
    change: Change,
    selection: Selection,
    *,
    list_page: ListPage,
    clock: Clock,
    after: str | None,
    limit: int,
) -> StepResult:
    """Use a verb on up to `limit` actions of a selection, from behind `after` on. Errors: those
    after which nothing else would go well either; what was done until then stays done."""
    ends_at = clock.monotonic() + STEP_S
    done = StepResult(next=after)
    while limit > 0:
        page = await list_page(selection, after=done.next, limit=min(PAGE, limit))
        done = _added(done, await _change_all(change, page.actions), page.next)
        limit -= len(page.actions)
        if page.next is None or clock.monotonic() >= ends_at:
            break
    return done


async def _change_all(
    change: Change, actions: Sequence[Action]
) -> list[ChangeResult | GnomonError]:
    at_once = asyncio.Semaphore(AT_ONCE)

    async def change_one(action: Action) -> ChangeResult | GnomonError:
        async with at_once:
            try:
                return await change(action)
            except GnomonError as exc:
                return exc

    results = await asyncio.gather(*(change_one(action) for action in actions))
    _check(results)
    return results


def _check(results: Sequence[ChangeResult | GnomonError]) -> None:
    """Raise what is about more than its own action. A row that somebody holds is one, and the
    database's absence concerns all."""
    errors = [result for result in results if isinstance(result, GnomonError)]
    for error in errors:
        if not isinstance(error, (*OVERTAKEN, *REFUSED)):
            raise error
    if errors and len(errors) == len(results) and isinstance(errors[0], Unavailable):
        raise errors[0]


def _added(
    done: StepResult, results: Sequence[ChangeResult | GnomonError], following: str | None
) -> StepResult:
    refusals = [str(result) for result in results if isinstance(result, REFUSED)]
    changed = sum(isinstance(result, ChangeResult) for result in results)
    return StepResult(
        changed=done.changed + changed,
        passed_over=done.passed_over + len(results) - changed - len(refusals),
        refused=done.refused + len(refusals),
        problem=done.problem or next(iter(refusals), None),
        next=following,
    )
