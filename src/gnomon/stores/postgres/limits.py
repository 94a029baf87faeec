"""Limits in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from uuid import UUID

from gnomon.contracts.store import LOCAL, LimitRequest, LimitTable
from gnomon.contracts.store.tokens import face_of
from gnomon.model.limits import Limit, LimitKey, LimitKind, Share
from gnomon.stores._limit_shares import SHOWN_FOR, Grant, SharingMoment, share_out, use_of
from gnomon.stores.postgres.connection import Database, Row, Session, read_now

AUDIT_SHARD = 0  # a limit belongs to no shard; its entries lie together


class PostgresLimits:
    """The `LimitStore` of this engine."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def set(self, limit: Limit, *, guid: UUID, actor: str = LOCAL) -> None:
        async with self._database.transaction("set_limit") as session:
            row = (limit.kind, limit.name, limit.parallel, limit.rate, limit.burst)
            if not await session.fetch("set_limit", *row):
                return
            if limit.parallel is None:
                await session.fetch("change_clear_grants", *limit.key)
            await _note_change(session, "set_limit", limit.key, guid, actor)

    async def delete(self, key: LimitKey, *, guid: UUID, actor: str = LOCAL) -> bool:
        async with self._database.transaction("drop_limit") as session:
            if not await session.fetch("delete_limit", *key):
                return False
            await session.fetch("change_clear_grants", *key)
            await _note_change(session, "drop_limit", key, guid, actor)
        return True

    async def list(self) -> LimitTable:
        # The version first: a change that comes between is read twice, and not missed.
        version = (await self._database.fetch("list_version"))[0]["limits_version"]
        rows = await self._database.fetch("list_limits", SHOWN_FOR)
        return LimitTable(version=version, uses=[use_of(row) for row in rows])

    async def share(
        self, worker: UUID, claims: Mapping[LimitKey, LimitRequest], *, alive_for: timedelta
    ) -> Mapping[LimitKey, int]:
        async with self._database.transaction("share_limits") as session:
            parallel = await _locked(session, claims)
            if not parallel:
                return {}
            (living,) = await session.fetch("share_living", alive_for)
            held = dict(zip(living["workers"], living["shards"], strict=True))
            present = SharingMoment(living["now"], alive_for, held)
            rows = await session.fetch("share_grants", *_columns(parallel))
            grants = [_grant_of(row) for row in rows]
            sharing = share_out(worker, claims, parallel, grants, present)
            await _put(session, worker, sharing.put)
            if sharing.drop:
                keys = _columns(grant.key for grant in sharing.drop)
                await session.fetch(
                    "share_drop_grants", *keys, [dropped.worker for dropped in sharing.drop]
                )
        return sharing.allowed


async def _note_change(session: Session, verb: str, key: LimitKey, guid: UUID, actor: str) -> None:
    await session.fetch("change_version")
    now = await read_now(session)
    await session.fetch(
        "write_audit_entry", now, guid, AUDIT_SHARD, 1, verb, str(actor), str(key), face_of(actor)
    )


async def _locked(session: Session, claims: Iterable[LimitKey]) -> dict[LimitKey, int]:
    """The limits that have a parallelism, locked one after the other, everywhere in one order."""
    parallel = {}
    for key in sorted(claims):
        rows = await session.fetch("share_lock", *key)
        if rows and rows[0]["parallel"] is not None:
            parallel[key] = int(rows[0]["parallel"])
    return parallel


async def _put(session: Session, worker: UUID, grants: list[Grant]) -> None:
    shares = [grant.share for grant in grants]
    await session.fetch(
        "share_put_grants",
        worker,
        grants[0].asked_at,
        *_columns(grant.key for grant in grants),
        [grant.wanted for grant in grants],
        [share.counted for share in shares],
        [share.allowed for share in shares],
        [share.is_waiting for share in shares],
        [share.since for share in shares],
    )


def _columns(keys: Iterable[LimitKey]) -> tuple[list[str], list[str]]:
    """Kinds and names as arrays."""
    ordered = list(keys)
    return [key.kind for key in ordered], [key.name for key in ordered]


def _grant_of(row: Row) -> Grant:
    share = Share(row["allowed"], row["counted"], row["is_waiting"], row["since"])
    key = LimitKey(LimitKind(row["kind"]), row["name"])
    return Grant(key, row["worker_id"], row["wanted"], share, row["asked_at"])
