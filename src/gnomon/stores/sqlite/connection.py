"""Where the SQL is performed: connections, the writer's thread with its group commit, and inline.

A *runner* takes a function of a connection and performs it whole or not at all. In production
one thread writes: all writes that wait when it gets to them share one transaction, each in a
savepoint of its own, and hear of their success after the commit; what is urgent is next, whoever
waits. A second thread reads what is small, a third what may take long: nothing of the first two
waits behind it. In the simulation everything happens inside the coroutine, in the order the loop
gives.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, Protocol, TypeVar

from gnomon.boundary import performed
from gnomon.contracts.clock import Clock
from gnomon.contracts.observer import Observer
from gnomon.model.errors import InvalidRequest, StoreUnavailable
from gnomon.sqlite_box import lenient_text, make_private, use_wal
from gnomon.stores._callers import NO_TRANSACTION
from gnomon.stores.sqlite.checkpointer import Checkpointer
from gnomon.stores.sqlite.errors import translated, translated_errors
from gnomon.stores.sqlite.hub import Hub

T = TypeVar("T")
Call = Callable[[sqlite3.Connection], T]

MEMORY = ":memory:"
BUSY_TIMEOUT_S = 10.0  # for other processes that write to the same file
# Whoever writes without a pause leaves gaps of a fraction of a millisecond. SQLite's own patience
# looks ten times a second, and misses them for seconds.
BUSY_LOOK_MS = 2
STATEMENTS_CACHED = 256  # more than there are queries: each is prepared once per connection
CACHE_KIB = 64 * 1024
GROUP_VERBS_MAX = 256
GROUP_S_MAX = 0.01  # the first of a group waits for the last: at most about this long
READ_CUT_EVERY_S = 0.1  # of a store that is being closed: what is shorter is answered
TURN, END = "turn", "end"


class Runner(Protocol):
    """Performs functions of a connection."""

    @property
    def hub(self) -> Hub:
        """Who in this process wants to hear of hints."""
        ...

    async def write(self, call: Call[T], *, urgent: bool = False) -> T:
        """Perform it in a write transaction, before all that waits if it is `urgent`; return when
        it is committed."""
        ...

    async def read(self, call: Call[T]) -> T:
        """Perform it on one consistent state. For what finds its rows by key."""
        ...

    async def browse(self, call: Call[T]) -> T:
        """The same, for what may look at very many rows."""
        ...

    async def foreign_version(self) -> int | None:
        """Changes when others committed to the file; None where there are no others."""
        ...

    async def close(self) -> None: ...


def connect(path: str) -> sqlite3.Connection:
    """A connection that survives power loss with what it committed."""
    if path != MEMORY:
        make_private(path)
    with translated_errors():
        connection = sqlite3.connect(
            path,
            timeout=BUSY_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=STATEMENTS_CACHED,
        )
        connection.text_factory = lenient_text
        if path != MEMORY:
            use_wal(connection)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    return connection


def transact(connection: sqlite3.Connection, call: Call[T]) -> T:
    """Perform a call in a write transaction of its own."""
    with translated_errors():
        connection.execute("BEGIN IMMEDIATE")
        try:
            result = call(connection)
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
    return result


class InlineRunner:
    """For simulations: everything in the coroutine, others may come before and after."""

    def __init__(self, path: str = MEMORY) -> None:
        self._connection = connect(path)
        self.hub = Hub()

    @property
    def connection(self) -> sqlite3.Connection:
        """For looking at what is stored, between verbs."""
        return self._connection

    async def write(self, call: Call[T], *, urgent: bool = False) -> T:  # noqa: ARG002 - nobody waits
        await asyncio.sleep(0)
        result = transact(self._connection, call)
        await asyncio.sleep(0)
        return result

    async def read(self, call: Call[T]) -> T:
        await asyncio.sleep(0)
        with translated_errors():
            result = call(self._connection)
        await asyncio.sleep(0)
        return result

    async def browse(self, call: Call[T]) -> T:
        return await self.read(call)

    async def foreign_version(self) -> int | None:
        return None

    async def close(self) -> None:
        self._connection.close()


class JoinedRunner:
    """Performs verbs inside the transaction of a caller, on his connection. Never commits it."""

    def __init__(self, connection: sqlite3.Connection, hub: Hub) -> None:
        self._connection = connection
        self.hub = hub

    async def write(self, call: Call[T], *, urgent: bool = False) -> T:  # noqa: ARG002 - nobody waits
        connection = self._connection
        factories = connection.row_factory, connection.text_factory
        connection.row_factory, connection.text_factory = None, str
        try:
            with translated_errors():
                self._ensure_transaction()
                return _in_savepoint(connection, call)
        finally:
            connection.row_factory, connection.text_factory = factories

    def _ensure_transaction(self) -> None:
        if self._connection.in_transaction:
            return
        if self._connection.isolation_level is None:
            raise InvalidRequest(NO_TRANSACTION)
        # What sqlite3 does by itself before an INSERT, but not before a savepoint.
        self._connection.execute("BEGIN IMMEDIATE")

    async def read(self, call: Call[T]) -> T:
        return await self.write(call)

    async def browse(self, call: Call[T]) -> T:
        return await self.write(call)

    async def foreign_version(self) -> int | None:
        return None

    async def close(self) -> None:
        """The connection is the caller's."""


