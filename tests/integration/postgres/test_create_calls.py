"""Many callers who create one action each, at once: one statement for several, each as if alone."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import asyncpg
import pytest

from gnomon.contracts.store import ActionDraft, AuditSelection, ChangeResult, Store
from gnomon.model.errors import StoreUnavailable
from tests.fixtures.postgres import PostgresSchema
from tests.integration.postgres.conftest import Drafter

CALLERS = 40


async def created(
    store: Store, drafts: Sequence[ActionDraft], actor: str = "ann"
) -> list[ChangeResult | BaseException | None]:
    """The answers to calls that are under way at the same time."""

    async def one(draft: ActionDraft) -> ChangeResult | None:
        (answer,) = await store.actions.create([draft], actor=actor)
        return answer

    return await asyncio.gather(*map(one, drafts), return_exceptions=True)


async def test_each_call_has_its_answer_its_audit_entry_and_its_queue_row(
    store: Store, draft: Drafter, installed_schema: PostgresSchema
) -> None:
    drafts = [draft(f"call-{number}") for number in range(CALLERS)]
    answers = await created(store, drafts)
    ids = [answer.action.meta.id for answer in answers if isinstance(answer, ChangeResult)]
    assert [one.id for one in drafts] == ids
    mine = await store.tokens.list_audit(AuditSelection(actor="ann"), limit=1_000)
    assert Counter(ids) == Counter(entry.id for entry in mine)
    assert {("create", 1)} == {(entry.verb, entry.count) for entry in mine}
    assert CALLERS == len({entry.at for entry in mine}), "or a page of the audit would lose some"
    connection = await asyncpg.connect(installed_schema.dsn)
    try:
        guids = [one.guid for one in drafts]
        queued = await connection.fetch(
            f"SELECT guid FROM {installed_schema.schema}.incoming_queue WHERE guid = ANY ($1)",
            guids,
        )
    finally:
        await connection.close()
    assert Counter(guids) == Counter(row["guid"] for row in queued)


async def test_of_two_calls_with_one_id_one_is_told_that_it_exists(
    store: Store, draft: Drafter
) -> None:
    drafts = [draft(f"twice-{number // 2}") for number in range(CALLERS)]
    answers = await created(store, drafts)
    stored = [answer.action.meta.id for answer in answers if isinstance(answer, ChangeResult)]
    assert sorted({one.id for one in drafts}) == sorted(stored)
    assert CALLERS // 2 == answers.count(None)


async def test_an_id_that_an_open_transaction_holds_costs_its_own_caller_alone(
    store: Store, draft: Drafter, installed_schema: PostgresSchema
) -> None:
    """The others are stored while it waits; what it waited for decides its own answer."""
    blocker = await asyncpg.connect(installed_schema.dsn)
    try:
        held = draft("held")
        transaction = blocker.transaction()
        await transaction.start()
        (made,) = await store.joining(blocker).create([held], actor="bob")
        assert made is not None
        tasks = [
            asyncio.ensure_future(created(store, [one]))
            for one in [draft(f"free-{n}") for n in range(CALLERS)] + [draft("held")]
        ]
        answers = await asyncio.gather(*tasks[:-1])
        assert CALLERS == sum(isinstance(answer, ChangeResult) for (answer,) in answers)
        assert not tasks[-1].done()
        await transaction.commit()
        assert [None] == await tasks[-1]
    finally:
        await blocker.close()


async def test_a_value_that_cannot_be_stored_costs_its_own_caller_alone(
    store: Store, draft: Drafter
) -> None:
    drafts = [draft(f"good-{number}") for number in range(CALLERS)]
    bad = draft("bad-\x00")
    answers = await created(store, [*drafts, bad])
    assert CALLERS == sum(isinstance(answer, ChangeResult) for answer in answers)
    error = answers[-1]
    assert isinstance(error, Exception)
    assert not isinstance(error, StoreUnavailable)


@pytest.mark.parametrize("actor", ["ann", "bob"])
async def test_an_action_counts_against_who_made_it(
    store: Store, draft: Drafter, actor: str
) -> None:
    """Callers whose statements wait for each other are not mixed."""
    other = "cid"
    mine = [draft(f"{actor}-{n}") for n in range(20)]
    others = [draft(f"c-{actor}-{n}") for n in range(20)]
    await asyncio.gather(created(store, mine, actor), created(store, others, other))
    entries = await store.tokens.list_audit(AuditSelection(), limit=1_000)
    by_actor = {(entry.actor, entry.id) for entry in entries}
    assert {(actor, one.id) for one in mine} | {(other, one.id) for one in others} <= by_actor
