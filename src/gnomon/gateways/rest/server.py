"""Serving: uvicorn on a socket of ours, stopped by an event and not by signals."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Generator

import uvicorn
from litestar import Litestar

from gnomon.clock import wait_set
from gnomon.gateways.config import ServerConfig
from gnomon.gateways.rest.heads import TimedProtocol
from gnomon.model.errors import ConfigurationError

BACKLOG = 1024
GRACEFUL_S = 5
TICK_S = 0.1  # uvicorn's own
TICKS_MAX = 864_000
CONNECTIONS_MAX = 1000


class _Server(uvicorn.Server):
    """Leaves signals to the process that it is a part of, and ends when it is told."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._leaving = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    def leave(self) -> None:
        self.should_exit = True
        self._leaving.set()

    async def main_loop(self) -> None:
        """As uvicorn's, which would sleep its tick to the end before it looks."""
        count = 0
        while not await self.on_tick(count):
            count = (count + 1) % TICKS_MAX
            await wait_set(self._leaving, TICK_S)


def bind(config: ServerConfig) -> socket.socket:
    """Take the port, or say that it is taken; `ServerConfig` has refused what is not safe."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    taken = socket.socket(family, socket.SOCK_STREAM)
    try:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind((config.host, config.port))
        taken.listen(BACKLOG)
    except OSError as exc:
        taken.close()
        raise ConfigurationError(
            "server.port",
            f"cannot listen on {config.host}:{config.port} ({exc.strerror}); choose another --port",
        ) from exc
    return taken


async def serve(
    app: Litestar,
    listener: socket.socket,
    *,
    stop: asyncio.Event,
    config: ServerConfig | None = None,
) -> None:
    """Answer requests until `stop` is set, then end those that are under way."""
    config = config or ServerConfig()
    server = _Server(
        uvicorn.Config(
            app,
            http=TimedProtocol,
            access_log=False,
            log_config=None,
            lifespan="off",
            server_header=False,
            limit_concurrency=CONNECTIONS_MAX,
            timeout_graceful_shutdown=GRACEFUL_S,
            ssl_certfile=config.tls_cert,
            ssl_keyfile=config.tls_key,
        )
    )
    _load_tls(server.config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        server.leave()
        stopping.cancel()
        await serving


def _load_tls(config: uvicorn.Config) -> None:
    """Read certificate and key now, and say it if they cannot be used."""
    try:
        config.load()
    except (OSError, ssl.SSLError) as exc:
        raise ConfigurationError("server.tls_cert", f"cannot be used: {exc}") from exc
