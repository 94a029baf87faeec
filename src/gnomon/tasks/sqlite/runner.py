"""The thread of a session: performs inputs, and writes what became of them in the same transaction.

An input that reads is performed beside all others. One that writes has the file for itself from its
first statement to the commit that also says DONE: what it did and what is said of it stay or go
together. An input that says COMMIT itself gives that up for what came before.
"""

from __future__ import annotations

import math
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

from gnomon.contracts.clock import Clock
from gnomon.contracts.task_table import TaskFinishResult
from gnomon.model.task import Outcome, SessionLost, Task
from gnomon.model.task.text import ResultText, ResultTooLarge, plain_error
from gnomon.sqlite_box import STOPPED, TIMED_OUT, BoxRefusal
from gnomon.tasks.sqlite.row_store import TaskRowStore
from gnomon.tasks.sqlite.sandbox import SAVEPOINT, TaskSandbox, WriteWanted
from gnomon.tasks.sqlite.statements import ParsedStatement, split

FINISH_S = 60.0  # to wait for others that write, before a result is given up
TAKE_S = 10.0
_WORDS = {
    TIMED_OUT: "canceling statement due to statement timeout",
    STOPPED: "canceling statement due to user request",
}
# The file's trouble, not the task's.
_LOSSES = ("SQLITE_IOERR", "SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_CANTOPEN", "SQLITE_PROTOCOL")


