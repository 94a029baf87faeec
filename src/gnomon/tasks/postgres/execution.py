"""Sending an input and making its result text."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import msgspec

from gnomon.model.task import Outcome
from gnomon.model.task.text import ErrorFields, ResultText, ResultTooLarge, error_text
from gnomon.tasks.postgres.queries import plain
from gnomon.tasks.postgres.rows import TakenTask, as_bytes, is_large, pause
from gnomon.tasks.postgres.wire import (
    Result,
    Statement,
    Status,
    Step,
    TooManyBytes,
    Wire,
    error_fields,
    is_error,
    is_farewell,
)

# bit, bool, cid, float4, float8, int2, int4, int8, numeric, oid, tid, xid: all others are strings.
PLAIN_TYPES = frozenset({1560, 16, 29, 700, 701, 21, 23, 20, 1700, 26, 27, 28})
CHUNK_ROWS = 200
UNREAD_SLACK_BYTES = 1024 * 1024
CANCEL_GRACE_S = 1.0
CANCELS_MAX = 3
CANCELLED_STATE = "57014"
TIMED_OUT = "canceling statement due to statement timeout"
BEGIN, CONSTRAINTS = plain("begin"), plain("constraints")
WITH_ROWS = frozenset(map(int, (Status.TUPLES_CHUNK, Status.TUPLES_OK, Status.SINGLE_TUPLE)))
NO_COPY_IN = b"COPY FROM STDIN is not supported"


class InputResult(NamedTuple):
    """How an input ended: its result text, and its error if it has one."""

    output: str | None
    error: ErrorFields | None
    is_farewell: bool = False  # the server ended the connection with this error


async def perform_input(
    wire: Wire, taken: TakenTask, *, shares: bool, bytes_max: int, is_sent: bool = False
) -> InputResult:
    """Perform a task's input; with `shares` in a transaction that is left open; with `is_sent` it
    is on its way already.

    A result that is too large is cancelled and not kept; a single value that is too large ends the
    connection, for there is no other way to make it stop coming. Errors: WireLost.
    """
    if is_large(taken.task.input):
        await pause()
    performing = _Execution(wire, taken, bytes_max)
    timeout_s = taken.task.timeout.total_seconds()
    collecting = performing.collect_shared(is_sent=is_sent) if shares else performing.collect()
    wire.limit_unread(bytes_max + UNREAD_SLACK_BYTES)
    try:
        if timeout_s:
            return await _within_timeout(wire, asyncio.ensure_future(collecting), timeout_s)
        return await collecting
    except TooManyBytes:
        wire.close()
        return InputResult("", too_large(ResultTooLarge(bytes_max)))
    finally:
        wire.limit_unread(0)


def shared_input_steps(text: bytes) -> list[Step]:
    """The steps of an input that shares its transaction with the writing of its end: the input, and
    its deferred constraints, which are to fail before that is written."""
    return [(Statement(b"", text), None), (CONSTRAINTS, None)]


async def _within_timeout(
    wire: Wire, collecting: asyncio.Future[InputResult], timeout_s: float
) -> InputResult:
    """How an input ended that may take so long: then the server is asked to cancel it, and if that
    does not help the connection is closed."""
    try:
        await asyncio.wait({collecting}, timeout=timeout_s)
        if collecting.done():
            return collecting.result()
        for _ in range(CANCELS_MAX):
            await wire.cancel()
            await asyncio.wait({collecting}, timeout=CANCEL_GRACE_S)
            if collecting.done():
                return _as_timed_out(collecting.result())
    finally:
        collecting.cancel()
    wire.close()  # it does not listen: whoever closes the session sees to its backend
    return InputResult("", ErrorFields(message=TIMED_OUT, sqlstate=CANCELLED_STATE))


def too_large(exc: ResultTooLarge) -> ErrorFields:
    """The error of a task whose result is larger than may be kept."""
    return ErrorFields(message=str(exc), sqlstate="54000")


def _as_timed_out(ended: InputResult) -> InputResult:
    """An input that ended by our cancelling, in the words of a timeout."""
    if ended.error is None or ended.error.sqlstate != CANCELLED_STATE:
        return ended
    return ended._replace(error=msgspec.structs.replace(ended.error, message=TIMED_OUT))


def outcome_of(taken: TakenTask, ended: InputResult) -> Outcome:
    """The outcome that is written into the row: the result text, and the error text."""
    if ended.error is None:
        return Outcome(ended.output)
    return Outcome(ended.output or "", error_of(taken, ended.error))


def error_of(taken: TakenTask, fields: ErrorFields) -> str:
    """The error text of a task, as verbose as its row asks for."""
    statement = taken.task.input if taken.has_statement else None
    return error_text(fields, statement=statement, verbosity=taken.verbosity)


class _Execution:
    """One input: what is sent, and the text that its results make."""

    def __init__(self, wire: Wire, taken: TakenTask, bytes_max: int) -> None:
        self._wire = wire
        self._input = taken.task.input
        self._text = ResultText(taken.task, bytes_max=bytes_max)
        self._error: Result | None = None
        self._tag: bytes | None = None  # not yet in the text
        self._is_begun = False
        self._excess: ResultTooLarge | None = None

    async def collect(self) -> InputResult:
        """Send the input as it is, any number of statements, and read its results."""
        await self._wire.send(await self._encoded())
        self._wire.chunked(CHUNK_ROWS)
        await self._statement()
        return self._ended()

    async def collect_shared(self, *, is_sent: bool) -> InputResult:
        """Send an input of one statement in a transaction, with its deferred constraints, and read
        its results; the transaction stays open. With `is_sent` all that is under way already, and
        a pipeline that is held goes on unless there was an error."""
        wire = self._wire
        if not is_sent:
            steps = shared_input_steps(await self._encoded())
            await wire.send_pipeline([(BEGIN, None), *steps])
            self._note_error(*await wire.results(1))
            wire.chunked(CHUNK_ROWS)
        await self._statement()
        if self._is_farewell:
            return self._ended()
        self._note_error(*await wire.results(1))
        if not wire.is_held or self._error is not None or self._excess is not None:
            await wire.synced()
        return self._ended()

    async def _encoded(self) -> bytes:
        encoded = as_bytes(self._input)
        if is_large(self._input):
            await pause()
        return encoded

    @property
    def _is_farewell(self) -> bool:
        """Whether the server ended the connection with the error."""
        return self._error is not None and is_farewell(self._error)

    def _note_error(self, result: Result) -> None:
        """Keep an error, unless there was one before."""
        if self._error is None and is_error(result):
            self._error = result
            self._tag = None  # what failed in the end has no tag

    async def _statement(self) -> None:
        """Read all results up to the end; what is too much for the text is read and dropped."""
        wire = self._wire
        while True:
            result = wire.read() if wire.is_at_hand else await wire.next_result()
            if result is None:
                return
            try:
                await self._result(result)
            except ResultTooLarge as exc:
                self._excess = exc
                await wire.cancel()
            if self._is_farewell:
                return  # nothing comes after it

    async def _result(self, result: Result) -> None:
        """Add one result to the text, according to its kind."""
        if self._tag is not None:
            self._add_tag()
        status = result.status
        if status in WITH_ROWS:
            await self._rows(result)
        elif status == Status.COMMAND_OK:
            self._tag = result.command_status or b""
        elif status == Status.COPY_OUT:
            await self._copied_out()
        elif status == Status.COPY_IN:
            await self._wire.refuse_copy_in(NO_COPY_IN)
        elif status not in (Status.EMPTY_QUERY, Status.PIPELINE_ABORTED):
            self._note_error(result)

    def _add_tag(self) -> None:
        """Add a command's tag to the text when the next result is there: the last one waits for the
        commit."""
        if self._tag is not None and self._excess is None:
            self._text.tag(self._tag)
            self._tag = None

    async def _rows(self, result: Result) -> None:
        """Add rows to the text; the first piece of a result brings the columns' names."""
        if self._excess is not None:
            return
        columns, count = range(result.nfields), result.ntuples
        if not self._is_begun:
            self._is_begun = True
            names = [result.fname(column) or b"" for column in columns]
            self._text.begin(names, [result.ftype(column) not in PLAIN_TYPES for column in columns])
        if count:
            value = result.get_value
            rows = ([value(row, column) for column in columns] for row in range(count))
            for _ in self._text.adding(rows):
                await asyncio.sleep(0)  # others have their turn
        if result.status == Status.TUPLES_OK:
            self._is_begun = False
        elif count == CHUNK_ROWS:
            await asyncio.sleep(0)  # likewise, between two chunks

    async def _copied_out(self) -> None:
        """Add what COPY TO STDOUT sends."""
        await self._add_copied(b"")  # also a copy of nothing is a result
        while (data := await self._wire.copied_out()) is not None:
            await self._add_copied(data)
        result = await self._wire.next_result()  # the tag, which is not shown, or an error
        if result is not None:
            self._note_error(result)

    async def _add_copied(self, data: bytes) -> None:
        """Add a piece of it as it is; one too many ends the copy."""
        if self._excess is None:
            try:
                self._text.raw(data)
            except ResultTooLarge as exc:
                self._excess = exc
                await self._wire.cancel()

    def _ended(self) -> InputResult:
        """How the input ended, by all that was read."""
        self._add_tag()
        if self._excess is not None:
            return InputResult("", too_large(self._excess))
        if self._error is None:
            return InputResult(self._text.text(), None)
        return InputResult(self._text.text() or "", error_fields(self._error), self._is_farewell)
