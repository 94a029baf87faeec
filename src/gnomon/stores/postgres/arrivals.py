"""Rows on their way from the incoming to the processing queues, where an INSERT stands alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from gnomon.contracts.store import BegunAttempt, HeldShard, Lane
from gnomon.stores.postgres.connection import Database, Row, Session
from gnomon.stores.postgres.lanes import BeginParameters, MoveTally, mark_of
from gnomon.stores.postgres.parts import Only
from gnomon.stores.postgres.rows import Decoder


class PartArrival:
    """`move_and_begin` for shards of one part, in a transaction of its own."""

    def __init__(
        self,
        database: Database,
        decoder: Decoder,
        tally: MoveTally,
        limit: int,
        terms: BeginParameters,
        *,
        newest: bool,
    ) -> None:
        self._database = database
        self._decoder = decoder
        self._tally = tally
        self._limit = limit
        self._terms = terms
        self._newest = newest

    async def arrive(
        self, holdings: Sequence[HeldShard], only: Only, room: Mapping[str, int]
    ) -> list[BegunAttempt]:
        async with self._database.transaction("move_and_begin") as session:
            rows = await self._take(session, holdings, only, room)
            taken = [row for row in rows if row["id"] is None and row["attempts"] is not None]
            put = await _put(session, taken, only, due="moment")
        begun = [row for row in rows if row["id"] is not None]
        shards = [row for row in rows if row["guid"] is None]
        self._note(shards, put, len(begun))
        return self._decoder.first_attempts(begun, shards[0]["now"]) if begun else []

    async def _take(
        self,
        session: Session,
        holdings: Sequence[HeldShard],
        only: Only,
        room: Mapping[str, int],
    ) -> Sequence[Row]:
        return await session.fetch(
            self._database.about("move_and_begin_part", newest=self._newest),
            [holding.shard for holding in holdings],
            [holding.lease_guid for holding in holdings],
            [mark_of(holding) for holding in holdings],
            self._limit,
            list(room),
            list(room.values()),
            *self._terms[:4],
            self._database.mark_slack,
            self._newest,
            *only,
        )

    def _note(self, shards: Sequence[Row], put: Sequence[Row], begun: int) -> None:
        tally = self._tally
        tally.count += begun
        for row in shards:
            tally.add_shard(row["shard_id"], row["count"], row["moment"], row["now"])
            tally.now = max(tally.now, row["now"])
        for row in put:
            tally.add_lane(Lane(row["shard_id"], row["queue"], row["priority"]), row["moment"], 1)


def shares_of(room: Mapping[str, int], count: int) -> list[dict[str, int]]:
    """Room for each of so many parts, none of which knows what the others begin."""
    return [
        {queue: free // count + (part < free % count) for queue, free in room.items()}
        for part in range(count)
    ]


class PartMover:
    """Moves rows of shards of one part, in a transaction of its own."""

    def __init__(
        self,
        database: Database,
        tally: MoveTally,
        limit: int,
        *,
        silent: timedelta | None = None,
    ) -> None:
        """`silent`: as a helper, where nobody holds the shard, or its owner has been silent for so
        long."""
        self._database = database
        self._tally = tally
        self._limit = limit
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
        is_helper = self._silent is not None
        return await session.fetch(
            "move_take",
            [holding.shard for holding in holdings],
            [None if is_helper else holding.lease_guid for holding in holdings],
            [mark_of(holding) for holding in holdings],
            self._limit,
            self._database.mark_slack,
            self._silent,
            *only,
        )


async def _put(
    session: Session, rows: Sequence[Row], only: Only, *, due: str = "scheduled_at"
) -> list[Row]:
    """Those that were not there yet. `due`: in which column their time is."""
    if not rows:
        return []
    names = ("shard_id", "guid", "queue", "priority", due, "attempts")
    columns = [[row[name] for row in rows] for name in names]
    put = {row["guid"] for row in await session.fetch("move_put", *columns, *only)}
    return [row for row in rows if row["guid"] in put]
