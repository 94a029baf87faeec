"""A box for tasks: one after the other on one connection, which also keeps the store.

Until it changes something an input only reads, so that it neither waits for others that write nor
keeps them waiting. With the first change that it wants it is begun anew, as the one that writes.
"""

from __future__ import annotations

import math
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from gnomon.contracts.clock import Clock
from gnomon.sqlite_box import (
    MIB,
    BoxRefusal,
    BoxResult,
    BoxTerms,
    SqliteBox,
)

OWN_TABLES = frozenset({"gnomon_task_owner"})
SAVEPOINT = "gnomon_input"  # what an input did is undone to here when it fails
INHERIT = "gnomon_inherit"  # a trigger of the connection: see sessions.sql
VALUE_BYTES_MAX = 16 * MIB  # of a text, a blob, a row, and an input
GROWTH_BYTES_MAX = 4096 * MIB  # of the file, by one session
ROWS_AT_ONCE = 1_000  # on their way into the result text
BYTES_AT_ONCE = 64 * 1024
BUSY_FIRST_S = 0.0005
BUSY_S_MAX = 0.02  # SQLite has no queue for its lock: whoever asks at the right time has it
BUSY = "SQLITE_BUSY"

_READING = frozenset(
    {
        sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE,
        sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_PRAGMA,
    }
)  # fmt: skip
_LENGTHS = (sqlite3.SQLITE_LIMIT_LENGTH, sqlite3.SQLITE_LIMIT_SQL_LENGTH)
_LIBRARY_MAX = 2**31 - 1  # SQLite takes what it was built with


TakeRows = Callable[[Sequence[str], Sequence[tuple[Any, ...]]], None]


class WriteWanted(Exception):  # noqa: N818 - not a fault
    """The input wants to change something, and was begun to read."""


