"""Hot statements use the index made for them, by the plan the engine really gets."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from gnomon.contracts.store import Store
from tests.fixtures.postgres import PostgresSchema
from tests.integration.postgres.conftest import Drafter
from tests.integration.postgres.statements import STATEMENTS, connect, explain

pytestmark = pytest.mark.plain  # the plans of one machine

ROWS = 10_000
BULK = 2_500

# What each statement must find its rows by.
WANTED = {
    "create_rows": ["shard_lock_pkey"],
    "move": ["incoming_queue_pkey", "Tid Scan on incoming_queue", "scheduled_action_guid_idx"],
    "move_take": [
        "incoming_queue_pkey",
        "Tid Scan on incoming_queue",
        "scheduled_action_guid_idx",
    ],
    "move_and_begin_part": [
        "incoming_queue_pkey",
        "Tid Scan on incoming_queue",
        "scheduled_action_guid_idx",
    ],
    "finish_end": [
        "processing_queue_pkey",
        "Tid Scan on processing_queue",
        "scheduled_action_guid_idx",
    ],
    "finish_end_plain": [
        "processing_queue_pkey",
        "incoming_queue_pkey",
        "Tid Scan on incoming_queue",
        "scheduled_action_guid_idx",
    ],
    "finish_drop_begun": [
        "incoming_queue_pkey",
        "Tid Scan on incoming_queue",
        "scheduled_action_guid_idx",
    ],
    "begin": [
        "processing_queue_lane_idx",
        "scheduled_action_guid_idx",
        "shard_lock_pkey",
        "Tid Scan on processing_queue",
    ],
    "begin_lane": [
        "processing_queue_lane_idx",
        "scheduled_action_guid_idx",
        "shard_lock_pkey",
        "Tid Scan on processing_queue",
    ],
    "begin_next_due": ["processing_queue_lane_idx"],
    "begin_next_due_lane": ["processing_queue_lane_idx"],
    "confirm": ["scheduled_action_guid_idx", "processing_queue_pkey"],
    "find_begun": ["scheduled_action_guid_idx"],
    "extend": ["processing_queue_pkey", "scheduled_action_guid_idx"],
    "finish_plain": [
        "processing_queue_pkey",
        "incoming_queue_pkey",
        "scheduled_action_guid_idx",
        "Tid Scan on scheduled_action",
        "Tid Scan on incoming_queue",
    ],
    "move_and_begin": [
        "incoming_queue_pkey",
        "scheduled_action_guid_idx",
        "Tid Scan on incoming_queue",
    ],
    "lock_begun": ["incoming_queue_pkey", "scheduled_action_guid_idx"],
    "lock_begun_in": ["incoming_queue_pkey", "Tid Scan on incoming_queue"],
    "move_begun": ["Tid Scan on incoming_queue"],
    "is_mixed": ["incoming_queue_pkey"],
    "finish_delete_begun": ["incoming_queue_pkey", "scheduled_action_guid_idx"],
    "finish_recorded": ["finished_action"],
    "finish_take": ["processing_queue_pkey"],
    "finish_keep": ["processing_queue_pkey"],
    "finish_clear_swept": ["processing_queue_pkey"],
    "finish_hand_back": ["processing_queue_pkey"],
    "list_cancelling": ["owner_began_at"],
    "list_needs": ["processing_queue_need_idx"],
    "list_need_lanes": ["processing_queue_need_idx"],
    "count_due": ["processing_queue_lane_idx"],
    "figures_lanes": ["processing_queue_lane_idx"],
    "figures_arrived": ["incoming_queue_pkey"],
    "figures_running": ["processing_queue_running_idx"],
    "figures_dead": ["finished_action"],
    "figures_stages": ["stage_queue_ready_idx"],
    "failures_queue_after": ["finished_action"],
    "failures_dead": ["finished_action"],
    "failures_retrying": ["scheduled_action_failing_idx"],
    "record_minute": [],
    "list_history": ["history_pkey"],
    "thin_history_take": ["history_span_idx"],
    "thin_history_own": ["history_pkey"],
    "load_lanes": ["processing_queue_lane_idx"],
    "load_few": ["processing_queue_lane_idx"],
    "load_due": ["processing_queue_lane_idx"],
    "list_due": ["processing_queue_lane_idx", "scheduled_action_guid_idx"],
    "list_due_arrived": ["incoming_queue_pkey", "scheduled_action_guid_idx"],
    "load_arrived": ["incoming_queue_pkey"],
    "herd_ids": ["processing_queue_lane_idx", "scheduled_action_guid_idx"],
    "list_recurring": ["scheduled_action_recurring_idx"],
    "why_lock": ["shard_lock_pkey"],
    "why_behind": ["processing_queue_lane_idx"],
    "settle_take": ["processing_queue_pkey"],
    "settle_keep": ["processing_queue_pkey"],
    "lock_generation": ["processing_queue_pkey", "scheduled_action_guid_idx"],
    "finish_held": ["processing_queue_pkey", "scheduled_action_guid_idx"],
    "end_archive": ["scheduled_action_guid_idx"],
    "end_remove": ["scheduled_action_guid_idx"],
    "continue_action": ["scheduled_action_guid_idx", "Tid Scan on scheduled_action"],
    "change_drop_row": ["processing_queue_pkey", "Tid Scan on processing_queue"],
    "finish_delete_stale": ["processing_queue_pkey", "scheduled_action_guid_idx"],
    "delete_stale": [
        "processing_queue_lane_idx",
        "processing_queue_running_idx",
        "scheduled_action_guid_idx",
        "Tid Scan on processing_queue",
    ],
    "list_lapsed_running": ["processing_queue_running_idx", "scheduled_action_guid_idx"],
    "list_orphans": ["processing_queue_running_idx", "scheduled_action_guid_idx"],
    "list_lapsed_expired": ["scheduled_action_expiry_idx", "processing_queue_pkey"],
    "end_pauses_find": ["scheduled_action_paused_until_idx"],
    "end_pauses_take": ["scheduled_action_paused_until_idx"],
    "end_pauses": ["scheduled_action_pkey", "Tid Scan on scheduled_action"],
    "list_lanes": ["processing_queue_lane_idx"],
    "poll": ["incoming_queue_pkey"],
    "change_lock": ["scheduled_action_pkey"],
    "get_live": ["scheduled_action_pkey", "processing_queue_pkey"],
    "get_finished": ["finished_action"],
    "repeat_live": ["scheduled_action_guid_idx"],
    "heartbeat": ["shard_lock_pkey"],
}
HOT_TABLES = ("scheduled_action", "incoming_queue", "processing_queue")


@pytest.fixture
def installed_schema(postgres_schema: PostgresSchema) -> PostgresSchema:
    """One of the test's own: what the planner is told of ten thousand rows would stay."""
    return postgres_schema


