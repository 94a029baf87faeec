"""Actions inside a caller's own transaction, on his connection.

Known are connections of asyncpg, of psycopg (blocking or not), and of SQLAlchemy over these. The
caller commits; until then nothing is visible, and no hint is sent: the poll finds what was stored.
A blocking connection is used in place: the coroutine then never waits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import asyncpg
import asyncpg.pool

from gnomon.contracts.store import LOCAL, ActionDraft, ChangeResult
from gnomon.model.errors import InvalidRequest, NotSupported
from gnomon.model.ids import shard_of
from gnomon.stores.postgres.changes import ActionAddress, ActionChanger
from gnomon.stores.postgres.connection import Database, Row, Session
from gnomon.stores.postgres.creation import create_drafts
from gnomon.stores.postgres.errors import DRIVER_ERRORS, translated_errors
from gnomon.stores.postgres.migrations import VERSION
from gnomon.stores.postgres.rows import Decoder

ENGINE = "postgres"
NO_TRANSACTION = "begin a transaction first: this connection commits by itself"


class AsyncpgSession:
    """Statements on a caller's asyncpg connection."""

    def __init__(self, connection: Any, queries: Mapping[str, str]) -> None:
        self._connection = connection
        self._queries = queries

    async def fetch(self, name: str, *args: object) -> Sequence[Row]:
        if not self._connection.is_in_transaction():
            raise InvalidRequest(NO_TRANSACTION)
        with translated_errors(name, expected=VERSION):
            rows: Sequence[Row] = await self._connection.fetch(self._queries[name], *args)
            return rows


class PsycopgSession:
    """Statements on a caller's psycopg connection. Raw cursors take our `$1` as it is."""

    def __init__(self, connection: Any, queries: Mapping[str, str]) -> None:
        self._connection = connection
        self._queries = queries

    async def fetch(self, name: str, *args: object) -> Sequence[Row]:
        import psycopg
        from psycopg.rows import dict_row

        connection = self._connection
        if connection.autocommit and connection.info.transaction_status == 0:
            raise InvalidRequest(NO_TRANSACTION)
        with translated_errors(name, expected=VERSION, kinds=(*DRIVER_ERRORS, psycopg.Error)):
            if isinstance(connection, psycopg.Connection):
                with psycopg.RawCursor(connection, row_factory=dict_row) as cursor:
                    cursor.execute(self._queries[name], args)
                    return cursor.fetchall() if cursor.description else []
            async with psycopg.AsyncRawCursor(connection, row_factory=dict_row) as cursor:
                await cursor.execute(self._queries[name], args)
                return await cursor.fetchall() if cursor.description else []


class SqlalchemySession:
    """Statements on the driver's connection beneath a caller's SQLAlchemy connection."""

    def __init__(self, connection: Any, queries: Mapping[str, str], *, is_async: bool) -> None:
        self._connection = connection
        self._queries = queries
        self._is_async = is_async
        self._beneath: Session | None = None

    async def fetch(self, name: str, *args: object) -> Sequence[Row]:
        if self._beneath is None:
            self._beneath = await self._begin()
        return await self._beneath.fetch(name, *args)

    async def _begin(self) -> Session:
        """SQLAlchemy must know of the transaction, or it would not commit it: so the first
        statement goes through it."""
        first = self._queries["join_transaction"]
        if self._is_async:
            await self._connection.exec_driver_sql(first)
            raw = (await self._connection.get_raw_connection()).driver_connection
        else:
            self._connection.exec_driver_sql(first)
            raw = self._connection.connection.driver_connection
        return session_on(raw, self._queries)


def session_on(connection: object, queries: Mapping[str, str]) -> Session:
    """A session on whatever connection this is. Errors: NotSupported if it is none we know."""
    if isinstance(connection, asyncpg.Connection | asyncpg.pool.PoolConnectionProxy):
        return AsyncpgSession(connection, queries)
    kinds = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(connection).__mro__}
    if kinds & {"psycopg.Connection", "psycopg.AsyncConnection"}:
        return PsycopgSession(connection, queries)
    if "sqlalchemy.engine.base.Connection" in kinds:
        return SqlalchemySession(connection, queries, is_async=False)
    if "sqlalchemy.ext.asyncio.engine.AsyncConnection" in kinds:
        return SqlalchemySession(connection, queries, is_async=True)
    raise NotSupported(
        f"joining a {type(connection).__name__}",
        engine=ENGINE,
        remedy="give a connection of asyncpg, psycopg or SQLAlchemy",
    )


class JoinedActions:
    """The `ActionWrites` inside the transaction of a session that is the caller's."""

    def __init__(self, database: Database, decoder: Decoder, session: Session) -> None:
        self._database = database
        self._decoder = decoder
        self._session = session

    async def create(
        self, drafts: Sequence[ActionDraft], *, actor: str = LOCAL, verb: str = "create"
    ) -> Sequence[ChangeResult | None]:
        answers: list[ChangeResult | None] = [None] * len(drafts)
        for group in self._database.groups(draft.shard for draft in drafts):
            chosen = [drafts[place] for place in group.places]
            part = await create_drafts(
                self._session, self._decoder, chosen, group.shards, actor=actor, verb=verb
            )
            for place, answer in zip(group.places, part, strict=True):
                answers[place] = answer
        return answers

    async def replace(
        self, draft: ActionDraft, *, if_match: UUID | None, actor: str = LOCAL
    ) -> ChangeResult:
        place = ActionAddress(draft.shard, draft.id, self._database.only(draft.shard))
        return await self._changer(actor).replace(draft, place, if_match)

    async def delete(self, id: str, *, if_match: UUID | None, actor: str = LOCAL) -> ChangeResult:
        shard = shard_of(id, await self._database.shard_count(self._session))
        place = ActionAddress(shard, id, self._database.only(shard))
        return await self._changer(actor).delete(place, if_match)

    def _changer(self, actor: str) -> ActionChanger:
        return ActionChanger(self._session, self._decoder, actor, joined=True)
