"""The upkeep of what entities leave behind: notes of changes, states of tombstones."""

from __future__ import annotations

from datetime import timedelta

from gnomon.stores.postgres.connection import Database
from gnomon.stores.postgres.entities.versions import ShardedKey, columns, lock_free
from gnomon.stores.postgres.parts import Only

NOTES_KEPT_FOR = timedelta(hours=1)
STATES_KEPT_FOR = timedelta(days=7)


async def purge(database: Database, *, limit: int) -> int:
    """Up to so many of each: a flood of notes must not keep the states for ever."""
    notes = states = 0
    for group in database.groups(range(await database.shard_count())):
        if notes < limit:
            rows = await database.fetch_wide(
                "purge_changes", NOTES_KEPT_FOR, limit - notes, *group.shards
            )
            notes += len(rows)
        if states < limit:
            states += await _purge_states(database, limit - states, group.shards)
    return notes + states


async def _purge_states(database: Database, limit: int, only: Only) -> int:
    async with database.transaction("purge_entities") as session:
        rows = await session.fetch("purge_tombstones", STATES_KEPT_FOR, limit, *only)
        keys = [ShardedKey(*row) for row in rows]
        if not keys:
            return 0
        free = await lock_free(session, keys, only)
        tombstones = {
            key: row.row_id
            for key, row in zip(keys, free.rows, strict=True)
            if row is not None and not row.lives
        }
        gone = await session.fetch("save_drop_states", *columns(list(tombstones)), *only)
        await session.fetch("purge_emptied", list(tombstones.values()), *only)
        return len(gone)
