"""A connection to a PostgreSQL server: libpq itself, waited for by asyncio.

Drivers for applications prepare, adapt and hide; a task needs what they hide: one input with many
results, their text as the server sent it, every field of an error, and several statements in one
round trip. The socket stays registered with the event loop for the connection's whole life, so
that a wait costs one future.
"""

from __future__ import annotations

import asyncio
import fcntl
import resource
import struct
import termios
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from psycopg import Error as PsycopgError
from psycopg import generators, pq, waiting

from gnomon.model.task.text import ErrorFields

CLOSED = (
    "server closed the connection unexpectedly\n"
    "\tThis probably means the server terminated abnormally\n"
    "\tbefore or while processing the request."
)

Result = pq.abc.PGresult
Status = pq.ExecStatus
TransactionStatus = pq.TransactionStatus
Diagnostic = pq.DiagnosticField
ABORTED = Status.PIPELINE_ABORTED
GOOD_STATUSES = (int(Status.COMMAND_OK), int(Status.TUPLES_OK))
BAD_STATUSES = (Status.FATAL_ERROR, Status.BAD_RESPONSE, Status.NONFATAL_ERROR)
LOOK_EVERY_S = 1.0
CANCEL_S = 5.0
FATAL_SEVERITIES = ("FATAL", "PANIC")


class WireLost(Exception):  # noqa: N818 - likewise
    """The connection broke."""


class TooManyBytes(Exception):  # noqa: N818 - likewise
    """The server sends more than may be kept for one result."""


class Statement(NamedTuple):
    """A statement of ours: prepared under its name on each connection that needs it."""

    name: bytes
    sql: bytes
    is_binary: bool = False  # its values come as the server has them, not as text
    formats: Sequence[int] | None = None  # of its parameters, likewise: 1 where they are not text


Params = Sequence[bytes | None] | None
Step = tuple[Statement, Params]


