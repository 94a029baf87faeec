"""Who calls, and may he? One authorizer for every gateway.

A token is 256 random bits, shown once and stored as its SHA-256. Being valid, rates and quotas are
looked at in this process: a revoked token is refused within `TRUSTED_S`, and limits count for each
server process on its own.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from datetime import timedelta
from typing import TypeVar

import msgspec

from gnomon.contracts.clock import Clock, Entropy
from gnomon.contracts.store import LOCAL, Token, TokenDraft, TokenStore
from gnomon.model.errors import (
    Exhausted,
    Forbidden,
    InvalidRequest,
    Unauthenticated,
    short,
)
from gnomon.model.ids import NAME_PATTERN
from gnomon.model.redaction import Redaction
from gnomon.model.spec import Spec
from gnomon.model.token_bucket import TokenBucket

T = TypeVar("T")

READ = "read"
WRITE = "write"
ADMIN = "admin"
OPERATE = "operate"  # what `admin` may, and without authentication everybody on this machine
SQL_PREFIX = "sql:"
TABLE_PREFIX = "table:"
SCOPES = "read, write, sql:<target>, table:<task table> or admin"

TRUSTED_S = 5.0
RECOUNT_S = 1.0
KNOWN_MAX = 1_000
STRANGERS_PER_S = 50.0  # tokens never seen before that the store is asked about
TOKEN_BYTES = 32
RATE_MAX = 100_000.0
LIVE_MAX = 2**31 - 1

_TEXT = re.compile(r"gnomon_[A-Za-z0-9_-]{43}", re.ASCII)
NEEDED = "a token is needed: send it as `Authorization: Bearer …`"
REFUSED = "the token is not valid: unknown, expired or revoked"


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """Who calls: a token's name, and what it may do. Without authentication: `local`."""

    name: str
    scopes: frozenset[str]
    rate: float | None = None
    live_max: int | None = None

    def may(self, scope: str) -> bool:
        return scope in self.scopes or ADMIN in self.scopes


# SQL actions run with rights that whoever reaches a port must not have: they need a token.
_LOCAL = Principal(name=LOCAL, scopes=frozenset({READ, WRITE, OPERATE}))


ANYBODY = Principal(name="", scopes=frozenset())  # a caller of what needs no token


# -- tokens ---------------------------------------------------------------------------------------


def issue(
    name: str,
    scopes: Sequence[str],
    *,
    entropy: Entropy,
    lifetime: timedelta | None = None,
    rate: float | None = None,
    live_max: int | None = None,
) -> tuple[str, TokenDraft]:
    """A new token: its text, which is shown once, and what is stored. Errors: InvalidRequest."""
    if not NAME_PATTERN.fullmatch(name) or name == LOCAL:
        raise InvalidRequest(f"a token's name must match {NAME_PATTERN.pattern}, and not be local")
    for scope in scopes:
        _check_scope(scope)
    if not scopes:
        raise InvalidRequest(f"a token needs a scope: {SCOPES}")
    if lifetime is not None and lifetime <= timedelta(0):
        raise InvalidRequest("a token must be valid for some time")
    if rate is not None and not 0 < rate <= RATE_MAX:
        raise InvalidRequest(f"the rate must be above 0 and at most {RATE_MAX:g} a second")
    if live_max is not None and not 1 <= live_max <= LIVE_MAX:
        raise InvalidRequest("the most live actions must be at least 1")
    bits = base64.urlsafe_b64encode(secrets.token_bytes(TOKEN_BYTES)).rstrip(b"=")
    text = f"gnomon_{bits.decode()}"
    return text, TokenDraft(
        id=entropy.guid(),
        digest=digest_of(text),
        name=name,
        scopes=tuple(dict.fromkeys(scopes)),
        lifetime=lifetime,
        rate=rate,
        live_max=live_max,
    )


def bearer_token(headers: Sequence[str | bytes]) -> str | None:
    """The token in a call's headers `Authorization`, if there is one. Errors: Unauthenticated, if
    they say something else."""
    if not headers:
        return None
    scheme, _, token = str(headers[0]).partition(" ")
    if len(headers) > 1 or scheme.lower() != "bearer" or not token.strip():
        raise Unauthenticated("Authorization: must be one `Bearer` and a token")
    return token.strip()


