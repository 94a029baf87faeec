"""Work in PostgreSQL: what the owner of a shard does. Each verb has a module of its own."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from gnomon.contracts.store import (
    ArrivalResult,
    BeginRequest,
    BeginResult,
    BegunAttempt,
    FinishRequest,
    HeldShard,
    Lane,
    LapsedRow,
    MoveResult,
    PollResult,
    Recorded,
    ReservedAttempt,
    SettleRequest,
)
from gnomon.stores.postgres import begin, finish, move, settle
from gnomon.stores.postgres.connection import Database
from gnomon.stores.postgres.rows import Decoder


class PostgresWork:
    """The `WorkStore` of this engine."""

    def __init__(self, database: Database, decoder: Decoder) -> None:
        self._database = database
        self._decoder = decoder

    async def move(self, holdings: Sequence[HeldShard], *, limit: int, full: bool) -> MoveResult:
        return await move.move(self._database, holdings, limit=limit, full=full)

    async def move_silent(
        self, shards: Sequence[int], *, limit: int, silent: timedelta
    ) -> MoveResult:
        return await move.move_silent(self._database, shards, limit=limit, silent=silent)

    async def move_and_begin(
        self,
        holdings: Sequence[HeldShard],
        *,
        limit: int,
        room: Mapping[str, int],
        batch: UUID,
        owner: str,
        grace: timedelta,
        window: timedelta,
    ) -> ArrivalResult:
        terms = begin.BeginParameters(batch, owner, grace, window, timedelta(0))
        return await move.arrive(self._database, self._decoder, holdings, room, terms, limit=limit)

    async def begin(
        self,
        demands: Sequence[BeginRequest],
        *,
        batch: UUID,
        owner: str,
        grace: timedelta,
        window: timedelta,
        silent: timedelta,
    ) -> BeginResult:
        terms = begin.BeginParameters(batch, owner, grace, window, silent)
        return await begin.begin(self._database, self._decoder, demands, terms)

    async def find_begun(
        self, demands: Sequence[BeginRequest], *, batch: UUID
    ) -> Sequence[BegunAttempt]:
        return await begin.recall(self._database, self._decoder, demands, batch)

    async def extend(
        self, attempts: Sequence[ReservedAttempt], *, window: timedelta, grace: timedelta
    ) -> Collection[UUID]:
        return await begin.extend(self._database, attempts, window + grace)

    async def finish(self, finishes: Sequence[FinishRequest], *, owner: str) -> Sequence[Recorded]:
        return await finish.finish(self._database, finishes, owner)

    async def list_lapsed(
        self, holdings: Sequence[HeldShard], *, limit: int
    ) -> Sequence[LapsedRow]:
        return await settle.lapsed(self._database, self._decoder, holdings, limit)

    async def delete_stale(self, holdings: Sequence[HeldShard], *, limit: int) -> int:
        return await settle.drop_stale(self._database, holdings, limit)

    async def list_orphans(
        self, owners: Collection[str], *, shards: Sequence[int], after: UUID | None, limit: int
    ) -> Sequence[LapsedRow]:
        return await settle.orphans(
            self._database, self._decoder, owners, shards=shards, after=after, limit=limit
        )

    async def settle(self, settlements: Sequence[SettleRequest]) -> int:
        return await settle.settle(self._database, settlements)

    async def list_lanes(self, holdings: Sequence[HeldShard]) -> Mapping[Lane, datetime]:
        found: dict[Lane, datetime] = {}
        for group in self._database.groups(holding.shard for holding in holdings):
            shards = [holdings[place].shard for place in group.places]
            for row in await self._database.fetch("list_lanes", shards, *group.shards):
                found[Lane(row[0], row[1], row[2])] = row[3]
        return found

    async def poll(self, holdings: Sequence[HeldShard]) -> PollResult:
        return await move.waiting(self._database, holdings)
