"""A real gRPC server on a free port, over SQLite in a file of its own, and a client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import pytest

from gnomon.app import App
from gnomon.gateways.config import ServerConfig
from gnomon.gateways.grpc.server import GrpcServer
from gnomon.stages.wire import write_time
from gnomon.v1 import action_pb2, scheduler_pb2, scheduler_pb2_grpc
from tests.conformance.gateway.recorder import Recorder
from tests.fixtures.postgres import PostgresSchema

FUTURE = datetime(2100, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Served:
    """The server, its client, and what it runs on."""

    address: str
    app: App
    recorder: Recorder
    channel: grpc.aio.Channel
    stub: Any  # the typed one wants every rpc to be a call object

    async def create(self, id: str, **spec: Any) -> scheduler_pb2.Changed:
        """An action that is due in the far future."""
        request = scheduler_pb2.CreateRequest(id=id, spec=spec_of(**spec))
        answer: scheduler_pb2.CreateResponse = await self.stub.Create(request)
        return answer.changed


def spec_of(**fields: Any) -> action_pb2.Spec:
    """A mock that is due in the far future, unless told otherwise."""
    fields.setdefault("action", action_pb2.Action(mock=action_pb2.MockAction()))
    fields.setdefault("start_policy", action_pb2.StartPolicy(start_at=write_time(FUTURE)))
    return action_pb2.Spec(**fields)


@asynccontextmanager
async def serving(app: App) -> AsyncIterator[Served]:
    recorder, stop = Recorder(), asyncio.Event()
    async with app:
        server = GrpcServer(app.scheduler, ServerConfig(grpc_port=0), observer=recorder)
        running = asyncio.create_task(server.serve(stop=stop))
        async with grpc.aio.insecure_channel(server.address) as channel:
            stub = scheduler_pb2_grpc.SchedulerServiceStub(channel)
            yield Served(server.address, app, recorder, channel, stub)
        stop.set()
        await running


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(App(f"sqlite:///{tmp_path / 'grpc.db'}")) as found:
        yield found


@pytest.fixture
async def served_by_postgres(installed_schema: PostgresSchema) -> AsyncIterator[Served]:
    async with serving(App(installed_schema.dsn, schema=installed_schema.schema)) as found:
        yield found