class Wire:
    """One connection; one caller at a time."""

    def __init__(self, connection: pq.abc.PGconn) -> None:
        self._connection = connection
        self._fd = connection.socket
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._lost: str | None = None
        self._unread_bytes_max = 0  # 0: as many as come
        self._unread_bytes = 0  # at most: what libpq leaves on the socket is counted again
        self._resident_bytes = 0  # of this process, when half of that had come
        self._pending: deque[int] = deque()  # results of each statement in the pipeline
        self._is_held = False  # the pipeline has no end yet: more is to come
        self._prepared: dict[bytes, bytes] = {}  # under which name
        self._generation = 0  # of prepared statements
        self.on_notify: Callable[[], None] | None = None
        self.pid = connection.backend_pid
        connection.nonblocking = 1
        self._loop.add_reader(self._fd, self._on_readable)
        self._looking = self._loop.call_later(LOOK_EVERY_S, self._look)

    # -- what it is -------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self._lost is None

    @property
    def transaction(self) -> int:
        """One of `TransactionStatus`. A pipeline is held open within a transaction only."""
        return TransactionStatus.INTRANS if self._is_held else self._connection.transaction_status

    @property
    def is_held(self) -> bool:
        """Whether the last pipeline goes on: its end is not sent."""
        return self._is_held

    @property
    def unread_count(self) -> int:
        """Statements that were sent, and whose results nobody has read."""
        return len(self._pending)

    @property
    def used_password(self) -> bool:
        return bool(self._connection.used_password)

    def parameter(self, name: str) -> str:
        """A setting that the server keeps us informed of."""
        return (self._connection.parameter_status(name.encode()) or b"").decode()

    def encrypted(self, password: str, user: str) -> str:
        """What a server may be told of a password."""
        return self._connection.encrypt_password(password.encode(), user.encode()).decode()

    # -- statements of ours -----------------------------------------------------------------------

    async def pipeline(self, steps: Sequence[Step]) -> list[Result]:
        """Statements in one round trip, up to the first error: the others are not performed. Where
        a pipeline was held, the results that are left of it come before theirs.

        Errors: WireLost. An error of the server's is a result.
        """
        await self.send_pipeline(steps)
        results = await self.results(len(self._pending))
        await self.synced()
        return results

    async def send_pipeline(self, *parts: Sequence[Step], is_held: bool = False) -> None:
        """Send statements of one round trip. What follows is `results`, and `synced` at the end;
        those of each part come before the next part is performed. With `is_held` the pipeline goes
        on: the results of its last part come with those of what is sent next.

        Errors: WireLost.
        """
        connection, put = self._connection, self._put
        *told, last = parts
        try:
            connection.enter_pipeline_mode()
            for part in told:
                put(part)
                connection.send_flush_request()
            put(last)
            self._is_held = is_held
            if not is_held:
                connection.pipeline_sync()
            if connection.flush():
                await self._flush()
        except PsycopgError as exc:
            raise self._broken(exc) from None

    async def prepare(self, statements: Sequence[Statement]) -> None:
        """Prepare statements before they are needed. Errors: WireLost."""
        connection = self._connection
        connection.enter_pipeline_mode()
        for statement in statements:
            name = self._prepared[statement.name] = self._name_of(statement)
            connection.send_prepare(name, statement.sql)
            self._pending.append(1)
        connection.pipeline_sync()
        await self._flush()
        await self.synced()

    def forget_prepared(self) -> None:
        """Whether our statements are still there is not known: others take their place."""
        self._prepared.clear()
        self._generation += 1

    def _name_of(self, statement: Statement) -> bytes:
        return b"gnomon %d %s" % (self._generation, statement.name)

    def _put(self, steps: Sequence[Step]) -> None:
        """Put statements into the pipeline; what was not prepared on this connection is."""
        connection, pending, prepared = self._connection, self._pending, self._prepared
        send = connection.send_query_prepared
        for statement, params in steps:
            name, count = prepared.get(statement.name), 1
            if name is None:
                if not statement.name:
                    connection.send_query_params(statement.sql, params)
                    pending.append(1)
                    continue
                name = prepared[statement.name] = self._name_of(statement)
                connection.send_prepare(name, statement.sql)
                count = 2  # results: preparing it is one
            send(name, params, statement.formats, statement.is_binary)
            pending.append(count)

    async def results(self, count: int) -> list[Result]:
        """Of the next statements in the pipeline. Errors: WireLost."""
        results, connection, pending = [], self._connection, self._pending
        is_busy, get_result = connection.is_busy, connection.get_result
        for _ in range(count):
            parts = pending.popleft()
            while is_busy():
                await self._readable()
            result = get_result()
            if parts == 1 and result is not None and result.status in GOOD_STATUSES:
                get_result()  # the end of it
            else:
                result = await self._checked(result, parts)
            results.append(result)
        return results

    async def _checked(self, result: Result | None, parts: int) -> Result:
        """The result of a statement that was prepared with it (two `parts`), or that is not just
        good. Errors: WireLost."""
        result = self._ended(result)
        if parts > 1:  # that was its preparation
            while self._connection.is_busy():
                await self._readable()
            prepared, result = result, self._ended(self._connection.get_result())
            result = prepared if prepared.status in BAD_STATUSES else result
        if result.status == Status.TUPLES_CHUNK:
            await self._end_of_pieces()
        if result.status in BAD_STATUSES or (parts > 1 and result.status == ABORTED):
            self.forget_prepared()  # whether it has been prepared is not known
        return result

    def _ended(self, result: Result | None) -> Result:
        """A result, read to its end unless it comes in pieces."""
        result = self._received(result)
        if result is None:
            raise WireLost(self._lost or CLOSED)
        if result.status != Status.TUPLES_CHUNK:
            self._connection.get_result()
        return result

    async def _end_of_pieces(self) -> None:
        """An input without rows leaves libpq giving pieces: the first result that has rows, one of
        ours and small, is then a piece, which an empty one follows."""
        for _ in range(2):
            while self._connection.is_busy():
                await self._readable()
            self._connection.get_result()

    async def synced(self) -> None:
        """Read a pipeline to its end, which is sent now if it was held. Errors: WireLost."""
        if self._is_held:
            await self.send_pipeline(())
        if self._pending:
            await self.results(len(self._pending))
        result = await self.next_result()
        if result is None or result.status != Status.PIPELINE_SYNC:
            raise WireLost(self._lost or CLOSED)
        self._connection.exit_pipeline_mode()

    # -- the user's input -------------------------------------------------------------------------

    async def send(self, text: bytes) -> None:
        """An input of any number of statements. Its results follow, until there are no more."""
        try:
            self._connection.send_query(text)
        except PsycopgError as exc:
            raise self._broken(exc) from None
        await self._flush()

    def chunked(self, rows: int) -> None:
        """Give the next result in pieces of so many rows, so that it need not fit into memory. It
        is read by `next_result`, also within a pipeline."""
        if self._pending:
            self._pending.popleft()
        self._connection.set_chunked_rows_mode(rows)

    def limit_unread(self, bytes_max: int) -> None:
        """From now on about so many bytes may come between two results; 0: any number."""
        self._unread_bytes_max = bytes_max
        self._unread_bytes = 0

    @property
    def is_at_hand(self) -> bool:
        """Whether `read` has the next result, or its end, without waiting."""
        return self._lost is None and not self._connection.is_busy()

    def read(self) -> Result | None:
        """The next result, which is at hand, or None at the end."""
        self._unread_bytes = self._resident_bytes = 0
        return self._connection.get_result()

    async def next_result(self) -> Result | None:
        """The next result, or None at the end. Errors: WireLost, TooManyBytes."""
        connection = self._connection
        while connection.is_busy():
            await self._readable()
        self._unread_bytes = self._resident_bytes = 0
        return self._received(connection.get_result())

    def _received(self, result: Result | None) -> Result | None:
        """A result of the server's. What libpq makes of the end of a connection is none."""
        if self._lost is not None and result is not None and is_own_error(result):
            raise WireLost(self._lost)
        return result

    async def copied_out(self) -> bytes | None:
        """A piece of what COPY TO STDOUT sends, or None at its end."""
        while True:
            try:
                count, data = self._connection.get_copy_data(1)
            except PsycopgError:
                return None  # the result that follows says why
            if count > 0:
                self._unread_bytes = 0
                return bytes(data)
            if count < 0:
                return None
            await self._readable()

    async def refuse_copy_in(self, reason: bytes) -> None:
        """There is nothing to be copied in."""
        self._connection.put_copy_end(reason)
        await self._flush()

    # -- ending it --------------------------------------------------------------------------------

    async def cancel(self) -> None:
        """Ask the server to stop what it does; returns when it was told. Never raises for a
        server that does not answer."""
        try:
            cancelling = self._connection.cancel_conn()
            cancelling.start()
            await waiting.wait_conn_async(generators.cancel(cancelling), CANCEL_S, CANCEL_S)
            cancelling.finish()
        except (PsycopgError, OSError):
            return

    def close(self) -> None:
        """End the connection, whatever it does. May be called again."""
        if self._lost is None:
            self._lose("the connection was closed")
        self._connection.finish()

    # -- the socket -------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        if self._unread_bytes_max:
            self._unread_bytes += _readable_bytes(self._fd)
        try:
            self._connection.consume_input()
        except PsycopgError as exc:
            self._lose(_words(exc))
            return
        waiter = self._waiter
        if waiter is not None:
            if not waiter.done():
                waiter.set_result(None)
        else:
            self._while_idle()

    def _look(self) -> None:
        """Look at the connection once more. uvloop tells of one that was reset but once, and libpq
        then reads what came before: the reset itself is only seen by whoever looks again."""
        self._looking = self._loop.call_later(LOOK_EVERY_S, self._look)
        self._on_readable()

    def _while_idle(self) -> None:
        """Nobody waits: a notification, a notice, or the server's farewell."""
        connection = self._connection
        connection.is_busy()  # lets libpq read what came
        self.take_notifies()
        if connection.status == pq.ConnStatus.BAD:
            self._lose(CLOSED)

    def take_notifies(self) -> None:
        """Pass on what came, also between the results of a statement."""
        is_told = False
        while self._connection.notifies() is not None:
            is_told = True
        if is_told and self.on_notify is not None:
            self.on_notify()

    def _lose(self, words: str) -> None:
        self._lost = words
        self._looking.cancel()
        self._loop.remove_reader(self._fd)
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _broken(self, exc: PsycopgError) -> WireLost:
        if self._lost is None:
            self._lose(_words(exc))
        return WireLost(self._lost or CLOSED)

    async def _readable(self) -> None:
        if self._lost is None and self._connection.status == pq.ConnStatus.BAD:
            self._lose(CLOSED)  # libpq has closed the socket: nothing would wake us any more
        if self._lost is not None:
            raise WireLost(self._lost)
        if self._unread_bytes_max and 2 * self._unread_bytes > self._unread_bytes_max:
            self._check_unread()
        waiter = self._waiter = self._loop.create_future()
        try:
            await waiter
        finally:
            self._waiter = None

    def _check_unread(self) -> None:
        """libpq does not say how much it holds: it is much only if our memory has grown as well."""
        resident_bytes = _resident_bytes()
        if not self._resident_bytes:
            self._resident_bytes = resident_bytes
        grown_bytes = resident_bytes - self._resident_bytes
        if self._unread_bytes > self._unread_bytes_max < 2 * grown_bytes:
            raise TooManyBytes

    async def _flush(self) -> None:
        try:
            while self._connection.flush():
                await self._writable()
        except PsycopgError as exc:
            raise self._broken(exc) from None

    async def _writable(self) -> None:
        waiter = self._loop.create_future()
        self._loop.add_writer(self._fd, _wake, waiter)
        try:
            await waiter
        finally:
            self._loop.remove_writer(self._fd)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _readable_bytes(fd: int) -> int:
    count: int = struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\x00" * 4))[0]
    return count


