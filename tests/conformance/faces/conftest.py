"""One installation with all its faces: REST, gRPC, the Python client and the command line."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import psycopg
import pytest

from gnomon.app import App
from gnomon.client import Client
from gnomon.clock import SystemEntropy
from gnomon.contracts.task_rows import TaskRows
from gnomon.gateways.auth import issue
from gnomon.gateways.config import ServerConfig
from gnomon.gateways.grpc.server import GrpcServer
from gnomon.gateways.rest.app import create_rest
from gnomon.gateways.rest.server import bind, serve
from tests.conformance.faces.faces import Cli, Face, Grpc, PythonClient, Rest

Execute = Callable[[str], list[Any]]


@dataclass(frozen=True)
class Place:
    """An installation, how it is named on the command line, and a way to write behind its back."""

    app: App
    options: tuple[str, ...]
    execute: Execute
    hold: Callable[[str], AbstractContextManager[None]]  # what a SELECT … FOR UPDATE locks

    @property
    def is_sqlite(self) -> bool:
        return self.app.settings.database.engine == "sqlite"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def closed_place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "postgres":
        dsn, schema = request.getfixturevalue("installed_schema")
        return Place(
            App(dsn, schema=schema, migrate=True),
            ("--database", dsn, "--schema", schema),
            lambda sql: _on_postgres(dsn, schema, sql),
            lambda sql: _held_on_postgres(dsn, schema, sql),
        )
    path = tmp_path / "faces.db"
    url = f"sqlite:///{path}"
    return Place(
        App(url, migrate=True),
        ("--database", url),
        lambda sql: _on_sqlite(path, sql),
        lambda _: _held_on_sqlite(path),
    )


@pytest.fixture
async def place(closed_place: Place) -> AsyncIterator[Place]:
    async with closed_place.app:
        yield closed_place


def _on_postgres(dsn: str, schema: str, sql: str) -> list[Any]:
    options = f"-c search_path={schema}"
    with psycopg.connect(dsn, autocommit=True, options=options) as connection:
        cursor = connection.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []


def _on_sqlite(path: Path, sql: str) -> list[Any]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return connection.execute(sql).fetchall()


@contextmanager
def _held_on_postgres(dsn: str, schema: str, sql: str) -> Iterator[None]:
    with psycopg.connect(dsn, options=f"-c search_path={schema}") as connection:
        assert 1 == connection.execute(f"{sql} FOR UPDATE".encode()).rowcount
        yield
        connection.rollback()


@contextmanager
def _held_on_sqlite(path: Path) -> Iterator[None]:
    """Who writes there holds all of it."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


@pytest.fixture(params=["rest", "grpc", "client", "cli"])
async def face(request: pytest.FixtureRequest, place: Place) -> AsyncIterator[Face]:
    match request.param:
        case "grpc":
            async with _grpc(place.app) as channel:
                yield Grpc(channel)
        case "cli":
            yield Cli(place.options)
        case "client":
            async with _rest(place.app) as url, Client(url) as client:
                yield PythonClient(client)
        case _:
            async with (
                _rest(place.app) as url,
                aiohttp.ClientSession() as session,
            ):
                yield Rest(url, session)


@asynccontextmanager
async def _rest(app: App, **task_tables: TaskRows) -> AsyncIterator[str]:
    stop = asyncio.Event()
    rest = create_rest(app.scheduler, stop=stop, task_tables=task_tables)
    listener = bind(ServerConfig(port=0))
    serving = asyncio.create_task(serve(rest, listener, stop=stop))
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    stop.set()
    await serving


@pytest.fixture
async def tasks_face(task_rows: TaskRows, tmp_path: Path) -> AsyncIterator[Rest]:
    """The one face that task tables have; the installation itself is another database."""
    text, draft = issue("x", ("read", "write", "table:shop"), entropy=SystemEntropy())
    bearing = {"Authorization": f"Bearer {text}"}
    async with (
        App(f"sqlite:///{tmp_path / 'faces.db'}") as app,
        _rest(app, shop=task_rows) as url,
        aiohttp.ClientSession(headers=bearing) as session,
    ):
        await app.store.tokens.create(draft)
        yield Rest(url, session)


@asynccontextmanager
async def _grpc(app: App) -> AsyncIterator[grpc.aio.Channel]:
    stop = asyncio.Event()
    server = GrpcServer(app.scheduler, ServerConfig(grpc_port=0))
    serving = asyncio.create_task(server.serve(stop=stop))
    async with grpc.aio.insecure_channel(server.address) as channel:
        yield channel
    stop.set()
    await serving
