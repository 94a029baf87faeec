"""Leases in SQLite: who owns which shard."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from gnomon.contracts.clock import Clock
from gnomon.contracts.store import HeartbeatResult, HeldShard, ShardLock, WorkerRow
from gnomon.stores.sqlite.connection import Runner
from gnomon.stores.sqlite.queries import SQL
from gnomon.stores.sqlite.rows import (
    guid_or_none,
    micros,
    micros_or_none,
    moment,
    moment_or_none,
)

Connection = sqlite3.Connection


class SqliteLeases:
    """The `LeaseStore` of this engine."""

    def __init__(self, runner: Runner, clock: Clock) -> None:
        self._runner = runner
        self._clock = clock

    async def list_locks(self) -> Sequence[ShardLock]:
        return await self._runner.read(self._locks)

    def _locks(self, connection: Connection) -> list[ShardLock]:
        now = self._clock.now()
        return [
            ShardLock(
                shard=shard,
                lease_guid=guid_or_none(lease_guid),
                owner=owner,
                beat=beat,
                silent_for=None if lease_guid is None else now - moment(heartbeat_at),
                started_at=moment_or_none(started_at),
            )
            for shard, lease_guid, owner, beat, heartbeat_at, started_at in connection.execute(
                SQL["list_locks"]
            )
        ]

    async def acquire(
        self, shard: int, lease_guid: UUID, *, owner: str, seen: ShardLock, lease_for: timedelta
    ) -> HeldShard | None:
        def call(connection: Connection) -> HeldShard | None:
            now = self._clock.now()
            wanted = {
                "shard": shard,
                "lease_guid": lease_guid.bytes,
                "owner": owner,
                "now": micros(now),
                "stale_before": micros(now - lease_for),
                "seen_guid": None if seen.lease_guid is None else seen.lease_guid.bytes,
                "seen_beat": seen.beat,
            }
            rows = connection.execute(SQL["acquire"], wanted).fetchall()
            if not rows:
                return None
            mark = moment_or_none(rows[0][0])
            return HeldShard(shard=shard, lease_guid=lease_guid, incoming_mark=mark)

        return await self._runner.write(call, urgent=True)

    async def heartbeat(
        self,
        worker: UUID,
        *,
        owner: str,
        holdings: Sequence[HeldShard],
        alive_for: timedelta,
        process: str | None = None,
    ) -> HeartbeatResult:
        def call(connection: Connection) -> HeartbeatResult:
            now = self._clock.now()
            held = self._beat(connection, holdings, micros(now))
            living = {"worker": worker.bytes, "owner": owner, "now": micros(now)}
            told = {"shards": len(held), "process": process}
            connection.execute(SQL["heartbeat_worker"], living | told)
            alive_since = {"alive_since": micros(now - alive_for)}
            alive, shards, version = connection.execute(
                SQL["heartbeat_alive"], alive_since
            ).fetchone()
            return HeartbeatResult(
                held=held,
                workers_alive=alive,
                shards_held=shards,
                limits_version=version,
                now=now,
            )

        return await self._runner.write(call, urgent=True)

    def _beat(
        self, connection: Connection, holdings: Sequence[HeldShard], now_us: int
    ) -> frozenset[int]:
        held = set()
        for holding in holdings:
            beat = {
                "shard": holding.shard,
                "lease_guid": holding.lease_guid.bytes,
                "incoming_mark": micros_or_none(holding.incoming_mark),
                "now": now_us,
            }
            if connection.execute(SQL["heartbeat"], beat).rowcount:
                held.add(holding.shard)
        return frozenset(held)

    async def release(self, holdings: Sequence[HeldShard]) -> None:
        rows = [
            {"shard": holding.shard, "lease_guid": holding.lease_guid.bytes} for holding in holdings
        ]

        def call(connection: sqlite3.Connection) -> None:  # a cursor must not leave its thread
            connection.executemany(SQL["release"], rows)

        await self._runner.write(call, urgent=True)

    async def remove_worker(self, worker: UUID) -> None:
        gone = {"worker": worker.bytes}

        def call(connection: sqlite3.Connection) -> None:
            connection.execute(SQL["remove_worker"], gone)

        await self._runner.write(call, urgent=True)

    async def list_workers(self) -> Sequence[WorkerRow]:
        def call(connection: sqlite3.Connection) -> list[WorkerRow]:
            now = self._clock.now()
            return [
                WorkerRow(
                    worker=UUID(bytes=worker),
                    owner=owner,
                    process=process,
                    silent_for=now - moment(heartbeat_at),
                )
                for worker, owner, process, heartbeat_at in connection.execute(SQL["list_workers"])
            ]

        return await self._runner.read(call)
