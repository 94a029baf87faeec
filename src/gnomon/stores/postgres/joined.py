"""Actions inside a caller's own transaction, on his connection.

Known are connections of asyncpg and psycopg (blocking or not), and what SQLAlchemy and Django make
of these. The caller commits; until then nothing is visible, and no hint is sent: the poll finds
what was stored. A blocking connection is used in place: the coroutine then never waits.
"""

from __future__ import annotations

from collections.abc import MutableSet, Sequence
from typing import Any
from uuid import UUID
from weakref import WeakSet

import asyncpg
import asyncpg.pool

from gnomon.contracts.store import LOCAL, ActionDraft, ChangeResult
from gnomon.model.action import Action
from gnomon.model.errors import InvalidRequest, NotSupported
from gnomon.model.ids import shard_of
from gnomon.queries import quoted
from gnomon.stores._callers import (
    CLOSED,
    NO_TRANSACTION,
    beneath,
    beneath_async,
    is_async_wrapper,
    is_wrapper,
    kinds_of,
)
from gnomon.stores.postgres.changes import ActionAddress, ActionChanger
from gnomon.stores.postgres.connection import Database, Row
from gnomon.stores.postgres.creation import create_drafts
from gnomon.stores.postgres.errors import DRIVER_ERRORS, translated_errors
from gnomon.stores.postgres.migrations import VERSION
from gnomon.stores.postgres.rows import Decoder
from gnomon.stores.postgres.texts import Texts

ENGINE = "postgres"


class AsyncpgSession:
    """Statements on a caller's asyncpg connection."""

    def __init__(self, connection: Any, queries: Texts) -> None:
        self.connection = getattr(connection, "_con", connection)  # a pool lends a new proxy of it
        self._queries = queries

    async def fetch(self, name: str, *args: object) -> Sequence[Row]:
        if self.connection.is_closed():
            raise InvalidRequest(CLOSED)
        if not self.connection.is_in_transaction():
            raise InvalidRequest(NO_TRANSACTION)
        with translated_errors(name, expected=VERSION):
            rows: Sequence[Row] = await self.connection.fetch(self._queries.text(name, args), *args)
            return rows


class PsycopgSession:
    """Statements on a caller's psycopg connection. Raw cursors take our `$1` as it is."""

    def __init__(self, connection: Any, queries: Texts) -> None:
        self.connection = connection
        self._queries = queries

    async def fetch(self, name: str, *args: object) -> Sequence[Row]:
        import psycopg
        from psycopg.rows import dict_row

        connection = self.connection
        if connection.closed:
            raise InvalidRequest(CLOSED)
        if connection.autocommit and connection.info.transaction_status == 0:
            raise InvalidRequest(NO_TRANSACTION)
        with translated_errors(name, expected=VERSION, kinds=(*DRIVER_ERRORS, psycopg.Error)):
            if isinstance(connection, psycopg.Connection):
                with psycopg.RawCursor(connection, row_factory=dict_row) as cursor:
                    cursor.execute(self._queries.text(name, args), args)
                    return cursor.fetchall() if cursor.description else []
            async with psycopg.AsyncRawCursor(connection, row_factory=dict_row) as cursor:
                await cursor.execute(self._queries.text(name, args), args)
                return await cursor.fetchall() if cursor.description else []


DriverSession = AsyncpgSession | PsycopgSession


def session_on(connection: object, queries: Texts) -> DriverSession:
    """A session on a connection of a driver that we know. Errors: NotSupported."""
    if isinstance(connection, asyncpg.Connection | asyncpg.pool.PoolConnectionProxy):
        return AsyncpgSession(connection, queries)
    if kinds_of(connection) & {"psycopg.Connection", "psycopg.AsyncConnection"}:
        return PsycopgSession(connection, queries)
    kind = type(connection)
    library = "" if kind.__module__ == "builtins" else f"{kind.__module__.partition('.')[0]} "
    raise NotSupported(
        f"joining a {library}{kind.__name__}",
        engine=ENGINE,
        remedy="give a connection of asyncpg, psycopg 3, SQLAlchemy or Django",
    )


class KnownConnections:
    """The callers' connections of which it is known that they lead to this installation."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: MutableSet[object] = WeakSet()

    async def check(self, session: DriverSession) -> None:
        """Errors: NotSupported if it is in another database. A connection is asked once, and so
        that nothing fails: that would end the caller's transaction."""
        if session.connection in self._known or self._database.installation_id is None:
            return
        table = f"{quoted(self._database.schema)}.installation"
        (row,) = await session.fetch("find_installation", table)
        rows = await session.fetch("installation_id") if row["is_here"] else []
        if [self._database.installation_id] != [row["id"] for row in rows]:
            raise NotSupported(
                "joining a connection to another database",
                engine=ENGINE,
                remedy="connect to the database of the store",
            )
        self._known.add(session.connection)


class JoinedActions:
    """The `ActionWrites` inside the transaction of a connection that is the caller's."""

    def __init__(
        self, database: Database, decoder: Decoder, known: KnownConnections, connection: object
    ) -> None:
        self._database = database
        self._decoder = decoder
        self._known = known
        self._connection = connection
        self._session: DriverSession | None = None
        if not is_wrapper(connection):
            self._session = session_on(connection, database.queries)

    async def create(
        self, drafts: Sequence[ActionDraft], *, actor: str = LOCAL, verb: str = "create"
    ) -> Sequence[ChangeResult | None]:
        session = await self._joined()
        answers: list[ChangeResult | None] = [None] * len(drafts)
        for group in self._database.groups(draft.shard for draft in drafts):
            chosen = [drafts[place] for place in group.places]
            part = await create_drafts(
                session, self._decoder, chosen, group.shards, actor=actor, verb=verb
            )
            for place, answer in zip(group.places, part, strict=True):
                answers[place] = answer
        return answers

    async def replace(
        self, draft: ActionDraft, *, if_match: UUID | None, actor: str = LOCAL
    ) -> ChangeResult:
        place = ActionAddress(draft.shard, draft.id, self._database.only(draft.shard))
        return await (await self._changer(actor)).replace(draft, place, if_match)

    async def delete(
        self, id: str, *, if_match: UUID | None, running: bool = False, actor: str = LOCAL
    ) -> ChangeResult:
        session = await self._joined()
        shard = shard_of(id, await self._database.shard_count(session))
        place = ActionAddress(shard, id, self._database.only(shard))
        return await (await self._changer(actor)).delete(place, if_match, running=running)

    async def get(self, id: str) -> Action | None:
        session = await self._joined()
        shard = shard_of(id, await self._database.shard_count(session))
        for query in ("get_live", "get_finished"):
            rows = await session.fetch(query, [shard], [id], *self._database.only(shard))
            if rows:  # the latest comes first
                return self._decoder.action_of(rows[0])
        return None

    async def _changer(self, actor: str) -> ActionChanger:
        return ActionChanger(await self._joined(), self._decoder, actor, joined=True)

    async def _joined(self) -> DriverSession:
        """A session on the driver's connection, in the store's own database."""
        if self._session is None:
            first = self._database.queries["join_transaction"]
            wrapper = self._connection
            is_async = is_async_wrapper(wrapper)
            raw = await beneath_async(wrapper, first) if is_async else beneath(wrapper, first)
            self._session = session_on(raw, self._database.queries)
        await self._known.check(self._session)
        return self._session
