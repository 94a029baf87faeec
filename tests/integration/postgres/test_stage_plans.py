"""Hot statements about entities and stages use the index made for them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from gnomon.contracts.store import Store
from tests.fixtures.postgres import PostgresSchema
from tests.integration.postgres.statements import STATEMENTS, connect, explain
from tests.integration.postgres.test_plans import problems_of

pytestmark = pytest.mark.plain  # the plans of one machine

# What each statement must find its rows by.
WANTED = {
    "save_lock": ["entity_pkey"],
    "write_create": ["shard_lock_pkey"],
    "write_change": ["Tid Scan on entity"],
    "commit_entity": ["Tid Scan on entity"],
    "save_note": ["shard_lock_pkey"],
    "save_changed": ["shard_lock_pkey"],
    "write_drop_changed": ["changed_entity_pkey", "Tid Scan on changed_entity"],
    "route_done": ["changed_entity_pkey", "Tid Scan on changed_entity"],
    "route_since": ["changed_entity_pkey", "Tid Scan on changed_entity"],
    "write_lock_rows": ["stage_queue_pkey"],
    "row_remove": ["Tid Scan on stage_queue"],
    "row_update": ["Tid Scan on stage_queue"],
    "save_publish": ["entity_pkey", "stage_state_pkey", "Backward using stage_outbox_pkey"],
    "write_states": ["stage_state_pkey"],
    "save_drop_states": ["stage_state_pkey", "Tid Scan on stage_state"],
    "swap_state": ["stage_state_pkey"],
    "save_state": ["shard_lock_pkey"],
    "get_entity": ["entity_pkey"],
    "rows": ["stage_queue_pkey"],
    "changes": ["entity_change_pkey"],
    "commit_moved": ["entity_pkey", "entity_change_pkey"],
    "save_touch": ["Tid Scan on entity"],
    "claim_lock": ["entity_pkey", "shard_lock_pkey", "stage_state_pkey", "stage_queue_pkey"],
    "commit_plain": [
        "shard_lock_pkey",
        "entity_pkey",
        "stage_queue_pkey",
        "stage_state_pkey",
        "Backward using stage_outbox_pkey",
        "Tid Scan on entity",
        "Tid Scan on stage_queue",
    ],
    "route_held": ["shard_lock_pkey"],
    "enqueue_ready": ["shard_lock_pkey"],
    "enqueue_timer": ["shard_lock_pkey"],
    "enqueue_looping": ["shard_lock_pkey"],
    "fire_timers": ["shard_lock_pkey", "stage_queue_timer_idx", "Tid Scan on stage_queue"],
    "lane_head": ["stage_queue_ready_idx", "entity_pkey", "stage_state_pkey"],
    "claim": ["shard_lock_pkey", "stage_queue_pkey", "entity_pkey", "stage_state_pkey"],
    "changed_entities": ["changed_entity_first_idx", "entity_pkey", "stage_state_pkey"],
    "changed_entities_load": [
        "shard_lock_pkey",
        "entity_pkey",
        "stage_state_pkey",
        "stage_queue_pkey",
        "entity_change_pkey",
    ],
    "next_work": [
        "shard_lock_pkey",
        "stage_queue_ready_idx",
        "stage_queue_timer_idx",
        "changed_entity_first_idx",
        "stage_backfill_pkey",
    ],
    "waiting_sinks": [
        "shard_lock_pkey",
        "stage_outbox_ready_idx",
        "stage_outbox_late_idx",
    ],
    "backfill_page": ["stage_backfill_pkey", "shard_lock_pkey", "stage_queue_ready_idx"],
    "backfill_page_keys": ["entity_pkey", "stage_state_pkey"],
    "advance_backfill": ["stage_backfill_pkey", "shard_lock_pkey"],
    "due_saves": ["shard_lock_pkey", "stage_outbox_ready_idx"],
    "remove_saves": ["stage_outbox_pkey", "Tid Scan on stage_outbox"],
    "put_off": ["stage_outbox_pkey", "Tid Scan on stage_outbox"],
    "quarantine": ["stage_outbox_pkey"],
    "rows_undelivered": ["stage_outbox_parked_idx"],
    "release_saves": ["stage_outbox_parked_idx"],
}
TABLES = ("entity", "entity_change", "stage_state", "stage_queue", "changed_entity", "stage_outbox")
FILL = """
INSERT INTO entity SELECT statement_timestamp(), 1, 1, 1, n % 16, n % 100 = 0, 'ad/e' || n, '{}'
FROM generate_series(1, 10000) AS n;
INSERT INTO entity_change SELECT '00000000-0000-0000-0000-000000000000', changed_at, 1, 1, shard_id,
    0, entity_key, 'user', '[]' FROM entity;
