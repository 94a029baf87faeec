"""`gnomon server`: the REST and gRPC APIs alone."""

from __future__ import annotations

from dataclasses import replace

import typer

from gnomon.app import open_task_rows
from gnomon.cli import options
from gnomon.cli.callers import authorizer_of, callers_text
from gnomon.cli.connection import open_database
from gnomon.cli.listeners import grpc_server
from gnomon.cli.output import say
from gnomon.cli.process import Telemetry, run, stop_on_signals, together
from gnomon.config import Settings

EPILOG = options.examples(
    "gnomon server --database postgresql://gnomon@localhost/gnomon",
    "gnomon server --port 8400 --grpc-port 8322",
)


def register(root: typer.Typer) -> None:
    """Add the command."""

    @root.command("server", epilog=EPILOG)
    def server(
        database: options.Database = None,
        schema: options.Schema = None,
        host: options.Host = None,
        port: options.Port = None,
        grpc_port: options.GrpcPort = None,
        config: options.ConfigFile = None,
    ) -> None:
        """Serve REST, and gRPC if asked for, without a worker. Loopback only without tokens."""
        settings = options.settings_of(
            config, database=database, schema=schema, port=port, host=host, grpc_port=grpc_port
        )
        run(_serve(settings))


async def _serve(settings: Settings) -> None:
    from gnomon.gateways.rest.app import create_rest
    from gnomon.gateways.rest.server import bind, serve

    stop = stop_on_signals()
    telemetry = Telemetry(settings)
    with bind(settings.server) as listener:
        async with (
            open_database(settings) as app,
            open_task_rows(settings, app.env) as task_tables,
        ):
            authorizer = authorizer_of(app)
            rest = create_rest(
                app.scheduler,
                health=lambda: {"workers": 0},
                metrics=telemetry.metrics,
                observer=telemetry.observer,
                authorizer=authorizer,
                stop=stop,
                task_tables=task_tables,
                entities=app.entities,
            )
            grpc = grpc_server(app, authorizer, telemetry.observer)
            say(f"serving {replace(settings.server, port=listener.getsockname()[1]).url}")
            if grpc is not None:
                say(f"serving gRPC on {grpc.address}")
            say(await callers_text(app))
            parts = [serve(rest, listener, stop=stop, config=settings.server)]
            if grpc is not None:
                parts.append(grpc.serve(stop=stop))
            await together(*parts, stop=stop)
