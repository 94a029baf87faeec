"""`gnomon up`: everything in one process."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from pathlib import Path

import typer

from gnomon.app import App
from gnomon.cli import options
from gnomon.cli.callers import authorizer_of, callers_text
from gnomon.cli.demo import declare_functions, schedule_demo
from gnomon.cli.imported import import_app, with_imported
from gnomon.cli.listeners import grpc_server, require_listeners, serve_rest
from gnomon.cli.metrics import listening, page_of, sockets_for
from gnomon.cli.output import print_json, say
from gnomon.cli.place import installation_text
from gnomon.cli.process import Telemetry, load_app, run, stop_on_signals, together
from gnomon.cli.processes import keep_workers, require_parallel, worker_arguments
from gnomon.cli.tasks import parts_of
from gnomon.config import Settings
from gnomon.gateways.config import is_loopback

EPILOG = options.examples(
    "gnomon up --demo",
    "gnomon up --database sqlite:////var/lib/gnomon/gnomon.db --port 8400",
    "gnomon up --database postgresql://gnomon@localhost/gnomon --processes 2",
    "gnomon up --import shop.actions:app",
)


def up(
    demo: bool = typer.Option(False, "--demo", help="Schedule a few example actions."),
    database: options.Database = None,
    schema: options.Schema = None,
    host: options.Host = None,
    port: options.Port = None,
    grpc_port: options.GrpcPort = None,
    processes: options.Processes = 1,
    imported: options.Import = None,
    metrics: options.Metrics = None,
    metrics_open: options.MetricsOpen = False,
    config: options.ConfigFile = None,
    json: options.Json = False,
) -> None:
    """Start everything in one process: schema, worker, API.

    On the SQLite file gnomon.db, unless another database is named.
    """
    settings = options.settings_of(
        config, database=database, schema=schema, port=port, host=host, grpc_port=grpc_port,
        metrics=metrics, metrics_open=metrics_open,
    )  # fmt: skip
    own = None if imported is None else import_app(imported)
    settings = with_imported(settings, imported, own)
    arguments = worker_arguments(config, imported)
    run(_up(settings, config, processes, own, arguments, demo=demo, as_json=json))


async def _let_call_itself(app: App) -> None:
    """On SQLite, without tokens, actions may call this machine unless a setting says otherwise.

    The database is a file of this machine and the server answers nobody else, so whoever schedules
    could make such a call without us. With PostgreSQL or tokens, others may schedule, too.
    """
    settings = app.settings
    is_set = settings.source_of("http.allow_loopback") != "default"
    is_shared = settings.database.engine != "sqlite" or not is_loopback(settings.server.host)
    if is_set or is_shared or settings.server.auth == "token" or await app.store.tokens.has_any():
        return
    app.settings = replace(settings, http=replace(settings.http, allow_loopback=True))


async def _up(
    settings: Settings,
    config: Path | None,
    processes: int,
    imported: App | None,
    arguments: list[str],
    *,
    demo: bool,
    as_json: bool,
) -> None:
    require_listeners(settings.server)
    from gnomon.gateways.rest.server import bind

    stop = stop_on_signals()
    telemetry = Telemetry(settings)
    app = load_app(settings, telemetry, imported)
    if demo:
        declare_functions(app)
    count = processes if processes > 1 else 0
    with bind(settings.server) as listener, sockets_for(count) as sockets:
        async with app:
            if processes > 1:
                require_parallel(app.store.capabilities)
            await _let_call_itself(app)
            authorizer = authorizer_of(app)
            grpc = grpc_server(app, authorizer, telemetry.observer)
            address = None if grpc is None else grpc.address
            _announce(app, listener, address, await callers_text(app), as_json=as_json)
            if demo:
                await schedule_demo(app)
            page = page_of(telemetry, app.store, sockets)
            parts = [] if grpc is None else [grpc.serve(stop=stop)]
            parts.append(
                serve_rest(app, telemetry, authorizer, listener, page, workers=processes, stop=stop)
            )
            parts += listening(settings, page, stop)
            parts.append(_work(app, telemetry, sockets, arguments, stop))
            if processes == 1:  # else the workers do it
                parts += parts_of(app, config, stop)
            await together(*parts, stop=stop)


async def _work(
    app: App, telemetry: Telemetry, sockets: list[Path], arguments: list[str], stop: asyncio.Event
) -> None:
    if not sockets:
        await app.work(stop)
    else:
        await keep_workers(
            app.settings, arguments, sockets=sockets, stop=stop, observer=telemetry.observer
        )


def _announce(
    app: App, listener: socket.socket, grpc: str | None, callers: str, *, as_json: bool
) -> None:
    url = replace(app.settings.server, port=listener.getsockname()[1]).url
    shown = app.settings.database.url_shown
    if as_json:
        durability = app.installation.durability
        print_json({"url": url, "grpc": grpc, "database": shown, "durability": durability})
        return
    server = "" if url == "http://127.0.0.1:8321" else f" --server {url}"
    say(
        f"Gnomon is up: {url}{f', gRPC on {grpc}' if grpc else ''} "
        f"({installation_text(app.settings)}; durability: {app.installation.durability})\n"
        f"{callers} Try in another terminal:\n"
        f"  gnomon action create --id hello --in 5s --mock{server}\n"
        f"  gnomon action list{server}\n"
        f"  curl {url}/health"
    )
