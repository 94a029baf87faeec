"""A SQLite connection on which a stranger's statement may be performed.

SQLite has no logins: whoever has a connection can attach and write any file the process can. So the
statement is looked at by an authorizer, which lets only reading, changing and defining through;
limits bound its size, its memory and its result; and a handler that SQLite calls while it works
ends it at its time, or when it is told to stop. All but `stop` happens in one thread.

What is bounded by the time only: the temporary files of large sorts. And what nothing can end is a
single call of a function on large texts: the thread is taken until it returns, and commits nothing.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from gnomon.contracts.clock import Clock

OWNER_ONLY = 0o600
WAL_TRIES_MAX = 50
WAL_TRY_S = 0.1
STEPS_BETWEEN_LOOKS = 1_000  # of SQLite's machine: some hundred looks at the clock a second
MIB = 1024 * 1024
ROWS_KEPT_MAX = 200
TIMED_OUT = "TIMED_OUT"
STOPPED = "STOPPED"
RESULT_TOO_LARGE = "RESULT_TOO_LARGE"
MISFIT = "MISFIT"  # it is no single statement, or its parameters do not fit
NO_MEMORY = "SQLITE_NOMEM"

LIMITS: Mapping[int, int] = {
    sqlite3.SQLITE_LIMIT_LENGTH: MIB,  # of a text, a blob, a row
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: MIB,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 200,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 50,
    sqlite3.SQLITE_LIMIT_VDBE_OP: 100_000,
    sqlite3.SQLITE_LIMIT_FUNCTION_ARG: 100,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1_000,
    sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER: 1_000,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 100,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
# What is not here is refused: ATTACH and DETACH (and with them VACUUM, which attaches), PRAGMA,
# transactions and savepoints, modules.
ALLOWED = frozenset(
    {
        sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE,
        sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE,
        sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_ALTER_TABLE,
        sqlite3.SQLITE_ANALYZE, sqlite3.SQLITE_REINDEX,
        sqlite3.SQLITE_CREATE_INDEX, sqlite3.SQLITE_CREATE_TABLE,
        sqlite3.SQLITE_CREATE_TRIGGER, sqlite3.SQLITE_CREATE_VIEW,
        sqlite3.SQLITE_CREATE_TEMP_INDEX, sqlite3.SQLITE_CREATE_TEMP_TABLE,
        sqlite3.SQLITE_CREATE_TEMP_TRIGGER, sqlite3.SQLITE_CREATE_TEMP_VIEW,
        sqlite3.SQLITE_DROP_INDEX, sqlite3.SQLITE_DROP_TABLE,
        sqlite3.SQLITE_DROP_TRIGGER, sqlite3.SQLITE_DROP_VIEW,
        sqlite3.SQLITE_DROP_TEMP_INDEX, sqlite3.SQLITE_DROP_TEMP_TABLE,
        sqlite3.SQLITE_DROP_TEMP_TRIGGER, sqlite3.SQLITE_DROP_TEMP_VIEW,
    }
)  # fmt: skip
# Those that reach outside, should a build of SQLite have them. `sqlite_dbpage` writes raw pages.
# A width of 2^31 keeps `printf` busy for ten seconds, in which nothing can end it.
CLOSED_FUNCTIONS = frozenset(
    {"load_extension", "fts3_tokenizer", "sqlite_log", "readfile", "writefile", "edit", "fsdir"}
    | {"printf", "format"}
)
FUNCTIONS_MAX = 100  # in one statement: one that was called is not interrupted before it returns
CLOSED_TABLES = frozenset({"sqlite_dbpage"})
PASSING = frozenset(
    {
        sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PROTOCOL,
    }
)  # fmt: skip


def make_private(path: str | Path) -> None:
    """A new database file is its owner's alone, and so is what SQLite puts beside it. One that is
    there keeps the rights it was given; where none can be made, SQLite says why."""
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, OWNER_ONLY))


def use_wal(connection: sqlite3.Connection) -> None:
    """Two processes may do this at once on a new file, and the busy handler does not cover it."""
    for left in reversed(range(WAL_TRIES_MAX)):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            if not left:
                raise
            threading.Event().wait(WAL_TRY_S)
        else:
            return


def lenient_text(stored: bytes) -> str:
    """What others wrote need not be UTF-8; one such row must not spoil those beside it."""
    return stored.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxTerms:
    """What a box allows."""

    timeout_s: float  # for all that is done in it
    lock_timeout_s: float = 5.0  # how long to wait for others that write to the file
    closed_tables: frozenset[str] = frozenset()  # of the file; out of the statement's reach
    result_bytes_max: int = 4 * MIB
    growth_bytes_max: int = 256 * MIB  # of the file
    # Of all that SQLite has allocated in this process, for good: SQLite knows no other bound.
    heap_bytes_max: int | None = None


class BoxResult(NamedTuple):
    """What a statement brought; `columns` is empty if it was none that brings rows."""

    columns: Sequence[str]
    rows: Sequence[tuple[Any, ...]]  # the first ones
    row_count: int
    changed: int  # rows; -1 if that means nothing here


class BoxRefusal(Exception):  # noqa: N818 - not always an error of the statement's
    """Why there is no result: a name out of SQLite's list or of the ones above, and its words."""

    def __init__(self, name: str, message: str, *, is_passing: bool = False) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name
        self.message = message
        self.is_passing = is_passing  # the same statement may do better later


