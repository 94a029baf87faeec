"""A real server on a free port, over SQLite in a file of its own."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gnomon.app import App
from gnomon.client import Client
from gnomon.contracts.store import Selection
from gnomon.gateways.config import ServerConfig
from gnomon.gateways.rest.app import create_rest
from gnomon.gateways.rest.server import bind, serve
from gnomon.telemetry.metrics import Metrics
from gnomon.telemetry.page import MetricsPage
from tests.conformance.gateway.recorder import Recorder


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Gateway:
    """The server, and a caller that may send anything."""

    url: str
    app: App
    session: aiohttp.ClientSession
    recorder: Recorder

    async def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        raw: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        sent = {"Content-Type": "application/json", **(headers or {})}
        sendable = raw is not None or body is not None
        data = io.BytesIO(json.dumps(body).encode() if raw is None else raw) if sendable else None
        async with self.session.request(
            method, self.url + path, data=data, headers=sent
        ) as response:
            return Answer(response.status, response.headers, await response.read())

    async def create(self, id: str, **spec: object) -> Any:
        """An action that is due in the far future, unless told otherwise."""
        whole = {"action": {"type": "mock"}, "start_at": "2100-01-01T00:00:00Z", **spec}
        answer = await self.call("POST", "/v1/actions", {"id": id, "spec": whole})
        assert 201 == answer.status, answer.body
        return answer.json

    async def ids(self) -> set[str]:
        page = await self.app.scheduler.list(Selection(), limit=1000)
        return {action.meta.id for action in page.actions}

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    recorder = Recorder()
    stop = asyncio.Event()
    async with App(f"sqlite:///{tmp_path / 'gateway.db'}") as app:
        rest = create_rest(
            app.scheduler,
            health=lambda: {"workers": 0},
            metrics=MetricsPage(Metrics()),
            observer=recorder,
        )
        listener = bind(ServerConfig(port=0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        serving = asyncio.create_task(serve(rest, listener, stop=stop))
        async with aiohttp.ClientSession() as session:
            yield Gateway(url, app, session, recorder)
        stop.set()
        await serving


@pytest.fixture
async def client(gateway: Gateway) -> AsyncIterator[Client]:
    async with Client(gateway.url) as found:
        yield found
