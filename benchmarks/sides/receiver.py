"""A receiver of HTTP calls: the least that can be called a server, so that callers are measured.

Speaks of itself like a worker program: `ready` with its port, then how many calls it has answered.
"""

from __future__ import annotations

import asyncio
from typing import cast

import uvloop

from benchmarks.sides.worker import Tally, say

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: text/plain\r\n\r\nok"


class Calls(asyncio.Protocol):
    """Answers each call when all of it is there."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._buffer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop lacks the base

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (size := self._size()) is not None and len(self._buffer) >= size:
            self._buffer = self._buffer[size:]
            self._tally.add()
            assert self._transport is not None
            self._transport.write(ANSWER)

    def _size(self) -> int | None:
        """Of the call at the front; None until its headers are there."""
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return None
        head = self._buffer[:end].lower()
        _, found, rest = head.partition(b"\r\ncontent-length:")
        return end + 4 + (int(rest.partition(b"\r\n")[0]) if found else 0)


async def serve() -> None:
    tally = Tally()
    server = await asyncio.get_running_loop().create_server(lambda: Calls(tally), "127.0.0.1", 0)
    say({"event": "port", "value": server.sockets[0].getsockname()[1]})
    await asyncio.to_thread(tally.wait_go)
    await asyncio.to_thread(tally.wait_stop)
    server.close()
    tally.bye()


if __name__ == "__main__":
    uvloop.run(serve())
