"""Rows of the table, from and to the text that the server exchanges."""

from __future__ import annotations

import asyncio
import struct
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

from gnomon.model.task import GroupKey, Task
from gnomon.model.task.text import LARGE, Verbosity
from gnomon.tasks.postgres.group_forecast import ForeseenTask
from gnomon.tasks.postgres.wire import Result

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_OF_SERVER = datetime(2000, 1, 1, tzinfo=UTC)
FIRST = datetime.min.replace(tzinfo=UTC)
LAST = datetime.max.replace(tzinfo=UTC)
DAYS_PER_MONTH = 30
ZERO = timedelta(0)
PAUSE_S = 0.01  # enough for a beat and its answer
REMEMBERED_BYTES_MAX = 10_000  # of a row: longer texts are not kept
YES, NUL = b"\x01", b"\x00"
TRUE, FALSE = b"t", b"f"
# At these levels PostgreSQL leaves the statement of an ERROR out of its log.
WITHOUT_STATEMENT = frozenset({b"log", b"fatal", b"panic"})
_VERBOSITIES: dict[bytes, Verbosity] = {b"terse": "terse", b"verbose": "verbose"}
_INT, _LONG = struct.Struct(">i").unpack, struct.Struct(">q").unpack
_INTERVAL = struct.Struct(">qii").unpack
int_bytes, long_bytes = struct.Struct(">i").pack, struct.Struct(">q").pack


class TakenTask(NamedTuple):
    """A task, and what its session must know besides."""

    task: Task
    cron: str | None
    verbosity: Verbosity
    has_statement: bool  # in its error text
    look: bytes  # of its columns: those of another row are alike if its look is
    start: bytes  # as the server has it


def is_large(text: str | None) -> bool:
    """Whether each step with a text (read, scan, encode, send, record) takes the event loop for so
    long that there is to be a `pause` between two of them."""
    return text is not None and len(text) > LARGE


async def pause() -> None:
    """Let others have their turn, beats above all."""
    await asyncio.sleep(PAUSE_S)


def taken_from(result: Result, task_id: int) -> TakenTask | None:
    """The row of `take` or `finish` with this id, in the server's own form, if there is one."""
    value, row = result.get_value, _row_of(result, task_id)
    if row is None:
        return None
    group, remote, text, plan, start = [value(row, column) for column in range(1, 6)]
    values = tuple([value(row, column) for column in range(6, 20)])
    is_long = len(values[10] or b"") + len(values[11] or b"") > REMEMBERED_BYTES_MAX
    look = _look.__wrapped__(values) if is_long else _look(values)
    key, sent = _key_of(_of(group), remote), text_of(text)
    task = Task(task_id, key, sent, _moment(plan), _moment(start), *look.columns)
    look_of_row = b"%d" % _LONG(_of(value(row, 20)))[0]
    return TakenTask(task, look.cron, look.verbosity, look.has_statement, look_of_row, _of(start))


def taken_as_foreseen(
    result: Result, task_id: int, foreseen: ForeseenTask, *, like: Task, before: TakenTask
) -> TakenTask | None:
    """The row of `finish_ahead` with this id, if it is there: its columns are those of a task that
    looks `like` it, and its server is as `before`."""
    value, row = result.get_value, _row_of(result, task_id)
    if row is None:
        return None
    plan, start = _of(value(row, 1)), _of(value(row, 2))
    task = Task(
        task_id, before.task.key, text_of(foreseen.input), _moment(plan), _moment(start),
        like.max, like.count, like.live_s, like.timeout, like.save, like.header, like.string,
        like.delimiter, like.quote, like.escape, like.null,
    )  # fmt: skip
    return TakenTask(task, None, before.verbosity, before.has_statement, foreseen.look, start)


def _row_of(result: Result, task_id: int) -> int | None:
    """Where the row with this id is."""
    own_id, value = long_bytes(task_id), result.get_value
    for row in range(result.ntuples):
        if value(row, 0) == own_id:
            return row
    return None


def _key_of(group: bytes, remote: bytes | None) -> GroupKey:
    is_long = len(group) + len(remote or b"") > REMEMBERED_BYTES_MAX
    return _key.__wrapped__(group, remote) if is_long else _key(group, remote)


@lru_cache(maxsize=100)
def _key(group: bytes, remote: bytes | None) -> GroupKey:
    return GroupKey(text_of(group), None if remote is None else text_of(remote))


class _Look(NamedTuple):
    """What is often alike in one row and the next."""

    columns: tuple[Any, ...]  # of a task, from `max` on
    cron: str | None
    verbosity: Verbosity
    has_statement: bool


@lru_cache(maxsize=100)
def _look(values: tuple[bytes | None, ...]) -> _Look:
    columns = (
        _INT(_of(values[0]))[0],
        _INT(_of(values[1]))[0],
        _length(values[2]).total_seconds(),
        _length(values[3]),
        *(value == YES for value in values[4:7]),
        *(_char(value) for value in values[7:10]),
        text_of(values[10]),
    )
    cron = (values[11] or b"").strip()
    return _Look(
        columns,
        text_of(cron) or None,
        _VERBOSITIES.get(_of(values[12]), "default"),
        values[13] not in WITHOUT_STATEMENT,
    )


def _moment(value: bytes | None) -> datetime:
    return _after(EPOCH_OF_SERVER, _LONG(_of(value))[0])


def _length(value: bytes | None) -> timedelta:
    """An interval as a length of time; months have thirty days."""
    micros, days, months = _INTERVAL(_of(value))
    if not (micros or days or months):
        return ZERO
    try:
        return timedelta(days=days + DAYS_PER_MONTH * months, microseconds=micros)
    except OverflowError:
        return timedelta.max


def _char(value: bytes | None) -> str:
    """A "char": one byte of whatever it was a part of; a zero byte is no character."""
    return "" if value == NUL else _of(value).decode("utf-8", "surrogateescape")


def _of(value: bytes | None) -> bytes:
    assert value is not None
    return value


def text_of(value: bytes | None) -> str:
    """A text; bytes that are no UTF-8 keep their place, so that they can go back as they came."""
    return _of(value).decode("utf-8", "surrogateescape")


def moment_of(value: bytes | None) -> datetime:
    """A time, sent as microseconds: no setting of the session changes how these look.

    Beyond our calendar it is the end of it."""
    return _after(EPOCH, int(_of(value)))


def _after(epoch: datetime, micros: int) -> datetime:
    try:
        return epoch + timedelta(microseconds=micros)
    except OverflowError:
        return FIRST if micros < 0 else LAST


def moment_or_none(value: bytes | None) -> datetime | None:
    return None if value is None else moment_of(value)


def text_or_none(value: bytes | None) -> str | None:
    return None if value is None else text_of(value)


def number_of(value: bytes | None) -> int:
    """A number; none counts as 0."""
    return int(value or 0)


def is_true(value: bytes | None) -> bool:
    return value == TRUE


def flag_of(value: bool) -> bytes:  # noqa: FBT001 - its name says it
    """A boolean parameter."""
    return TRUE if value else FALSE


def as_bytes(value: object) -> bytes:
    """A parameter."""
    return str(value).encode("utf-8", "surrogateescape")


def array_of(numbers: object) -> bytes:
    """Numbers as an array parameter."""
    assert isinstance(numbers, list | tuple | set | frozenset)
    return ("{" + ",".join(str(number) for number in numbers) + "}").encode()
