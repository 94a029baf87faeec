"""Tokens and the audit in SQLite."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from gnomon.contracts.clock import Clock
from gnomon.contracts.store import AuditEntry, AuditSelection, Token, TokenDraft
from gnomon.model.errors import AlreadyExists, NotFound
from gnomon.stores.sqlite.connection import Runner
from gnomon.stores.sqlite.queries import SQL
from gnomon.stores.sqlite.rows import micros, micros_or_none, moment, moment_or_none

Connection = sqlite3.Connection


class SqliteTokens:
    """The `TokenStore` of this engine."""

    def __init__(self, runner: Runner, clock: Clock) -> None:
        self._runner = runner
        self._clock = clock

    async def create(self, draft: TokenDraft) -> Token:
        def create(connection: Connection) -> Token:
            now = self._clock.now()
            if _valid(connection, draft.name, now):
                raise AlreadyExists("token", draft.name)
            return _stored(connection, draft, now)

        return await self._runner.write(create)

    async def rotate(self, draft: TokenDraft, *, overlap: timedelta) -> Token:
        def rotate(connection: Connection) -> Token:
            now = self._clock.now()
            valid = _valid(connection, draft.name, now)
            if not valid:
                raise NotFound("token", draft.name)
            shortened = {"token_id": valid[0], "ends_at": micros(now + overlap)}
            connection.execute(SQL["rotate_shorten"], shortened)
            _revoke(connection, valid[1:], now)
            return _stored(connection, draft, now)

        return await self._runner.write(rotate)

    async def revoke(self, name: str) -> int:
        def revoke(connection: Connection) -> int:
            now = self._clock.now()
            valid = _valid(connection, name, now)
            _revoke(connection, valid, now)
            return len(valid)

        return await self._runner.write(revoke)

    async def list(self) -> Sequence[Token]:
        rows = await self._fetch("list_tokens", {})
        return [_token_of(row) for row in rows]

    async def find(self, digest: bytes) -> Token | None:
        wanted = {"digest": digest, "now": micros(self._clock.now())}
        rows = await self._fetch("find_token", wanted)
        return _token_of(rows[0]) if rows else None

    async def has_any(self) -> bool:
        return bool((await self._fetch("has_any_token", {}))[0][0])

    async def count_live(self, name: str, *, limit: int) -> int:
        return int((await self._fetch("count_live_actions", {"name": name, "limit": limit}))[0][0])

    async def write_audit(self, *, actor: str, verb: str, id: str, guid: UUID) -> None:
        entry = {"guid": guid.bytes, "count": 1, "verb": verb, "actor": actor, "id": id}

        def note(connection: Connection) -> None:
            connection.execute(SQL["write_audit_entry"], entry | {"at": micros(self._clock.now())})

        await self._runner.write(note)

    async def list_audit(self, selection: AuditSelection, *, limit: int) -> Sequence[AuditEntry]:
        wanted = {
            "actor": selection.actor,
            "id": selection.id,
            "before": micros_or_none(selection.before),
            "limit": limit,
        }
        rows = await self._runner.browse(
            lambda connection: connection.execute(SQL["list_audit"], wanted).fetchall()
        )
        return [
            AuditEntry(
                at=moment(at), actor=actor, verb=verb, id=name, guid=UUID(bytes=guid), count=count
            )
            for at, actor, verb, name, guid, count in rows
        ]

    async def _fetch(self, query: str, wanted: dict[str, Any]) -> Sequence[tuple[Any, ...]]:
        return await self._runner.read(
            lambda connection: connection.execute(SQL[query], wanted).fetchall()
        )


def _valid(connection: Connection, name: str, now: datetime) -> list[bytes]:
    wanted = {"name": name, "now": micros(now)}
    return [row[0] for row in connection.execute(SQL["change_valid_tokens"], wanted)]


def _revoke(connection: Connection, ids: Sequence[bytes], now: datetime) -> None:
    for token_id in ids:
        connection.execute(SQL["revoke_token"], {"token_id": token_id, "now": micros(now)})


def _stored(connection: Connection, draft: TokenDraft, now: datetime) -> Token:
    expires_at = None if draft.lifetime is None else now + draft.lifetime
    row = {
        "token_id": draft.id.bytes,
        "digest": draft.digest,
        "name": draft.name,
        "scopes": json.dumps(draft.scopes),
        "now": micros(now),
        "expires_at": micros_or_none(expires_at),
        "rate": draft.rate,
        "live_max": draft.live_max,
    }
    connection.execute(SQL["create_token"], row)
    return Token(
        id=draft.id,
        digest=draft.digest,
        name=draft.name,
        scopes=draft.scopes,
        created_at=now,
        expires_at=expires_at,
        rate=draft.rate,
        live_max=draft.live_max,
    )


def _token_of(row: tuple[Any, ...]) -> Token:
    guid, digest, name, scopes, created_at, expires_at, revoked_at, rate, live_max = row
    return Token(
        id=UUID(bytes=guid),
        digest=digest,
        name=name,
        scopes=tuple(json.loads(scopes)),
        created_at=moment(created_at),
        expires_at=moment_or_none(expires_at),
        revoked_at=moment_or_none(revoked_at),
        rate=rate,
        live_max=live_max,
    )
