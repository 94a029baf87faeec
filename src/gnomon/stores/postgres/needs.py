"""Rows that were handed back: which needs they have, in which lanes, and how many are due."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from gnomon.contracts.store import Lane
from gnomon.stores.postgres.connection import Database, Row
from gnomon.stores.postgres.lanes import lane_of
from gnomon.stores.postgres.parts import Only
from gnomon.stores.postgres.several import every


async def list_needs(database: Database, limit: int) -> list[str]:
    """In order; where a statement may touch one shard only, they are asked part by part."""
    needs: set[str] = set()
    for only in await _parts(database):
        needs.update(row["need"] for row in await database.fetch("list_needs", limit, *only))
    return sorted(needs)[:limit]


async def list_need_lanes(database: Database, needs: Sequence[str]) -> dict[Lane, datetime]:
    """Lanes with their earliest times."""
    rows: list[Row] = []
    for only in await _parts(database):
        rows += await database.fetch("list_need_lanes", needs, *only)
    return {lane_of(row): row["scheduled_at"] for row in rows}


async def count_due(
    database: Database, lanes: Sequence[Lane], limit: int, until: datetime | None
) -> int:
    """Up to the limit, whatever the number of statements."""
    answers = await every(
        database.split(lanes, lambda lane: lane.shard),
        lambda part: database.fetch("count_due", *_columns(part[0]), limit, until, *part[1]),
    )
    count: int = sum(rows[0]["count"] for rows in answers)
    return min(count, limit)


def _columns(lanes: Sequence[Lane]) -> list[list[object]]:
    return [list(column) for column in zip(*lanes, strict=True)]


async def _parts(database: Database) -> Sequence[Only]:
    """The last arguments of what has to be sent: once for all shards, or once for each part."""
    count = 1 if database.many_shards else await database.shard_count()
    return [group.shards for group in database.groups(range(count))]
