"""Serving: grpc.aio on a port of its own, stopped by an event.

No reflection: the protocol is in the repository. No compression: what is packed could be larger
than its bound. Keep-alive is for finding dead clients, not for those who ping us busy.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import grpc
from google.protobuf.internal import api_implementation
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from gnomon.clock import SystemClock, wait_set
from gnomon.contracts.observer import Observer, SilentObserver
from gnomon.gateways.auth import Authorizer
from gnomon.gateways.config import ServerConfig
from gnomon.gateways.entities import entities_of
from gnomon.gateways.grpc.boundary import ENTITY_SERVICE, SERVICE, STATE_SERVICE, ServiceBoundary
from gnomon.gateways.grpc.entities import EntityRpcs, StateRpcs
from gnomon.gateways.grpc.service import MESSAGE_BYTES_MAX, SchedulerRpcs
from gnomon.gateways.redaction import sight_of
from gnomon.gateways.watchers import Watchers
from gnomon.model.errors import ConfigurationError, GnomonError
from gnomon.scheduler import Scheduler
from gnomon.stages.entities import Entities

CALLS_MAX = 1000  # at once, watches included; more are told RESOURCE_EXHAUSTED
GRACEFUL_S = 5.0
HEALTH_EVERY_S = 5.0
_IDENTITY_ONLY = 1  # a set of bits: the first algorithm is "none"

_OPTIONS = (
    ("grpc.so_reuseport", 0),  # a port that is taken is an error
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_metadata_size", 8 * 1024),
    ("grpc.absolute_max_metadata_size", 16 * 1024),
    # Not below it: of a burst on a new connection, the calls beyond this are broken off before the
    # client has learned the number, and clients repeat such a call only once.
    ("grpc.max_concurrent_streams", CALLS_MAX),
    ("grpc.compression_enabled_algorithms_bitset", _IDENTITY_ONLY),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 30_000),
    ("grpc.http2.max_ping_strikes", 2),
    ("grpc.max_connection_idle_ms", 600_000),
)


class GrpcServer:
    """The gRPC API of a scheduler. Made inside a running event loop."""

    def __init__(
        self,
        scheduler: Scheduler,
        config: ServerConfig,
        *,
        authorizer: Authorizer | None = None,
        observer: Observer | None = None,
        entities: Entities | None = None,
    ) -> None:
        require_upb()
        self._scheduler = scheduler
        self._health = health.aio.HealthServicer()
        self._server = grpc.aio.server(options=_OPTIONS, maximum_concurrent_rpcs=CALLS_MAX)
        self._watchers = Watchers()
        authorizer = authorizer or Authorizer(scheduler.store.tokens, clock=SystemClock())
        entities = entities or entities_of(scheduler)
        served = {
            SERVICE: SchedulerRpcs(scheduler, authorizer, self._watchers),
            ENTITY_SERVICE: EntityRpcs(entities),
            STATE_SERVICE: StateRpcs(entities),
        }
        for service, rpcs in served.items():
            boundary = ServiceBoundary(
                rpcs, authorizer, observer or SilentObserver(), service, scheduler.tracing,
                sight=partial(sight_of, redaction=authorizer.redaction, reports=scheduler.reports),
            )  # fmt: skip
            self._server.add_generic_rpc_handlers(
                (grpc.method_handlers_generic_handler(service.full_name, boundary.handlers()),)
            )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self.address = _listen(self._server, config)

    def __repr__(self) -> str:
        return f"GrpcServer({self.address})"

    async def serve(self, *, stop: asyncio.Event) -> None:
        """Answer calls until `stop` is set, then end those that are under way."""
        await self._tell_health()
        await self._server.start()
        try:
            while not stop.is_set():
                if not await wait_set(stop, HEALTH_EVERY_S):
                    await self._tell_health()
            self._watchers.stop.set()
            await self._health.enter_graceful_shutdown()
        finally:
            await self._server.stop(GRACEFUL_S)

    async def _tell_health(self) -> None:
        """Serving is who has a store that answers."""
        answer = health_pb2.HealthCheckResponse
        status = answer.SERVING if await self._store_answers() else answer.NOT_SERVING
        services = (SERVICE, ENTITY_SERVICE, STATE_SERVICE)
        for name in ("", *(service.full_name for service in services)):
            await self._health.set(name, status)

    async def _store_answers(self) -> bool:
        try:
            await self._scheduler.store.installation.now()
        except GnomonError:
            return False
        return True


def _listen(server: grpc.aio.Server, config: ServerConfig) -> str:
    """Take the port, or say that it is taken; `ServerConfig` has refused what is not safe."""
    assert config.grpc_port is not None
    host = f"[{config.host}]" if ":" in config.host else config.host
    place, credentials = f"{host}:{config.grpc_port}", _credentials(config)
    try:
        if credentials is None:
            port = server.add_insecure_port(place)
        else:
            port = server.add_secure_port(place, credentials)
    except RuntimeError:
        port = 0
    if port == 0:
        raise ConfigurationError(
            "server.grpc_port",
            f"cannot listen on {place}; choose another --grpc-port",
        )
    return f"{host}:{port}"


def _credentials(config: ServerConfig) -> grpc.ServerCredentials | None:
    """TLS as configured: with an authority, callers must have a certificate of its."""
    if config.grpc_tls is None:
        return None
    cert, key = config.grpc_tls
    authority = config.grpc_tls_client_ca
    pair = (_read("server.grpc_tls_key", key), _read("server.grpc_tls_cert", cert))
    return grpc.ssl_server_credentials(
        [pair],
        root_certificates=(
            None if authority is None else _read("server.grpc_tls_client_ca", authority)
        ),
        require_client_auth=authority is not None,
    )


def _read(path: str, file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as exc:
        raise ConfigurationError(path, f"{file} cannot be read: {exc.strerror}") from None


def require_upb() -> None:
    """Errors: ConfigurationError, when protobuf runs on its slow and laxer Python parser."""
    parser = api_implementation.Type()
    if parser != "upb":
        raise ConfigurationError(
            "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION",
            f"must not choose another parser than upb (it is {parser!r}); unset it",
        )
