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
    Sequence,
)
from contextlib import asynccontextmanager, nullcontext, suppress
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar

import asyncpg

from gnomon.contracts.observer import Observer
from gnomon.model.errors import BugError, GnomonError, StoreUnavailable, check
from gnomon.queries import in_schema, statements_of
from gnomon.stores.postgres.cancelled import ended_if_cancelled, stay_cancelled
from gnomon.stores.postgres.errors import (
    DRIVER_ERRORS,
    Connection,
    PartMoved,
    RowHeld,
    doubted_commits,
    is_cut_off,
    translated_errors,
)
from gnomon.stores.postgres.migrations import VERSION
from gnomon.stores.postgres.nodes import GONE, HOLD, Home, Nodes, homes_of
from gnomon.stores.postgres.parts import ON_NODES, PARTED_LIKE, Only, Parts, only_these
from gnomon.stores.postgres.pools import (
    COMMON_SETTINGS,
    CONNECT_TIMEOUT_S,
    HELD_MS,
    SILENCE_S,
    Pool,
    Pools,
    SessionSettings,
    close_pool,
    open_node,
    open_pools,
    said_locally,
    settings_for,
)
from gnomon.stores.postgres.texts import OLDEST, Texts, catalogue, texts_of

HELD_MS_MAX = 4_500  # and then in all: a little less than a statement may take
WAITING_PART = 2  # of the connections for verbs, one in so many may be used for waiting
ACQUIRE_TIMEOUT_S = 10.0
MARK_SLACK = timedelta(seconds=0.5)  # of marks: more than a poll's interval, see work.py
MARK_SLACK_BLIND = timedelta(seconds=2)  # where no poll tells what is in progress
P = ParamSpec("P")
T = TypeVar("T")

