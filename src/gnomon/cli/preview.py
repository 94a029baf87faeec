"""`gnomon preview`: what a schedule means, before anything is scheduled. Needs no database."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated

import typer
from rich.text import Text

from gnomon.cli import options
from gnomon.cli.output import console, print_json, print_table
from gnomon.scheduler.preview import (
    COUNT_DEFAULT,
    ClockChange,
    Firing,
    Preview,
)
from gnomon.scheduler.preview import preview as previewed

EPILOG = options.examples(
    "gnomon preview --cron '0 9 * * 1-5' --timezone Europe/Berlin",
    "gnomon preview --cron '30 2 * * *' --timezone Europe/Berlin --from 2027-03-27T00:00Z",
    "gnomon preview --every 90m --count 3",
)


def preview(
    cron: Annotated[
        str | None, typer.Option("--cron", metavar="FIELDS", help="Five fields, or @daily.")
    ] = None,
    timezone: Annotated[
        str | None,
        typer.Option("--timezone", metavar="NAME", help="Of the cron expression; else UTC."),
    ] = None,
    every: Annotated[
        str | None, typer.Option("--every", metavar="PERIOD", help="Such as 90s, 5m, 1h30m.")
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="From this time on, which has a time zone."),
    ] = None,
    count: Annotated[
        int, typer.Option("--count", metavar="N", help="So many firings.")
    ] = COUNT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Show when a schedule fires next, and how changes of the clock concern it."""
    shown = previewed(cron=cron, timezone=timezone, every=every, from_=from_, count=count)
    if json:
        print_json(shown)
        return
    console().print(Text(shown.words))
    print_table(("", shown.timezone, "UTC", ""), _rows(shown))


def _rows(shown: Preview) -> list[tuple[object, ...]]:
    numbered = {firing.at: number for number, firing in enumerate(shown.firings, start=1)}
    items: list[Firing | ClockChange] = [*shown.firings, *shown.clock_changes]
    return [_row(item, numbered) for item in sorted(items, key=_order)]


def _order(item: Firing | ClockChange) -> tuple[object, bool]:
    return item.at, isinstance(item, Firing)  # a change comes first: the clock is changed by then


def _row(item: Firing | ClockChange, numbered: Mapping[datetime, int]) -> tuple[object, ...]:
    if isinstance(item, ClockChange):
        return "", Text(f"{item.before:%a %Y-%m-%d}", style="dim"), "", item.words
    clock = "%H:%M:%S" if item.at.second else "%H:%M"
    local, utc = item.local.strftime(f"%a %Y-%m-%d {clock} %z"), item.at.strftime(f"%m-%d {clock}Z")
    return numbered[item.at], local, utc, item.note or ""
