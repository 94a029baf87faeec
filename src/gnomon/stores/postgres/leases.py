"""Leases in PostgreSQL: who owns which shard."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from gnomon.contracts.store import HeartbeatResult, HeldShard, LeaseRequest, ShardLock, WorkerRow
from gnomon.model.errors import StoreUnavailable
from gnomon.model.offer import ALL_QUEUES, Offer, encode_offer, read_offer
from gnomon.stores.postgres.connection import Database, Group, Row, read_now
from gnomon.stores.postgres.several import every, those_at_hand


class PostgresLeases:
    """The `LeaseStore` of this engine."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list_locks(self, *, silent: timedelta | None = None) -> Sequence[ShardLock]:
        rows = await self._database.fetch("list_locks", silent)
        if self._database.many_shards:
            return [lock_of(row) for row in rows]
        return [lock_of(row, part=self._database.parts.of(row["shard_id"])) for row in rows]

    async def acquire(
        self, requests: Sequence[LeaseRequest], *, owner: str, lease_for: timedelta
    ) -> Sequence[HeldShard]:
        parts = self._database.split(requests, lambda request: request.seen.shard)
        answers = await those_at_hand(
            parts,
            lambda part: self._database.fetch(
                "acquire",
                [request.seen.shard for request in part[0]],
                [request.lease_guid for request in part[0]],
                [request.seen.lease_guid for request in part[0]],
                [request.seen.beat for request in part[0]],
                owner,
                lease_for,
                *part[1],
            ),
        )
        return [held_of(row) for rows in answers for row in rows]

    async def heartbeat(
        self,
        worker: UUID,
        *,
        owner: str,
        holdings: Sequence[HeldShard],
        alive_for: timedelta,
        silent: timedelta | None = None,
        process: str | None = None,
        offer: Offer = ALL_QUEUES,
    ) -> HeartbeatResult:
        told = (worker, owner, process, encode_offer(offer))
        if self._database.many_shards:
            columns = holding_columns(holdings, Group((), range(len(holdings))))
            (row,) = await self._database.fetch(
                "heartbeat_whole", *columns, *told, alive_for, silent
            )
            return _pulse(row, held=frozenset(row["held"]), now=row["now"])
        return await self._heartbeat_parts(holdings, told, alive_for, silent)

    async def _heartbeat_parts(
        self,
        holdings: Sequence[HeldShard],
        told: tuple[object, ...],
        alive_for: timedelta,
        silent: timedelta | None,
    ) -> HeartbeatResult:
        """A part at a time, then what every node has: one that is away costs its own shards."""
        await self._database.learn_parts()
        self._database.learn_homes_soon()
        prolonged = await those_at_hand(
            self._database.groups(holding.shard for holding in holdings),
            lambda group: self._database.fetch(
                "heartbeat", *holding_columns(holdings, group), *group.shards
            ),
        )
        held = frozenset(row["shard_id"] for rows in prolonged for row in rows)
        now = await read_now(self._database)
        try:
            await self._database.fetch("heartbeat_worker", *told, now, len(held))
        except StoreUnavailable:
            # Every node of Citus has that row, and one of them may be away: what is held stays so.
            if not held:
                raise
        (alive,) = await self._database.fetch("heartbeat_alive", alive_for, silent)
        return _pulse(alive, held=held, now=now)

    async def release(self, holdings: Sequence[HeldShard]) -> None:
        await every(
            self._database.groups(holding.shard for holding in holdings),
            lambda group: self._database.fetch(
                "release", *holding_columns(holdings, group), *group.shards
            ),
        )

    async def remove_worker(self, worker: UUID) -> None:
        await self._database.fetch("remove_worker", worker)

    async def list_workers(self) -> Sequence[WorkerRow]:
        return [worker_of(row) for row in await self._database.fetch("list_workers")]

    async def end_frozen_sessions(self, *, after: timedelta) -> int:
        (row,) = await self._database.fetch("end_frozen_sessions", after)
        return int(row["ended"])


def _pulse(row: Row, *, held: frozenset[int], now: datetime) -> HeartbeatResult:
    return HeartbeatResult(
        held=held,
        workers_alive=row["workers"],
        shards_held=row["shards"],
        shards_fresh=row["shards_fresh"],
        limits_version=row["limits_version"],
        now=now,
    )


def lock_of(row: Row, *, part: int | None = None) -> ShardLock:
    """A row of `list_locks`."""
    return ShardLock(
        shard=row["shard_id"],
        lease_guid=row["lease_guid"],
        owner=row["owner"],
        beat=row["beat"],
        silent_for=row["silent_for"],
        started_at=row["last_processing_start_at"],
        part=part,
    )


def held_of(row: Row) -> HeldShard:
    """A row of `acquire`."""
    return HeldShard(
        shard=row["shard_id"], lease_guid=row["lease_guid"], incoming_mark=row["incoming_mark"]
    )


def worker_of(row: Row) -> WorkerRow:
    """A row of `list_workers`."""
    return WorkerRow(
        worker=row["worker_id"],
        owner=row["owner"],
        process=row["process"],
        silent_for=row["silent_for"],
        offer=read_offer(row["offer"]),
    )


def holding_columns(holdings: Sequence[HeldShard], group: Group) -> tuple[list[object], ...]:
    """Shards, leases and marks as arrays."""
    chosen = [holdings[place] for place in group.places]
    return (
        [holding.shard for holding in chosen],
        [holding.lease_guid for holding in chosen],
        [holding.incoming_mark for holding in chosen],
    )