def _resident_bytes() -> int:
    """How much memory this process has; where that is not told, the most that it ever had."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _words(exc: PsycopgError) -> str:
    """What libpq says, without what psycopg puts before it."""
    text = str(exc).strip()
    return text.removeprefix("consuming input failed: ").removeprefix("flushing failed: ") or CLOSED


# -- errors ---------------------------------------------------------------------------------------


def error_fields(result: Result) -> ErrorFields:
    """What an error result says, field by field."""

    def field(code: pq.DiagnosticField) -> str | None:
        value = result.error_field(code)
        return None if value is None else value.decode("utf-8", "replace")

    message = field(Diagnostic.MESSAGE_PRIMARY)
    if message is None:  # libpq's own: no server said it
        words = (result.error_message or b"").decode("utf-8", "replace").strip()
        return ErrorFields(message=words, sqlstate="08006")
    return ErrorFields(
        message=message,
        severity=field(Diagnostic.SEVERITY) or "ERROR",
        sqlstate=field(Diagnostic.SQLSTATE) or "XX000",
        detail=field(Diagnostic.MESSAGE_DETAIL),
        hint=field(Diagnostic.MESSAGE_HINT),
        position=field(Diagnostic.STATEMENT_POSITION),
        query=field(Diagnostic.INTERNAL_QUERY),
        query_position=field(Diagnostic.INTERNAL_POSITION),
        context=field(Diagnostic.CONTEXT),
        function=field(Diagnostic.SOURCE_FUNCTION),
        file=field(Diagnostic.SOURCE_FILE),
        line=field(Diagnostic.SOURCE_LINE),
    )


def is_error(result: Result) -> bool:
    return result.status in BAD_STATUSES


def is_own_error(result: Result) -> bool:
    """Whether libpq says it, and not a server."""
    return is_error(result) and result.error_field(Diagnostic.SEVERITY_NONLOCALIZED) is None


def is_farewell(result: Result) -> bool:
    """Whether the server ended the connection with this error."""
    severity = result.error_field(Diagnostic.SEVERITY_NONLOCALIZED)
    return severity is not None and severity.decode() in FATAL_SEVERITIES
