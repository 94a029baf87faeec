"""Serving: uvicorn on a socket of ours, stopped by an event and not by signals.

Callers get a few seconds for the head of a request. uvicorn waits for it without end, and counts
who is waited for: a thousand callers who send a byte now and then would be all that it serves.
Bodies have a bound of their own (`call`), and callers who have been answered have uvicorn's for
keeping a connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Generator

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from gnomon.clock import wait_set
from gnomon.gateways.config import ServerConfig
from gnomon.model.errors import ConfigurationError

BACKLOG = 1024
GRACEFUL_S = 5
TICK_S = 0.1  # uvicorn's own
TICKS_MAX = 864_000
CONNECTIONS_MAX = 1000
HEAD_TIMEOUT_S = 10.0


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


class TimedProtocol(H11Protocol):
    """Hangs up on callers that do not get to the end of a head in time."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._expect_head()
        else:
            self._forget_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_head()
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        """From the first byte on: what is sent meanwhile buys no time."""
        if self._late is None:
            self._late = self.loop.call_later(HEAD_TIMEOUT_S, self.transport.abort)

    def _forget_head(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


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
    app: ASGIApp,
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
            ws="none",
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