def _in_savepoint(connection: sqlite3.Connection, call: Call[T]) -> T:
    """Perform a call so that its failure undoes nothing but itself."""
    connection.execute("SAVEPOINT verb")
    try:
        result = call(connection)
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK TO verb")
            connection.execute("RELEASE verb")
        raise
    connection.execute("RELEASE verb")
    return result


# -- threads --------------------------------------------------------------------------------------


class _Request(NamedTuple):
    """Something to perform, and who waits for it where."""

    call: Call[Any]
    writes: bool
    asked_at: float  # by the clock of its thread
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


class _Answer(NamedTuple):
    """What to tell the one who waits."""

    request: _Request
    result: Any
    error: BaseException | None


class _SqlThread(ABC):
    """One connection and the thread that owns it."""

    def __init__(self, name: str, connection: sqlite3.Connection, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._urgent: deque[_Request] = deque()
        self._waiting: deque[_Request] = deque()
        self._tokens: SimpleQueue[str] = SimpleQueue()  # one for each that waits
        self._is_closed = False
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    async def perform(self, call: Call[T], *, writes: bool, urgent: bool = False) -> T:
        if self._is_closed:
            raise StoreUnavailable("the store is closed")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        request = _Request(call, writes, self._clock.monotonic(), loop, future)
        (self._urgent if urgent else self._waiting).append(request)
        self._tokens.put(TURN)
        return await future

    async def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._tokens.put(END)
            await asyncio.to_thread(self._join)

    def _join(self) -> None:
        self._thread.join()

    def _serve(self) -> None:
        while self._tokens.get() is not END:
            _deliver(self._perform_group(self._first()))
        self._close()

    def _close(self) -> None:
        self._connection.close()

    def _first(self) -> _Request:
        """Whose turn it is. There is one, for its token was taken."""
        return self._urgent.popleft() if self._urgent else self._waiting.popleft()

    @abstractmethod
    def _perform_group(self, first: _Request) -> list[_Answer]:
        """Perform a request, and others that wait with it if that is cheaper."""


class _Reader(_SqlThread):
    """Performs reads one after the other, each on one state of the database."""

    def __init__(self, name: str, connection: sqlite3.Connection, clock: Clock) -> None:
        self._ending = threading.Lock()
        self._has_ended = False  # there is no read to cut short any more
        super().__init__(name, connection, clock)

    def _join(self) -> None:
        """Nobody waits for a long read any more, and its process is to end: it may have gone
        through ten million rows for a minute."""
        while self._thread.is_alive():
            with self._ending:
                if not self._has_ended:
                    self._connection.interrupt()
            self._thread.join(READ_CUT_EVERY_S)

    def _close(self) -> None:
        """The last connection to a file writes its log back into it when it is closed. What cuts a
        read short would cut that short, too, and is in force until the next statement begins."""
        with self._ending:
            self._has_ended = True
        self._connection.execute("SELECT 1").fetchone()
        super()._close()

    def _perform_group(self, first: _Request) -> list[_Answer]:
        return [_answered(first, self._read)]

    def _read(self, call: Call[T]) -> T:
        self._connection.execute("BEGIN")
        try:
            return call(self._connection)
        finally:
            if self._connection.in_transaction:
                self._connection.execute("COMMIT")


class _Writer(_SqlThread):
    """Performs whatever waits in one transaction."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        clock: Clock,
        observer: Observer,
        checkpointer: Checkpointer | None,
    ) -> None:
        self._observer = observer
        self._checkpointer = checkpointer
        connection.execute(f"PRAGMA busy_timeout = {BUSY_LOOK_MS}")
        super().__init__("gnomon-sqlite-writer", connection, clock)

    def _perform_group(self, first: _Request) -> list[_Answer]:
        started = self._clock.monotonic()
        answers: list[_Answer] = []
        request: _Request | None = first
        try:
            while request is not None:
                if not request.future.cancelled():
                    answers.append(self._perform(request))
                request = self._next(len(answers), started)
            if self._connection.in_transaction:
                self._connection.execute("COMMIT")
                if self._checkpointer is not None:
                    self._checkpointer.note(self._connection)
        except sqlite3.Error as exc:
            if request is not None:
                answers.append(_Answer(request, None, None))
            answers = self._lost(answers, exc)
        self._observer.observe("store_group_verbs", len(answers))
        self._observer.observe("store_group_seconds", self._clock.monotonic() - started)
        return answers

    def _perform(self, request: _Request) -> _Answer:
        if not request.writes:
            return _answered(request, lambda call: call(self._connection))
        if not self._connection.in_transaction:
            self._begin(request.asked_at + BUSY_TIMEOUT_S)
        answer = _answered(request, lambda call: _in_savepoint(self._connection, call))
        if answer.error is not None and not self._connection.in_transaction:
            # Some errors (disk full, I/O) end the whole transaction: all of the group is undone.
            raise sqlite3.OperationalError(str(answer.error))
        return answer

    def _begin(self, tries_until: float) -> None:
        """Wait for other processes that write, for a while. Who has waited behind another who
        waited for them has waited as long."""
        while True:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as exc:
                is_busy = exc.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
                if not is_busy or self._clock.monotonic() >= tries_until:
                    raise
            else:
                return

    def _next(self, count: int, started: float) -> _Request | None:
        """The next request that waits already, or None when the group is to be committed."""
        if count >= GROUP_VERBS_MAX or self._clock.monotonic() - started > GROUP_S_MAX:
            return None
        try:
            token = self._tokens.get_nowait()
        except Empty:
            return None
        if token is END:
            self._tokens.put(END)  # the end is for `_serve` to see
            return None
        return self._first()

    def _lost(self, answers: list[_Answer], exc: sqlite3.Error) -> list[_Answer]:
        """Nothing of the group was committed, or it is unknown whether: tell all of it."""
        with suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        self._observer.event("store_group_lost", verbs=len(answers), cause=str(exc))
        failure = StoreUnavailable(f"SQLite did not commit: {exc}; safe to repeat")
        failure.__cause__ = exc
        return [answer._replace(result=None, error=answer.error or failure) for answer in answers]


def _answered(request: _Request, perform: Callable[[Call[Any]], Any]) -> _Answer:
    result, error = performed(partial(perform, request.call))
    if isinstance(error, sqlite3.Error):
        cause, error = error, translated(error)
        error.__cause__ = cause
    return _Answer(request, result, error)


def _deliver(answers: list[_Answer]) -> None:
    """Hand the answers over, one call per event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Answer]] = {}
    for answer in answers:
        by_loop.setdefault(answer.request.loop, []).append(answer)
    for loop, its in by_loop.items():
        with suppress(RuntimeError):  # the loop was closed: nobody waits any more
            loop.call_soon_threadsafe(_resolve, its)


