"""First attempts of plain success are recorded by one statement, all others in a transaction."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from gnomon.contracts.store import BegunAttempt, FinishRequest, Recorded, Store
from gnomon.model.outcome import Failed, Outcome, Succeeded
from gnomon.model.transition import transition
from gnomon.stores.postgres.connection import Database
from tests.fixtures.postgres import PostgresSchema
from tests.integration.postgres.conftest import Drafter, held_shard

pytestmark = pytest.mark.plain  # on Citus a result is recorded by statements of one shard


@pytest.fixture
def transactions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the store asked several statements for."""
    asked: list[str] = []
    inner = Database.transaction

    def noting(self: Database, operation: str, **options: Any) -> AbstractAsyncContextManager[Any]:
        asked.append(operation)
        return inner(self, operation, **options)

    monkeypatch.setattr(Database, "transaction", noting)
    return asked


async def begun_in_place(store: Store, draft: Drafter, *names: str) -> list[BegunAttempt]:
    drafts = [draft(name) for name in names]
    await store.actions.create(drafts)
    holdings = [await held_shard(store, shard) for shard in {each.shard for each in drafts}]
    arrived = await store.work.move_and_begin(
        holdings, limit=10, room={"default": 10}, batch=uuid4(), owner="me",
        grace=timedelta(seconds=5), window=timedelta(minutes=1),
    )  # fmt: skip
    return sorted(arrived.begun, key=lambda begun: begun.id)


async def finish_of(store: Store, begun: BegunAttempt, outcome: Outcome) -> FinishRequest:
    now = await store.installation.now()
    return FinishRequest(
        shard=begun.shard,
        id=begun.id,
        guid=begun.guid,
        attempt_id=begun.attempt_id,
        attempt_no=begun.status.attempts,
        occurrence_no=begun.status.occurrence_no,
        began_at=begun.began_at,
        outcome=type(outcome).__name__.lower(),
        verdict=transition(begun.spec, begun.status, outcome, guid=begun.guid, now=now),
        error=outcome.error if isinstance(outcome, Failed) else None,
    )


async def test_plain_successes_take_one_statement(
    store: Store, draft: Drafter, transactions: list[str]
) -> None:
    """It is most of what a busy worker records: two journeys to the server less for each batch."""
    begun = await begun_in_place(store, draft, "a", "b")
    results = [await finish_of(store, each, Succeeded()) for each in begun]

    assert [Recorded.APPLIED] * 2 == await store.work.finish(results, owner="me")
    assert "finish" not in transactions


async def test_one_that_is_no_plain_success_takes_all_into_a_transaction(
    store: Store, draft: Drafter, transactions: list[str]
) -> None:
    """A failure beside a success; and a repeated result, of which it must be known what it is."""
    first, second = await begun_in_place(store, draft, "a", "b")
    results = [
        await finish_of(store, first, Succeeded()),
        await finish_of(store, second, Failed(error="no")),
    ]

    assert [Recorded.APPLIED] * 2 == await store.work.finish(results, owner="me")
    assert ["finish"] == [each for each in transactions if each == "finish"]
    assert [Recorded.REPEATED] == await store.work.finish(results[:1], owner="me")
    assert 2 == transactions.count("finish")


async def test_what_was_counted_as_interrupted_takes_a_transaction(
    store: Store, installed_schema: PostgresSchema, draft: Drafter, transactions: list[str]
) -> None:
    """For its attempt is logged besides, and a crash between the two would lose the line."""
    (begun,) = await begun_in_place(store, draft, "a")
    result = await finish_of(store, begun, Succeeded())
    dsn, schema = installed_schema
    other = await asyncpg.connect(dsn)
    await other.execute(
        f"""
        WITH begun AS (DELETE FROM "{schema}".incoming_queue RETURNING *)
        INSERT INTO "{schema}".processing_queue
            (shard_id, guid, queue, priority, scheduled_at, attempts, running, swept, attempt_id,
             began_at)
        SELECT shard_id, guid, queue, priority, scheduled_at, 1, false, true, attempt_id, began_at
        FROM begun
        """
    )
    await other.close()

    assert [Recorded.APPLIED] == await store.work.finish([result], owner="me")
    assert ["finish"] == [each for each in transactions if each == "finish"]
    (attempt,) = await store.actions.list_attempts("a", limit=10)
    assert "succeeded" == attempt.outcome
