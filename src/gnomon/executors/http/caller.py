"""One request into a checked connection, and the answer that comes back.

The connector makes, checks and keeps the connections, and aiohttp's parser reads the answers. Its
session has no part in it: redirects, cookies, repeated requests and bodies of all kinds are not
wanted here, and looking for them on every call costs more than all the rest of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import TracebackType
from typing import Self

import aiohttp
from aiohttp.connector import Connection
from aiohttp.http import RawResponseMessage
from aiohttp.streams import StreamReader
from yarl import URL

from gnomon.executors.http.connector import CheckedConnector
from gnomon.executors.http.request import Destination

WAYS_MAX = 4096

_NO_BODY = frozenset({"HEAD"})  # methods whose answers have none
_SWITCHING = 101  # an interim answer that nothing follows


class HttpResponse:
    """An answer whose head is there. At the end its connection is kept, if it can be."""

    __slots__ = ("_connection", "content", "headers", "status")

    def __init__(
        self, connection: Connection, message: RawResponseMessage, content: StreamReader
    ) -> None:
        self._connection = connection
        self.status = message.code
        self.headers = message.headers
        self.content = content

    def close(self) -> None:
        """Hang up: there is more to come, or something went wrong."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _: type[BaseException] | None, exc: BaseException | None, __: TracebackType | None
    ) -> None:
        transport = self._connection.transport
        if exc is not None or transport is None or transport.get_write_buffer_size():
            self._connection.close()  # a request that is not all sent would run into the next one
        else:
            self._connection.release()


class HttpCaller:
    """Sends requests, each of them once."""

    def __init__(
        self,
        connector: CheckedConnector,
        *,
        connect_timeout_s: float,
        login: Mapping[str, str] | None,
    ) -> None:
        self._connector = connector
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout_s)
        self._login = login
        self._ways = lru_cache(WAYS_MAX)(_way)

    async def send(self, there: Destination, method: str, message: bytes) -> HttpResponse:
        """Send a message once, and wait for the head of its answer. Errors: those of aiohttp and of
        its parser; NotAllowedError."""
        connection = await self._connected(self._way_to(there))
        try:
            return await _answer(connection, method, message)
        except BaseException:
            connection.close()
            raise

    async def close(self) -> None:
        """Hang up everywhere."""
        await self._connector.close()

    def _way_to(self, there: Destination) -> aiohttp.ClientRequest:
        """Where to connect to, as the connector is told: a request that is never sent."""
        url = there.url
        if there.proxy is None:
            return self._ways(url.scheme, url.raw_host or "", url.port)
        login = None if there.is_relayed else self._login  # to make the tunnel
        # Not remembered: the connector writes into it.
        return aiohttp.ClientRequest("GET", url, proxy=there.proxy, proxy_headers=login)

    async def _connected(self, way: aiohttp.ClientRequest) -> Connection:
        try:
            return await self._connector.connect(way, [], self._timeout)
        except TimeoutError as exc:
            raise aiohttp.ConnectionTimeoutError from exc


def _way(scheme: str, host: str, port: int | None) -> aiohttp.ClientRequest:
    return aiohttp.ClientRequest("GET", URL.build(scheme=scheme, host=host, port=port))


async def _answer(connection: Connection, method: str, message: bytes) -> HttpResponse:
    protocol, transport = connection.protocol, connection.transport
    if protocol is None or transport is None or transport.is_closing():
        raise aiohttp.ServerDisconnectedError
    protocol.set_response_params(
        skip_payload=method in _NO_BODY, read_until_eof=True, auto_decompress=False
    )
    transport.write(message)
    while True:
        head, content = await protocol.read()
        if not 100 <= head.code <= 199 or head.code == _SWITCHING:
            return HttpResponse(connection, head, content)
