"""Driver errors become ours here and nowhere else. Only the SQLSTATE decides, never a text or a
constraint's name: those differ on Citus."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TypeAlias

import asyncpg

from gnomon.model.errors import (
    BugError,
    ConfigurationError,
    GnomonError,
    InvalidRequest,
    SchemaMismatch,
    StoreUnavailable,
)

Connection: TypeAlias = "asyncpg.pool.PoolConnectionProxy[asyncpg.Record]"

WARNING_STATE = "01000"
NOT_FREE = "55P03"  # somebody else has the lock
FAILED_BEFORE = "25P02"  # a statement of the caller's, in the transaction that we join
# Nothing is wrong with the request: the server, the network or a neighbour was in the way. A class
# has two characters, a code five.
TRANSIENT = frozenset(
    {
        "08",  # connection
        "53",  # too many connections, disk full, out of memory
        "57",  # shut down, starting up, cancelled, statement_timeout
        "58",  # system error
        "40",  # serialization failure, deadlock: undone as a whole
        NOT_FREE,
        "25P03",  # idle in transaction for too long
        "25P04",  # transaction for too long
        "25006",  # read-only: we are connected to a standby
    }
)
SETTINGS = frozenset({"28", "3D000", "42501", "22023"})  # password, database, rights, a setting
NO_SCHEMA = frozenset({"42P01", "3F000", "42703"})  # no such table, schema, column
STOPPED = frozenset({"57014"})  # the statement alone: cancelled, or out of time
BAD_VALUE = frozenset({"22"})  # a text or number that cannot be stored

DRIVER_ERRORS: tuple[type[Exception], ...] = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the server had ended the session, and nobody had looked yet
    OSError,  # TimeoutError is one
)


class RowHeld(StoreUnavailable):
    """Somebody's open transaction has locked what is asked for."""


class PartMoved(StoreUnavailable):
    """What is asked for lives on another node by now. Nothing was done."""


def is_cut_off(cause: BaseException | None) -> bool:
    """Whether an error of the driver says that the server is not reached, or not up."""
    if not isinstance(cause, DRIVER_ERRORS):
        return False
    code = getattr(cause, "sqlstate", None)
    return code is None or (code[:2] in ("08", "57") and code not in STOPPED)


@contextmanager
def doubted_commits(connection: Connection, operation: str) -> Iterator[None]:
    """A commit whose wait for the standby was cancelled comes back as a success with a warning:
    nobody may be told that it is safe."""
    doubts: list[str] = []

    def note(_connection: object, message: asyncpg.PostgresLogMessage) -> None:
        if getattr(message, "sqlstate", None) == WARNING_STATE:
            doubts.append(str(message))

    connection.add_log_listener(note)
    try:
        yield
    finally:
        with suppress(asyncpg.InterfaceError):  # the connection is gone, and the listener with it
            connection.remove_log_listener(note)
    if doubts:
        raise StoreUnavailable(f"{operation}: PostgreSQL warns: {doubts[0]}; safe to repeat")


@contextmanager
def translated_errors(
    operation: str, *, expected: int, kinds: tuple[type[Exception], ...] = DRIVER_ERRORS
) -> Iterator[None]:
    """Raise our error for a driver's; the cause is kept. `expected` is our schema version."""
    try:
        yield
    except kinds as exc:
        raise translated(exc, operation, expected) from exc


def translated(exc: Exception, operation: str, expected: int) -> GnomonError:
    """Our error for a driver's."""
    code = getattr(exc, "sqlstate", None)
    if code is None:
        return _without_code(exc, operation)
    family = code[:2]
    # A prepared statement whose tables were changed under it: prepared anew the next time.
    if isinstance(exc, asyncpg.InvalidCachedStatementError):
        return _unavailable(exc, operation)
    if code in SETTINGS or family in SETTINGS:
        return ConfigurationError("store.dsn", f"PostgreSQL refused ({code}): {exc}")
    if code in NO_SCHEMA:
        return SchemaMismatch(found=0, expected=expected)
    if code == NOT_FREE:
        return RowHeld(f"{operation}: another transaction holds it at the moment; safe to repeat")
    if code in TRANSIENT or family in TRANSIENT:
        return _unavailable(exc, operation)
    if code == FAILED_BEFORE or family in BAD_VALUE:
        return _invalid(exc, operation, code)
    return BugError(f"{operation}: PostgreSQL says {code}: {exc}")


def _invalid(exc: Exception, operation: str, code: str) -> InvalidRequest:
    if code == FAILED_BEFORE:
        return InvalidRequest("the transaction has failed before: roll it back, then repeat it")
    return InvalidRequest(f"{operation}: PostgreSQL cannot store a value ({code}): {exc}")


def _without_code(exc: Exception, operation: str) -> GnomonError:
    if isinstance(exc, asyncpg.exceptions.ClientConfigurationError):
        return ConfigurationError("store.dsn", str(exc))
    if isinstance(exc, asyncpg.exceptions.DataError):
        return InvalidRequest(f"{operation}: {exc}")
    if isinstance(exc, asyncpg.InterfaceError) and "arguments for this query" in str(exc):
        # Ours, and the only one of its kind that no repetition can mend.
        return BugError(f"{operation}: {exc}")
    return _unavailable(exc, operation)


def _unavailable(exc: Exception, operation: str) -> StoreUnavailable:
    told = str(exc) or type(exc).__name__
    return StoreUnavailable(f"{operation}: PostgreSQL did not do it ({told}); safe to repeat")
