"""A proxy before the server: it shows it below a path, and can be cut."""

from __future__ import annotations

from typing import Self

import aiohttp
from aiohttp import web

KEPT = ("Content-Type", "ETag", "Content-Security-Policy")


class Front:
    """The server below /tools/gnomon/, for as long as the block lasts."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._is_down = False
        app = web.Application()
        app.router.add_route("*", "/tools/gnomon/{rest:.*}", self._forward)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession()
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/tools/gnomon/"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()
        await self._session.close()

    def cut(self) -> None:
        """End every connection, and answer nobody."""
        self._is_down = True
        assert self._runner.server is not None
        for connection in self._runner.server.connections:
            if connection.transport is not None:
                connection.transport.abort()

    def heal(self) -> None:
        self._is_down = False

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        if self._is_down:
            return web.Response(status=502)
        url = f"{self._target}/{request.match_info['rest']}?{request.query_string}"
        sent = await request.read()
        async with self._session.request(request.method, url, data=sent) as answer:
            kept = {name: answer.headers[name] for name in KEPT if name in answer.headers}
            found = web.StreamResponse(status=answer.status, headers=kept)
            await found.prepare(request)
            async for part in answer.content.iter_any():
                await found.write(part)
            return found
