"""Connections: the catalogue of statements, pools, transactions, and how work is split by shard.

*Narrow* pools are for everything that finds its rows by key: the planner may use nothing but
index scans and nested loops there, so that no statistics can ever turn a millisecond into a minute.
There are three, so that what is small and urgent never waits behind what may wait for a row that
somebody holds: one for leases, one for the worker's own work, one for the verbs of callers. These
last give up soon on such a row, and only some of them wait for it (`insisting`).
The *wide* pool is for listings, counts, the doctor and the janitor, with the planner's full choice;
but listings are read by index, too.
"""

from __future__ import annotations

import asyncio
import copy
import functools
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, nullcontext
from contextvars import ContextVar
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeAlias, TypeVar

import asyncpg

from gnomon.contracts.observer import Observer
from gnomon.model.errors import BugError, StoreUnavailable, check
from gnomon.queries import in_schema, statements_of
from gnomon.stores.postgres.cancelled import ended_if_cancelled, stay_cancelled
from gnomon.stores.postgres.errors import Connection, RowHeld, doubted_commits, translated_errors
from gnomon.stores.postgres.known_types import KnowingConnection
from gnomon.stores.postgres.migrations import VERSION
from gnomon.stores.postgres.parts import ON_NODES, PARTED_LIKE, Only, Parts, only_these
from gnomon.stores.postgres.texts import OLDEST, Texts, catalogue, texts_of

STATEMENT_TIMEOUT_MS = 5_000  # less than half a lease: who is stuck must notice before it is lost
WIDE_TIMEOUT_MS = 60_000
SILENCE_S = 5.0  # the client's own patience, beyond the server's: it may have vanished silently
CONNECT_TIMEOUT_S = 5.0
HELD_MS = 50  # how long a verb of a caller's waits for a row that somebody holds: see `insist`
HELD_MS_MAX = 4_500  # and then in all: a little less than a statement may take
WAITING_PART = 2  # of the connections for verbs, one in so many may be used for waiting
ACQUIRE_TIMEOUT_S = 10.0
STATEMENTS_CACHED = 512  # more than there are texts: each is prepared once per connection
LEASE_POOL_SIZE = 2
WIDE_POOL_SIZE = 3
CLOSE_TIMEOUT_S = 2.0

P = ParamSpec("P")
T = TypeVar("T")

# How long the statements of the present call may wait for a row; 0: as their pool says.
_patience_ms: ContextVar[int] = ContextVar("patience_ms", default=0)

_COMMON_SETTINGS = {
    "application_name": "gnomon",
    "timezone": "UTC",
    "default_transaction_isolation": "read committed",
    "idle_in_transaction_session_timeout": str(STATEMENT_TIMEOUT_MS),
    "statement_timeout": str(STATEMENT_TIMEOUT_MS),
    "jit": "off",
}
NARROW_SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        **_COMMON_SETTINGS,
        "enable_seqscan": "off",
        "enable_hashjoin": "off",
        "enable_mergejoin": "off",
        "enable_bitmapscan": "off",
        "enable_material": "off",
        "enable_memoize": "off",  # every key is looked up once
        "plan_cache_mode": "force_generic_plan",
    }
)
WIDE_SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        **_COMMON_SETTINGS,
        "statement_timeout": str(WIDE_TIMEOUT_MS),
        "max_parallel_workers_per_gather": "0",  # they may take long, but not all processors
    }
)
# A plan for any parameter cannot be sent to the node of one shard; and whoever looks for tables in
# the catalogue is to find those of the shards too.
ON_CITUS: Mapping[str, str] = MappingProxyType(
    {"plan_cache_mode": "auto", "citus.override_table_visibility": "off"}
)

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"


class Row(Protocol):
    """A row of a statement: read by the names of its columns."""

    def __getitem__(self, name: Any, /) -> Any: ...

    def __iter__(self) -> Iterator[Any]: ...


class Session(Protocol):
    """Something that performs statements of the catalogue, in one transaction or another."""

    async def fetch(self, name: str, *args: object) -> Sequence[Row]:
        """The rows of a statement."""
        ...


async def read_now(session: Session) -> datetime:
    """The database's present."""
    now: datetime = (await session.fetch("now"))[0]["now"]
    return now


class Group(NamedTuple):
    """Things that may be written in one transaction, and the parameter that says so to Citus."""

    shards: Only  # the last argument of a shard-local statement
    places: Sequence[int]  # where the things stand in the caller's list


class Pools(NamedTuple):
    """The connections of a process, by what they are for."""

    leases: Pool
    work: Pool
    verbs: Pool
    wide: Pool


