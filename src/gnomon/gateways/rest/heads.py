"""Callers get a few seconds for the head of a request.

uvicorn waits for it without end, and counts who is waited for: a thousand callers who send a byte
now and then would be all that it serves. Bodies have a bound of their own (`reading`), and callers
who have been answered have uvicorn's for keeping a connection.
"""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_TIMEOUT_S = 10.0


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