class TaskRunner:
    """One connection and the tasks on it. All but `stop` happens in the session's thread."""

    def __init__(
        self, path: Path, store: TaskRowStore, *, result_bytes_max: int, clock: Clock
    ) -> None:
        self._path = path
        self._store = store
        self._result_bytes_max = result_bytes_max
        self._clock = clock
        self._settings: dict[str, str] = {}
        self._lease_guid = UUID(int=0)
        self._pid = 0
        self._box = self._new_box()
        # Of a lease that was seen in the open transaction: until its end nobody else can write.
        self.in_charge_of: UUID | None = None

    def _new_box(self) -> TaskSandbox:
        return TaskSandbox(self._path, clock=self._clock)

    # -- life -------------------------------------------------------------------------------------

    def open(self) -> int:
        """Connect; the number of this thread, which stands in `pid`. Errors: BoxRefusal."""
        box = self._box
        box.open()
        self._store.open(box)
        box.define("current_setting", 1, self._setting)
        box.define("current_setting", 2, self._setting)
        box.change(self._store.sql["inherit"])
        self._pid = threading.get_native_id()
        return self._pid

    def close(self) -> None:
        with suppress(sqlite3.Error):
            self._box.close()
        self.in_charge_of = None

    def _setting(self, name: str, _missing_ok: object = None) -> str | None:
        return self._settings.get(name)

    @property
    def left_s(self) -> float:
        """How much time the task has left."""
        return self._box.left_s

    def stop(self) -> None:
        """End what is performed. From any thread."""
        self._box.stop()

    # -- taking -----------------------------------------------------------------------------------

    def take(self, task_id: int, lease_guid: UUID) -> Task | None:
        """In a transaction of its own. Errors: SessionLost."""
        box = self._box
        try:
            box.begin_writing(TAKE_S)
            task = self._take(task_id, lease_guid)
            box.do("COMMIT")
        except BoxRefusal as refusal:
            raise self._lost(refusal) from refusal
        return task

    def _take(self, task_id: int, lease_guid: UUID) -> Task | None:
        if not self._store.holds(self._box, lease_guid):
            return None
        self._lease_guid = lease_guid
        return self._store.take(self._box, task_id, pid=self._pid)

    # -- performing -------------------------------------------------------------------------------

    def start(self, task: Task) -> None:
        """From now on the task's time counts."""
        self._box.start(task.timeout.total_seconds() or math.inf)
        self._settings = {
            "pg_task.id": str(task.id),
            "pg_task.group": task.key.group,
            "pg_task.schema": "main",
            "pg_task.table": self._store.table,
        }

    def perform(self, task: Task, *, writes: bool) -> Outcome:
        """All statements of the input. Errors: WriteWanted, SessionLost."""
        self._box.is_writing = writes
        text = ResultText(task, bytes_max=self._result_bytes_max)
        try:
            for statement in split(task.input):
                self._box.check_time()
                self._perform(task, statement, text)
        except BoxRefusal as refusal:
            if refusal.name.startswith(_LOSSES):
                raise self._lost(refusal) from refusal
            message = _WORDS.get(refusal.name, refusal.message)
            return self._failed(task, message, text.text() or "")
        except ResultTooLarge as exc:
            return self._failed(task, str(exc), "")
        except WriteWanted:
            self._box.rollback()
            raise
        finally:
            if not self._box.is_in_transaction:
                self.in_charge_of = None
        return Outcome(output=text.text())

    def _perform(self, task: Task, statement: ParsedStatement, text: ResultText) -> None:
        box = self._box
        match statement:
            case ParsedStatement(verb="COMMIT"):
                self._commit()
            case ParsedStatement(verb="ROLLBACK", object=""):
                box.rollback()
            case ParsedStatement(verb="BEGIN"):
                self._ensure_transaction(task)
            case _:
                self._ensure_transaction(task)
                result = box.perform_input(statement.text, _RowText(text).add)
                if not result.columns:
                    text.tag(statement.tag(result.changed).encode())
                return
        text.tag(statement.verb.encode())

    def _ensure_transaction(self, task: Task) -> None:
        box = self._box
        if box.is_in_transaction:
            return
        if not box.is_writing:
            box.do("BEGIN")
            return
        box.begin_writing(is_durable=True)
        if self._is_another(task):
            box.rollback()
            raise SessionLost("the task is another's now")
        box.do(f"SAVEPOINT {SAVEPOINT}")
        self.in_charge_of = self._lease_guid

    def _is_another(self, task: Task) -> bool:
        """Whether the row was given to somebody else; deleted or stopped it is still ours."""
        if not self._store.holds(self._box, self._lease_guid):
            return True
        fence = self._store.fence(self._box, task.id)
        return fence is not None and fence[1:] != self._store.attempt(task, self._pid)

    def _commit(self) -> None:
        if self._box.is_in_transaction:
            self._box.do("COMMIT")
            self.in_charge_of = None

    def _failed(self, task: Task, message: str, output: str) -> Outcome:
        """What it did is undone; the lock is kept, where SQLite has not given it up itself."""
        self._box.start(math.inf)
        self._undo()
        return Outcome(output=output, error=plain_error(message, statement=task.input))

    def _undo(self) -> None:
        box = self._box
        if box.is_in_transaction and box.is_writing:
            box.do(f"ROLLBACK TO {SAVEPOINT}")
        else:
            box.rollback()

    # -- ending -----------------------------------------------------------------------------------

    def finish(
        self, task: Task, outcome: Outcome, *, then: int | None, lease_guid: UUID
    ) -> TaskFinishResult:
        """In the transaction of the input, if it has one still. Errors: SessionLost."""
        box = self._box
        box.start(math.inf)
        self._settings = {}
        try:
            is_joined = box.is_in_transaction and box.is_writing
            if not is_joined:
                box.rollback()
                # Lost, it makes a task that changed nothing be performed again, and no more.
                box.begin_writing(FINISH_S, is_durable=box.is_writing)
            finished = self._finish(task, outcome, then, lease_guid, is_joined=is_joined)
            self._reset(task)
        except BoxRefusal as refusal:
            raise self._lost(refusal) from refusal
        return finished

    def _finish(
        self,
        task: Task,
        outcome: Outcome,
        then: int | None,
        lease_guid: UUID,
        *,
        is_joined: bool,
    ) -> TaskFinishResult:
        """With a constraint that is looked at only now, the task has failed after all."""
        try:
            finished = self._record(task, outcome, then, lease_guid, is_joined=is_joined)
            self._box.do("COMMIT")
        except BoxRefusal as refusal:
            if not is_joined or outcome.error is not None or "CONSTRAINT" not in refusal.name:
                raise
            self._undo()
            error = plain_error(refusal.message, statement=task.input)
            outcome = Outcome(output=outcome.output or "", error=error)
            finished = self._record(task, outcome, then, lease_guid, is_joined=is_joined)
            self._box.do("COMMIT")
        self.in_charge_of = None
        return finished

    def _record(
        self,
        task: Task,
        outcome: Outcome,
        then: int | None,
        lease_guid: UUID,
        *,
        is_joined: bool,
    ) -> TaskFinishResult:
        """Joined, only the input itself can have changed the row since it was looked at."""
        box, store = self._box, self._store
        fence = store.fence(box, task.id)
        is_ours = fence is not None and fence[0] == "WORK"
        if is_ours and not is_joined:
            is_ours = fence == ("WORK", *store.attempt(task, self._pid))
        if is_ours:
            store.end(box, task, outcome)
        store.beat(box, lease_guid)
        following = None if then is None else self._take(then, lease_guid)
        return TaskFinishResult(recorded=is_ours, next=following)

    def _reset(self, task: Task) -> None:
        """Temporary tables are all that a task can leave behind on a connection."""
        if self._box.has_temporary and not task.save:
            self._box.close()
            self._box = self._new_box()
            self.open()

    def _lost(self, refusal: BoxRefusal) -> SessionLost:
        self.close()
        return SessionLost(f"ERROR:  {refusal.message}")


class _RowText:
    """The rows of one statement, on their way into the result text.

    SQLite types values, not columns: of strings is a column whose first value is one.
    """

    def __init__(self, text: ResultText) -> None:
        self._text = text
        self._is_begun = False

    def add(self, names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
        """Errors: ResultTooLarge."""
        if not self._is_begun:
            self._is_begun = True
            are_strings = [_is_string(rows, column) for column in range(len(names))]
            self._text.begin([name.encode() for name in names], are_strings)
        self._text.add([_bytes_of(value) for value in row] for row in rows)


def _is_string(rows: Sequence[tuple[Any, ...]], column: int) -> bool:
    first = next((row[column] for row in rows if row[column] is not None), None)
    return isinstance(first, str | bytes)


def _bytes_of(value: object) -> bytes | None:
    """A value in PostgreSQL's text form."""
    match value:
        case None:
            return None
        case str():
            return value.encode()
        case bytes():
            return b"\\x" + value.hex().encode()
        case float() if math.isinf(value):
            return b"Infinity" if value > 0 else b"-Infinity"
        case _:
            return repr(value).encode()