class SessionSettings(NamedTuple):
    """What the sessions of a pool are set to."""

    narrow: Mapping[str, str]
    verbs: Mapping[str, str]
    wide: Mapping[str, str]


def settings_for(*, is_citus: bool) -> SessionSettings:
    """As the database is one machine or several."""
    more = ON_CITUS if is_citus else {}
    narrow = {**NARROW_SETTINGS, **more}
    verbs = {**narrow, "lock_timeout": str(HELD_MS)}
    return SessionSettings(narrow, verbs, {**WIDE_SETTINGS, **more})


def insisting(
    verb: Callable[P, Coroutine[Any, Any, T]],
) -> Callable[P, Coroutine[Any, Any, T]]:
    """A verb that is one transaction: see `Database.insist`. Its first argument is the database, or
    has it."""

    @functools.wraps(verb)
    async def insist(*args: P.args, **named: P.kwargs) -> T:
        first: Any = args[0]
        database: Database = first if isinstance(first, Database) else first._database  # noqa: SLF001
        return await database.insist(lambda: verb(*args, **named))

    return insist


class Database:
    """An open database: the pools and the statements for it."""

    def __init__(
        self,
        pools: Pools,
        settings: SessionSettings,
        *,
        schema: str,
        pool_size: int,
        prepared: bool,
        many_shards: bool,
        parts: Parts,
        observer: Observer,
    ) -> None:
        self.schema = schema
        self.many_shards = many_shards
        self.observer = observer
        self.queries = texts_of(schema, many_shards=many_shards)
        self.parts = parts
        self._pools = pools
        self._settings = settings
        self._by_index = {
            name: value for name, value in settings.narrow.items() if name not in _COMMON_SETTINGS
        }
        self._narrow = pools.verbs
        self._waiting = asyncio.Semaphore(max(1, pool_size // WAITING_PART))
        self._prepared = prepared
        self._shard_count = 0
        self.installation_id: object = None  # known when the installation was opened

    def __repr__(self) -> str:
        return f"Database(schema={self.schema!r}, many_shards={self.many_shards})"

    def for_leases(self) -> Database:
        """The same database, for what must not wait for anything."""
        return self._over(self._pools.leases)

    def for_work(self) -> Database:
        """The same database, for what the owner of a shard does."""
        return self._over(self._pools.work)

    def _over(self, narrow: Pool) -> Database:
        other = copy.copy(self)
        other._narrow = narrow  # noqa: SLF001 - it is one of us
        return other

    async def insist(self, call: Callable[[], Awaitable[T]]) -> T:
        """Perform one transaction. If somebody holds a row of it, it is tried once more, and waits
        for him as long as a statement may take: but only in some of the connections, so that those
        who want other rows find one, however many want that row."""
        try:
            return await call()
        except RowHeld as exc:
            held = exc
        clock = asyncio.get_running_loop().time
        asked_at = clock()
        try:
            await asyncio.wait_for(self._waiting.acquire(), HELD_MS_MAX / 1000)
        except TimeoutError:
            raise held from None
        waited_ms = int((clock() - asked_at) * 1000)
        token = _patience_ms.set(max(HELD_MS, HELD_MS_MAX - waited_ms))
        try:
            return await call()
        finally:
            _patience_ms.reset(token)
            self._waiting.release()

    @insisting
    async def fetch(self, name: str, *args: object) -> Sequence[Row]:
        """One statement, one transaction."""
        return await self.fetch_hasty(name, *args)

    async def fetch_hasty(self, name: str, *args: object) -> Sequence[Row]:
        """The same, but it gives up on a row that somebody holds. Errors: RowHeld."""
        async with self._session(self._narrow, name) as session:
            return await session.fetch(name, *args)

    async def fetch_wide(self, name: str, *args: object) -> Sequence[Row]:
        """One statement that the planner may do as it likes."""
        async with self._session(self._pools.wide, name) as session:
            return await session.fetch(name, *args)

    async def fetch_text(self, operation: str, sql: str, *args: object) -> Sequence[Row]:
        """A statement that was put together: listings. They go through an index in its order, as
        far as they must; a planner that has the choice may read all of it and sort."""
        async with self._session(self._pools.wide, operation, whole=True) as session:
            await session.connection.execute(_said_locally(self._by_index))
            rows: Sequence[Row] = await session.connection.fetch(sql, *args)
            return rows

    @asynccontextmanager
    async def transaction(
        self,
        operation: str,
        *,
        wide: bool = False,
        patience: timedelta | None = None,
        reads: bool = False,
    ) -> AsyncIterator[PoolSession]:
        """Several statements, one transaction. `patience` is for each of them: less than usual,
        or more. `reads`: it writes nothing, so no warning is about its commit."""
        pool = self._pools.wide if wide else self._narrow
        async with self._session(pool, operation, whole=True, reads=reads) as session:
            if patience is not None:
                await session.limit(patience)
            yield session

    @asynccontextmanager
    async def _session(
        self, pool: Pool, operation: str, *, whole: bool = False, reads: bool = False
    ) -> AsyncIterator[PoolSession]:
        """A connection for a while, in a transaction if it is to be `whole`. An error of the
        driver leaves as one of ours."""
        relied = self.parts.may_be_wrong
        try:
            with translated_errors(operation, expected=VERSION):
                async with pool.acquire(timeout=ACQUIRE_TIMEOUT_S) as connection:
                    doubts = nullcontext() if reads else doubted_commits(connection, operation)
                    with ended_if_cancelled(connection), doubts:
                        if whole or not self._prepared or _patience_ms.get():
                            async with self._begun(pool, connection) as session:
                                yield session
                        else:
                            yield PoolSession(connection, self.queries)
        except RowHeld:
            raise
        except BugError as exc:
            code = getattr(exc.__cause__, "sqlstate", None)
            if not (why := self.parts.excuse(code, relied=relied)):
                raise
            self._note_unavailable(operation)
            raise StoreUnavailable(f"{why}; safe to repeat: {exc}") from exc
        except StoreUnavailable:
            self._note_unavailable(operation)
            raise

    def _note_unavailable(self, operation: str) -> None:
        stay_cancelled()
        self.observer.count("store_unavailable", 1, op=operation)

    @asynccontextmanager
    async def _begun(self, pool: Pool, connection: Connection) -> AsyncIterator[PoolSession]:
        """Behind a pooler the next statement may be performed by another session, so there even a
        single one needs its transaction, and the settings are said in each."""
        patience_ms = _patience_ms.get()
        if self._prepared:
            async with connection.transaction():
                session = PoolSession(connection, self.queries)
                if patience_ms:
                    await session.fetch("limit_lock", str(patience_ms))
                yield session
            return
        own = {self._pools.verbs: self._settings.verbs, self._pools.wide: self._settings.wide}
        settings = own.get(pool, self._settings.narrow)
        if patience_ms:
            settings = {**settings, "lock_timeout": str(patience_ms)}
        async with connection.transaction(isolation="read_committed"):
            await connection.execute(_said_locally(settings))
            yield PoolSession(connection, self.queries)

    async def shard_count(self, session: Session | None = None) -> int:
        """How many shards there are: fixed at installation, so read once."""
        if not self._shard_count:
            rows = await (session or self).fetch("shard_count")
            check(len(rows) == 1, "the installation has not exactly one row", rows=len(rows))
            self._shard_count = int(rows[0]["shard_count"])
        return self._shard_count

    async def learn_parts(self) -> None:
        """Ask Citus which shards live together, unless that is known."""
        if not self.many_shards and not self.parts.are_known:
            table = in_schema(f"/*schema*/{PARTED_LIKE}", self.schema)
            rows = await self.fetch("cluster_parts", table, await self.shard_count())
            (known,) = await self.fetch(
                "cluster_functions", in_schema(f"/*schema*/{ON_NODES}", self.schema)
            )
            self.parts.learn({row["shard_id"]: row["part"] for row in rows})
            self.parts.has_functions = known["found"]

    def groups(self, shards: Iterable[int]) -> Iterator[Group]:
        """How to split work over transactions: all in one, or on Citus one part in each."""
        named = list(shards)
        if self.many_shards:
            if named:
                yield Group((), range(len(named)))
            return
        places: dict[int, list[int]] = {}
        for place, shard in enumerate(named):
            places.setdefault(self.parts.of(shard), []).append(place)
        for of_part in places.values():
            yield Group(only_these(named[place] for place in of_part), of_part)

    def split(
        self, items: Sequence[T], shard_of: Callable[[T], int]
    ) -> Iterator[tuple[list[T], Only]]:
        """As `groups`, for things that know their shard: the things of each transaction, and the
        last arguments of its shard-local statements."""
        for group in self.groups(map(shard_of, items)):
            yield [items[place] for place in group.places], group.shards

    def about(self, name: str, *, newest: bool) -> str:
        """The name of a statement about the newest rows, or about the oldest ones alone."""
        return name if newest or self.many_shards else OLDEST.format(name)

    def only(self, shard: int) -> Only:
        """The last argument of a shard-local statement about one shard."""
        return () if self.many_shards else (shard,)

    async def close(self) -> None:
        """Give the connections back, politely for a moment."""
        await asyncio.gather(*map(_close, self._pools))


class PoolSession:
    """Statements on one connection of a pool."""

    def __init__(self, connection: Connection, queries: Texts) -> None:
        self.connection = connection
        self._queries = queries
        self._timeout_s: float | None = None  # None: as the pool says

    async def fetch(self, name: str, *args: object) -> Sequence[Row]:
        with ended_if_cancelled(self.connection):  # before its transaction is rolled back
            rows: Sequence[Row] = await self.connection.fetch(
                self._queries.text(name, args), *args, timeout=self._timeout_s
            )
        return rows

    async def execute(self, script: str) -> None:
        """A script without parameters: DDL. Statement by statement, for Citus sends each to its
        nodes with the whole of the text that it came in."""
        for statement in statements_of(script):
            await self.connection.execute(statement, timeout=self._timeout_s)

    async def limit(self, patience: timedelta) -> None:
        """How long each further statement of this transaction may take, here and on the server."""
        patience_s = patience.total_seconds()
        self._timeout_s = patience_s + SILENCE_S
        await self.fetch("limit_statement", str(int(patience_s * 1000)))


def _said_locally(settings: Mapping[str, str]) -> str:
    """Settings for one transaction, in one message."""
    return "".join(f"SET LOCAL {name} = '{value}';" for name, value in settings.items())


async def _close(pool: Pool) -> None:
    try:
        await asyncio.wait_for(pool.close(), CLOSE_TIMEOUT_S)
    except (TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
        pool.terminate()


async def open_database(
    dsn: str,
    *,
    schema: str,
    pool_size: int,
    prepared: bool,
    many_shards: bool | None,
    observer: Observer,
    parts: int = 0,
) -> Database:
    """Connect, and ask whether this is Citus; `many_shards` says how to treat another database, and
    `parts` how many parts it has then (0: each shard is one)."""
    with translated_errors("open", expected=VERSION):
        is_citus = await _is_citus(dsn)
        settings = settings_for(is_citus=is_citus)
        pools = await _open_pools(dsn, settings, size=pool_size, prepared=prepared)
    return Database(
        pools,
        settings,
        schema=schema,
        pool_size=pool_size,
        prepared=prepared,
        many_shards=not is_citus if many_shards is None else many_shards,
        parts=Parts(is_citus=is_citus, count=parts),
        observer=observer,
    )


async def _is_citus(dsn: str) -> bool:
    connection = await asyncpg.connect(
        dsn, timeout=CONNECT_TIMEOUT_S, command_timeout=CONNECT_TIMEOUT_S, statement_cache_size=0
    )
    try:
        async with connection.transaction():  # behind a pooler the same session parses and performs
            return bool(await connection.fetchval(catalogue()["has_citus"].sql))
    finally:
        connection.terminate()


async def _open_pools(dsn: str, settings: SessionSettings, *, size: int, prepared: bool) -> Pools:
    """None of them connects before it is used."""
    narrow, verbs, wide = settings
    return Pools(
        leases=await open_pool(dsn, narrow, size=LEASE_POOL_SIZE, prepared=prepared),
        work=await open_pool(dsn, narrow, size=size, prepared=prepared),
        verbs=await open_pool(dsn, verbs, size=size, prepared=prepared),
        wide=await open_pool(dsn, wide, size=WIDE_POOL_SIZE, prepared=prepared),
    )


async def open_pool(dsn: str, settings: Mapping[str, str], *, size: int, prepared: bool) -> Pool:
    """A pool that connects when needed and again after the server was away.

    Behind a pooler in transaction mode neither prepared statements nor settings of a session can
    be used: without `prepared` there are none, and each transaction says its settings itself.
    """
    pool: Pool = await asyncpg.create_pool(
        dsn,
        min_size=0,
        max_size=size,
        max_queries=10_000_000,  # a connection need not be renewed for its age in queries
        max_inactive_connection_lifetime=300.0,
        reset=_no_reset,
        timeout=CONNECT_TIMEOUT_S,
        command_timeout=int(settings["statement_timeout"]) / 1000 + SILENCE_S,
        statement_cache_size=STATEMENTS_CACHED if prepared else 0,
        max_cached_statement_lifetime=0,
        server_settings=dict(settings) if prepared else {"application_name": "gnomon"},
        connection_class=KnowingConnection,
    )
    return pool


async def _no_reset(_connection: object) -> None:
    """Nothing of ours outlives its transaction, so nothing needs undoing between two uses."""
