"""Limits in SQLite."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from gnomon.contracts.store import LOCAL, LimitRequest, LimitTable
from gnomon.model.limits import Limit, LimitKey, Share
from gnomon.stores._limit_shares import SHOWN_FOR, Grant, SharingMoment, share_out, use_of
from gnomon.stores.sqlite.queries import SQL, fetch, fetch_one
from gnomon.stores.sqlite.rows import micros, moment
from gnomon.stores.sqlite.verbs import Connection, SqliteVerbs, read, write, write_entry


class SqliteLimits(SqliteVerbs):
    """The `LimitStore` of this engine."""

    @write
    def set(self, connection: Connection, limit: Limit, *, guid: UUID, actor: str = LOCAL) -> None:
        row = {"parallel": limit.parallel, "rate": limit.rate, "burst": limit.burst}
        if not connection.execute(SQL["set_limit"], _named(limit.key) | row).rowcount:
            return
        if limit.parallel is None:
            connection.execute(SQL["change_clear_grants"], _named(limit.key))
        self._note_change(connection, "set_limit", limit.key, guid, actor)

    @write
    def delete(
        self, connection: Connection, key: LimitKey, *, guid: UUID, actor: str = LOCAL
    ) -> bool:
        if not connection.execute(SQL["delete_limit"], _named(key)).rowcount:
            return False
        connection.execute(SQL["change_clear_grants"], _named(key))
        self._note_change(connection, "drop_limit", key, guid, actor)
        return True

    def _note_change(
        self, connection: Connection, verb: str, key: LimitKey, guid: UUID, actor: str
    ) -> None:
        connection.execute(SQL["change_version"])
        at = self._now_us()
        write_entry(connection, verb, actor, str(key), at=at, guid=guid)

    @read
    def list(self, connection: Connection) -> LimitTable:
        # The version first: a change that comes between is read twice, and not missed.
        (installation,) = fetch(connection, "list_version")
        shown = {"asked_since": micros(self._clock.now() - SHOWN_FOR)}
        uses = [use_of(row) for row in fetch(connection, "list_limits", shown)]
        return LimitTable(version=installation["limits_version"], uses=uses)

    @write
    def share(
        self,
        connection: Connection,
        worker: UUID,
        claims: Mapping[LimitKey, LimitRequest],
        *,
        alive_for: timedelta,
    ) -> Mapping[LimitKey, int]:
        parallel = _parallel(connection, claims)
        if not parallel:
            return {}
        present = _present(connection, self._clock.now(), alive_for)
        grants = [grant for key in parallel for grant in _grants(connection, key)]
        sharing = share_out(worker, claims, parallel, grants, present)
        connection.executemany(SQL["share_put_grant"], map(_row_of, sharing.put))
        connection.executemany(SQL["share_drop_grant"], map(_row_of, sharing.drop))
        return sharing.allowed


def _named(key: LimitKey) -> dict[str, Any]:
    return {"kind": str(key.kind), "name": key.name}


def _parallel(connection: Connection, keys: Iterable[LimitKey]) -> dict[LimitKey, int]:
    """The limits that have a parallelism."""
    rows = {key: fetch_one(connection, "share_parallel", _named(key)) for key in keys}
    return {
        key: row["parallel"]
        for key, row in rows.items()
        if row is not None and row["parallel"] is not None
    }


def _present(connection: Connection, now: datetime, alive_for: timedelta) -> SharingMoment:
    living = fetch(connection, "share_living", {"alive_since": micros(now - alive_for)})
    shards = {UUID(bytes=row["worker_id"]): row["shards"] for row in living}
    return SharingMoment(now, alive_for, shards)


def _grants(connection: Connection, key: LimitKey) -> list[Grant]:
    return [
        Grant(
            key,
            UUID(bytes=row["worker_id"]),
            row["wanted"],
            Share(row["allowed"], row["counted"], bool(row["is_waiting"]), moment(row["since"])),
            moment(row["asked_at"]),
        )
        for row in fetch(connection, "share_grants", _named(key))
    ]


def _row_of(grant: Grant) -> dict[str, Any]:
    """A grant as the parameters of a query."""
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
