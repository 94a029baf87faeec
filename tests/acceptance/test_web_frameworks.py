"""An app that lives with a web app, in the real frameworks; the shop of the examples."""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import fastapi
import httpx
import pytest
import uvicorn
from litestar import Litestar
from litestar import get as litestar_get
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

import gnomon
from gnomon.testing import ActionBench
from tests.fixtures.postgres import PostgresSchema
from tests.fixtures.processes import Processes

ROOT = Path(__file__).parents[2]
WAIT_S = 60


@pytest.fixture
def app(tmp_path: Path) -> gnomon.App:
    made = gnomon.App(f"sqlite:///{tmp_path}/gnomon.db")

    @made.action
    async def shout(ctx: gnomon.Attempt, text: str) -> str:
        return text.upper()

    return made


async def shouted(app: gnomon.App) -> str:
    """By a worker, wherever it is."""
    effect = gnomon.Python(function="shout", args=["hello"])
    action = await app.schedule(effect)
    return str(await app.result(action.meta.id, timeout=WAIT_S))


def fastapi_app(app: gnomon.App, lifespan: Any) -> Any:
    web = fastapi.FastAPI(lifespan=lifespan)

    @web.get("/shout")
    async def shout() -> str:
        return await shouted(app)

    return web


def starlette_app(app: gnomon.App, lifespan: Any) -> Any:
    async def shout(request: Request) -> PlainTextResponse:
        return PlainTextResponse(await shouted(app))

    return Starlette(routes=[Route("/shout", shout)], lifespan=lifespan)


def litestar_app(app: gnomon.App, lifespan: Any) -> Any:
    @litestar_get("/shout")
    async def shout() -> str:
        return await shouted(app)

    return Litestar([shout], lifespan=[lifespan])


WEB_APPS: dict[str, Callable[[gnomon.App, Any], Any]] = {
    "fastapi": fastapi_app,
    "starlette": starlette_app,
    "litestar": litestar_app,
}


@contextmanager
def served(web: Any) -> Iterator[httpx.Client]:
    """By a real server, in a thread."""
    server = uvicorn.Server(uvicorn.Config(web, port=0, lifespan="on", log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            thread.join(0.02)
            assert thread.is_alive()
        port = server.servers[0].sockets[0].getsockname()[1]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=WAIT_S) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join()


@pytest.mark.parametrize("framework", sorted(WEB_APPS))
def test_a_web_app_that_is_its_own_worker(framework: str, app: gnomon.App) -> None:
    """Open while it serves, closed afterwards; and again."""
    for _ in range(2):
        web = WEB_APPS[framework](app, app.lifespan(worker=True))
        with served(web) as client:
            assert app.is_open
            answer = client.get("/shout")
            assert "HELLO" == answer.text.strip('"')
        assert not app.is_open


@pytest.mark.parametrize("framework", sorted(WEB_APPS))
def test_without_a_worker_it_only_schedules(framework: str, app: gnomon.App) -> None:
    """Another process works: here it is a thread."""
    stop = threading.Event()

    async def work() -> None:
        other = gnomon.App(settings=app.settings)
        other.adopt(app)
        ended = asyncio.Event()
        async with other, asyncio.TaskGroup() as group:
            group.create_task(other.work(ended))
            await asyncio.to_thread(stop.wait)
            ended.set()

    with served(WEB_APPS[framework](app, app.lifespan())) as client:
        thread = threading.Thread(target=asyncio.run, args=(work(),))
        thread.start()
        try:
            assert "HELLO" == client.get("/shout").text.strip('"')
        finally:
            stop.set()
            thread.join()


async def test_a_worker_that_cannot_work_ends_it(
    app: gnomon.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be a web app whose actions nobody performs."""

    async def broken(stop: asyncio.Event) -> None:
        raise gnomon.ConfigurationError("database.url", "is a copy")

    monkeypatch.setattr(app, "work", broken)
    with pytest.raises(ExceptionGroup) as caught:
        async with app.lifespan(worker=True)(object()):
            await asyncio.Event().wait()
    assert caught.group_contains(gnomon.ConfigurationError, match="is a copy")
    assert not app.is_open


async def test_an_error_at_the_start_is_the_web_apps_error() -> None:
    app = gnomon.App("postgresql://nobody@127.0.0.1:1/none")
    with pytest.raises(gnomon.StoreUnavailable):
        async with app.lifespan()(object()):
            pytest.fail("it must not serve")
    assert not app.is_open


def test_the_shop_of_the_examples(processes: Processes, postgres_schema: PostgresSchema) -> None:
    """Under a real server, on PostgreSQL; an interrupt ends it after what is under way."""
    dsn, schema = postgres_schema
    with gnomon.App(dsn, schema=schema, migrate=True).blocking:
        pass  # as `gnomon migrate` does
    server = processes.start_python(
        "-m", "uvicorn", "examples.fastapi_shop:web", "--port", "0",
        env={"SHOP_DATABASE": dsn, "GNOMON_DATABASE__SCHEMA": schema},
    )  # fmt: skip
    port = server.wait_for_line(r"running on http://127\.0\.0\.1:(\d+)")[1]
    user = f"ann-{uuid4().hex}"
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=WAIT_S) as client:
        id = client.post(f"/orders/{user}", params={"delay": "0s"}).json()["reminder"]
        assert {"text": f"remember, {user}"} == client.get(f"/reminders/{id}").json()
    assert server.stop() in (0, -15)


async def test_the_page_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first block is in the example; the other goes on from there."""
    page = (ROOT / "docs/howto/fastapi.md").read_text()
    first, second = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert first in (ROOT / "examples/fastapi_shop.py").read_text()
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"gnomon": gnomon, "fastapi": fastapi, "os": os, "__name__": "page"}
    exec(compile(first + second, "fastapi.md", "exec", dont_inherit=True), names)
    async with names["lifespan"](names["web"]) as state:
        assert {"greeting": "hello"} == state
        assert names["app"].is_open


async def test_a_bench_takes_the_place_of_its_worker() -> None:
    """The lifespan of a web app on a bench: nothing happens until the test says so."""
    app = gnomon.App("postgresql://nobody@127.0.0.1:1/none")

    @app.action
    async def shout(ctx: gnomon.Attempt, text: str) -> str:
        return text.upper()

    with ActionBench(app) as bench:
        async with app.lifespan(worker=True)(object()):
            await app.schedule(shout("hello"), id="a")
            assert 1 == await bench.run_due()
            assert "HELLO" == await app.result("a")
