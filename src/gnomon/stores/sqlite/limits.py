"""Limits in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from gnomon.contracts.clock import Clock
from gnomon.contracts.store import LOCAL, LimitRequest, LimitTable, LimitUse
from gnomon.model.limits import Limit, LimitKey, LimitKind, Share
from gnomon.stores._limit_shares import SHOWN_FOR, Grant, SharingMoment, share_out
from gnomon.stores.sqlite.connection import Runner
from gnomon.stores.sqlite.queries import SQL
from gnomon.stores.sqlite.rows import micros, moment

Connection = sqlite3.Connection


class SqliteLimits:
    """The `LimitStore` of this engine."""

    def __init__(self, runner: Runner, clock: Clock) -> None:
        self._runner = runner
        self._clock = clock

    async def set(self, limit: Limit, *, guid: UUID, actor: str = LOCAL) -> None:
        def call(connection: Connection) -> None:
            row = {"parallel": limit.parallel, "rate": limit.rate, "burst": limit.burst}
            if not connection.execute(SQL["set_limit"], _named(limit.key) | row).rowcount:
                return
            if limit.parallel is None:
                connection.execute(SQL["change_clear_grants"], _named(limit.key))
            self._note_change(connection, "set_limit", limit.key, guid, actor)

        await self._runner.write(call)

    async def delete(self, key: LimitKey, *, guid: UUID, actor: str = LOCAL) -> bool:
        def call(connection: Connection) -> bool:
            if not connection.execute(SQL["delete_limit"], _named(key)).rowcount:
                return False
            connection.execute(SQL["change_clear_grants"], _named(key))
            self._note_change(connection, "drop_limit", key, guid, actor)
            return True

        return await self._runner.write(call)

    def _note_change(
        self, connection: Connection, verb: str, key: LimitKey, guid: UUID, actor: str
    ) -> None:
        connection.execute(SQL["change_version"])
        entry = {"guid": guid.bytes, "count": 1, "verb": verb, "actor": actor, "id": str(key)}
        connection.execute(SQL["write_audit_entry"], entry | {"at": micros(self._clock.now())})

    async def list(self) -> LimitTable:
        def call(connection: Connection) -> LimitTable:
            # The version first: a change that comes between is read twice, and not missed.
            (version,) = connection.execute(SQL["list_version"]).fetchone()
            shown = {"asked_since": micros(self._clock.now() - SHOWN_FOR)}
            rows = connection.execute(SQL["list_limits"], shown).fetchall()
            return LimitTable(version=version, uses=[_use_of(row) for row in rows])

        return await self._runner.read(call)

    async def share(
        self, worker: UUID, claims: Mapping[LimitKey, LimitRequest], *, alive_for: timedelta
    ) -> Mapping[LimitKey, int]:
        def call(connection: Connection) -> Mapping[LimitKey, int]:
            parallel = _parallel(connection, claims)
            if not parallel:
                return {}
            present = _present(connection, self._clock.now(), alive_for)
            grants = [grant for key in parallel for grant in _grants(connection, key)]
            sharing = share_out(worker, claims, parallel, grants, present)
            connection.executemany(
                SQL["share_put_grant"], [_row_of(grant) for grant in sharing.put]
            )
            connection.executemany(
                SQL["share_drop_grant"], [_row_of(grant) for grant in sharing.drop]
            )
            return sharing.allowed

        return await self._runner.write(call)


def _named(key: LimitKey) -> dict[str, Any]:
    return {"kind": str(key.kind), "name": key.name}


def _parallel(connection: Connection, keys: Iterable[LimitKey]) -> dict[LimitKey, int]:
    """The limits that have a parallelism."""
    found = {}
    for key in keys:
        row = connection.execute(SQL["share_parallel"], _named(key)).fetchone()
        if row is not None and row[0] is not None:
            found[key] = int(row[0])
    return found


def _present(connection: Connection, now: datetime, alive_for: timedelta) -> SharingMoment:
    since = {"alive_since": micros(now - alive_for)}
    living = connection.execute(SQL["share_living"], since)
    return SharingMoment(now, alive_for, {UUID(bytes=worker): shards for worker, shards in living})


def _grants(connection: Connection, key: LimitKey) -> list[Grant]:
    return [
        Grant(
            key,
            UUID(bytes=worker),
            wanted,
            Share(allowed, counted, bool(is_waiting), moment(since)),
            moment(asked_at),
        )
        for worker, wanted, counted, allowed, is_waiting, since, asked_at in connection.execute(
            SQL["share_grants"], _named(key)
        )
    ]


def _row_of(grant: Grant) -> dict[str, Any]:
    share = grant.share
    return _named(grant.key) | {
        "worker": grant.worker.bytes,
        "wanted": grant.wanted,
        "counted": share.counted,
        "allowed": share.allowed,
        "is_waiting": share.is_waiting,
        "since": micros(share.since),
        "now": micros(grant.asked_at),
    }


def _use_of(row: tuple[Any, ...]) -> LimitUse:
    kind, name, parallel, rate, burst, granted, wanted = row
    limit = Limit(kind=LimitKind(kind), name=name, parallel=parallel, rate=rate, burst=burst)
    return LimitUse(limit=limit, granted=granted, wanted=wanted)
