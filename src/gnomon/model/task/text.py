"""The result text and the error text of a task, byte for byte as pg_task writes them.

Bytes go in, text comes out: a delimiter is one byte, whatever it was a part of. What is no UTF-8 in
the end is replaced, and a zero byte ends the text, for no database stores either.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Literal

import msgspec

from gnomon.model.task.row import Task

Verbosity = Literal["terse", "default", "verbose"]

NUL = b"\x00"
LARGE = 1_000_000  # characters, or bytes: who has more makes a pause between two steps with them


class ResultTooLarge(Exception):  # noqa: N818 - an outcome with a name, not a fault
    """The result has more bytes than a task may return."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(f"the result is larger than {bytes_max} bytes")


class ResultText:
    """Results of one task's statements, in order, as they come."""

    def __init__(self, task: Task, *, bytes_max: int) -> None:
        self._header = task.header
        self._delimiter = _first_byte(task.delimiter) or NUL
        self._quote = _first_byte(task.quote)
        self._escape = _first_byte(task.escape)
        self._null = task.null.encode("utf-8", "surrogateescape")
        self._is_quoting_all = not task.string
        self._bytes_max = bytes_max
        self._text: bytearray | None = None
        self._names: Sequence[bytes] = ()
        self._quoted: Sequence[bool] | None = None
        self._is_first = True

    def begin(self, names: Sequence[bytes], are_strings: Sequence[bool]) -> None:
        """A statement that returns rows: its columns, and which of them are of a string type."""
        self._names = names
        self._is_first = True
        self._quoted = None
        if self._quote:
            self._quoted = [self._is_quoting_all or is_string for is_string in are_strings]

    def add(self, rows: Iterable[Sequence[bytes | None]]) -> None:
        """Rows of the statement that was begun. Errors: ResultTooLarge."""
        for _ in self.adding(rows):
            pass

    def adding(self, rows: Iterable[Sequence[bytes | None]]) -> Iterator[None]:
        """As `add`, in steps: quoting takes long if a value is nothing but quotes."""
        delimiter, null = self._delimiter, self._null
        for row in rows:
            if self._is_first:
                self._is_first = False
                self._begin_rows()
            values = [null if value is None else value for value in row]
            if self._quoted is not None:
                for at, is_quoted in enumerate(self._quoted):
                    if is_quoted and row[at] is not None:
                        values[at] = yield from self._quote_value(values[at])
            self._line(values[0] if len(values) == 1 else delimiter.join(values))

    def tag(self, tag: bytes) -> None:
        """A statement that returns no rows: its command tag."""
        self._line(tag)

    def raw(self, data: bytes) -> None:
        """What COPY TO STDOUT sends: taken as it is. Errors: ResultTooLarge."""
        self._text = self._text if self._text is not None else bytearray()
        self._text += data
        self._check()

    def text(self) -> str | None:
        """All of it; None if no statement returned a row or a tag."""
        if self._text is None:
            return None
        return as_text(bytes(self._text))

    def _begin_rows(self) -> None:
        if not self._header or len(self._names) < 2:
            return
        names = self._names
        if self._quote:
            names = [self._quote + self._escaped(name) + self._quote for name in names]
        self._line(self._delimiter.join(names))

    def _quote_value(self, value: bytes) -> Generator[None, None, bytes]:
        quote = self._quote
        if len(value) <= LARGE:
            return quote + self._escaped(value) + quote
        pieces = [quote]
        for at in range(0, len(value), LARGE):
            pieces.append(self._escaped(value[at : at + LARGE]))
            yield
        return b"".join([*pieces, quote])

    def _escaped(self, value: bytes) -> bytes:
        quote, escape = self._quote, self._escape
        if escape:
            value = value.replace(escape, escape + escape)
            if quote != escape:
                value = value.replace(quote, escape + quote)
        return value

    def _line(self, line: bytes) -> None:
        # The original's rule: it is the text that decides, not whether a row came before.
        if self._text is None:
            self._text = bytearray()
        elif self._text:
            self._text += b"\n"
        self._text += line
        self._check()

    def _check(self) -> None:
        if self._text is not None and len(self._text) > self._bytes_max:
            raise ResultTooLarge(self._bytes_max)


@lru_cache(maxsize=100)
def _first_byte(char: str) -> bytes:
    return char.encode("utf-8", "surrogateescape")[:1]


def as_text(data: bytes) -> str:
    """What can be stored of these bytes."""
    return data.partition(NUL)[0].decode("utf-8", "replace")


class ErrorFields(msgspec.Struct, frozen=True, kw_only=True):
    """What a server says of an error."""

    message: str
    severity: str = "ERROR"
    sqlstate: str = "XX000"
    detail: str | None = None
    hint: str | None = None
    position: str | None = None  # a character of the input
    query: str | None = None  # that a function or a trigger made
    query_position: str | None = None
    context: str | None = None
    function: str | None = None
    file: str | None = None
    line: str | None = None


def error_text(
    fields: ErrorFields, *, statement: str | None = None, verbosity: Verbosity = "default"
) -> str:
    """An error as PostgreSQL writes it into its log; `statement` is the whole input.

    A part of more than LARGE characters is cut: nobody reads them, the input stands in its row
    anyway, and a row has room for only so many.
    """
    state = f"{fields.sqlstate}: " if verbosity == "verbose" else ""
    position = fields.position or fields.query_position
    place = f" at character {position}" if position else ""
    lines = [f"{fields.severity}:  {state}{_with_tabs(fields.message)}{place}"]
    if verbosity != "terse":
        lines += _part("DETAIL", fields.detail)
        lines += _part("HINT", fields.hint)
        lines += _part("QUERY", fields.query)
        lines += _part("CONTEXT", fields.context)
    if verbosity == "verbose" and fields.file:
        function = f"{fields.function}, " if fields.function else ""
        lines += _part("LOCATION", f"{function}{fields.file}:{fields.line}")
    lines += _part("STATEMENT", statement)
    return "\n".join(lines)


def plain_error(
    message: str,
    detail: str | None = None,
    *,
    hint: str | None = None,
    statement: str | None = None,
) -> str:
    """An error of our own, in the same form."""
    return error_text(ErrorFields(message=message, detail=detail, hint=hint), statement=statement)


def _part(title: str, text: str | None) -> list[str]:
    return [f"{title}:  {_with_tabs(text)}"] if text else []


def _with_tabs(text: str) -> str:
    cut = f"… ({len(text)} characters)" if len(text) > LARGE else ""
    return text[:LARGE].replace("\n", "\n\t") + cut
