"""Verbs of the store as functions of a connection; a decorator says how each is performed.

    @write
    def revoke(self, connection: Connection, name: str) -> int: ...

is called as `await tokens.revoke(name)`: the runner performs it in a transaction, in its thread.
"""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar
from uuid import UUID

from gnomon.contracts.clock import Clock
from gnomon.contracts.store.tokens import face_of
from gnomon.stores.sqlite.connection import Runner
from gnomon.stores.sqlite.queries import SQL
from gnomon.stores.sqlite.rows import micros

Connection = sqlite3.Connection


class SqliteVerbs:
    """What every role of this engine has: who performs its SQL, and the time."""

    def __init__(self, runner: Runner, clock: Clock) -> None:
        self._runner = runner
        self._clock = clock

    def _now_us(self) -> int:
        return micros(self._clock.now())


V = TypeVar("V", bound=SqliteVerbs)
P = ParamSpec("P")
T = TypeVar("T")
Perform = Callable[[Runner, Callable[[Connection], Any]], Awaitable[Any]]


class _Decorator(Protocol):
    def __call__(
        self, verb: Callable[Concatenate[V, Connection, P], T], /
    ) -> Callable[Concatenate[V, P], Coroutine[Any, Any, T]]:
        """The verb as its callers see it: awaited, and without the connection."""
        ...


def _performed(perform: Perform) -> _Decorator:
    def decorate(
        verb: Callable[Concatenate[V, Connection, P], T], /
    ) -> Callable[Concatenate[V, P], Coroutine[Any, Any, T]]:
        @functools.wraps(verb)
        async def performed(self: V, /, *args: P.args, **named: P.kwargs) -> T:
            result: T = await perform(
                self._runner, lambda connection: verb(self, connection, *args, **named)
            )
            return result

        return performed

    return decorate


# In a write transaction: what a verb reads stays true until it has written.
write = _performed(lambda runner, call: runner.write(call))
# The same, before all that waits: for what keeps leases.
write_first = _performed(lambda runner, call: runner.write(call, urgent=True))
# On one consistent state; for what finds its rows by key.
read = _performed(lambda runner, call: runner.read(call))
# The same, for what may look at very many rows.
browse = _performed(lambda runner, call: runner.browse(call))


def write_entry(
    connection: Connection,
    verb: str,
    actor: str,
    name: str,
    *,
    at: int,
    guid: UUID,
    count: int = 1,
) -> None:
    """An entry of the audit."""
    entry = {"at": at, "guid": guid.bytes, "count": count, "verb": verb, "actor": str(actor)}
    entry |= {"id": name, "face": face_of(actor)}
    connection.execute(SQL["write_audit_entry"], entry)