# How long the statements of the present call may wait for a row; 0: as their pool says.
_patience_ms: ContextVar[int] = ContextVar("patience_ms", default=0)


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
        self.mark_slack = MARK_SLACK if many_shards else MARK_SLACK_BLIND
        self.observer = observer
        self.queries = texts_of(schema, many_shards=many_shards)
        self.parts = parts
        self._pools = pools
        self._settings = settings
        self._by_index = {
            name: value for name, value in settings.narrow.items() if name not in COMMON_SETTINGS
        }
        self._narrow = pools.verbs
        self._waiting = asyncio.Semaphore(max(1, pool_size // WAITING_PART))
        self._prepared = prepared
        self._nodes: Nodes | None = None
        self._home: Home | None = None  # the one part that this is about, at its node
        self._at_homes: dict[int, Database] = {}
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
        other._at_homes = {}  # noqa: SLF001
        return other

    def use_nodes(self, nodes: Nodes) -> None:
        """Ask parts for what they have where they live, as far as that is reached."""
        self._nodes = nodes

    @property
    def is_through_citus(self) -> bool:
        """Whether some of what workers do is planned by Citus, and dear."""
        is_all_at_home = self._nodes is not None and self._nodes.are_all_reached
        return self.parts.is_citus and not self.many_shards and not is_all_at_home

    def at_home(self, shard: int) -> Database | None:
        """The part of a shard, at the node where it lives: all that it has is like a database of
        one machine. None: this process does not reach it, or there is no such thing."""
        if self._nodes is None or self._home is not None:
            return None
        home = self._nodes.home(self.parts.of(shard))
        if home is None:
            return None
        there = self._at_homes.get(home.part)
        if there is None or there._home is not home:  # noqa: SLF001 - it is one of us
            there = self._at_homes[home.part] = self._over(self._pool_at(home, self._nodes))
            there.many_shards = True
            there.queries = self._nodes.texts(home)
            there._home = home  # noqa: SLF001
            there.mark_slack = MARK_SLACK_BLIND  # a node cannot tell what is open on others
        return there

    def _pool_at(self, home: Home, nodes: Nodes) -> Pool:
        pool: Pool = getattr(
            nodes.pools(home), "work" if self._narrow is self._pools.work else "verbs"
        )
        return pool

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
            await session.connection.execute(said_locally(self._by_index))
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
        whole = whole or self._home is not None
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
            if code in GONE and self._nodes is not None and self._home is not None:
                self._nodes.forget(self._home)
                self._note_unavailable(operation)
                raise PartMoved(f"{operation}: {exc}; nothing was done, safe to repeat") from exc
            if not (why := self.parts.excuse(code, relied=relied)):
                raise
            self._note_unavailable(operation)
            raise StoreUnavailable(f"{why}; safe to repeat: {exc}") from exc
        except StoreUnavailable as exc:
            self._note_unavailable(operation)
            if self._home is not None and self._nodes is not None and is_cut_off(exc.__cause__):
                self._nodes.lose(self._home)
            raise

    def _note_unavailable(self, operation: str) -> None:
        stay_cancelled()
        self.observer.count("store_unavailable", 1, op=operation)

    @asynccontextmanager
    async def _begun(self, pool: Pool, connection: Connection) -> AsyncIterator[PoolSession]:
        """Behind a pooler the next statement may be performed by another session, so there even a
        single one needs its transaction, and the settings are said in each."""
        patience_ms = _patience_ms.get()
        if self._home is not None:
            async with _held(connection, self._home.hold(self.schema), patience_ms):
                yield PoolSession(connection, self.queries)
            return
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
            await connection.execute(said_locally(settings))
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

    async def learn_homes(self) -> None:
        """Ask Citus where its parts live, and see which of those nodes answer here."""
        nodes, is_known = self._nodes, self.parts.may_be_wrong
        if nodes is None or not is_known:
            return
        hold, table = (in_schema(f"/*schema*/{name}", self.schema) for name in (HOLD, PARTED_LIKE))
        (known,) = await self.fetch("cluster_functions", hold)
        (ours,) = await self.fetch("cluster_here")
        if not known["found"]:  # `migrate` has not been here since there is such a thing
            return
        homes = homes_of(await self.fetch("cluster_homes", table, self.schema))

        async def is_ours(connection: Connection, home: Home) -> bool:
            row = await connection.fetchrow(self.queries["cluster_here"])
            await connection.execute(home.hold(self.schema))  # whether it may, and can be held
            return row is not None and tuple(row) == (ours["id"], home.node.group)

        await nodes.learn(homes, is_ours)
        if news := nodes.news():
            reached, count = news
            self.observer.event("store_parts_reached", reached=reached, parts=count)

    def learn_homes_soon(self) -> None:
        """The same beside all else, if some are not reached."""
        if self._nodes is not None:
            self._nodes.ask_soon(self._learn_homes_if_possible)

    async def _learn_homes_if_possible(self) -> None:
        with suppress(GnomonError):
            await self.learn_homes()

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
        others = [] if self._nodes is None else await self._nodes.close()
        await asyncio.gather(*map(close_pool, [*self._pools, *others]))


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


@asynccontextmanager
async def _held(connection: Connection, hold: str, patience_ms: int) -> AsyncIterator[None]:
    """A transaction at the node of a part, which stays there until the end: begun and held in one
    message. Who is cancelled ends the connection, and so asks for nothing more."""
    patience = said_locally({"lock_timeout": str(patience_ms)}) if patience_ms else ""
    try:
        await connection.execute(f"BEGIN; {patience}{hold}")
        yield
    except Exception:
        with suppress(*DRIVER_ERRORS):  # the connection is gone, and the transaction with it
            await connection.execute("ROLLBACK")
        raise
    await connection.execute("COMMIT")


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
        pools = await open_pools(dsn, settings, size=pool_size, prepared=prepared)
    database = Database(
        pools,
        settings,
        schema=schema,
        pool_size=pool_size,
        prepared=prepared,
        many_shards=not is_citus if many_shards is None else many_shards,
        parts=Parts(is_citus=is_citus, count=parts),
        observer=observer,
    )
    if is_citus and prepared and not database.many_shards:
        database.use_nodes(Nodes(functools.partial(open_node, dsn, size=pool_size), schema))
    return database


async def _is_citus(dsn: str) -> bool:
    connection = await asyncpg.connect(
        dsn, timeout=CONNECT_TIMEOUT_S, command_timeout=CONNECT_TIMEOUT_S, statement_cache_size=0
    )
    try:
        async with connection.transaction():  # behind a pooler the same session parses and performs
            return bool(await connection.fetchval(catalogue()["has_citus"].sql))
    finally:
        connection.terminate()
