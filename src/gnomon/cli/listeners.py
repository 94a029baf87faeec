"""The servers of a process: REST, and gRPC if it is configured."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from gnomon.app import App, open_task_rows
from gnomon.cli.process import Telemetry
from gnomon.contracts.observer import Observer
from gnomon.gateways.auth import Authorizer

if TYPE_CHECKING:
    from gnomon.gateways.grpc.server import GrpcServer


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
    *,
    workers: int,
    stop: asyncio.Event,
) -> None:
    """Answer REST calls until `stop` is set; `workers` is how many this process has started."""
    from gnomon.gateways.rest.app import create_rest
    from gnomon.gateways.rest.server import serve

    async with open_task_rows(app.settings, app.env) as task_tables:
        rest = create_rest(
            app.scheduler,
            health=lambda: {"workers": workers},
            metrics=telemetry.metrics,
            observer=telemetry.observer,
            authorizer=authorizer,
            stop=stop,
            task_tables=task_tables,
            entities=app.entities,
        )
        await serve(rest, listener, stop=stop, config=app.settings.server)
