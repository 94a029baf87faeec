"""The handlers that tell of the installation: who works in it, and who changed what."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from gnomon.contracts.store import (
    AuditEntry,
    AuditSelection,
    ShardLock,
    StoreMeasures,
    WorkerRow,
)
from gnomon.gateways.rest.call import Call
from gnomon.model.errors import InvalidSpec
from gnomon.scheduler.scheduler import PAGE_MAX

ALIVE_FOR = timedelta(seconds=30)  # without a heartbeat for longer, nobody counts on a worker


class WorkerAnswer(msgspec.Struct, kw_only=True):
    """A worker, as it told of itself with its last heartbeat."""

    worker: UUID
    name: str  # of its leases and attempts: host, process, and a part of `worker`
    alive: bool  # its heartbeat came lately
    silent_for: timedelta  # since its last heartbeat, by the database's clock
    shards: list[int]
    only: Sequence[str]  # these queues and no others; none: all
    never: Sequence[str]  # not these queues
    needs: Sequence[str]  # which of the needs that rows have just now it serves


class WorkerList(msgspec.Struct):
    """The workers by name, and the shards that nobody works in."""

    workers: list[WorkerAnswer]
    shards: int
    unowned: list[int]  # nobody has their lease, or its owner is silent


class AuditList(msgspec.Struct):
    """Changes, newest first."""

    entries: Sequence[AuditEntry]
    next: datetime | None


async def list_workers(call: Call) -> WorkerList:
    """Who works, where, and which shards nobody works in."""
    leases = call.services.scheduler.store.leases
    rows, locks = await leases.list_workers(), await leases.list_locks()
    workers = [_show_worker(row, locks) for row in sorted(rows, key=lambda row: row.owner)]
    unowned = sorted(lock.shard for lock in locks if not _is_owned(lock))
    return WorkerList(workers, len(locks), unowned)


def _is_owned(lock: ShardLock) -> bool:
    return lock.silent_for is not None and lock.silent_for <= ALIVE_FOR


def _show_worker(row: WorkerRow, locks: Sequence[ShardLock]) -> WorkerAnswer:
    return WorkerAnswer(
        worker=row.worker,
        name=row.owner,
        alive=row.silent_for <= ALIVE_FOR,
        silent_for=row.silent_for,
        shards=sorted(lock.shard for lock in locks if lock.owner == row.owner),
        only=row.offer.only,
        never=row.offer.never,
        needs=row.offer.needs,
    )


async def show_database(call: Call) -> StoreMeasures:
    """How large the database is, and who holds back its cleaning."""
    return await call.services.scheduler.store.installation.measure()


async def list_audit(call: Call) -> AuditList:
    """Who changed what, newest first."""
    query = call.query
    limit = query.number("limit", 100)
    if not 1 <= limit <= PAGE_MAX:
        raise InvalidSpec("query.limit", f"must be between 1 and {PAGE_MAX}", got=limit)
    selection = AuditSelection(
        actor=query.one("actor"), id=query.one("id"), before=query.moment("before")
    )
    entries = await call.services.scheduler.store.tokens.list_audit(selection, limit=limit + 1)
    return page_of(entries, limit)


def page_of(entries: Sequence[AuditEntry], limit: int) -> AuditList:
    """The first `limit` of them; pages are cut between two moments, so that none is left out. Only
    of a single moment with more entries than a page the rest is not shown."""
    if len(entries) <= limit:
        return AuditList(entries, None)
    following = entries[limit].at
    kept = [entry for entry in entries[:limit] if entry.at != following] or entries[:limit]
    return AuditList(kept, kept[-1].at)
