"""SQL statements as effects, on databases that the operator has named.

Each attempt has a connection of its own, with the target's login, which is closed afterwards:
nothing that a statement sets, locks or listens to outlives it. Only the extended protocol is used:
it takes one statement, so that none can end our transaction and begin another. What could do that
all the same is found by comparing the transaction and the role before and after.

In the installation's own database the statement is committed together with the note that this
occurrence's effect is done; elsewhere an inbox table in the same transaction does the same. Files
of SQLite are performed by `_sqlite`.
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

from gnomon.contracts.clock import Clock
from gnomon.contracts.executor import AttemptRequest
from gnomon.contracts.observer import Observer, SilentObserver
from gnomon.executors._bounded_loop import BoundedLoop
from gnomon.executors._sql_target import SqlTarget, check_own
from gnomon.executors._sqlite import DONE_BEFORE, UNKNOWN_COMMIT, SqliteStatement, SqliteTargets
from gnomon.executors._target import no_target
from gnomon.model.attempt_boundary import AttemptBoundary
from gnomon.model.outcome import Failed, Interrupted, Outcome, Succeeded, cut
from gnomon.model.spec import Sql
from gnomon.queries import quoted

__all__ = ["SqlExecutor", "SqlTarget", "check_own"]

CONNECT_TIMEOUT_S = 5.0
PART_TIMEOUT_S = 2.0
RESULT_BYTES_MAX = 4 * 1024 * 1024
ROWS_SHOWN_MAX = 200  # more do not fit into an answer
DETAIL_CHARS_MAX = 200
STALE_STATE = "GN001"
TIMED_OUT_STATE = "57014"

_RETRYABLE_CLASSES = ("08", "53", "57")
_RETRYABLE = frozenset({"40001", "40P01", "55P03"})

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


class SqlExecutor:
    """Performs statements."""

    def __init__(
        self,
        targets: Mapping[str, SqlTarget],
        *,
        clock: Clock,
        observer: Observer | None = None,
        database_url: str = "",
        schema: str = "gnomon",
        is_bounded: bool = False,
    ) -> None:
        """`is_bounded`: SQLite's memory in this process is, for good, if there are such targets."""
        self._targets = targets
        self._observer = observer or SilentObserver()
        self._is_done = f"SELECT {quoted(schema)}.effect_done($1, $2)"
        self._finish = f"SELECT {quoted(schema)}.finish_ok($1, $2, $3)"
        self._turns = {
            name: asyncio.Semaphore(target.in_flight_max) for name, target in targets.items()
        }
        self._parting: set[asyncio.Task[None]] = set()
        for target in targets.values():
            check_own(target, database_url)
        files = [target for target in targets.values() if target.is_sqlite]
        self._files = SqliteTargets(
            files, clock=clock, database_url=database_url, is_bounded=is_bounded
        )

    def __repr__(self) -> str:
        return f"SqlExecutor({', '.join(sorted(self._targets))})"

    async def execute(self, order: AttemptRequest) -> Outcome:
        effect = order.effect
        assert isinstance(effect, Sql)
        target = self._targets.get(effect.target)
        if target is None:
            return no_target("sql", effect.target)
        attempt = _Attempt(order, effect, target)
        with AttemptBoundary(Exception) as boundary:
            # Ahead of the worker's own limit: only here it is known whether a commit was under way.
            within_s = max(order.timeout_s - 0.5, order.timeout_s * 0.9)
            if target.is_sqlite:
                return await self._perform_on_file(attempt, within_s)
            async with asyncio.timeout(within_s), self._turns[target.name]:
                return await self._perform(attempt)
        error = boundary.failure
        if isinstance(error, TimeoutError):
            return attempt.ended(Failed(error=f"timed out after {order.timeout_s:g} s"))
        self._tell(attempt, "the statement could not be sent", type(error).__name__)
        return attempt.ended(Failed(error="the statement could not be sent", retryable=False))

    async def close(self) -> None:
        self._files.close()
        if self._parting:
            await asyncio.wait(self._parting)

    async def _perform_on_file(self, attempt: _Attempt, within_s: float) -> Outcome:
        effect, order = attempt.effect, attempt.order
        if effect.autocommit:
            return Failed(error="autocommit is for PostgreSQL", retryable=False)
        statement = SqliteStatement(
            attempt.target, effect.statement, effect.parameters, order.key, within_s
        )
        return await self._files.perform(statement)

    async def _perform(self, attempt: _Attempt) -> Outcome:
        loop = BoundedLoop(RESULT_BYTES_MAX)
        try:
            connection = await _connect(attempt, loop)
        except (OSError, asyncpg.PostgresError, *_NOT_UNDERSTOOD) as exc:
            self._tell(attempt, "cannot connect", f"{type(exc).__name__}: {exc}")
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
            self._tell(attempt, "the connection was lost", type(exc).__name__)
            return attempt.ended(Failed(error="the connection was lost"))
        finally:
            await self._part_with(connection)

    async def _on(self, connection: Any, attempt: _Attempt) -> Outcome:
        effect, order, target = attempt.effect, attempt.order, attempt.target
        if effect.autocommit:
            return Succeeded(answer=await _fetched(connection, effect))
        await connection.execute("BEGIN")
        if target.place == "local":
            if await connection.fetchval(self._is_done, order.guid, order.occurrence_no):
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
            await connection.fetchval(
                self._finish, order.guid, order.attempt_id, order.occurrence_no
            )
        attempt.is_committing = True
        await connection.execute("COMMIT")
        return Succeeded(answer=answer)

    async def _part_with(self, connection: Any) -> None:
        """Cancel what still runs there, then close. A cancelled attempt does not wait for it."""
        parting = asyncio.create_task(_close(connection))
        self._parting.add(parting)
        parting.add_done_callback(self._parting.discard)
        await asyncio.shield(parting)

    def _tell(self, attempt: _Attempt, error: str, detail: str) -> None:
        self._observer.event(
            "sql.statement_failed",
            id=attempt.order.id,
            attempt_id=str(attempt.order.attempt_id),
            error=error,
            detail=cut(attempt.target.hidden(detail), DETAIL_CHARS_MAX),
        )


