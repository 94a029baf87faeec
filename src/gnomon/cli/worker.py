"""`gnomon worker`: processes that make actions happen."""

from __future__ import annotations

from pathlib import Path

import typer

from gnomon.app import App
from gnomon.cli import options
from gnomon.cli.imported import import_app, with_imported
from gnomon.cli.metrics import require_scraping, scraped, sockets_for, telling
from gnomon.cli.output import say
from gnomon.cli.place import installation_text
from gnomon.cli.process import (
    Telemetry,
    load_app,
    run,
    stop_on_signals,
    stop_with_stdin,
    together,
)
from gnomon.cli.processes import keep_workers, require_parallel, worker_arguments
from gnomon.cli.tasks import parts_of
from gnomon.config import Settings

EPILOG = options.examples(
    "gnomon worker --database sqlite:///gnomon.db",
    "gnomon worker --database postgresql://gnomon@localhost/gnomon --processes 4",
    "gnomon worker --import shop.actions:app",
    "gnomon worker --queues mail,reports    # others serve the rest",
    "gnomon worker --processes 4 --metrics 127.0.0.1:9321",
)


def worker(
    database: options.Database = None,
    schema: options.Schema = None,
    processes: options.Processes = 1,
    imported: options.Import = None,
    queues: options.Queues = None,
    metrics: options.Metrics = None,
    metrics_open: options.MetricsOpen = False,
    config: options.ConfigFile = None,
    follow: bool = typer.Option(False, "--stop-with-stdin", hidden=True),
    metrics_socket: Path | None = typer.Option(None, "--metrics-socket", hidden=True),
) -> None:
    """Perform actions, until SIGTERM or Ctrl-C.

    Then it begins nothing more, and attempts under way may end.
    """
    settings = options.settings_of(
        config, database=database, schema=schema, queues=queues, metrics=metrics,
        metrics_open=metrics_open,
    )  # fmt: skip
    require_scraping(settings)
    own = None if imported is None else import_app(imported)
    settings = with_imported(settings, None if follow else imported, own)
    if processes > 1:
        arguments = worker_arguments(config, imported, queues)
        run(_work_in_many(settings, own, processes, arguments))
    else:
        run(_work(settings, config, own, follow=follow, metrics_socket=metrics_socket))


async def _work(
    settings: Settings,
    config: Path | None,
    imported: App | None,
    *,
    follow: bool,
    metrics_socket: Path | None,
) -> None:
    stop = stop_on_signals()
    if follow:
        stop_with_stdin(stop)
    telemetry = Telemetry(settings)
    async with load_app(settings, telemetry, imported) as app:
        parts = [app.work(stop), *parts_of(app, config, stop)]
        if metrics_socket is not None and telemetry.metrics is not None:
            parts.append(telling(metrics_socket, telemetry, stop))
        if not follow:
            parts += scraped(settings, telemetry, app.store, stop)
            say(f"working on {installation_text(settings)}")
        await together(*parts, stop=stop)


async def _work_in_many(
    settings: Settings, imported: App | None, processes: int, arguments: list[str]
) -> None:
    stop = stop_on_signals()
    telemetry = Telemetry(settings)
    async with load_app(settings, telemetry, imported) as app:  # migrates once, before they start
        require_parallel(app.store.capabilities)
        with sockets_for(processes) as sockets:
            parts = scraped(settings, telemetry, app.store, stop, sockets)
            say(f"{processes} workers on {installation_text(settings)}")
            keeping = keep_workers(
                settings, arguments, sockets=sockets, stop=stop, observer=telemetry.observer
            )
            await together(keeping, *parts, stop=stop)
