"""Connections to checked addresses: names are resolved here, once, and what was checked is what is
connected to.

Behind an egress proxy it is the proxy that resolves and connects. The name is then looked up and
checked here all the same, before the proxy hears of it, unless the operator leaves that to it.
"""

from __future__ import annotations

import functools
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler
from aiohttp.tracing import Trace

from gnomon.executors.http.bounded_handler import BoundedHandler
from gnomon.executors.http.policy import Policy
from gnomon.executors.http.proxy import EgressProxy
from gnomon.model.addresses import literal_of

# (name, port, family) -> what `getaddrinfo` gives as (family, address).
Lookup = Callable[
    [str, int, socket.AddressFamily], Awaitable[Sequence[tuple[socket.AddressFamily, str]]]
]


class CheckedResolver(AbstractResolver):
    """Gives addresses only if all of them are allowed; those of the proxy are the operator's."""

    def __init__(
        self,
        policy: Policy,
        lookup: Lookup,
        *,
        proxy_place: tuple[str, int] | None = None,
    ) -> None:
        self._policy = policy
        self._lookup = lookup
        self._proxy_place = proxy_place

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        is_proxy = (host, port) == self._proxy_place
        find = self._looked_up if is_proxy else self.checked
        addresses = await find(host, port, family)
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=kind,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for kind, address in addresses
        ]

    async def checked(
        self, host: str, port: int, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> Sequence[tuple[socket.AddressFamily, str]]:
        """The addresses of a receiver. Errors: NotAllowedError; OSError, if there are none."""
        # With a dot at the end no search list is tried: `x.y` cannot become `x.y.svc.example`.
        named = self._policy.is_named(host, port)
        name = host if named else f"{host.rstrip('.')}."
        addresses = await self._looked_up(name, port, family)
        self._policy.check(host, port, [address for _, address in addresses])
        return addresses

    async def _looked_up(
        self, name: str, port: int, family: socket.AddressFamily
    ) -> Sequence[tuple[socket.AddressFamily, str]]:
        addresses = await self._lookup(name, port, family)
        if not addresses:
            raise OSError(None, "no address")
        return addresses

    async def close(self) -> None:
        """Nothing is kept."""


class CheckedConnector(aiohttp.TCPConnector):
    """Looks at the other end of every connection before a request is written into it."""

    def __init__(
        self,
        policy: Policy,
        *,
        lookup: Lookup,
        limit: int,
        limit_per_host: int,
        keepalive_timeout: float,
        proxy: EgressProxy | None = None,
        proxy_resolves: bool = False,
    ) -> None:
        resolver = CheckedResolver(policy, lookup, proxy_place=proxy.place if proxy else None)
        super().__init__(
            resolver=resolver,
            limit=limit,
            limit_per_host=limit_per_host,
            keepalive_timeout=keepalive_timeout,
        )
        self._factory = cast(
            "functools.partial[ResponseHandler]",
            functools.partial(BoundedHandler, loop=self._loop),
        )
        self._policy = policy
        self._checked_resolver = resolver
        self._proxy_resolves = proxy_resolves

    async def _create_connection(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's
    ) -> ResponseHandler:
        if req.proxy is None:
            return self._checked(req, await super()._create_connection(req, traces, timeout))
        await self._check_before_proxy(req)
        try:
            return await super()._create_connection(req, traces, timeout)
        except aiohttp.ClientConnectorDNSError as exc:  # of the proxy: nothing else is looked up
            raise aiohttp.ClientProxyConnectionError(req.connection_key, exc.os_error) from exc

    def _checked(self, req: aiohttp.ClientRequest, handler: ResponseHandler) -> ResponseHandler:
        """Once is enough: a connection is kept for its host and port only, and its other end stays
        what it is."""
        try:
            peer = handler.transport and handler.transport.get_extra_info("peername")
            if not peer:
                raise aiohttp.ServerDisconnectedError
            self._policy.check(req.url.raw_host or "", req.url.port or 0, [peer[0]])
        except BaseException:
            handler.close()
            raise
        return handler

    async def _check_before_proxy(self, req: aiohttp.ClientRequest) -> None:
        """What is written as an address was checked when the URL was admitted."""
        host = req.url.raw_host or ""
        if self._proxy_resolves or literal_of(host) is not None:
            return
        try:
            await self._checked_resolver.checked(host, req.url.port or 0)
        except OSError as exc:
            raise aiohttp.ClientConnectorDNSError(req.connection_key, exc) from exc
