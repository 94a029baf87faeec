"""Saves on their way out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from gnomon.contracts.store import Holding
from gnomon.contracts.store.entities import Outgoing
from gnomon.stores.postgres.connection import Database, Row
from gnomon.stores.postgres.entities.looking import first_rows
from gnomon.stores.postgres.entities.rows import outgoing_of


async def outgoing(
    database: Database, holdings: Sequence[Holding], *, limit: int
) -> list[Outgoing]:
    async def look(
        chosen: Sequence[Holding], most: int, share: int, only: tuple[int, ...]
    ) -> Sequence[Row]:
        shards = [holding.shard for holding in chosen]
        leases = [holding.lease_guid for holding in chosen]
        return await database.fetch("outgoing", shards, leases, most, share, *only)

    return [outgoing_of(row) for row in await first_rows(database, holdings, limit, look)]


async def sent(database: Database, rows: Sequence[Outgoing]) -> None:
    for group in database.groups(row.shard for row in rows):
        chosen = [rows[place] for place in group.places]
        await database.fetch("sent", *_keys(chosen), *group.shards)


async def unsent(
    database: Database, rows: Sequence[Outgoing], *, delay: timedelta, error: str, counts: bool
) -> None:
    for group in database.groups(row.shard for row in rows):
        chosen = [rows[place] for place in group.places]
        await database.fetch("unsent", *_keys(chosen), delay, error, int(counts), *group.shards)


def _keys(rows: Sequence[Outgoing]) -> tuple[list[object], ...]:
    return (
        [row.shard for row in rows],
        [row.entity_id for row in rows],
        [row.sink for row in rows],
        [row.n for row in rows],
    )
