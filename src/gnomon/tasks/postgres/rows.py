"""Rows of the table, from and to the text that the server exchanges."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

from gnomon.model.task import GroupKey, Task
from gnomon.model.task.text import LARGE, Verbosity
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


class TakenTask(NamedTuple):
    """A task, and what its session must know besides."""

    task: Task
    cron: str | None
    verbosity: Verbosity
    has_statement: bool  # in its error text


async def pause_for(*texts: str | None) -> None:
    """Let others have their turn, beats above all, between two steps with a large text: each step
    (read, scan, encode, send, record) takes the event loop for as long as the text is long."""
    if sum(len(text) for text in texts if text is not None) > LARGE:
        await asyncio.sleep(PAUSE_S)


def taken_from(result: Result, task_id: int) -> TakenTask | None:
    """The row of `take` or `finish` with this id, in the server's own form, if there is one."""
    value = result.get_value
    for row in range(result.ntuples):
        if _LONG(_of(value(row, 0)))[0] == task_id:
            break
    else:
        return None
    group, remote, text, plan, start = [value(row, column) for column in range(1, 6)]
    values = tuple([value(row, column) for column in range(6, 20)])
    is_long = len(values[10] or b"") + len(values[11] or b"") > REMEMBERED_BYTES_MAX
    look = _look.__wrapped__(values) if is_long else _look(values)
    task = Task(
        id=task_id,
        key=_key_of(_of(group), remote),
        input=text_of(text),
        plan=_moment(plan),
        start=_moment(start),
        **look.columns,
    )
    return TakenTask(task, look.cron, look.verbosity, look.has_statement)


def _key_of(group: bytes, remote: bytes | None) -> GroupKey:
    is_long = len(group) + len(remote or b"") > REMEMBERED_BYTES_MAX
    return _key.__wrapped__(group, remote) if is_long else _key(group, remote)


@lru_cache(maxsize=100)
def _key(group: bytes, remote: bytes | None) -> GroupKey:
    return GroupKey(text_of(group), None if remote is None else text_of(remote))


class _Look(NamedTuple):
    """What is often alike in one row and the next."""

    columns: Mapping[str, Any]
    cron: str | None
    verbosity: Verbosity
    has_statement: bool


@lru_cache(maxsize=100)
def _look(values: tuple[bytes | None, ...]) -> _Look:
    columns = {
        "max": _INT(_of(values[0]))[0],
        "count": _INT(_of(values[1]))[0],
        "live_s": _length(values[2]).total_seconds(),
        "timeout": _length(values[3]),
        "save": values[4] == YES,
        "header": values[5] == YES,
        "string": values[6] == YES,
        "delimiter": _char(values[7]),
        "quote": _char(values[8]),
        "escape": _char(values[9]),
        "null": text_of(values[10]),
    }
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
