"""Tokens, and the audit: who may call, and who did what."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from gnomon.contracts.store.value import Value

LOCAL = "local"  # the actor of calls that need no token: in process, or straight at the database

PYTHON = "python"


class Actor(str):
    """Who asks for a change, as everywhere a name; and through which face, for the audit alone.

    A caller says himself which face he is, so no right may depend on it.
    """

    __slots__ = ("face",)
    face: str

    def __new__(cls, name: str, face: str) -> Actor:
        actor = super().__new__(cls, name)
        actor.face = face
        return actor


def face_of(actor: str) -> str:
    """Through which face he asks; whoever does not say so is a program in this process."""
    return actor.face if isinstance(actor, Actor) else PYTHON


def through(face: str, actor: str) -> Actor:
    """The actor; one that does not say through which face he asks does so through this one."""
    return actor if isinstance(actor, Actor) else Actor(actor, face)


class TokenDraft(Value, frozen=True):
    """A token to be stored. Only the digest of its text is known here."""

    id: UUID
    digest: bytes  # SHA-256 of the text, which is random: no salt is needed
    name: str  # whom it stands for; several tokens may follow each other under one name
    scopes: tuple[str, ...]
    lifetime: timedelta | None = None  # None: until it is revoked
    rate: float | None = None  # requests a second
    live_max: int | None = None  # active and paused actions of this name


class Token(Value, frozen=True):
    """A token as it is stored."""

    id: UUID
    digest: bytes
    name: str
    scopes: tuple[str, ...]
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    rate: float | None = None
    live_max: int | None = None


class AuditEntry(Value, frozen=True):
    """One change. A bulk is one entry: `id` and `guid` are those of one action of it, and the
    others are those with the same `created_at` as the entry's `at`."""

    at: datetime
    actor: str
    verb: str
    id: str
    guid: UUID  # the generation that the change made; of a delete, the one that it ended
    count: int = 1
    face: str = PYTHON  # rest, grpc, cli, python, sql or console, as the caller says himself


class AuditSelection(Value, frozen=True):
    """Which entries to list. All given conditions must hold."""

    actor: str | None = None
    id: str | None = None
    before: datetime | None = None


class TokenStore(Protocol):
    """Keeps tokens, and shows what was done with them. Tokens are never removed: a server that
    needs them must not open its doors when the last one is gone."""

    async def create(self, draft: TokenDraft) -> Token:
        """Store a token. Errors: AlreadyExists while a token of this name is valid."""
        ...

    async def rotate(self, draft: TokenDraft, *, overlap: timedelta) -> Token:
        """Store a further token of the name. The newest valid one before it ends after `overlap`
        or earlier, older ones at once: no more than two are ever valid.
        Errors: NotFound when no token of this name is valid.
        """
        ...

    async def revoke(self, name: str) -> int:
        """End all valid tokens of a name; how many there were."""
        ...

    async def list(self) -> Sequence[Token]:
        """All tokens, by name and then by time, revoked and expired ones too."""
        ...

    async def find(self, digest: bytes) -> Token | None:
        """The valid token with this digest; None if there is none, it expired or was revoked."""
        ...

    async def has_any(self) -> bool:
        """Whether a token was ever created."""
        ...

    async def count_live(self, name: str, *, limit: int) -> int:
        """How many active and paused actions this name created, counted up to `limit`."""
        ...

    async def write_audit(self, *, actor: str, verb: str, id: str, guid: UUID) -> None:
        """Write an entry of the audit for a change that is made elsewhere: before it, so that there
        is none without its entry."""
        ...

    async def list_audit(self, selection: AuditSelection, *, limit: int) -> Sequence[AuditEntry]:
        """What was changed, newest first."""
        ...
