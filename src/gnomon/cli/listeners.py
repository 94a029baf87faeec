"""The gRPC server of a process, if one is configured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnomon.app import App
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
