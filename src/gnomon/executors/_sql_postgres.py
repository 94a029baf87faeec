"""SQL statements as effects on PostgreSQL: one connection for each attempt, closed afterwards.

In the installation's own database the statement is committed together with the note that this
occurrence's effect is done; elsewhere an inbox table in the same transaction does the same.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from gnomon.contracts.observer import Observer
from gnomon.executors._bounded_loop import BoundedLoop
from gnomon.executors._sql_attempt import SqlAttempt
from gnomon.executors._sqlite import DONE_BEFORE
from gnomon.model.outcome import Failed, Outcome, Succeeded, cut
from gnomon.model.spec import Sql
from gnomon.queries import quoted

CONNECT_TIMEOUT_S = 5.0
PART_TIMEOUT_S = 2.0
RESULT_BYTES_MAX = 4 * 1024 * 1024
ROWS_SHOWN_MAX = 200  # more do not fit into an answer

_TOO_LARGE = Failed(error="the result is too large", retryable=False)
# What the driver raises when a server does not keep to the protocol.
_NOT_UNDERSTOOD = (
    asyncpg.InterfaceError, asyncpg.InternalClientError, ValueError, LookupError, struct.error,
    BufferError,
)  # fmt: skip

# Whole names everywhere: whatever the statement has made, these mean what they say.
_NOTE = "SELECT pg_catalog.pg_current_xact_id()::pg_catalog.text, current_user, session_user"
# What PREPARE TRANSACTION has left behind: nobody else would ever end it, and its locks stay.
_PREPARED = (
    "SELECT pg_catalog.format('ROLLBACK PREPARED %L', gid) FROM pg_catalog.pg_prepared_xacts "
    "WHERE transaction::pg_catalog.text = $1 AND owner = session_user"
)
_RECEIVE = "INSERT INTO {inbox} (key) VALUES ($1) ON CONFLICT DO NOTHING RETURNING key"


class PostgresStatements:
    """Performs statements on PostgreSQL."""

    def __init__(self, *, schema: str, observer: Observer) -> None:
        self._observer = observer
        self._is_done = f"SELECT {quoted(schema)}.effect_done($1, $2, $3)"
        self._finish = f"SELECT {quoted(schema)}.finish_ok($1, $2, $3, $4)"
        self._parting: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Wait for connections that are being closed."""
        if self._parting:
            await asyncio.wait(self._parting)

    async def perform(self, attempt: SqlAttempt) -> Outcome:
        loop = BoundedLoop(RESULT_BYTES_MAX)
        try:
            connection = await _connect(attempt, loop)
        except (OSError, asyncpg.PostgresError, *_NOT_UNDERSTOOD) as exc:
            attempt.tell(self._observer, "cannot connect", f"{type(exc).__name__}: {exc}")
            return Failed(error="cannot connect")
        try:
            return await self._on(connection, attempt)
        except asyncpg.PostgresError as exc:
            return _TOO_LARGE if loop.is_exceeded else attempt.refused(exc)
        except (OSError, asyncpg.InterfaceError, asyncpg.InternalClientError) as exc:
            if loop.is_exceeded:
                return _TOO_LARGE
            if isinstance(exc, asyncpg.InterfaceError) and not connection.is_closed():
                return Failed(error="the parameters do not fit the statement", retryable=False)
            attempt.tell(self._observer, "the connection was lost", type(exc).__name__)
            return attempt.ended(Failed(error="the connection was lost"))
        finally:
            await self._part_with(connection)

    async def _on(self, connection: Any, attempt: SqlAttempt) -> Outcome:
        effect, order, target = attempt.effect, attempt.order, attempt.target
        if effect.autocommit:
            return Succeeded(answer=await _fetched(connection, effect))
        await connection.execute("BEGIN")
        if target.place == "local":
            occurrence = (order.id, order.guid, order.occurrence_no)
            if await connection.fetchval(self._is_done, *occurrence):
                return Succeeded(answer=DONE_BEFORE)
        elif target.inbox is not None:
            receive = _RECEIVE.format(inbox=target.inbox)
            if await connection.fetchval(receive, order.key) is None:
                return Succeeded(answer=DONE_BEFORE)
        before = tuple(await connection.fetchrow(_NOTE))
        answer = await _fetched(connection, effect)
        if not connection.is_in_transaction() or before != tuple(await connection.fetchrow(_NOTE)):
            await _roll_back_prepared(connection, before[0])
            error = "the statement left its transaction or its role"
            return Failed(error=error, retryable=False)
        if target.place == "local":
            fence = (order.id, order.guid, order.attempt_id, order.occurrence_no)
            await connection.fetchval(self._finish, *fence)
        attempt.is_committing = True
        await connection.execute("COMMIT")
        return Succeeded(answer=answer)

    async def _part_with(self, connection: Any) -> None:
        """Cancel what still runs there, then close. A cancelled attempt does not wait for it."""
        parting = asyncio.create_task(_close(connection))
        self._parting.add(parting)
        parting.add_done_callback(self._parting.discard)
        await asyncio.shield(parting)


async def _connect(attempt: SqlAttempt, loop: BoundedLoop) -> Any:
    target = attempt.target
    options: dict[str, Any] = {"loop": loop}
    if target.parts.password is None and "password=" not in target.parts.query:
        options["password"] = ""  # or the worker's own, of its environment, would be tried
    return await asyncpg.connect(
        target.dsn.reveal(),
        timeout=CONNECT_TIMEOUT_S,
        statement_cache_size=0,
        server_settings=attempt.settings(),
        **options,
    )


async def _roll_back_prepared(connection: Any, transaction: str) -> None:
    if connection.is_in_transaction():
        return
    undoing = await connection.fetchval(_PREPARED, str(int(transaction) % 2**32))
    if undoing is not None:
        await connection.execute(undoing)


async def _close(connection: Any) -> None:
    with suppress(OSError, asyncpg.PostgresError, *_NOT_UNDERSTOOD):
        await connection.close(timeout=PART_TIMEOUT_S)


async def _fetched(connection: Any, effect: Sql) -> str | None:
    """Perform the statement; its rows as JSON, cut short."""
    statement = await connection.prepare(effect.statement)
    kinds = statement.get_parameters()
    given = [
        _fitting(kind.name, value) for kind, value in zip(kinds, effect.parameters, strict=False)
    ]
    rows = await statement.fetch(*given, *effect.parameters[len(kinds) :])
    if not statement.get_attributes():
        status = statement.get_statusmsg()
        return None if status is None else cut(status)
    shown = [dict(row) for row in rows[:ROWS_SHOWN_MAX]]
    return cut(msgspec.json.encode(shown, enc_hook=str).decode())


_FROM_TEXT: Mapping[str, Callable[[str], Any]] = {
    "timestamptz": datetime.fromisoformat,
    "timestamp": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "uuid": UUID,
}


def _fitting(kind: str, value: Any) -> Any:
    """A JSON value as what the driver wants for a parameter of this type."""
    if value is None:
        return None
    if kind in ("json", "jsonb"):
        return json.dumps(value)
    try:
        if kind == "numeric" and not isinstance(value, bool | list | dict):
            return Decimal(str(value))
        if isinstance(value, str) and kind in _FROM_TEXT:
            return _FROM_TEXT[kind](value)
    except (ValueError, InvalidOperation):
        return value  # the driver says that it does not fit
    return value