@pytest.fixture(params=["filled", "emptied"])
async def connection(
    request: pytest.FixtureRequest,
    store: Store,
    postgres_schema: PostgresSchema,
    draft: Drafter,
) -> AsyncIterator[asyncpg.Connection[Any]]:
    """Ten thousand actions; or all gone but one and the planner told so, as after a night."""
    for start in range(0, ROWS, BULK):
        await store.actions.create([draft(f"a{number}") for number in range(start, start + BULK)])
    dsn, schema = postgres_schema
    opened = await connect(dsn, generic=True)
    await opened.execute(
        f'INSERT INTO "{schema}".processing_queue (shard_id, guid, queue, priority, scheduled_at, '
        "attempts, running, swept) SELECT shard_id, guid, queue, priority, scheduled_at, 0, "
        f"guid::text > '8', false FROM \"{schema}\".incoming_queue"
    )
    for table in HOT_TABLES:
        if request.param == "emptied":
            # One row is left on the last page: otherwise vacuum would give the pages back, and
            # the planner would go by the true size again.
            await opened.execute(
                f'DELETE FROM "{schema}".{table} WHERE ctid <> '
                f'(SELECT max(ctid) FROM "{schema}".{table})'
            )
        await opened.execute(f'VACUUM ANALYZE "{schema}".{table}')
    yield opened
    await opened.close()


def problems_of(plan: str, wanted: list[str]) -> list[str]:
    """Whole tables or indexes read, joins other than by lookup, and what was not used."""
    problems = [f"no {index}" for index in wanted if index not in plan]
    problems += re.findall(r"Seq Scan on \w+|Hash Join|Merge Join|Hash \w+ Join", plan)
    lines = plan.splitlines()
    problems += [
        f"reads all of {line.strip()}"
        for line, following in zip(lines, [*lines[1:], ""], strict=True)
        if re.search(r"Index (?:Only )?Scan", line) and "Index Cond" not in following
    ]
    return problems


async def test_hot_statements_use_their_indexes(
    connection: asyncpg.Connection[Any], postgres_schema: PostgresSchema
) -> None:
    """Whatever the planner believes about the queues, each row is found by the key it has."""
    found = []
    for name, wanted in WANTED.items():
        plan = await explain(connection, STATEMENTS[name], postgres_schema.schema, one_shard=False)
        problems = problems_of(plan, wanted)
        if problems:
            found.append(f"{name}: {problems}\n{plan}")

    assert [] == found


async def test_begin_reads_a_lane_in_order_without_sorting(
    connection: asyncpg.Connection[Any], postgres_schema: PostgresSchema
) -> None:
    """The index gives the rows in order of their time: the limit ends the walk, not a sort."""
    for name in ("begin", "begin_lane", "begin_next_due"):
        plan = await explain(connection, STATEMENTS[name], postgres_schema.schema, one_shard=False)
        inside = plan.split("Limit", 1)[1]

        assert "Sort" not in inside, plan


async def test_the_plan_check_can_fail(
    connection: asyncpg.Connection[Any], postgres_schema: PostgresSchema
) -> None:
    """A question without an index, and a join that leaves the planner a choice."""
    schema = postgres_schema.schema
    scanned = await connection.fetch(
        f"EXPLAIN SELECT guid FROM \"{schema}\".scheduled_action WHERE queue = 'x'"
    )
    indexed = await connection.fetch(
        f'EXPLAIN SELECT guid FROM "{schema}".processing_queue ORDER BY guid'
    )

    assert problems_of("\n".join(row[0] for row in scanned), [])
    assert problems_of("\n".join(row[0] for row in indexed), ["processing_queue_pkey"])
    assert ["no such_idx"] == problems_of("Result", ["such_idx"])
