"""Rows on their way from the incoming to the processing queues, where an INSERT stands alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from gnomon.contracts.store import HeldShard
from gnomon.stores.postgres.connection import Database, Row, Session
from gnomon.stores.postgres.lanes import MARK_SLACK, MoveTally, mark_of
from gnomon.stores.postgres.parts import Only


class PartMover:
    """Moves rows of shards of one part, in a transaction of its own."""

    def __init__(
        self,
        database: Database,
        tally: MoveTally,
        limit: int,
        *,
        newest_in: Mapping[str, int] | None = None,
        silent: timedelta | None = None,
    ) -> None:
        """`newest_in`: only what is due of the newest rows, as far as there is this room. `silent`:
        as a helper, where nobody holds the shard, or its owner has been silent for so long."""
        self._database = database
        self._tally = tally
        self._limit = limit
        self._newest_in = newest_in
        self._silent = silent

    async def move(self, part: tuple[Sequence[HeldShard], Only]) -> None:
        holdings, only = part
        async with self._database.transaction("move") as session:
            rows = await self._take(session, holdings, only)
            taken = [row for row in rows if row["guid"] is not None]
            put = await _put(session, [row for row in taken if row["attempts"] is not None], only)
        held = {row["shard_id"]: row["now"] for row in rows if row["guid"] is None}
        self._tally.add_taken(held, taken, put)

    async def _take(
        self, session: Session, holdings: Sequence[HeldShard], only: Only
    ) -> Sequence[Row]:
        newest = self._newest_in
        is_helper = self._silent is not None
        return await session.fetch(
            "move_take",
            [holding.shard for holding in holdings],
            [None if is_helper else holding.lease_guid for holding in holdings],
            [mark_of(holding) for holding in holdings],
            self._limit,
            MARK_SLACK,
            self._silent,
            None if newest is None else sum(newest.values()),
            list(newest or ()),
            *only,
        )


async def _put(session: Session, rows: Sequence[Row], only: Only) -> list[Row]:
    """Those that were not there yet."""
    if not rows:
        return []
    names = ("shard_id", "guid", "queue", "priority", "scheduled_at", "attempts")
    columns = [[row[name] for row in rows] for name in names]
    put = {row["guid"] for row in await session.fetch("move_put", *columns, *only)}
    return [row for row in rows if row["guid"] in put]
