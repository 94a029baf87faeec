"""Hot statements about entities and stages use the index made for them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from gnomon.contracts.store import Store
from tests.fixtures.postgres import PostgresSchema
from tests.integration.postgres.statements import STATEMENTS, connect, explain
from tests.integration.postgres.test_plans import problems_of

# What each statement must find its rows by.
WANTED = {
    "entity_lock": ["entity_pkey"],
    "entity_create": ["shard_lock_pkey"],
    "entity_put": ["Tid Scan on entity"],
    "entity_save": ["Tid Scan on entity"],
    "entity_note": ["shard_lock_pkey"],
    "feed_add": ["shard_lock_pkey"],
    "feed_drop": ["stage_feed_pkey", "Tid Scan on stage_feed"],
    "feed_done": ["stage_feed_pkey", "Tid Scan on stage_feed"],
    "feed_on": ["stage_feed_pkey", "Tid Scan on stage_feed"],
    "queue_lock_all": ["stage_queue_pkey"],
    "queue_remove": ["Tid Scan on stage_queue"],
    "queue_settle": ["Tid Scan on stage_queue"],
    "publish": ["entity_pkey", "stage_state_pkey", "Backward using stage_outbox_pkey"],
    "stages_with_state": ["stage_state_pkey"],
    "states_drop": ["stage_state_pkey", "Tid Scan on stage_state"],
    "state_versions": ["stage_state_pkey"],
    "state_save": ["shard_lock_pkey"],
    "entity_get": ["entity_pkey"],
    "entity_rows": ["stage_queue_pkey"],
    "entity_changes": ["entity_change_pkey"],
    "entity_since": ["entity_pkey", "entity_change_pkey"],
    "entity_touch": ["Tid Scan on entity"],
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
    "held": ["shard_lock_pkey"],
    "offer_ready": ["shard_lock_pkey"],
    "offer_timer": ["shard_lock_pkey"],
    "offer_looping": ["shard_lock_pkey"],
    "fire": ["shard_lock_pkey", "stage_queue_timer_idx", "Tid Scan on stage_queue"],
    "peek_ids": ["stage_queue_ready_idx", "entity_pkey", "stage_state_pkey"],
    "claims": ["shard_lock_pkey", "stage_queue_pkey", "entity_pkey", "stage_state_pkey"],
    "feed_ids": ["stage_feed_first_idx", "entity_pkey", "stage_state_pkey"],
    "fed": [
        "shard_lock_pkey",
        "entity_pkey",
        "stage_state_pkey",
        "stage_queue_pkey",
        "entity_change_pkey",
    ],
    "survey_stages": [
        "shard_lock_pkey",
        "stage_queue_ready_idx",
        "stage_queue_timer_idx",
        "stage_feed_first_idx",
        "stage_backfill_pkey",
    ],
    "survey_outbox": [
        "shard_lock_pkey",
        "stage_outbox_ready_idx",
        "stage_outbox_late_idx",
    ],
    "backfill_at": ["stage_backfill_pkey", "shard_lock_pkey", "stage_queue_ready_idx"],
    "backfill_ids": ["entity_pkey", "stage_state_pkey"],
    "backfill_on": ["stage_backfill_pkey", "shard_lock_pkey"],
    "outgoing": ["shard_lock_pkey", "stage_outbox_ready_idx"],
    "sent": ["stage_outbox_pkey", "Tid Scan on stage_outbox"],
    "unsent": ["stage_outbox_pkey", "Tid Scan on stage_outbox"],
    "save_quarantine": ["stage_outbox_pkey"],
    "undelivered": ["stage_outbox_parked_idx"],
    "saves_free": ["stage_outbox_parked_idx"],
}
TABLES = ("entity", "entity_change", "stage_state", "stage_queue", "stage_feed", "stage_outbox")
FILL = """
INSERT INTO entity SELECT statement_timestamp(), 1, 1, 1, n % 16, n % 100 = 0, 'e' || n, '{}'
FROM generate_series(1, 10000) AS n;
INSERT INTO entity_change SELECT '00000000-0000-0000-0000-000000000000', changed_at, 1, 1, shard_id,
    0, id, 'user', '[]' FROM entity;
INSERT INTO stage_state SELECT 1, shard_id, 1, id, 's', NULL, '' FROM entity;
INSERT INTO stage_queue SELECT
    CASE WHEN id > 'e5' THEN changed_at END, changed_at, changed_at,
    '00000000-0000-0000-0000-000000000000', 1, shard_id, 0, 0, 0,
    CASE WHEN id > 'e5' THEN 'ready' ELSE 'sleeping' END, id, stage, '{}'
    FROM entity, (VALUES ('s'), ('t')) AS stages (stage);
INSERT INTO stage_feed SELECT changed_at, 1, 1, 0, shard_id, id FROM entity;
INSERT INTO stage_outbox SELECT '00000000-0000-0000-0000-000000000000', changed_at, changed_at, 1,
    1, 1, NULL, shard_id, 0, NULL, '', id, 'user', '[]', id FROM entity;
INSERT INTO stage_backfill SELECT statement_timestamp(), n, false, 's', NULL, 'by hand'
FROM generate_series(0, 15) AS n;
"""


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


@pytest.mark.parametrize("name", ["peek_ids", "feed_ids", "fire", "outgoing"])
async def test_a_look_reads_a_shard_in_order_without_sorting(
    connection: asyncpg.Connection[Any], postgres_schema: PostgresSchema, name: str
) -> None:
    """The index gives the rows in order of their time: the limit ends the walk, not a sort."""
    plan = await explain(connection, STATEMENTS[name], postgres_schema.schema, one_shard=False)
    outer, inner = plan.split("Nested Loop", 1)

    assert "Sort" in outer, plan  # of what the shards gave
    assert "Sort" not in inner, plan