class SqliteBox:
    """One connection to an existing file. What is not committed when it is closed, is undone."""

    def __init__(self, path: Path, terms: BoxTerms, *, clock: Clock) -> None:
        self._path = path
        self._terms = terms
        self._clock = clock
        self._ends_at = clock.monotonic() + terms.timeout_s
        self._closed_tables = CLOSED_TABLES | {name.casefold() for name in terms.closed_tables}
        self._lock = threading.Lock()
        self._is_stopped = False
        self._functions = 0
        self._connection: sqlite3.Connection | None = None

    # -- life -------------------------------------------------------------------------------------

    def open(self) -> None:
        """Connect. Errors: BoxRefusal, also when there is no such file."""
        with self._refusals():
            connection = sqlite3.connect(
                f"file:{quote(str(self._path.absolute()))}?mode=rw",
                uri=True,
                timeout=min(self._terms.lock_timeout_s, self._terms.timeout_s),
                isolation_level=None,
                check_same_thread=False,
                cached_statements=0,  # what was prepared without the authorizer stays so
            )
            with self._lock:
                self._connection = connection
            connection.text_factory = lenient_text
            connection.set_progress_handler(self._is_over, STEPS_BETWEEN_LOOKS)
            self._bound(connection)

    def _bound(self, connection: sqlite3.Connection) -> None:
        if self._terms.heap_bytes_max is not None:
            connection.execute(f"PRAGMA hard_heap_limit = {self._terms.heap_bytes_max}")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA foreign_keys = ON")
        (page_bytes,) = connection.execute("PRAGMA main.page_size").fetchone()
        (page_count,) = connection.execute("PRAGMA main.page_count").fetchone()
        growth = self._terms.growth_bytes_max // page_bytes
        connection.execute(f"PRAGMA main.max_page_count = {page_count + growth}")
        connection.execute(f"PRAGMA temp.max_page_count = {growth}")
        for limit, most in LIMITS.items():
            connection.setlimit(limit, most)

    def stop(self) -> None:
        """End what is under way. From any thread; after it nothing is committed any more."""
        with self._lock:
            self._is_stopped = True
            if self._connection is not None:
                self._connection.interrupt()

    def close(self) -> None:
        """Undo what was not committed, and disconnect."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # -- our own statements -----------------------------------------------------------------------

    def begin(self) -> None:
        """Begin to write: nobody else does until the end. Errors: BoxRefusal."""
        self.do("BEGIN IMMEDIATE")

    def do(self, statement: str, *parameters: object) -> int:
        """Perform a statement of the caller's own; how many rows it changed. Errors: BoxRefusal."""
        with self._refusals():
            return self._open.execute(statement, parameters).rowcount

    @contextmanager
    def committing(self) -> Iterator[None]:
        """Commit at the end of the block, in which the caller notes that he does. Errors:
        BoxRefusal, before the block if it must not be."""
        with self._lock:
            if self._is_over():
                raise self._over()
            yield
        with self._refusals():
            self._open.execute("COMMIT")

    # -- the stranger's ---------------------------------------------------------------------------

    def perform(self, statement: str, parameters: Sequence[object] = ()) -> BoxResult:
        """Perform one statement, whose $1, $2, … are the parameters. Errors: BoxRefusal."""
        given = _Given(parameters)
        connection = self._open
        with self._refusals():
            self._functions = 0
            connection.set_authorizer(self._judge)
            try:
                result = self._fetched(connection.execute(statement, given))
            finally:
                connection.set_authorizer(None)
        if len(given.used) != len(parameters):
            raise BoxRefusal(MISFIT, f"there are {len(parameters)} parameters, used are others")
        return result

    @property
    def is_in_transaction(self) -> bool:
        """A statement can end it: by a conflict that rolls back."""
        return self._open.in_transaction

    def _fetched(self, cursor: sqlite3.Cursor) -> BoxResult:
        left, count = self._terms.result_bytes_max, 0
        kept: list[tuple[Any, ...]] = []
        for row in cursor:
            left -= sum(len(value) if isinstance(value, str | bytes) else 8 for value in row)
            if left < 0:
                raise BoxRefusal(RESULT_TOO_LARGE, "the result is too large")
            count += 1
            if count <= ROWS_KEPT_MAX:
                kept.append(row)
        names = tuple(column[0] for column in cursor.description or ())
        return BoxResult(names, kept, count, cursor.rowcount)

    def _judge(
        self,
        action: int,
        first: str | None,
        second: str | None,
        _place: str | None,
        _by: str | None,
    ) -> int:
        """SQLite asks this for everything a statement would do, while it is prepared."""
        if action == sqlite3.SQLITE_FUNCTION:
            self._functions += 1
            is_fine = (second or "").casefold() not in CLOSED_FUNCTIONS
            is_fine = is_fine and self._functions <= FUNCTIONS_MAX
        elif action == sqlite3.SQLITE_PRAGMA:
            is_fine = first == "data_version" and second is None  # full text search asks for it
        else:
            named = {name.casefold() for name in (first, second) if name}
            is_fine = action in ALLOWED and not named & self._closed_tables
        return sqlite3.SQLITE_OK if is_fine else sqlite3.SQLITE_DENY

    # -- ends -------------------------------------------------------------------------------------

    @property
    def _open(self) -> sqlite3.Connection:
        assert self._connection is not None, "the box is not open"
        return self._connection

    def _is_over(self) -> bool:
        return self._is_stopped or self._clock.monotonic() >= self._ends_at

    def _over(self) -> BoxRefusal:
        if self._is_stopped:
            return BoxRefusal(STOPPED, "stopped", is_passing=True)
        text = f"timed out after {self._terms.timeout_s:g} s"
        return BoxRefusal(TIMED_OUT, text, is_passing=True)

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Everything that the driver raises is said in one way."""
        try:
            yield
        except sqlite3.Error as exc:
            code = getattr(exc, "sqlite_errorcode", None)
            if code == sqlite3.SQLITE_INTERRUPT:
                raise self._over() from exc
            if code is None:  # the driver's own word, before SQLite was asked
                raise BoxRefusal(MISFIT, str(exc)) from exc
            is_passing = code & 0xFF in PASSING
            raise BoxRefusal(exc.sqlite_errorname, str(exc), is_passing=is_passing) from exc
        except MemoryError as exc:
            raise BoxRefusal(NO_MEMORY, "out of memory", is_passing=True) from exc
        except (sqlite3.Warning, OverflowError, ValueError, TypeError) as exc:
            raise BoxRefusal(MISFIT, str(exc)) from exc


class _Given(dict[str, object]):
    """Parameters by number, which remember that they were asked for."""

    def __init__(self, values: Sequence[object]) -> None:
        super().__init__({str(number): value for number, value in enumerate(values, start=1)})
        self.used: set[str] = set()

    def __getitem__(self, number: str) -> object:
        self.used.add(number)
        return super().__getitem__(number)
