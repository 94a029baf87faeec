"""Tokens and the audit in SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from gnomon.contracts.store import AuditEntry, AuditSelection, Token, TokenDraft
from gnomon.model.errors import AlreadyExists, NotFound
from gnomon.stores._texts import read_texts, write_texts
from gnomon.stores.sqlite.queries import SQL, fetch, fetch_one
from gnomon.stores.sqlite.rows import Row, micros, micros_or_none, moment, moment_or_none
from gnomon.stores.sqlite.verbs import Connection, SqliteVerbs, browse, read, write, write_entry


class SqliteTokens(SqliteVerbs):
    """The `TokenStore` of this engine."""

    @write
    def create(self, connection: Connection, draft: TokenDraft) -> Token:
        now = self._clock.now()
        if _valid(connection, draft.name, now):
            raise AlreadyExists("token", draft.name)
        return _stored(connection, draft, now)

    @write
    def rotate(self, connection: Connection, draft: TokenDraft, *, overlap: timedelta) -> Token:
        now = self._clock.now()
        valid = _valid(connection, draft.name, now)
        if not valid:
            raise NotFound("token", draft.name)
        shortened = {"token_id": valid[0], "ends_at": micros(now + overlap)}
        connection.execute(SQL["rotate_shorten"], shortened)
        _revoke(connection, valid[1:], now)
        return _stored(connection, draft, now)

    @write
    def revoke(self, connection: Connection, name: str) -> int:
        now = self._clock.now()
        valid = _valid(connection, name, now)
        _revoke(connection, valid, now)
        return len(valid)

    @read
    def list(self, connection: Connection) -> Sequence[Token]:
        return [_token_of(row) for row in fetch(connection, "list_tokens")]

    @read
    def find(self, connection: Connection, digest: bytes) -> Token | None:
        row = fetch_one(connection, "find_token", {"digest": digest, "now": self._now_us()})
        return None if row is None else _token_of(row)

    @read
    def has_any(self, connection: Connection) -> bool:
        (row,) = fetch(connection, "has_any_token")
        return bool(row["found"])

    @read
    def count_live(self, connection: Connection, name: str, *, limit: int) -> int:
        (row,) = fetch(connection, "count_live_actions", {"name": name, "limit": limit})
        return int(row["count"])

    @write
    def write_audit(
        self, connection: Connection, *, actor: str, verb: str, id: str, guid: UUID
    ) -> None:
        write_entry(connection, verb, actor, id, at=self._now_us(), guid=guid)

    @browse
    def list_audit(
        self, connection: Connection, selection: AuditSelection, *, limit: int
    ) -> Sequence[AuditEntry]:
        wanted = {
            "actor": selection.actor,
            "id": selection.id,
            "before": micros_or_none(selection.before),
            "limit": limit,
        }
        return [
            AuditEntry(
                at=moment(row["at"]),
                actor=row["actor"],
                face=row["face"],
                verb=row["verb"],
                id=row["id"],
                guid=UUID(bytes=row["guid"]),
                count=row["count"],
            )
            for row in fetch(connection, "list_audit", wanted)
        ]


def _valid(connection: Connection, name: str, now: datetime) -> list[bytes]:
    wanted = {"name": name, "now": micros(now)}
    return [row["token_id"] for row in fetch(connection, "change_valid_tokens", wanted)]


def _revoke(connection: Connection, ids: Sequence[bytes], now: datetime) -> None:
    for token_id in ids:
        connection.execute(SQL["revoke_token"], {"token_id": token_id, "now": micros(now)})


def _stored(connection: Connection, draft: TokenDraft, now: datetime) -> Token:
    """Insert the token of a draft."""
    expires_at = None if draft.lifetime is None else now + draft.lifetime
    row = {
        "token_id": draft.id.bytes,
        "digest": draft.digest,
        "name": draft.name,
        "scopes": write_texts(draft.scopes),
        "now": micros(now),
        "expires_at": micros_or_none(expires_at),
        "rate": draft.rate,
        "live_max": draft.live_max,
    }
    (stored,) = fetch(connection, "create_token", row)
    return _token_of(stored)


def _token_of(row: Row) -> Token:
    return Token(
        id=UUID(bytes=row["token_id"]),
        digest=row["digest"],
        name=row["name"],
        scopes=read_texts(row["scopes"]),
        created_at=moment(row["created_at"]),
        expires_at=moment_or_none(row["expires_at"]),
        revoked_at=moment_or_none(row["revoked_at"]),
        rate=row["rate"],
        live_max=row["live_max"],
    )
