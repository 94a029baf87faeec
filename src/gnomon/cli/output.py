"""What commands print: tables and JSON on standard output, everything else on standard error."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from gnomon.model.duration import format_duration
from gnomon.telemetry.lines import printable

STATE_STYLES = {
    "active": "cyan",
    "paused": "yellow",
    "done": "green",
    "dead": "red",
    "cancelled": "dim",
    "expired": "magenta",
}

CELL_CHARS_MAX = 10_000

_ENCODER = msgspec.json.Encoder(order=None)


def console() -> Console:
    return Console(highlight=False)


def notes() -> Console:
    """For people who watch: standard error, so that output can be piped."""
    return Console(stderr=True, highlight=False)


def print_json(value: object) -> None:
    """One JSON document on standard output."""
    sys.stdout.write(msgspec.json.format(_ENCODER.encode(value), indent=2).decode() + "\n")


def show_error(message: str, hint: str | None = None) -> None:
    """`error: …` and what to do next, on standard error."""
    out = notes()
    out.print(Text.assemble(("error: ", "bold red"), printable(message)), soft_wrap=True)
    if hint:
        out.print(Text.assemble(("hint: ", "bold"), hint), soft_wrap=True)


def say(message: str) -> None:
    """A line for people."""
    notes().print(Text(message), soft_wrap=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table that fits the terminal: long cells are folded, and cut only where nobody reads on."""
    console().print(table_of(columns, rows))


def table_of(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """The same, to be printed."""
    shown = any(columns)
    table = Table(
        box=box.SIMPLE_HEAD if shown else None, show_header=shown, pad_edge=False,
        header_style="bold",
    )  # fmt: skip
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(cell(value) for value in row))
    return table


def cell(value: object) -> Text:
    """A value in a table; text of users is escaped and is no markup."""
    if isinstance(value, Text):
        return value
    if isinstance(value, datetime):
        return Text(moment(value))
    return Text("" if value is None else printable(readable(str(value))))


def readable(text: str) -> str:
    """What a person would read of a text: megabytes would keep the terminal busy for minutes."""
    if len(text) <= CELL_CHARS_MAX:
        return text
    return f"{text[:CELL_CHARS_MAX]}… ({len(text):,} characters; --json shows them)"


def state_cell(state: str) -> Text:
    return Text(state, style=STATE_STYLES.get(state, ""))


def moment(value: datetime | None) -> str:
    """A time to the millisecond in UTC, as people read it."""
    if value is None:
        return ""
    return value.astimezone(UTC).isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z")


def from_now(value: datetime | None) -> str:
    """How far away a time is: `in 5m`, `3s ago`."""
    if value is None:
        return ""
    seconds = (value - datetime.now(UTC)).total_seconds()
    shown = _rough(abs(seconds))
    return f"in {shown}" if seconds >= 0 else f"{shown} ago"


def _rough(seconds: float) -> str:
    if seconds < 1:
        return "0s"
    unit = 1 if seconds < 120 else 60 if seconds < 7200 else 3600
    return format_duration(timedelta(seconds=int(seconds // unit) * unit))


def progress() -> Progress:
    """A progress bar on standard error; silent when nobody watches."""
    out = notes()
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=out,
        disable=not out.is_terminal,
    )
