"""The proxy of the fault tests reads what a server answers, so nothing of it may be encrypted."""

from __future__ import annotations

import asyncio

from tests.fixtures.proxy import NO_SSL, SSL_REQUEST, Proxy

TIMEOUT_S = 10.0
FIRST_WORDS = b"startup"


async def test_who_asks_for_tls_is_told_that_there_is_none() -> None:
    """Although the server has it, as a node of Citus does: it is not even asked."""
    heard: asyncio.Queue[bytes] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            heard.put_nowait(data)
            writer.write(b"S" if data == SSL_REQUEST else b"")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    dsn = f"postgresql://nobody@127.0.0.1:{server.sockets[0].getsockname()[1]}/none"
    async with server, asyncio.timeout(TIMEOUT_S), Proxy(dsn) as proxy:
        port = int(proxy.dsn.rpartition(":")[2].partition("/")[0])
        answers, client = await asyncio.open_connection("127.0.0.1", port)
        client.write(SSL_REQUEST)
        assert NO_SSL == await answers.readexactly(1)
        client.write(FIRST_WORDS)
        assert FIRST_WORDS == await heard.get()
        client.close()