def digest_of(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _check_scope(scope: str) -> None:
    if scope in (READ, WRITE, ADMIN):
        return
    name = scope.removeprefix(SQL_PREFIX).removeprefix(TABLE_PREFIX)
    prefix = scope.removesuffix(name)
    if prefix not in (SQL_PREFIX, TABLE_PREFIX) or not NAME_PATTERN.fullmatch(name):
        raise InvalidRequest(f"{short(scope)} is no scope: {SCOPES}")


# -- the authorizer -------------------------------------------------------------------------------


class _Known(msgspec.Struct, frozen=True):
    """A token that was valid a moment ago."""

    principal: Principal
    until: float


class _Count(msgspec.Struct):
    """How many live actions a name has: counted at a time, and asked for since then."""

    live: int
    at: float


class Authorizer:
    """Checks tokens, scopes and limits. With `required` a token is always needed; without it, as
    soon as the first token was created."""

    def __init__(
        self,
        tokens: TokenStore,
        *,
        clock: Clock,
        required: bool = False,
        trusted_s: float = TRUSTED_S,
        redact: Sequence[str] = (),
    ) -> None:
        self.redaction = Redaction(redact)  # what callers below `admin` do not see
        self._tokens = tokens
        self._clock = clock
        self._is_required = required
        self._trusted_s = trusted_s
        self._looked_at: float | None = None
        self._known: dict[bytes, _Known] = {}
        self._refused: dict[bytes, float] = {}
        self._strangers = TokenBucket.full(STRANGERS_PER_S, clock.monotonic())
        self._buckets: dict[str, TokenBucket] = {}
        self._counts: dict[str, _Count] = {}

    async def is_required(self) -> bool:
        """Whether calls need a token. Once they do, they do for the life of this process."""
        now = self._clock.monotonic()
        if not self._is_required and (
            self._looked_at is None or now - self._looked_at >= self._trusted_s
        ):
            self._is_required = await self._tokens.has_any()
            self._looked_at = now
        return self._is_required

    async def check(self, token: str | None, scope: str) -> Principal:
        """Who calls, if he may do what needs `scope`. Errors: Unauthenticated, Forbidden,
        Exhausted when he calls too often."""
        principal = await self._identify(token)
        self._spend(principal)
        return _permitted(principal, scope)

    async def confirm(self, token: str | None, scope: str) -> None:
        """Look again whether a call that lasts may go on; it does not count as another one."""
        _permitted(await self._identify(token), scope)

    async def _identify(self, token: str | None) -> Principal:
        if token is None:
            if await self.is_required():
                raise Unauthenticated(NEEDED)
            return _LOCAL
        if not _TEXT.fullmatch(token):
            raise Unauthenticated(REFUSED)
        digest, now = digest_of(token), self._clock.monotonic()
        known = self._known.get(digest)
        if known is not None and now < known.until:
            return known.principal
        if now < self._refused.get(digest, now):
            raise Unauthenticated(REFUSED)
        if known is None:
            self._bound_strangers(now)
        stored = await self._tokens.find(digest)
        if stored is None or not hmac.compare_digest(stored.digest, digest):
            self._known.pop(digest, None)
            _remember(self._refused, digest, now + self._trusted_s)
            raise Unauthenticated(REFUSED)
        principal = _principal_of(stored)
        _remember(self._known, digest, _Known(principal, now + self._trusted_s))
        return principal

    def _bound_strangers(self, now: float) -> None:
        """Whoever guesses tokens keeps neither the store busy nor those out who were let in before.
        Errors: Exhausted."""
        wait_s = self._strangers.wait_s(now)
        if wait_s > 0:
            raise Exhausted("tokens.unknown", value=STRANGERS_PER_S, retry_after_s=wait_s)
        self._strangers.spend(1, now)

    def _spend(self, principal: Principal) -> None:
        rate = principal.rate
        if rate is None:
            return
        now = self._clock.monotonic()
        bucket = self._buckets.get(principal.name)
        if bucket is None or bucket.rate != rate:
            bucket = self._buckets[principal.name] = TokenBucket.full(rate, now)
        wait_s = bucket.wait_s(now)
        if wait_s > 0:
            raise Exhausted("token.rate", value=rate, retry_after_s=wait_s)
        bucket.spend(1, now)

    async def admit(self, principal: Principal, count: int = 1) -> None:
        """Refuse new actions over the quota. Errors: Exhausted.

        Between two counts what was asked for is added up here, so that other processes may let in
        a little too much; whoever is at his limit is counted again at most once a second.
        """
        most = principal.live_max
        if most is None:
            return
        now = self._clock.monotonic()
        known = self._counts.get(principal.name)
        is_over = known is not None and known.live + count > most
        if known is None or now - known.at >= (RECOUNT_S if is_over else self._trusted_s):
            live = await self._tokens.count_live(principal.name, limit=most)
            known = self._counts[principal.name] = _Count(live, now)
        if known.live + count > most:
            raise Exhausted("token.live_max", value=most, retry_after_s=RECOUNT_S)
        known.live += count


def _remember(known: dict[bytes, T], digest: bytes, fact: T) -> None:
    if len(known) >= KNOWN_MAX:
        known.clear()
    known[digest] = fact


def _permitted(principal: Principal, scope: str) -> Principal:
    if not principal.may(scope):
        needed = ADMIN if scope == OPERATE else scope
        raise Forbidden(f"this needs a token with the scope {needed}", scope=needed)
    return principal


def check_spec(principal: Principal, spec: Spec) -> None:
    """What a spec needs besides `write`. Errors: Forbidden."""
    effect = spec.action
    if effect.__struct_config__.tag == "sql":
        _permitted(principal, f"{SQL_PREFIX}{getattr(effect, 'target', '')}")


def check_table(principal: Principal, name: str) -> None:
    """What changing a task table needs besides `write`. Errors: Forbidden."""
    _permitted(principal, f"{TABLE_PREFIX}{name}")


def _principal_of(token: Token) -> Principal:
    return Principal(
        name=token.name,
        scopes=frozenset(token.scopes),
        rate=token.rate,
        live_max=token.live_max,
    )