def _resolve(answers: list[_Answer]) -> None:
    for request, result, error in answers:
        if request.future.done():
            continue
        if error is None:
            request.future.set_result(result)
        else:
            request.future.set_exception(error)


class ThreadRunner:
    """For production: one thread that writes with group commit, one that brings what it wrote from
    the log into the file, two that read."""

    def __init__(self, path: str, *, clock: Clock, observer: Observer) -> None:
        self.hub = Hub()
        self._is_shared = path != MEMORY
        writer = connect(path)
        self._checkpointer: Checkpointer | None = None
        if self._is_shared:
            self._checkpointer = Checkpointer(writer, connect(path), observer)
        self._writer = _Writer(writer, clock, observer, self._checkpointer)
        self._reader: _Reader | None = None
        self._browser: _Reader | None = None
        if self._is_shared:
            self._reader = _Reader("gnomon-sqlite-reader", connect(path), clock)
            self._browser = _Reader("gnomon-sqlite-browser", connect(path), clock)

    async def write(self, call: Call[T], *, urgent: bool = False) -> T:
        return await self._writer.perform(call, writes=True, urgent=urgent)

    async def read(self, call: Call[T]) -> T:
        return await (self._reader or self._writer).perform(call, writes=False)

    async def browse(self, call: Call[T]) -> T:
        return await (self._browser or self._writer).perform(call, writes=False)

    async def foreign_version(self) -> int | None:
        # Asked on the writer's own connection, where its own commits do not show.
        if not self._is_shared:
            return None
        return await self._writer.perform(_data_version, writes=False, urgent=True)

    async def close(self) -> None:
        if self._checkpointer is not None:
            await asyncio.to_thread(self._checkpointer.close)
        for thread in (self._writer, self._reader, self._browser):
            if thread is not None:
                await thread.close()


def _data_version(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA data_version").fetchone()[0]
    return version
