"""A server that needs tokens, with a clock that is moved by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp

from gnomon.app import App
from gnomon.clock import SystemEntropy
from gnomon.contracts.task_rows import TaskRows
from gnomon.gateways.auth import Authorizer, issue
from gnomon.gateways.config import ServerConfig
from gnomon.gateways.rest.app import create_rest
from gnomon.gateways.rest.server import bind, serve
from gnomon.gateways.watchers import Watchers
from tests.conformance.gateway.conftest import Answer, Gateway
from tests.conformance.gateway.recorder import Recorder

SPEC = {"action": {"type": "mock"}, "start_at": "2100-01-01T00:00:00Z"}


class ManualClock:
    """Stands still until it is told."""

    def __init__(self) -> None:
        self.at = 1000.0

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.at, UTC)

    def monotonic(self) -> float:
        return self.at


@dataclass(frozen=True)
class Guarded(Gateway):
    """The same caller, who may bear a token."""

    clock: ManualClock
    watchers: Watchers

    async def token(self, name: str, *scopes: str, **limits: Any) -> str:
        """A new token of a name; everything is allowed unless scopes are given."""
        text, draft = issue(name, scopes or ("admin",), entropy=SystemEntropy(), **limits)
        await self.app.store.tokens.create(draft)
        return text

    async def ask(
        self,
        token: str | None,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        bearing = {} if token is None else {"Authorization": f"Bearer {token}"}
        return await self.call(method, path, body, headers={**bearing, **(headers or {})})

    async def post(self, token: str | None, id: str) -> Answer:
        return await self.ask(token, "POST", "/v1/actions", {"id": id, "spec": SPEC})


@asynccontextmanager
async def guarded_server(
    folder: Path,
    *,
    required: bool = False,
    trusted_s: float = 0.0,
    config: ServerConfig | None = None,
    task_tables: Mapping[str, TaskRows] | None = None,
) -> AsyncIterator[Guarded]:
    clock, recorder, stop = ManualClock(), Recorder(), asyncio.Event()
    config = config or ServerConfig(port=0)
    async with App(f"sqlite:///{folder / 'guarded.db'}") as app:
        authorizer = Authorizer(
            app.store.tokens,
            clock=clock,
            required=required,
            trusted_s=trusted_s,
            redact=config.redact,
        )
        rest = create_rest(
            app.scheduler,
            observer=recorder,
            authorizer=authorizer,
            stop=stop,
            task_tables=task_tables,
        )
        listener = bind(config)
        scheme = config.url.partition(":")[0]
        url = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"
        serving = asyncio.create_task(serve(rest, listener, stop=stop, config=config))
        try:
            async with aiohttp.ClientSession() as session:
                yield Guarded(url, app, session, recorder, clock, rest.services.watchers)
        finally:
            stop.set()
            await serving
