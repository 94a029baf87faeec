"""Connections of callers, seen through the libraries that wrap them.

A wrapper is known by the names of its classes: so nobody's library is loaded to look at a
connection of another. Beneath every wrapper is a connection of a driver; each engine knows some.
"""

from __future__ import annotations

from typing import Any

from gnomon.model.errors import InvalidRequest

NO_TRANSACTION = "begin a transaction first: this connection commits by itself"
CLOSED = "the connection is closed"

_SQLALCHEMY = "sqlalchemy.engine.base.Connection"
_SESSIONS = frozenset({"sqlalchemy.orm.session.Session", "sqlalchemy.orm.scoping.scoped_session"})
_SQLALCHEMY_ASYNC = "sqlalchemy.ext.asyncio.engine.AsyncConnection"
_ASYNC_SESSIONS = frozenset(
    {
        "sqlalchemy.ext.asyncio.session.AsyncSession",
        "sqlalchemy.ext.asyncio.scoping.async_scoped_session",
    }
)
_ASYNC_DRIVERS = frozenset(
    {
        "asyncpg.connection.Connection",
        "asyncpg.pool.PoolConnectionProxy",
        "psycopg.AsyncConnection",
        "aiosqlite.core.Connection",
    }
)


def kinds_of(connection: object) -> set[str]:
    """The full names of its classes."""
    return {f"{kind.__module__}.{kind.__qualname__}" for kind in type(connection).__mro__}


def is_async(connection: object) -> bool:
    """Whether it can be used in a coroutine only."""
    return bool(kinds_of(connection) & (_ASYNC_DRIVERS | _ASYNC_SESSIONS | {_SQLALCHEMY_ASYNC}))


def is_wrapper(connection: object) -> bool:
    """Whether a library has a driver's connection in it: see `beneath`."""
    return is_async_wrapper(connection) or _is_django(connection) or _is_sqlalchemy(connection)


def is_async_wrapper(connection: object) -> bool:
    """Whether what is beneath it has to be awaited: see `beneath_async`."""
    return bool(kinds_of(connection) & (_ASYNC_SESSIONS | {_SQLALCHEMY_ASYNC}))


def beneath(connection: Any, first: str) -> Any:
    """The driver's connection, in the transaction that the wrapper knows of. `first` is a statement
    that makes SQLAlchemy begin it, or it would not commit what we do. Errors: InvalidRequest."""
    if _is_django(connection):
        return _beneath_django(connection)
    if kinds_of(connection) & _SESSIONS:
        connection = connection.connection()
    if connection.closed:
        raise InvalidRequest(CLOSED)
    connection.exec_driver_sql(first)
    return connection.connection.driver_connection


async def beneath_async(connection: Any, first: str) -> Any:
    """The same for wrappers that are used in coroutines."""
    if kinds_of(connection) & _ASYNC_SESSIONS:
        connection = await connection.connection()
    if connection.closed:
        raise InvalidRequest(CLOSED)
    await connection.exec_driver_sql(first)
    return (await connection.get_raw_connection()).driver_connection


def _is_sqlalchemy(connection: object) -> bool:
    return bool(kinds_of(connection) & (_SESSIONS | {_SQLALCHEMY}))


def _is_django(connection: object) -> bool:
    """Django gives a proxy of the connection, which has all that the connection has."""
    return hasattr(connection, "in_atomic_block") and hasattr(connection, "ensure_connection")


def _beneath_django(connection: Any) -> Any:
    if not connection.in_atomic_block:
        raise InvalidRequest("begin a transaction first: with transaction.atomic():")
    if connection.needs_rollback:
        raise InvalidRequest("the transaction has failed: leave the block of transaction.atomic()")
    if connection.connection is None:
        raise InvalidRequest(CLOSED)
    return connection.connection