class _Attempt:
    """One order on its target, and how far it came."""

    def __init__(self, order: AttemptRequest, effect: Sql, target: SqlTarget) -> None:
        self.order = order
        self.effect = effect
        self.target = target
        self.is_committing = False

    def ended(self, failed: Failed) -> Outcome:
        """Cut short while committing, the effect is unknown: the next attempt will see it."""
        if self.is_committing and self.target.is_once:
            return Interrupted(reason=UNKNOWN_COMMIT)
        return failed

    def refused(self, exc: asyncpg.PostgresError) -> Outcome:
        state = exc.sqlstate or ""
        if state == STALE_STATE:
            return Interrupted(reason="another attempt has begun meanwhile")
        if state == TIMED_OUT_STATE:
            return self.ended(Failed(error=f"timed out after {self._patience_s:g} s"))
        is_passing = state in _RETRYABLE or state.startswith(_RETRYABLE_CLASSES)
        failed = Failed(
            error=f"refused with SQLSTATE {state}" if state else "the parameters do not fit",
            retryable=is_passing,
            answer=cut(self.target.hidden(str(exc.args[0]) if exc.args else "")) or None,
        )
        return self.ended(failed) if state.startswith(("08", "57")) else failed

    @property
    def _patience_s(self) -> float:
        return min(self.order.timeout_s, self.target.statement_timeout.total_seconds())

    def settings(self) -> dict[str, str]:
        """The limits of the session."""
        timeout = str(max(1, int(self._patience_s * 1000)))
        return {
            "application_name": f"gnomon sql {self.target.name}",
            "statement_timeout": timeout,
            "lock_timeout": str(int(self.target.lock_timeout.total_seconds() * 1000)),
            "idle_in_transaction_session_timeout": timeout,
            "search_path": f"{self.target.search_path}, pg_temp",
        }


async def _connect(attempt: _Attempt, loop: BoundedLoop) -> Any:
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
