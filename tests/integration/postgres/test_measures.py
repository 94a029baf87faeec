"""The measures of a PostgreSQL database: tables with partitions, and who holds back vacuum."""

from __future__ import annotations

import asyncpg

from gnomon.contracts.store import Store
from tests.fixtures.postgres import PostgresSchema


async def test_who_holds_back_vacuum_is_named(
    store: Store, installed_schema: PostgresSchema
) -> None:
    """A session with an old snapshot, by its process and program; its statement is not shown."""
    dsn, _ = installed_schema
    holding = await asyncpg.connect(dsn, server_settings={"application_name": "forgotten"})
    transaction = holding.transaction(isolation="repeatable_read")
    await transaction.start()
    await holding.fetch("SELECT 'a secret'")
    measures = await store.installation.measure()
    await transaction.rollback()
    await holding.close()

    (holder,) = [one for one in measures.holders if "forgotten" in one.name]
    assert ("session", "idle in transaction") == (holder.kind, holder.state)
    assert holder.since is not None
    assert "secret" not in repr(measures)


async def test_partitions_count_with_their_table(store: Store) -> None:
    """A day's partition is no table of its own to who looks."""
    measures = await store.installation.measure()

    names = [one.table for one in measures.tables]
    assert {"audit", "finished_action", "scheduled_action"} <= set(names)
    assert [] == [name for name in names if name.startswith("audit_")]
    assert measures.bytes >= max(one.bytes for one in measures.tables) > 0
