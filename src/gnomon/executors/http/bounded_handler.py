"""How much of an answer is taken off the wire, whatever it consists of.

The parser bounds lines and headers, and a body is read no faster than somebody wants it. What is
left are parts that nobody reads: interim answers (`100 Continue`) without end, each a message kept
in memory, and the extensions of a chunk. A receiver that sends those as fast as it can would cost
a gigabyte and the second of every other action.
"""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import ClientPayloadError
from aiohttp.client_proto import ResponseHandler
from aiohttp.http_exceptions import HttpProcessingError

BYTES_MAX = 1024 * 1024  # with all that buffers hold beyond what is read of a body
MESSAGES_MAX = 100  # interim ones and the answer itself
# Parsed at once: so small that it holds no more messages than may be kept.
PIECE_BYTES = 4096


class BoundedHandler(ResponseHandler):
    """Gives up on a receiver that says too much in answer to one request."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._bytes_left = BYTES_MAX
        self._messages_left = MESSAGES_MAX

    def set_response_params(self, **params: Any) -> None:
        """Called before every request."""
        self._bytes_left, self._messages_left = BYTES_MAX, MESSAGES_MAX
        super().set_response_params(**params)

    def feed_data(self, data: Any, size: int = 0) -> None:
        self._messages_left -= 1
        super().feed_data(data, size)

    def data_received(self, data: bytes) -> None:
        self._bytes_left -= len(data)
        if len(data) <= PIECE_BYTES:
            self._take(data)
            return
        for start in range(0, len(data), PIECE_BYTES):
            self._take(data[start : start + PIECE_BYTES])

    def resume_reading(self, resume_parser: bool = True) -> None:  # noqa: FBT001, FBT002 - aiohttp's
        """Asked for after every read, mostly of a receiver that was never told to pause: then there
        is nothing left to parse, either."""
        if self._reading_paused or self._buffer_paused:
            super().resume_reading(resume_parser)

    def _take(self, piece: bytes) -> None:
        if self._messages_left >= 0 and self._bytes_left >= 0:
            super().data_received(piece)
        elif self._exception is None:
            self._give_up()

    def _give_up(self) -> None:
        message = f"Got more than {BYTES_MAX} bytes or {MESSAGES_MAX} messages"
        self.set_exception(HttpProcessingError(code=400, message=message))
        if self._payload is not None and not self._payload.is_eof():
            self._payload.set_exception(ClientPayloadError(message))
        if self.transport is not None:
            self.transport.abort()
