"""Leases in SQLite: who owns which shard."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from gnomon.contracts.store import HeartbeatResult, HeldShard, LeaseRequest, ShardLock, WorkerRow
from gnomon.model.offer import ALL_QUEUES, Offer, encode_offer, read_offer
from gnomon.stores.sqlite.queries import SQL, fetch, fetch_one
from gnomon.stores.sqlite.rows import (
    Row,
    guid_or_none,
    micros,
    micros_or_none,
    moment,
    moment_or_none,
)
from gnomon.stores.sqlite.verbs import Connection, SqliteVerbs, read, write_first


class SqliteLeases(SqliteVerbs):
    """The `LeaseStore` of this engine."""

    @read
    def list_locks(
        self, connection: Connection, *, silent: timedelta | None = None
    ) -> Sequence[ShardLock]:
        now = self._clock.now()
        since = {"silent_since": None if silent is None else micros(now - silent)}
        return [lock_of(row, now) for row in fetch(connection, "list_locks", since)]

    @write_first
    def acquire(
        self,
        connection: Connection,
        requests: Sequence[LeaseRequest],
        *,
        owner: str,
        lease_for: timedelta,
    ) -> Sequence[HeldShard]:
        now = self._clock.now()
        terms = {"owner": owner, "now": micros(now), "stale_before": micros(now - lease_for)}
        taken = []
        for request in requests:
            seen, lease_guid = request.seen, request.lease_guid
            wanted = {
                "shard": seen.shard,
                "lease_guid": lease_guid.bytes,
                "seen_guid": None if seen.lease_guid is None else seen.lease_guid.bytes,
                "seen_beat": seen.beat,
            }
            row = fetch_one(connection, "acquire", terms | wanted)
            if row is not None:
                mark = moment_or_none(row["incoming_mark"])
                held = HeldShard(shard=seen.shard, lease_guid=lease_guid, incoming_mark=mark)
                taken.append(held)
        return taken

    @write_first
    def heartbeat(
        self,
        connection: Connection,
        worker: UUID,
        *,
        owner: str,
        holdings: Sequence[HeldShard],
        alive_for: timedelta,
        silent: timedelta | None = None,
        process: str | None = None,
        offer: Offer = ALL_QUEUES,
    ) -> HeartbeatResult:
        now = self._clock.now()
        held = _beat(connection, holdings, micros(now))
        living = {"worker": worker.bytes, "owner": owner, "now": micros(now)}
        told = {
            "shards": len(held), "process": process, "offer": encode_offer(offer)
        }  # fmt: skip
        connection.execute(SQL["heartbeat_worker"], living | told)
        since = {
            "alive_since": micros(now - alive_for),
            "fresh_since": None if silent is None else micros(now - silent),
        }
        (alive,) = fetch(connection, "heartbeat_alive", since)
        return HeartbeatResult(
            held=held,
            workers_alive=alive["workers"],
            shards_held=alive["shards"],
            shards_fresh=alive["shards_fresh"],
            limits_version=alive["limits_version"],
            now=now,
        )

    @write_first
    def release(self, connection: Connection, holdings: Sequence[HeldShard]) -> None:
        rows = [{"shard": held.shard, "lease_guid": held.lease_guid.bytes} for held in holdings]
        connection.executemany(SQL["release"], rows)

    @write_first
    def remove_worker(self, connection: Connection, worker: UUID) -> None:
        connection.execute(SQL["remove_worker"], {"worker": worker.bytes})

    @read
    def list_workers(self, connection: Connection) -> Sequence[WorkerRow]:
        now = self._clock.now()
        return [worker_of(row, now) for row in fetch(connection, "list_workers")]

    async def end_frozen_sessions(self, *, after: timedelta) -> int:  # noqa: ARG002
        return 0


def lock_of(row: Row, now: datetime) -> ShardLock:
    """A row of `list_locks`."""
    return ShardLock(
        shard=row["shard_id"],
        lease_guid=guid_or_none(row["lease_guid"]),
        owner=row["owner"],
        beat=row["beat"],
        silent_for=None if row["lease_guid"] is None else now - moment(row["heartbeat_at"]),
        started_at=moment_or_none(row["last_processing_start_at"]),
    )


def worker_of(row: Row, now: datetime) -> WorkerRow:
    """A row of `list_workers`."""
    return WorkerRow(
        worker=UUID(bytes=row["worker_id"]),
        owner=row["owner"],
        process=row["process"],
        silent_for=now - moment(row["heartbeat_at"]),
        offer=read_offer(row["offer"]),
    )


def _beat(connection: Connection, holdings: Sequence[HeldShard], now_us: int) -> frozenset[int]:
    """The shards that are held."""
    shards = [holding.shard for holding in holdings]
    marks = [micros_or_none(holding.incoming_mark) for holding in holdings]
    beat = {
        "marks": json.dumps([*zip(shards, marks, strict=True)]),
        "leases": b"".join(holding.lease_guid.bytes for holding in holdings),
        "now": now_us,
    }
    if connection.execute(SQL["heartbeat"], beat).rowcount == len(shards):
        return frozenset(shards)
    (text,) = connection.execute(SQL["heartbeat_held"], beat).fetchone()
    return frozenset(json.loads(text))