INSERT INTO stage_state SELECT 1, shard_id, 1, entity_key, 's', NULL, '' FROM entity;
INSERT INTO stage_queue SELECT
    CASE WHEN entity_key > 'ad/e5' THEN changed_at END, changed_at, changed_at,
    '00000000-0000-0000-0000-000000000000', 1, shard_id, 0, 0, 0,
    CASE WHEN entity_key > 'ad/e5' THEN 'ready' ELSE 'sleeping' END, entity_key, stage, '{}'
    FROM entity, (VALUES ('s'), ('t')) AS stages (stage);
INSERT INTO changed_entity SELECT changed_at, 1, 1, 0, shard_id, entity_key FROM entity;
INSERT INTO stage_outbox SELECT '00000000-0000-0000-0000-000000000000', changed_at, changed_at, 1,
    1, 1, NULL, shard_id, 0, NULL, '', entity_key, 'user', '[]', entity_key FROM entity;
INSERT INTO stage SELECT now(), now(), '0', 1, 's', 'ad', '[]', '[]';
INSERT INTO stage_backfill SELECT statement_timestamp(), n, false, 's', NULL, 'by hand'
FROM generate_series(0, 15) AS n;
"""


@pytest.fixture
def installed_schema(postgres_schema: PostgresSchema) -> PostgresSchema:
    """One of the test's own: what the planner is told of ten thousand rows would stay."""
    return postgres_schema


@pytest.fixture(params=["filled", "emptied"])
async def connection(
    request: pytest.FixtureRequest, store: Store, postgres_schema: PostgresSchema
) -> AsyncIterator[asyncpg.Connection[Any]]:
    """Ten thousand entities; or all gone but one and the planner told so, as after a night."""
    dsn, schema = postgres_schema
    opened = await connect(dsn, generic=True)
    await opened.execute(f'SET search_path TO "{schema}"')
    await opened.execute(FILL)
    for table in TABLES:
        if request.param == "emptied":
            # See test_plans: the last page must stay.
            await opened.execute(
                f"DELETE FROM {table} WHERE ctid <> (SELECT max(ctid) FROM {table})"
            )
        await opened.execute(f"VACUUM ANALYZE {table}")
    yield opened
    await opened.close()


async def test_statements_about_entities_use_their_indexes(
    connection: asyncpg.Connection[Any], postgres_schema: PostgresSchema
) -> None:
    """Whatever the planner believes about the tables, each row is found by the key it has."""
    found = []
    for name, wanted in WANTED.items():
        plan = await explain(connection, STATEMENTS[name], postgres_schema.schema, one_shard=False)
        problems = problems_of(plan, wanted)
        if problems:
            found.append(f"{name}: {problems}\n{plan}")

    assert [] == found


@pytest.mark.parametrize("name", ["lane_head", "changed_entities", "fire_timers", "due_saves"])
async def test_a_look_reads_a_shard_in_order_without_sorting(
    connection: asyncpg.Connection[Any], postgres_schema: PostgresSchema, name: str
) -> None:
    """The index gives the rows in order of their time: the limit ends the walk, not a sort."""
    plan = await explain(connection, STATEMENTS[name], postgres_schema.schema, one_shard=False)
    outer, inner = plan.split("Nested Loop", 1)

    assert "Sort" in outer, plan  # of what the shards gave
    assert "Sort" not in inner, plan


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("list_entities", "entity_pkey"),
        ("backfill_page_keys", "entity_pkey"),
        ("parked", "stage_queue_parked_idx"),
        ("parked_undelivered", "stage_outbox_parked_idx"),
    ],
)
async def test_one_kind_is_a_range_of_the_index(
    connection: asyncpg.Connection[Any], postgres_schema: PostgresSchema, name: str, index: str
) -> None:
    """Both its ends are looked up: entities of other kinds are not read to be left out."""
    await connection.execute("SET enable_seqscan = off")  # tables may be tiny here
    plan = await explain(connection, STATEMENTS[name], postgres_schema.schema, one_shard=False)
    _, scan = plan.split(f"using {index}", 1)
    condition = next(line for line in scan.splitlines() if "Index Cond:" in line)

    assert {">", "<"} <= set(re.findall(r"entity_key(?:, \w+\))? ([<>])", condition)), plan
