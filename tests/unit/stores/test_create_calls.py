"""Calls that create one action each: who goes with whom, and what a neighbour's trouble costs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from gnomon.contracts.store import ActionDraft, ChangeResult
from gnomon.model.errors import GnomonError, InvalidRequest, StoreUnavailable
from gnomon.model.spec import Mock, Spec
from gnomon.stores._actions import drafted_action
from gnomon.stores.postgres.create_calls import DRAFTS_MAX, UNDER_WAY_MAX, CreateCaller, CreateCalls
from gnomon.stores.postgres.errors import RowHeld

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
ANN, BOB = CreateCaller("ann", "create"), CreateCaller("bob", "create")


def draft(number: int) -> ActionDraft:
    return ActionDraft(
        id=f"a{number}",
        guid=UUID(int=number),
        shard=0,
        spec=Spec(action=Mock(), start_at=EPOCH),
        scheduled_at=EPOCH,
        occurrence_at=EPOCH,
        expires_at=None,
        retention=timedelta(days=1),
        keyed=False,
    )


class Statements:
    """A database that answers when it is let go, and remembers who came together."""

    def __init__(self) -> None:
        self.together: list[list[str]] = []
        self.alone: list[str] = []
        self.goes_on = asyncio.Event()
        self.error: GnomonError | None = None  # of those who come together
        self.calls = CreateCalls(patient=self.patient, hasty=self.hasty)

    async def patient(
        self, drafts: Sequence[ActionDraft], _: CreateCaller
    ) -> list[ChangeResult | None]:
        self.alone += [one.id for one in drafts]
        await self.goes_on.wait()
        return [ChangeResult(action=drafted_action(one, created_at=EPOCH)) for one in drafts]

    async def hasty(
        self, drafts: Sequence[ActionDraft], _: CreateCaller
    ) -> list[ChangeResult | None]:
        self.together.append([one.id for one in drafts])
        if self.error is not None:
            raise self.error
        return [ChangeResult(action=drafted_action(one, created_at=EPOCH)) for one in drafts]

    def begin(self, number: int, caller: CreateCaller = ANN) -> asyncio.Task[ChangeResult | None]:
        return asyncio.create_task(self.calls.create(draft(number), caller))


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def busy() -> tuple[Statements, list[asyncio.Task[ChangeResult | None]]]:
    """As many statements are under way as may be."""
    statements = Statements()
    tasks = [statements.begin(number) for number in range(UNDER_WAY_MAX)]
    await settled()
    return statements, tasks


async def answered(tasks: Sequence[asyncio.Task[ChangeResult | None]]) -> list[str]:
    answers = await asyncio.gather(*tasks)
    return [answer.action.meta.id for answer in answers if answer is not None]


async def test_who_comes_while_statements_are_under_way_goes_with_the_others() -> None:
    """In one statement, and each gets the answer to what he asked for."""
    statements, first = await busy()
    later = [statements.begin(number) for number in range(10, 15)]
    await settled()
    assert (["a0", "a1"], []) == (statements.alone, statements.together)
    statements.goes_on.set()
    assert ["a0", "a1", "a10", "a11", "a12", "a13", "a14"] == await answered([*first, *later])
    assert [["a10", "a11", "a12", "a13", "a14"]] == statements.together


async def test_who_calls_alone_waits_for_nobody() -> None:
    statements = Statements()
    statements.goes_on.set()
    for number in range(3):
        assert [f"a{number}"] == await answered([statements.begin(number)])
    assert (["a0", "a1", "a2"], []) == (statements.alone, statements.together)


async def test_callers_are_not_mixed_and_a_statement_has_its_bound() -> None:
    """The audit has the caller's name; and however many wait, one statement is not for all."""
    statements, _ = await busy()
    numbers = range(10, 10 + DRAFTS_MAX + 1)
    tasks = [statements.begin(number, ANN) for number in numbers]
    tasks.append(statements.begin(999, BOB))
    await settled()
    statements.goes_on.set()
    await answered(tasks)
    assert [1, 1, DRAFTS_MAX] == sorted(map(len, statements.together))
    assert ["a999"] in statements.together


@pytest.mark.parametrize("error", [RowHeld("held"), InvalidRequest("bad")])
async def test_a_row_that_is_held_or_bad_costs_its_own_caller(error: GnomonError) -> None:
    """Who came with it repeats his own by himself."""
    statements, _ = await busy()
    statements.error = error
    tasks = [statements.begin(10), statements.begin(11)]
    await settled()
    statements.goes_on.set()
    assert ["a10", "a11"] == await answered(tasks)
    assert [["a10", "a11"]] == statements.together
    assert ["a10", "a11"] == statements.alone[UNDER_WAY_MAX:]


async def test_a_database_that_is_away_is_told_to_all_and_asked_once() -> None:
    statements, _ = await busy()
    statements.error = StoreUnavailable("away")
    tasks = [statements.begin(10), statements.begin(11)]
    await settled()
    statements.goes_on.set()
    for task in tasks:
        with pytest.raises(StoreUnavailable, match="away"):
            await task
    assert UNDER_WAY_MAX == len(statements.alone)


async def test_who_gives_up_takes_his_own_along_and_disturbs_nobody() -> None:
    """Before it is under way nothing of it is stored; after it, the others go on."""
    statements, _ = await busy()
    leaves, stays = statements.begin(10), statements.begin(11)
    await settled()
    leaves.cancel()
    await settled()
    statements.goes_on.set()
    assert ["a11"] == await answered([stays])
    assert [["a11"]] == statements.together
    assert leaves.cancelled()
