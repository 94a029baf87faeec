"""`gnomon server`: the REST API alone."""

from __future__ import annotations

from dataclasses import replace

import typer

from gnomon.cli import options
from gnomon.cli.callers import authorizer_of, callers_text
from gnomon.cli.connection import open_database
from gnomon.cli.output import say
from gnomon.cli.running import Telemetry, run, stop_on_signals
from gnomon.config import Settings

EPILOG = options.examples(
    "gnomon server --database postgresql://gnomon@localhost/gnomon",
    "gnomon server --port 8400",
)


def register(root: typer.Typer) -> None:
    """Add the command."""

    @root.command("server", epilog=EPILOG)
    def server(
        database: options.Database = None,
        schema: options.Schema = None,
        host: options.Host = None,
        port: options.Port = None,
        config: options.ConfigFile = None,
    ) -> None:
        """Serve the REST API without a worker. Without authentication: on loopback only."""
        settings = options.settings_of(
            config, database=database, schema=schema, port=port, host=host
        )
        run(_serve(settings))


async def _serve(settings: Settings) -> None:
    from gnomon.gateways.rest.app import create_rest
    from gnomon.gateways.rest.server import bind, serve

    stop = stop_on_signals()
    telemetry = Telemetry(settings)
    with bind(settings.server) as listener:
        async with open_database(settings) as app:
            rest = create_rest(
                app.scheduler,
                metrics=telemetry.metrics,
                observer=telemetry.observer,
                authorizer=authorizer_of(app),
                stop=stop,
            )
            say(f"serving {replace(settings.server, port=listener.getsockname()[1]).url}")
            say(await callers_text(app))
            await serve(rest, listener, stop=stop, config=settings.server)
