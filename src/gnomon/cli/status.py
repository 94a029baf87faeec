"""`gnomon status`: one screen that says how the installation is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from gnomon.app import App, open_task_rows
from gnomon.cli import options
from gnomon.cli.connection import connect
from gnomon.cli.output import console, moment, print_json, table_of
from gnomon.cli.process import run
from gnomon.contracts.status import InstallationStatus, TaskTableStatus, WorkerStatus
from gnomon.gateways.errors import EXIT_FINDINGS
from gnomon.gateways.overview import look_over
from gnomon.model.duration import format_duration
from gnomon.model.errors import Unavailable

if TYPE_CHECKING:
    from gnomon.client import Client

EPILOG = options.examples(
    "gnomon status",
    "gnomon status --watch",
    "gnomon status --check --json > /dev/null || page-somebody",
)
SECOND = timedelta(seconds=1)


@options.on_server
def status(
    shared: options.ServerOptions,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it again and again, until Ctrl-C.")
    ] = False,
    every: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", min=0.2, help="With --watch.")
    ] = 2.0,
    check: Annotated[
        bool, typer.Option("--check", help=f"Exit with {EXIT_FINDINGS} if something is wrong.")
    ] = False,
) -> None:
    """Show how the installation is: what waits, who works, what is wrong."""
    if watch:
        with suppress(KeyboardInterrupt):
            run(_watch(shared, every))
        return
    overview = run(_look_once(shared))
    if shared.json:
        print_json(overview)
    else:
        console().print(shown(overview))
    if check and overview.problems:
        raise typer.Exit(EXIT_FINDINGS)


async def _look_once(shared: options.ServerOptions) -> InstallationStatus:
    async with connect(shared.settings, server=shared.server, token=shared.token) as reached:
        return await look_at(reached)


async def _watch(shared: options.ServerOptions, every_s: float) -> None:
    """A server or a database that does not answer is told of, and asked again."""
    out = console()
    async with connect(shared.settings, server=shared.server, token=shared.token) as reached:
        with Live(console=out, auto_refresh=False) as live:
            while True:
                screen = await _screen(reached)
                live.update(screen, refresh=True)
                if not out.is_terminal:  # where nothing can be drawn again: one after the other
                    out.print(screen)
                await asyncio.sleep(every_s)


async def _screen(reached: Client | App) -> RenderableType:
    try:
        return shown(await look_at(reached))
    except Unavailable as exc:
        return Text(f"no answer: {exc}", style="red")


async def look_at(reached: Client | App) -> InstallationStatus:
    """The status, wherever it comes from."""
    if not isinstance(reached, App):
        return await reached.status()
    async with open_task_rows(reached.settings, reached.env) as tables:
        return await look_over(reached.store, reached.installation, tables)


# -- how it looks ---------------------------------------------------------------------------------


def shown(overview: InstallationStatus) -> RenderableType:
    """The whole screen."""
    return Group(*_parts(overview))


def _parts(overview: InstallationStatus) -> Iterator[RenderableType]:
    kind = f"{overview.engine}, {overview.durability}"
    head = f"installation {overview.installation} ({kind}) at {moment(overview.at)}"
    yield Text(head, style="bold")
    columns = ("queue", "waiting", "overdue", "oldest", "running", "dead")
    yield table_of(columns, [*_queue_rows(overview)] or [("", 0, 0, "", 0, 0)])
    yield table_of(("worker", "shards", "last heard", "serves"), map(_worker_row, overview.workers))
    yield Text(_shards_text(overview))
    if overview.stages:
        rows = [
            (one.stage, _count(one.overdue, overview.limit), span(one.overdue_for), one.parked)
            for one in overview.stages
        ]
        yield table_of(("stage", "overdue", "oldest", "parked"), rows)
    if overview.task_tables:
        columns = ("task table", "waiting", "overdue", "oldest", "running", "failed")
        yield table_of(columns, map(_table_row, overview.task_tables))
    if overview.partial:
        yield Text("more than can be counted: the counts are too low", style="yellow")
    yield from (Text(f"! {problem}", style="red") for problem in overview.problems)
    if not overview.problems:
        yield Text("all is well", style="green")


def _queue_rows(overview: InstallationStatus) -> Iterator[tuple[object, ...]]:
    for one in overview.queues:
        counts = [
            _count(n, overview.limit) for n in (one.waiting, one.overdue, one.running, one.dead)
        ]
        waiting, overdue, running, dead = counts
        yield one.queue, waiting, overdue, span(one.overdue_for), running, dead


def _worker_row(worker: WorkerStatus) -> tuple[object, ...]:
    queues = [*worker.only_queues, *(f"not {name}" for name in worker.never_queues)]
    heard = f"{worker.silent_for.total_seconds():.1f}s ago"
    said: object = heard if worker.is_alive else Text(heard, style="red")
    return worker.owner, worker.shards, said, ", ".join(queues) or "all queues"


def _table_row(one: TaskTableStatus) -> tuple[object, ...]:
    if one.problem is not None:
        return one.table, "?", "?", "", "?", "?"
    counts = [_count(n, one.limit) for n in (one.waiting, one.overdue, one.running, one.failed)]
    waiting, overdue, running, failed = counts
    return one.table, waiting, overdue, span(one.overdue_for), running, failed


def _shards_text(overview: InstallationStatus) -> str:
    alive = sum(worker.is_alive for worker in overview.workers)
    return (
        f"{alive} alive; {overview.shards} shards, {overview.shards_unowned} without a living owner"
    )


def _count(count: int, limit: int) -> str:
    return f"{count:,}+" if count >= limit else f"{count:,}"


def span(duration: timedelta) -> str:
    """To the second."""
    whole = duration // SECOND * SECOND
    return format_duration(whole) if whole else ""
