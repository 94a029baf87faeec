"""SQL statements on a SQLite file that is not the scheduler's: each in a box, on a thread.

The key of the occurrence is written into an inbox table in the statement's own transaction, so a
repeated attempt sees that the effect is there. The statement cannot reach that table.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from gnomon.contracts.clock import Clock
from gnomon.executors._sql_target import SqlTarget, is_own_file
from gnomon.executors._threads import DaemonThreads
from gnomon.model.outcome import Failed, Interrupted, Outcome, Succeeded, cut
from gnomon.sqlite_box import (
    MIB,
    MISFIT,
    RESULT_TOO_LARGE,
    STOPPED,
    TIMED_OUT,
    BoxRefusal,
    BoxResult,
    BoxTerms,
    SqliteBox,
)

HEAP_BYTES_MAX = 64 * MIB
HEAP_BYTES_MAX_SHARED = 512 * MIB  # where the scheduler's own store lives in the same library
DONE_BEFORE = "done by an earlier attempt"
UNKNOWN_COMMIT = "the connection was lost while committing"

_MAKE_INBOX = """
CREATE TABLE IF NOT EXISTS main."{inbox}" (
    key TEXT PRIMARY KEY, at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
) WITHOUT ROWID
"""
_RECEIVE = 'INSERT OR IGNORE INTO main."{inbox}" (key) VALUES (?)'


class SqliteStatement(NamedTuple):
    """One attempt on a file."""

    target: SqlTarget
    text: str
    parameters: Sequence[Any]
    key: str
    timeout_s: float


class SqliteTargets:
    """Performs statements on the SQLite targets of a worker."""

    def __init__(
        self, targets: Iterable[SqlTarget], *, clock: Clock, database_url: str, is_bounded: bool
    ) -> None:
        """`is_bounded`: limit the memory of SQLite in this process, which cannot be undone."""
        self._clock = clock
        self._database_url = database_url
        is_shared = database_url.startswith("sqlite:")
        most = HEAP_BYTES_MAX_SHARED if is_shared else HEAP_BYTES_MAX
        self._heap_bytes_max = most if is_bounded else None
        # A statement that cannot be ended keeps its thread, so there are never more of them.
        self._threads: Mapping[str, DaemonThreads] = {
            target.name: DaemonThreads(target.in_flight_max) for target in targets
        }

    async def perform(self, statement: SqliteStatement) -> Outcome:
        """Perform it; ends at once when cancelled, and then commits nothing any more."""
        attempt = _FileAttempt(self._box_of(statement), statement, self._is_own)
        future = self._threads[statement.target.name].submit(attempt.perform)
        waiting = asyncio.wrap_future(future)
        try:
            done, _ = await asyncio.wait((waiting,), timeout=statement.timeout_s)
        except asyncio.CancelledError:
            attempt.stop()
            waiting.cancel()
            raise
        if done:
            return waiting.result()
        attempt.stop()
        waiting.cancel()
        if attempt.is_committing:
            return Interrupted(reason=UNKNOWN_COMMIT)
        return Failed(error=f"timed out after {statement.timeout_s:g} s")

    def close(self) -> None:
        for threads in self._threads.values():
            threads.close()

    def _box_of(self, statement: SqliteStatement) -> SqliteBox:
        target = statement.target
        assert target.inbox_table is not None
        terms = BoxTerms(
            timeout_s=min(statement.timeout_s, target.statement_timeout.total_seconds()),
            lock_timeout_s=target.lock_timeout.total_seconds(),
            closed_tables=frozenset({target.inbox_table}),
            heap_bytes_max=self._heap_bytes_max,
        )
        return SqliteBox(target.file, terms, clock=self._clock)

    def _is_own(self, target: SqlTarget) -> bool:
        """Looked at again before each attempt: links can be made after the start."""
        return is_own_file(target.file, self._database_url)


class _FileAttempt:
    """One statement in its box, and how far it came."""

    def __init__(
        self, box: SqliteBox, statement: SqliteStatement, is_own: Callable[[SqlTarget], bool]
    ) -> None:
        self._box = box
        self._statement = statement
        self._is_own = is_own
        self.is_committing = False

    def stop(self) -> None:
        self._box.stop()

    def perform(self) -> Outcome:
        """In the thread."""
        if self._is_own(self._statement.target):
            return Failed(error="cannot connect", retryable=False)
        try:
            self._box.open()
        except BoxRefusal:
            self._box.close()
            return Failed(error="cannot connect")
        try:
            return self._in_transaction()
        except BoxRefusal as refusal:
            return self._refused(refusal)
        finally:
            self._box.close()

    def _in_transaction(self) -> Outcome:
        box, statement, inbox = self._box, self._statement, self._statement.target.inbox_table
        box.begin()
        box.do(_MAKE_INBOX.format(inbox=inbox))
        if not box.do(_RECEIVE.format(inbox=inbox), statement.key):
            return Succeeded(answer=DONE_BEFORE)
        result = box.perform(statement.text, [_fitting(value) for value in statement.parameters])
        if not box.is_in_transaction:
            return Failed(error="the statement left its transaction", retryable=False)
        answer = _answer_of(result)
        with box.committing():
            self.is_committing = True
        return Succeeded(answer=answer)

    def _refused(self, refusal: BoxRefusal) -> Outcome:
        if self.is_committing:
            return Interrupted(reason=UNKNOWN_COMMIT)
        if refusal.name in (TIMED_OUT, STOPPED):
            return Failed(error=refusal.message)
        if refusal.name == RESULT_TOO_LARGE:
            return Failed(error=refusal.message, retryable=False)
        if refusal.name == MISFIT:
            error = "the parameters do not fit the statement, or it is not one statement"
            return Failed(error=error, retryable=False, answer=cut(refusal.message) or None)
        return Failed(
            error=f"refused with {refusal.name}",
            retryable=refusal.is_passing,
            answer=cut(refusal.message) or None,
        )


def _answer_of(result: BoxResult) -> str | None:
    """The first rows as JSON, or how many rows were changed."""
    if not result.columns:
        return None if result.changed < 0 else f"rows changed: {result.changed}"
    shown = [dict(zip(result.columns, row, strict=True)) for row in result.rows]
    return cut(msgspec.json.encode(shown).decode())


def _fitting(value: Any) -> Any:
    """A JSON value as SQLite takes it; documents are texts there."""
    return json.dumps(value) if isinstance(value, list | dict) else value
