"""An event loop, for a driver, whose connections hang up on a peer that says too much.

A driver that knows no bound collects a message until it is whole, and its peer says how long it is.
So it is given this instead of the loop: what arrives is counted before the driver sees it, from the
first byte on, under TLS and without.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class BoundedLoop:
    """The running loop; all connections made through it may receive `bytes_max` together."""

    def __init__(self, bytes_max: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._left = bytes_max

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    @property
    def is_exceeded(self) -> bool:
        return self._left < 0

    def take(self, byte_count: int) -> bool:
        """Count what arrived; whether it may be passed on."""
        self._left -= byte_count
        return self._left >= 0

    async def create_connection(
        self, make: Callable[[], Any], *args: Any, **options: Any
    ) -> tuple[Any, Any]:
        _, guard = await self._loop.create_connection(
            lambda: _Guard(make(), self), *args, **options
        )
        return guard.transport, guard.inner

    async def create_unix_connection(
        self, make: Callable[[], Any], *args: Any, **options: Any
    ) -> tuple[Any, Any]:
        _, guard = await self._loop.create_unix_connection(
            lambda: _Guard(make(), self), *args, **options
        )
        return guard.transport, guard.inner

    async def start_tls(
        self, transport: _Transport, protocol: Any, *args: Any, **options: Any
    ) -> _Transport | None:
        guard = _Guard(protocol, self)
        raw = await self._loop.start_tls(transport.raw, guard, *args, **options)
        return None if raw is None else _Transport(raw, self)


class _Transport:
    """A transport that keeps a guard before whatever protocol it is given."""

    def __init__(self, raw: Any, loop: BoundedLoop) -> None:
        self.raw = raw
        self._bounded = loop

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)

    def set_protocol(self, protocol: Any) -> None:
        guard = _Guard(protocol, self._bounded)
        guard.transport = self
        self.raw.set_protocol(guard)


class _Guard(asyncio.Protocol):
    """Stands before the driver's protocol."""

    transport: _Transport

    def __init__(self, inner: Any, loop: BoundedLoop) -> None:
        self.inner = inner
        self._bounded = loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = _Transport(transport, self._bounded)
        self.inner.connection_made(self.transport)

    def data_received(self, data: bytes) -> None:
        if self._bounded.take(len(data)):
            self.inner.data_received(data)
        else:
            self.transport.raw.abort()

    def eof_received(self) -> Any:
        return self.inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self.inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        self.inner.resume_writing()