class TaskSandbox(SqliteBox):
    """The connection of a session, or of a table itself. All but `stop` happens in one thread."""

    def __init__(self, path: Path, *, clock: Clock) -> None:
        terms = BoxTerms(
            timeout_s=math.inf,
            lock_timeout_s=0.0,
            closed_tables=OWN_TABLES,
            growth_bytes_max=GROWTH_BYTES_MAX,
        )
        super().__init__(path, terms, clock=clock)
        self._take_rows: TakeRows = _nowhere
        self._stopping = threading.Event()
        self._is_durable: bool | None = None
        self.is_writing = False
        self.wants_to_write = False
        self.has_temporary = False  # something that a reset would have to remove

    # -- one task after the other -----------------------------------------------------------------

    def start(self, timeout_s: float) -> None:
        """What comes now may take so long."""
        with self._lock:
            self._is_stopped = False
            self._stopping.clear()
            self._ends_at = self._clock.monotonic() + timeout_s

    @property
    def left_s(self) -> float:
        """How much of the time is left."""
        return self._ends_at - self._clock.monotonic()

    def stop(self) -> None:
        self._stopping.set()
        super().stop()

    def check_time(self) -> None:
        """Errors: BoxRefusal when the time is over; short statements never look at the clock."""
        if self._is_over():
            raise self._over()

    def begin_writing(self, within_s: float = math.inf, *, is_durable: bool = False) -> None:
        """Begin to write, waiting for others that do. Errors: BoxRefusal.

        What is not durable may be lost when the machine fails, never when a process does, and not
        once something durable was written after it.
        """
        self._set_durable(is_durable)
        ends_at, wait_s = self._clock.monotonic() + within_s, BUSY_FIRST_S
        while True:
            try:
                self.begin()
            except BoxRefusal as refusal:
                if not refusal.name.startswith(BUSY) or self._clock.monotonic() >= ends_at:
                    raise
            else:
                return
            self._stopping.wait(wait_s)
            self.check_time()
            wait_s = min(BUSY_S_MAX, wait_s * 2)

    def _set_durable(self, is_durable: bool) -> None:  # noqa: FBT001 - its name says it
        if is_durable != self._is_durable:
            self.do(f"PRAGMA main.synchronous = {'FULL' if is_durable else 'NORMAL'}")
            self._is_durable = is_durable

    # -- our own statements -----------------------------------------------------------------------

    def ask(self, statement: str, **parameters: object) -> list[tuple[Any, ...]]:
        """The rows of a statement of ours, or those it returned. Errors: BoxRefusal."""
        with self._refusals():
            return self._open.execute(statement, parameters).fetchall()

    def change(self, statement: str, **parameters: object) -> int:
        """How many rows a statement of ours changed. Errors: BoxRefusal."""
        with self._refusals():
            return self._open.execute(statement, parameters).rowcount

    def define(self, name: str, argument_count: int, function: Any) -> None:
        """A function for statements on this connection."""
        self._open.create_function(name, argument_count, function, deterministic=False)

    def data_version(self) -> int:
        """Changes when others have committed to the file."""
        [(version,)] = self.ask("PRAGMA data_version")
        return int(version)

    def rollback(self) -> None:
        if self.is_in_transaction:
            self.do("ROLLBACK")

    # -- the stranger's ---------------------------------------------------------------------------

    def perform_input(self, statement: str, take_rows: TakeRows) -> BoxResult:
        """Perform one statement of an input; its rows are handed over. Errors: BoxRefusal,
        WriteWanted, and what `take_rows` raises."""
        self.wants_to_write = False
        self._take_rows = take_rows
        self._limit(VALUE_BYTES_MAX)
        try:
            return self.perform(statement)
        except BoxRefusal as refusal:
            if self.wants_to_write or (not self.is_writing and refusal.name.startswith(BUSY)):
                raise WriteWanted from None
            raise
        finally:
            self._take_rows = _nowhere
            self._limit(_LIBRARY_MAX)

    def _limit(self, length: int) -> None:
        for limit in _LENGTHS:
            self._open.setlimit(limit, length)

    def _bound(self, connection: sqlite3.Connection) -> None:
        super()._bound(connection)
        # SQLite takes any bytes for a text: one row must not keep us from reading the others.
        connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
        for (
            limit
        ) in _LENGTHS:  # our own statements write results; `perform_input` limits the others
            connection.setlimit(limit, _LIBRARY_MAX)

    def _judge(
        self, action: int, first: str | None, second: str | None, place: str | None, by: str | None
    ) -> int:
        is_ours = SAVEPOINT in (first, second) or INHERIT in (first, second)
        if is_ours and action != sqlite3.SQLITE_READ:
            return sqlite3.SQLITE_DENY
        if action != sqlite3.SQLITE_SAVEPOINT:
            verdict = super()._judge(action, first, second, place, by)
            if verdict != sqlite3.SQLITE_OK:
                return verdict
        if action not in _READING and not self.is_writing:
            self.wants_to_write = True
            return sqlite3.SQLITE_DENY
        if place == "temp" and by != INHERIT and action not in _READING:
            self.has_temporary = True
        return sqlite3.SQLITE_OK

    def _fetched(self, cursor: sqlite3.Cursor) -> BoxResult:
        """All rows, some at a time: the result of a task is kept whole, but not twice."""
        names, count = tuple(column[0] for column in cursor.description or ()), 0
        rows: list[tuple[Any, ...]] = []
        room = BYTES_AT_ONCE
        with closing(cursor):
            for row in cursor:
                rows.append(row)
                room -= sum(len(value) if isinstance(value, str | bytes) else 8 for value in row)
                if room < 0 or len(rows) == ROWS_AT_ONCE:
                    self._take_rows(names, rows)
                    count += len(rows)
                    rows, room = [], BYTES_AT_ONCE
            if rows:
                self._take_rows(names, rows)
            return BoxResult(names, (), count + len(rows), cursor.rowcount)


def _nowhere(_names: Sequence[str], _rows: Sequence[tuple[Any, ...]]) -> None:
    """Where rows go that nobody asked for."""
