"""Attempts that were asked to end."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from gnomon.stores.postgres.connection import Database


async def list_cancelling(
    database: Database, shards: Collection[int], owner: str, since: datetime
) -> set[UUID]:
    """Of an owner's; where a statement may touch one shard only, they are asked one by one."""
    asked: set[UUID] = set()
    for group in database.groups(shards):
        rows = await database.fetch("list_cancelling", owner, since, *group.shards)
        asked.update(row["attempt_id"] for row in rows)
    return asked
