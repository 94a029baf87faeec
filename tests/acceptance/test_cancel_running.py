"""What runs is cancelled: over REST and the command line, in a worker that is another process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio

import gnomon
from gnomon.client import Client
from gnomon.model.spec import Effect, Python
from tests.fixtures.processes import Processes

WAIT_S = 40.0
FUNCTIONS = """
import asyncio
import threading
from pathlib import Path

import gnomon

app = gnomon.App("sqlite:///:memory:")
HERE = Path(__file__).parent


def note(ctx, text):
    (HERE / f"{ctx.id}.{text}").touch()


@app.action
async def coroutine(ctx: gnomon.Attempt) -> None:
    note(ctx, "began")
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        note(ctx, "cancelled")
        raise


@app.action
def thread(ctx: gnomon.Attempt) -> None:
    note(ctx, "began")
    while not ctx.is_cancelled:
        threading.Event().wait(0.01)
    note(ctx, "cancelled")


@app.action
async def stubborn(ctx: gnomon.Attempt) -> str:
    note(ctx, "began")
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        note(ctx, "cancelled")
    return "all the same"
"""


class Place(NamedTuple):
    """An installation with a worker and a server, each a process of its own."""

    app: gnomon.App
    folder: Path
    client: Client
    database: tuple[str, ...]
    processes: Processes

    async def noted(self, id: str, text: str) -> None:
        """Wait until the function has come to this."""
        async with asyncio.timeout(WAIT_S):
            while not (self.folder / f"{id}.{text}").exists():
                await asyncio.sleep(0.02)

    async def begun(self, effect: Effect, id: str) -> None:
        """An attempt of a new action is under way."""
        await self.app.schedule(effect, id=id, timeout="10m")
        if isinstance(effect, Python):
            await self.noted(id, "began")

    async def recorded(self, id: str) -> str:
        """How the attempt ended, as soon as that is known."""
        async with asyncio.timeout(WAIT_S):
            while True:
                (attempt,) = await self.app.scheduler.attempts(id)
                if attempt.outcome not in ("running", "cancelling"):
                    return attempt.outcome
                await asyncio.sleep(0.02)


@pytest_asyncio.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def place(
    request: pytest.FixtureRequest, tmp_path: Path, processes: Processes
) -> AsyncIterator[Place]:
    url, schema = f"sqlite:///{tmp_path}/gnomon.db", "gnomon"
    if request.param == "postgres":
        url, schema = request.getfixturevalue("postgres_schema")
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    database = ("--database", url, "--schema", schema)
    async with gnomon.App(url, schema=schema, migrate=True) as app:
        worker = processes.start_gnomon(
            "worker", *database, "--import", "functions:app",
            env={"PYTHONPATH": str(tmp_path), "GNOMON_HTTP__ALLOW_LOOPBACK": "true"},
        )  # fmt: skip
        server = processes.start_gnomon("server", *database, "--port", "0")
        worker.wait_for_line("working on")
        address = server.wait_for_line(r"serving (http://\S+)").group(1)
        async with Client(address) as client:
            yield Place(app, tmp_path, client, database, processes)
        processes.close()  # or their transactions would hold the schema


@pytest.mark.parametrize("function", ["coroutine", "thread"])
async def test_a_function_is_cancelled_over_rest(place: Place, function: str) -> None:
    """The coroutine gets asyncio's cancellation, the thread sees `is_cancelled`; the action is gone
    at once, and with a barrier the answer comes when its attempt has ended."""
    await place.begun(Python(function=function), "long")

    changed = await place.client.delete("long", running=True, barrier=True)

    assert changed.asked
    assert changed.in_flight is not None
    assert gnomon.State.CANCELLED is changed.action.status.state
    await place.noted("long", "cancelled")
    assert "cancelled" == await place.recorded("long")


async def test_a_function_is_cancelled_at_the_command_line(place: Place) -> None:
    """Which says that an attempt was under way, and was asked to end."""
    await place.begun(Python(function="coroutine"), "long")

    command = place.processes.start_gnomon("action", "delete", "long", "--running", *place.database)
    await asyncio.to_thread(command.wait)

    assert "deleted long: cancelled" in command.log
    assert "under way, and was asked to end" in command.log
    assert "cancelled" == await place.recorded("long")


async def test_a_function_that_goes_on_tells_its_own_end(place: Place) -> None:
    """It was asked; that it did not listen is in its log, and the action stays cancelled."""
    await place.begun(Python(function="stubborn"), "long")

    await place.app.cancel("long", running=True)

    assert "late_succeeded" == await place.recorded("long")
    assert gnomon.State.CANCELLED is (await place.app.scheduler.get("long")).status.state


async def test_a_request_is_closed(place: Place) -> None:
    """The receiver of an HTTP call sees that the connection ends."""
    arrived, closed = asyncio.Event(), asyncio.Event()

    async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        arrived.set()
        while await reader.read(1024):
            pass
        closed.set()
        writer.close()

    async with await asyncio.start_server(receive, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        effect = gnomon.Http("GET", f"http://127.0.0.1:{port}/slow")
        await place.begun(effect, "call")
        async with asyncio.timeout(WAIT_S):
            await arrived.wait()
            assert (await place.client.delete("call", running=True)).asked
            await closed.wait()
    assert "cancelled" == await place.recorded("call")


async def test_sql_asks_too(place: Place) -> None:
    """`gnomon.cancel(id, running => true)`, for back ends in any language."""
    if place.app.settings.database.engine != "postgres":
        pytest.skip("SQL functions are PostgreSQL's")
    asyncpg = pytest.importorskip("asyncpg")
    await place.begun(Python(function="coroutine"), "long")
    connection = await asyncpg.connect(place.app.settings.database.url)
    try:
        schema = place.app.settings.database.schema
        assert await connection.fetchval(f'SELECT "{schema}".cancel($1, running => true)', "long")
    finally:
        await connection.close()
    assert "cancelled" == await place.recorded("long")


async def test_an_attempt_whose_worker_is_gone_is_asked_in_vain(place: Place) -> None:
    """Nobody hears it: the action is cancelled all the same, and the log says what is known."""
    await place.begun(Python(function="coroutine"), "long")
    place.processes.close()

    changed = await place.app.cancel("long", running=True)

    assert changed.asked
    (attempt,) = await place.app.scheduler.attempts("long")
    assert "cancelling" == attempt.outcome
    assert gnomon.State.CANCELLED is (await place.app.scheduler.get("long")).status.state
    assert [] == list(await place.app.store.installation.doctor())
