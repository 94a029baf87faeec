"""The servers of a process: REST, and gRPC if it is configured."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from gnomon.app import App, open_task_rows
from gnomon.cli.process import Telemetry
from gnomon.contracts.observer import Observer
from gnomon.extras import require
from gnomon.gateways.auth import Authorizer
from gnomon.gateways.config import ServerConfig

if TYPE_CHECKING:
    from gnomon.gateways.grpc.server import GrpcServer
    from gnomon.telemetry.page import MetricsPage


def require_listeners(config: ServerConfig) -> None:
    """Errors: MissingExtra, before anything is opened."""
    require("server")
    if config.grpc_port is not None:
        require("grpc")


def grpc_server(app: App, authorizer: Authorizer, observer: Observer) -> GrpcServer | None:
    """Its port is taken; it answers when it is served. None without `server.grpc_port`."""
    config = app.settings.server
    if config.grpc_port is None:
        return None
    from gnomon.gateways.grpc.server import GrpcServer  # its libraries are large

    return GrpcServer(
        app.scheduler, config, authorizer=authorizer, observer=observer, entities=app.entities
    )


async def serve_rest(
    app: App,
    telemetry: Telemetry,
    authorizer: Authorizer,
    listener: socket.socket,
    page: MetricsPage,
    *,
    workers: int,
    stop: asyncio.Event,
) -> None:
    """Answer REST calls until `stop` is set; `workers` is how many this process has started."""
    from gnomon.console import load_files
    from gnomon.gateways.rest.app import create_rest
    from gnomon.gateways.rest.pages import PagesApp
    from gnomon.gateways.rest.server import serve
    from gnomon.gateways.task_gauges import TaskGauges

    assert telemetry.metrics is not None, "the extra of the server brings them"
    async with open_task_rows(app.settings, app.env) as task_tables:
        now = app.scheduler.time.now
        gauges = TaskGauges(task_tables, telemetry.metrics, app.env.clock, now=now)
        page.refresh_also(gauges.refresh)
        rest = create_rest(
            app.scheduler,
            health=lambda: {"workers": workers},
            metrics=page,
            observer=telemetry.observer,
            authorizer=authorizer,
            stop=stop,
            task_tables=task_tables,
            entities=app.entities,
            console=app.settings.console,
        )
        pages = PagesApp(rest, load_files())
        await serve(pages, listener, stop=stop, config=app.settings.server)
