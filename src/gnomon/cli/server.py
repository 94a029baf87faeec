"""`gnomon server`: the REST and gRPC APIs alone."""

from __future__ import annotations

from dataclasses import replace

from gnomon.cli import options
from gnomon.cli.callers import authorizer_of, callers_text
from gnomon.cli.connection import open_database
from gnomon.cli.listeners import grpc_server, require_listeners, serve_rest
from gnomon.cli.metrics import listening, page_of
from gnomon.cli.output import say
from gnomon.cli.process import Telemetry, run, stop_on_signals, together
from gnomon.config import Settings

EPILOG = options.examples(
    "gnomon server --database postgresql://gnomon@localhost/gnomon",
    "gnomon server --port 8400 --grpc-port 8322",
)


def server(
    database: options.Database = None,
    schema: options.Schema = None,
    host: options.Host = None,
    port: options.Port = None,
    grpc_port: options.GrpcPort = None,
    metrics: options.Metrics = None,
    metrics_open: options.MetricsOpen = False,
    config: options.ConfigFile = None,
) -> None:
    """Serve the REST API, and gRPC with --grpc-port, without a worker."""
    settings = options.settings_of(
        config, database=database, schema=schema, port=port, host=host, grpc_port=grpc_port,
        metrics=metrics, metrics_open=metrics_open,
    )  # fmt: skip
    run(_serve(settings))


async def _serve(settings: Settings) -> None:
    require_listeners(settings.server)
    from gnomon.gateways.rest.server import bind

    stop = stop_on_signals()
    telemetry = Telemetry(settings)
    with bind(settings.server) as listener:
        async with open_database(settings) as app:
            authorizer = authorizer_of(app)
            grpc = grpc_server(app, authorizer, telemetry.observer)
            say(f"serving {replace(settings.server, port=listener.getsockname()[1]).url}")
            page = page_of(telemetry, app.store)
            parts = [serve_rest(app, telemetry, authorizer, listener, page, workers=0, stop=stop)]
            parts += listening(settings, page, stop)
            if grpc is not None:
                say(f"serving gRPC on {grpc.address}")
                parts.append(grpc.serve(stop=stop))
            say(await callers_text(app))
            await together(*parts, stop=stop)
