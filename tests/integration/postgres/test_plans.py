"""Hot statements use the index made for them, by the plan the engine really gets."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from gnomon.contracts.store import Store
from tests.fixtures.postgres import PostgresSchema
from tests.integration.postgres.conftest import SHARD_COUNT, Drafter
from tests.integration.postgres.statements import STATEMENTS, connect, explain

ROWS = 10_000
BULK = 2_500

# What each statement must read by; a number of times if it reads the same table more than once.
WANTED = {
    "create_actions": ["shard_lock_pkey"],
    "move": ["incoming_queue_pkey", "Tid Scan on incoming_queue", "scheduled_action_guid_idx"],
    "move_take": ["incoming_queue_pkey", "scheduled_action_guid_idx"],
    "begin": [
        "processing_queue_lane_idx",
        "scheduled_action_guid_idx",
        "shard_lock_pkey",
        "Tid Scan on processing_queue",
    ],
    "begin_lane": ["processing_queue_lane_idx", "scheduled_action_guid_idx", "shard_lock_pkey"],
    "next_due": ["processing_queue_lane_idx"],
    "next_due_lane": ["processing_queue_lane_idx"],
    "finish_plain": ["processing_queue_pkey", "scheduled_action_guid_idx"],
    "finish_take": ["processing_queue_pkey"],
    "finish_keep": ["processing_queue_pkey"],
    "continue_actions": ["scheduled_action_guid_idx"],
    "end_actions": ["scheduled_action_guid_idx"],
    "extend": ["processing_queue_pkey"],
    "lapsed_running": ["processing_queue_running_idx"],
    "lapsed_expired": ["scheduled_action_expiry_idx"],
    "lapsed_stale": ["processing_queue_lane_idx"],
    "survey": ["processing_queue_lane_idx"],
    "waiting": ["incoming_queue_pkey"],
    "get_live": ["scheduled_action_pkey", "processing_queue_pkey"],
    "get_finished": ["finished_action"],
    "heartbeat": ["shard_lock_pkey"],
}


@pytest.fixture
async def connection(
    store: Store, postgres_schema: PostgresSchema, draft: Drafter
) -> AsyncIterator[asyncpg.Connection[Any]]:
    """Ten thousand actions, half of them still in the incoming queue."""
    for start in range(0, ROWS, BULK):
        await store.actions.create([draft(f"a{number}") for number in range(start, start + BULK)])
    dsn, schema = postgres_schema
    opened = await connect(dsn, generic=True)
    await opened.execute(
        f'INSERT INTO "{schema}".processing_queue (shard_id, guid, queue, priority, scheduled_at, '
        "attempts, running, swept) SELECT shard_id, guid, queue, priority, scheduled_at, 0, "
        f"guid::text > '8', false FROM \"{schema}\".incoming_queue"
    )
    await opened.execute(f'ANALYZE "{schema}".scheduled_action, "{schema}".processing_queue')
    yield opened
    await opened.close()


async def test_hot_statements_use_their_indexes(
    connection: asyncpg.Connection[Any], postgres_schema: PostgresSchema
) -> None:
    """With 10,000 rows and the engine's settings no hot statement scans a table."""
    problems = []
    for name, wanted in WANTED.items():
        plan = await explain(connection, STATEMENTS[name], postgres_schema.schema, one_shard=False)
        problems += [f"{name}: no {index}\n{plan}" for index in wanted if index not in plan]
        problems += [f"{name}: {scan}\n{plan}" for scan in re.findall(r"Seq Scan on \w+", plan)]
        if "Hash Join" in plan or "Merge Join" in plan:
            problems.append(f"{name}: not a nested loop\n{plan}")

    assert [] == problems


async def test_begin_reads_a_lane_in_order_without_sorting(
    connection: asyncpg.Connection[Any], postgres_schema: PostgresSchema
) -> None:
    """The index gives the rows in order of their time: the limit ends the walk, not a sort."""
    for name in ("begin", "begin_lane", "next_due"):
        plan = await explain(connection, STATEMENTS[name], postgres_schema.schema, one_shard=False)
        inside = plan.split("Limit", 1)[1]

        assert "Sort" not in inside, plan


async def test_the_plan_check_can_fail(
    connection: asyncpg.Connection[Any], postgres_schema: PostgresSchema
) -> None:
    """A question without an index does scan the table, even with the engine's settings."""
    schema = postgres_schema.schema
    rows = await connection.fetch(
        f"EXPLAIN SELECT guid FROM \"{schema}\".scheduled_action WHERE queue = 'x'"
    )

    assert "Seq Scan" in rows[0][0]
    assert SHARD_COUNT > 1
