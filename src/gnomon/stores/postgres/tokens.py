"""Tokens and the audit in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from gnomon.contracts.store import AuditEntry, AuditSelection, Token, TokenDraft
from gnomon.contracts.store.tokens import face_of
from gnomon.model.errors import AlreadyExists, NotFound
from gnomon.stores.postgres.connection import Database, Row, Session, insisting


class PostgresTokens:
    """The `TokenStore` of this engine."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @insisting
    async def create(self, draft: TokenDraft) -> Token:
        async with self._database.transaction("create_token") as session:
            if await self._valid(session, draft.name):
                raise AlreadyExists("token", draft.name)
            return await _stored(session, draft)

    @insisting
    async def rotate(self, draft: TokenDraft, *, overlap: timedelta) -> Token:
        async with self._database.transaction("rotate_token") as session:
            valid = await self._valid(session, draft.name)
            if not valid:
                raise NotFound("token", draft.name)
            await session.fetch("rotate_shorten", valid[0], overlap)
            await session.fetch("revoke_tokens", valid[1:])
            return await _stored(session, draft)

    @insisting
    async def revoke(self, name: str) -> int:
        async with self._database.transaction("revoke_token") as session:
            valid = await self._valid(session, name)
            await session.fetch("revoke_tokens", valid)
            return len(valid)

    async def _valid(self, session: Session, name: str) -> list[UUID]:
        """The valid tokens of a name, which nobody else changes until this transaction ends."""
        await session.fetch("change_lock_tokens")
        return [row["token_id"] for row in await session.fetch("change_valid_tokens", name)]

    async def list(self) -> Sequence[Token]:
        return [_token_of(row) for row in await self._database.fetch_wide("list_tokens")]

    async def find(self, digest: bytes) -> Token | None:
        rows = await self._database.fetch("find_token", digest)
        return _token_of(rows[0]) if rows else None

    async def has_any(self) -> bool:
        return bool((await self._database.fetch("has_any_token"))[0]["found"])

    async def count_live(self, name: str, *, limit: int) -> int:
        return int((await self._database.fetch("count_live_actions", name, limit))[0]["count"])

    async def write_audit(self, *, actor: str, verb: str, id: str, guid: UUID) -> None:
        await self._database.fetch("write_audit", guid, verb, str(actor), id, face_of(actor))

    async def list_audit(self, selection: AuditSelection, *, limit: int) -> Sequence[AuditEntry]:
        rows = await self._database.fetch_wide(
            "list_audit", selection.actor, selection.id, selection.before, limit
        )
        return [
            AuditEntry(
                at=row["at"],
                actor=row["actor"],
                face=row["face"],
                verb=row["verb"],
                id=row["id"],
                guid=row["guid"],
                count=row["count"],
            )
            for row in rows
        ]


async def _stored(session: Session, draft: TokenDraft) -> Token:
    rows = await session.fetch(
        "create_token", draft.id, draft.digest, draft.name, list(draft.scopes), draft.lifetime,
        draft.rate, draft.live_max,
    )  # fmt: skip
    return _token_of(rows[0])


def _token_of(row: Row) -> Token:
    return Token(
        id=row["token_id"],
        digest=row["digest"],
        name=row["name"],
        scopes=tuple(row["scopes"]),
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        revoked_at=row["revoked_at"],
        rate=row["rate"],
        live_max=row["live_max"],
    )
