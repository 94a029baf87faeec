"""Logins of others in PostgreSQL: made, bounded, and granted what they need and nothing else.

A target's login performs strangers' statements: it owns nothing, is a member of nothing, and its
limits belong to the role, where the statements cannot lift them. A role that is mighty already is
refused rather than tamed: one cannot know what else its rights are for.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import asyncpg

from gnomon.model.errors import ConfigurationError, InvalidRequest
from gnomon.model.secret import Secret
from gnomon.queries import load, quoted
from gnomon.stores.postgres.cluster import check_entry
from gnomon.stores.postgres.errors import translated_errors
from gnomon.stores.postgres.migrations import VERSION
from gnomon.stores.postgres.texts import catalogue

CONNECT_TIMEOUT_S = 10.0
COMMAND_TIMEOUT_S = 60.0
SCRAM_ROUNDS = 4096  # PostgreSQL's own number
NO_SUCH_OBJECT = "42704"
TRANSACTION_TIMEOUT_SINCE = 170_000

_QUERIES = load(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginPlan:
    """What the login of a SQL target is to be."""

    target: str
    role: str
    password: Secret | None
    database: str
    search_path: str  # plain names with commas between
    statement_timeout: timedelta
    lock_timeout: timedelta
    connections_max: int
    temp_files: str = "1GB"
    schema: str | None = None  # of the installation, if the target is its own database
    inbox: str | None = None  # schema.table, if it is another one


# -- the script -----------------------------------------------------------------------------------


def login_script(plan: LoginPlan) -> list[str]:
    """The whole set-up as a superuser would type it into psql, without the password."""
    lines = [_text("create_login", plan), *_bounds(plan)]
    if plan.password is not None:
        lines.append(f"-- then its password: \\password {quoted(plan.role)}")
    late = _default(plan, "transaction_timeout", _ms(plan.statement_timeout))
    return [*lines, *_mighty_bounds(plan), f"-- from PostgreSQL 17 on: {late}", *_grants(plan)]


def _bounds(plan: LoginPlan) -> Iterator[str]:
    """What bounds the login: its number of connections, its search path and its time-outs."""
    yield _text("bound_login", plan, value=str(plan.connections_max))
    path = ", ".join(quoted(part.strip()) for part in f"{plan.search_path}, pg_temp".split(","))
    yield _default(plan, "search_path", path)
    for setting in ("statement_timeout", "idle_in_transaction_session_timeout"):
        yield _default(plan, setting, _ms(plan.statement_timeout))
    yield _default(plan, "lock_timeout", _ms(plan.lock_timeout))


def _mighty_bounds(plan: LoginPlan) -> Iterator[str]:
    """What only a superuser may set, so that the role itself cannot lift it. The log is not to
    show what was bound to statements."""
    yield _default(plan, "temp_file_limit", _literal(plan.temp_files))
    yield _default(plan, "log_parameter_max_length", "0")


def _grants(plan: LoginPlan) -> Iterator[str]:
    if plan.schema is not None:
        yield _text("grant_schema", plan, schema=quoted(plan.schema))
        yield _text("grant_effects", plan, schema=quoted(plan.schema))
        marks = {"target": _literal(plan.target), "value": _literal(plan.role)}
        yield _text("name_login", plan, schema=quoted(plan.schema), **marks)
    if plan.inbox is not None:
        inbox = ".".join(quoted(part) for part in plan.inbox.split("."))
        yield _text("create_inbox", plan, inbox=inbox)
        if "." in plan.inbox:
            yield _text("grant_schema", plan, schema=quoted(plan.inbox.partition(".")[0]))
        yield _text("grant_inbox", plan, inbox=inbox)


def _default(plan: LoginPlan, setting: str, value: str) -> str:
    return _text("set_default", plan, setting=setting, value=value)


def _text(query: str, plan: LoginPlan, **marks: str) -> str:
    marks |= {"role": quoted(plan.role), "database": quoted(plan.database)}
    text = _QUERIES[query].sql
    for mark, value in marks.items():
        text = text.replace(f"/*{mark}*/", value)
    return text


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _ms(duration: timedelta) -> str:
    return str(max(1, int(duration.total_seconds() * 1000)))


# -- carried out ----------------------------------------------------------------------------------


async def set_up_login(admin_url: str, plan: LoginPlan) -> Sequence[str]:
    """Carry it out in one transaction; safe to repeat. What was done, and what was left out.

    Errors: InvalidRequest for a role with rights of its own, ConfigurationError, StoreUnavailable.
    """
    async with _connected(admin_url) as connection, connection.transaction():
        version, is_super = await connection.fetchrow(_QUERIES["look_at_server"].sql)
        statements = [*await _role_of(connection, plan), *_bounds(plan)]
        if is_super:
            statements += _mighty_bounds(plan)
        if version >= TRANSACTION_TIMEOUT_SINCE:
            limit = _ms(plan.statement_timeout)
            statements.append(_default(plan, "transaction_timeout", limit))
        statements += _grants(plan)
        for statement in statements:
            await connection.execute(statement)
        if plan.password is not None:
            verifier = _literal(scram_verifier(plan.password.reveal()))
            await connection.execute(_text("set_password", plan, value=verifier))
            statements.append(_text("set_password", plan, value="'…'"))
    left = [] if is_super else [f"-- left to a superuser: {text}" for text in _mighty_bounds(plan)]
    return [*statements, *left]


async def _role_of(connection: Any, plan: LoginPlan) -> list[str]:
    """How to make the role, if it is not there. Errors: InvalidRequest."""
    row = await connection.fetchrow(_QUERIES["look_at_role"].sql, plan.role)
    if row is None:
        return [_text("create_login", plan)]
    is_mighty, is_member = row
    if is_mighty or is_member:
        why = "has rights beyond a plain login's" if is_mighty else "is a member of other roles"
        raise InvalidRequest(f"the role {plan.role} {why}: choose another for the target")
    return []


async def grant_sql(owner_url: str, schema: str, roles: Sequence[str]) -> None:
    """Let roles use the functions of the SQL gateway. Errors: InvalidRequest for unknown ones."""
    text = _QUERIES["grant_sql"].sql.replace("/*schema*/", quoted(schema))
    async with _connected(owner_url) as connection, connection.transaction():
        for role in roles:
            try:
                await connection.fetchval(text, role)
            except asyncpg.PostgresError as exc:
                if exc.sqlstate != NO_SUCH_OBJECT:
                    raise
                raise InvalidRequest(f"there is no role {role} in this database") from None


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator[Any]:
    with translated_errors("set up", expected=VERSION):
        connection = await asyncpg.connect(
            url, timeout=CONNECT_TIMEOUT_S, command_timeout=COMMAND_TIMEOUT_S
        )
        try:
            await _check_entry(connection)
            yield connection
        finally:
            await connection.close(timeout=CONNECT_TIMEOUT_S)


async def _check_entry(connection: Any) -> None:
    """On Citus the coordinator tells the nodes of logins and rights, and no other node may.
    Errors: ConfigurationError."""
    if await connection.fetchval(catalogue()["has_citus"].sql):
        entry = await connection.fetchrow(catalogue()["cluster_entry"].sql)
        check_entry(entry, "set logins up")


def scram_verifier(password: str, salt: bytes | None = None) -> str:
    """What PostgreSQL stores for a password, so that the password itself is never sent or logged.

    Errors: ConfigurationError, for characters that would need preparing first (RFC 4013).
    """
    if not password.isascii() or not password.isprintable():
        raise ConfigurationError("dsn", "the password must be of printable ASCII characters")
    salt = salt or secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, SCRAM_ROUNDS)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    server_key = hmac.digest(salted, b"Server Key", "sha256")
    stored_key = hashlib.sha256(client_key).digest()
    salt_, stored_, server_ = (
        base64.b64encode(part).decode() for part in (salt, stored_key, server_key)
    )
    return f"SCRAM-SHA-256${SCRAM_ROUNDS}:{salt_}${stored_}:{server_}"
