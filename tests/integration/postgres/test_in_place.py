"""Rows that begin where they arrived (ADR 0020), written by two at once."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import uuid4

import asyncpg
import pytest

from gnomon.contracts.store import HeldShard, Store
from tests.fixtures.postgres import PostgresSchema
from tests.integration.postgres.conftest import Drafter, held_shard

pytestmark = pytest.mark.plain  # nothing is begun in place on Citus

BLOCKED = (
    "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND $1 = ANY (pg_blocking_pids(pid)))"
)
BEGUN_BY_ANOTHER = """
UPDATE "{0}".incoming_queue SET attempt_id = gen_random_uuid(), began_at = statement_timestamp(),
    deadline_at = statement_timestamp(), reserved_until = statement_timestamp(), owner = 'another'
"""


@pytest.mark.parametrize("verb", ["move", "move_and_begin", "move_without_room"])
async def test_a_row_that_another_has_just_begun_is_left_to_him(
    store: Store, installed_schema: PostgresSchema, draft: Drafter, verb: str
) -> None:
    """Whoever waited for its lock sees that it is not idle any more.

    This shows that the verbs do so, not why. A new server (15.18, say) looks again at the ctid that
    a row was found by: there the test passes without the statement's own `attempt_id IS NULL`. One
    from before the end of 2025 does not look. That the statement has it is held by
    tests/architecture/test_row_ids.py.
    """
    await store.actions.create([draft("a")])
    shard = draft("a").shard
    held = await held_shard(store, shard)
    dsn, schema = installed_schema
    other = await asyncpg.connect(dsn)
    transaction = other.transaction()
    await transaction.start()
    await other.execute(BEGUN_BY_ANOTHER.format(schema))

    waiting = asyncio.create_task(_count(store, held, verb))
    while not waiting.done() and not await other.fetchval(BLOCKED, other.get_server_pid()):
        await asyncio.sleep(0.005)
    await transaction.commit()

    assert 0 == await waiting
    rows = await other.fetch(f'SELECT owner FROM "{schema}".incoming_queue')
    await other.close()
    assert ["another"] == [row["owner"] for row in rows]


async def _count(store: Store, held: HeldShard, verb: str) -> int:
    """How many rows it took or began."""
    if verb == "move":
        return (await store.work.move([held], limit=10)).count
    arrived = await store.work.move_and_begin(
        [held],
        limit=10,
        room={"default": 10} if verb == "move_and_begin" else {"other": 1},
        batch=uuid4(),
        owner="me",
        grace=timedelta(seconds=5),
        window=timedelta(minutes=1),
    )
    return arrived.moved.count
