"""Connections to checked addresses: names are resolved here, once, and what was checked is what is
connected to."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.connector import Connection
from aiohttp.tracing import Trace

from gnomon.executors.http.policy import Policy

# (name, port, family) -> what `getaddrinfo` gives as (family, address).
Lookup = Callable[
    [str, int, socket.AddressFamily], Awaitable[Sequence[tuple[socket.AddressFamily, str]]]
]


async def system_lookup(
    name: str, port: int, family: socket.AddressFamily
) -> Sequence[tuple[socket.AddressFamily, str]]:
    """By the resolver of the system."""
    found = await asyncio.get_running_loop().getaddrinfo(
        name, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
    )
    return [(kind, str(place[0])) for kind, _, _, _, place in found]


class CheckedResolver(AbstractResolver):
    """Gives addresses only if all of them are allowed."""

    def __init__(self, policy: Policy, lookup: Lookup = system_lookup) -> None:
        self._policy = policy
        self._lookup = lookup

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        # With a dot at the end no search list is tried: `x.y` cannot become `x.y.svc.example`.
        named = self._policy.is_named(host, port)
        name = host if named else f"{host.rstrip('.')}."
        found = await self._lookup(name, port, family)
        if not found:
            raise OSError(None, "no address")
        self._policy.check(host, port, [address for _, address in found])
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=kind,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for kind, address in found
        ]

    async def close(self) -> None:
        """Nothing is kept."""


class CheckedConnector(aiohttp.TCPConnector):
    """Looks at the other end of every connection before a request is written into it."""

    def __init__(
        self,
        policy: Policy,
        *,
        lookup: Lookup = system_lookup,
        limit: int,
        limit_per_host: int,
        keepalive_timeout: float,
    ) -> None:
        super().__init__(
            resolver=CheckedResolver(policy, lookup),
            limit=limit,
            limit_per_host=limit_per_host,
            keepalive_timeout=keepalive_timeout,
        )
        self._policy = policy

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's
    ) -> Connection:
        connection = await super().connect(req, traces, timeout)
        try:
            peer = connection.transport and connection.transport.get_extra_info("peername")
            if not peer:
                raise aiohttp.ServerDisconnectedError
            self._policy.check(req.url.raw_host or "", req.url.port or 0, [peer[0]])
        except BaseException:
            connection.close()
            raise
        return connection
