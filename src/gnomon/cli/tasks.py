"""`gnomon tasks`: performs the rows of task tables."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import typer

from gnomon.app import App, task_service
from gnomon.cli import options
from gnomon.cli.metrics import require_scraping, scraped
from gnomon.cli.output import say
from gnomon.cli.process import Telemetry, run, stop_on_signals, together
from gnomon.clock import SystemClock, SystemEntropy
from gnomon.config import Settings, load_settings
from gnomon.contracts.env import Env
from gnomon.model.errors import ConfigurationError
from gnomon.tasks.service import TaskService

EPILOG = options.examples(
    "gnomon tasks --dsn postgresql://shop@localhost/shop",
    """gnomon tasks --dsn postgresql://localhost/shop --conf '[{"data": "shop", "sleep": 100}]'""",
    "gnomon tasks --dsn postgresql://localhost/postgres --conf-file /etc/gnomon/tasks.json",
    "gnomon tasks --dsn sqlite:///tasks.db",
)


def tasks(
    dsn: str | None = typer.Option(
        None, "--dsn", metavar="DSN", help="postgresql://user@host/database or sqlite:///file."
    ),
    conf: str | None = typer.Option(
        None,
        "--conf",
        metavar="JSON",
        help="The list of tables; by default the table `task` of the dsn.",
    ),
    conf_file: Path | None = typer.Option(
        None,
        "--conf-file",
        metavar="FILE",
        help="The list of tables in a file; it is read again on SIGHUP.",
    ),
    metrics: options.Metrics = None,
    metrics_open: options.MetricsOpen = False,
    config: options.ConfigFile = None,
) -> None:
    """Perform the SQL of task tables, until SIGTERM or Ctrl-C.

    Then it takes no more tasks, and those under way may end.
    """
    flags = {
        "tasks.dsn": dsn,
        "tasks.conf": conf,
        "tasks.conf_file": None if conf_file is None else str(conf_file),
        **options.metrics_flags(metrics, open_=metrics_open),
    }
    run(_serve(lambda: load_settings(file=config, flags=flags)))


async def _serve(read_settings: Callable[[], Settings]) -> None:
    settings = read_settings()
    if settings.tasks.dsn is None:
        raise ConfigurationError("tasks.dsn", "is missing: give --dsn postgresql://user@host/data")
    require_scraping(settings)
    stop = stop_on_signals()
    telemetry = Telemetry(settings)
    env = Env(clock=SystemClock(), entropy=SystemEntropy(), observer=telemetry.observer)
    service = task_service(read_settings, env)
    for line in await service.prepare():
        say(line)
    reload_on_hangup(service)
    parts = scraped(settings, telemetry, None, stop)
    await together(_perform(service, stop), *parts, stop=stop)


async def _perform(service: TaskService, stop: asyncio.Event) -> None:
    serving = asyncio.create_task(service.serve(stop))
    await asyncio.sleep(0)  # the tables are known from here on
    say(f"performing tasks of {', '.join(entry.title for entry in service.entries)}")
    await serving


def reload_on_hangup(service: TaskService) -> None:
    """SIGHUP: read the list of tables again."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, service.reload)


def parts_of(app: App, config: Path | None, stop: asyncio.Event) -> list[Coroutine[Any, Any, None]]:
    """What a worker process does besides: it serves the tables of `[tasks]`, if there are any."""
    if app.settings.tasks.dsn is None:
        return []
    service = task_service(lambda: load_settings(file=config), app.env)
    reload_on_hangup(service)
    return [service.serve(stop)]
