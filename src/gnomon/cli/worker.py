"""`gnomon worker`: processes that make actions happen."""

from __future__ import annotations

from pathlib import Path

import typer

from gnomon.cli import options
from gnomon.cli.output import say
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
)


def worker(
    database: options.Database = None,
    schema: options.Schema = None,
    processes: options.Processes = 1,
    imported: options.Import = None,
    config: options.ConfigFile = None,
    follow: bool = typer.Option(False, "--stop-with-stdin", hidden=True),
) -> None:
    """Perform actions, until SIGTERM or Ctrl-C.

    Then it begins nothing more, and attempts under way may end.
    """
    settings = options.settings_of(config, database=database, schema=schema)
    if processes > 1:
        run(_work_in_many(settings, config, processes, imported))
    else:
        run(_work(settings, config, imported, follow=follow))


async def _work(
    settings: Settings, config: Path | None, imported: str | None, *, follow: bool
) -> None:
    stop = stop_on_signals()
    if follow:
        stop_with_stdin(stop)
    app = load_app(settings, Telemetry(settings), imported)
    async with app:
        if not follow:
            say(f"working on {settings.database.url_shown}")
        await together(app.work(stop), *parts_of(app, config, stop), stop=stop)


async def _work_in_many(
    settings: Settings, config: Path | None, processes: int, imported: str | None
) -> None:
    stop = stop_on_signals()
    telemetry = Telemetry(settings)
    async with load_app(settings, telemetry, imported) as app:  # migrates once, before they start
        require_parallel(app.store.capabilities)
    say(f"{processes} workers on {settings.database.url_shown}")
    arguments = worker_arguments(config, imported)
    await keep_workers(processes, settings, arguments, stop=stop, observer=telemetry.observer)
