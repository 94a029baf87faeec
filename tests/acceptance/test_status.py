"""`gnomon status`: what an operator sees, at the database and at a server."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest

import gnomon
from gnomon.model.spec import Python
from tests.fixtures.processes import ChildProcess, Processes

pytestmark = pytest.mark.acceptance

FUNCTIONS = """
import asyncio

import gnomon

app = gnomon.App("sqlite:///:memory:")


@app.action
async def long(ctx: gnomon.Attempt) -> None:
    await asyncio.sleep(600)
"""


class Operator:
    """Runs commands on one installation."""

    def __init__(self, folder: Path, processes: Processes) -> None:
        self.folder = folder
        self.processes = processes
        self.url = f"sqlite:///{folder}/gnomon.db"
        self.database = ("--database", self.url)

    def start(self, *arguments: str) -> ChildProcess:
        env = {"PYTHONPATH": str(self.folder), "GNOMON_SERVER__PORT": "9", "COLUMNS": "120"}
        return self.processes.start_gnomon(*arguments, env=env)

    def status(self, *arguments: str, code: int = 0) -> str:
        child = self.start("status", *arguments)
        assert code == child.wait(), child.log
        assert "Traceback" not in child.log
        return child.log


@pytest.fixture
def operator(tmp_path: Path, processes: Processes) -> Operator:
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    asyncio.run(_install(f"sqlite:///{tmp_path}/gnomon.db"))
    return Operator(tmp_path, processes)


async def _install(url: str) -> None:
    async with gnomon.App(url) as app:
        await app.schedule(Python(function="long"), id="now", queue="reports", timeout="10m")
        await app.schedule(gnomon.Mock(), id="later", queue="mail", in_="1h")


def told(log: str) -> Any:
    """The JSON document of an output."""
    return json.loads(log[log.index("{") :])


def test_without_a_worker_something_is_wrong(operator: Operator) -> None:
    """It says so; and --check says it to a script, by its exit code."""
    screen = operator.status(*operator.database)
    assert "! no worker is alive" in screen
    assert "reports" in screen
    assert "no worker is alive" in operator.status("--check", "--json", *operator.database, code=14)


def test_with_a_worker_it_shows_who_works_at_what(operator: Operator) -> None:
    """The same at the database and over REST, once and live."""
    worker = operator.start("worker", *operator.database, "--import", "functions:app")
    worker.wait_for_line("working on")
    server = operator.start("server", *operator.database, "--port", "0")
    address = server.wait_for_line(r"serving (http://\S+)").group(1)
    watching = operator.start("status", "--watch", "--interval", "0.2", "--server", address)
    watching.wait_for_line(r"reports +0 +0 +1 +0")
    watching.wait_for_line("all is well")

    for place in (operator.database, ("--server", address)):
        screen = operator.status("--check", *place)
        assert "1 alive; 64 shards, 0 without a living owner" in screen
        assert "all is well" in screen
        found = told(operator.status("--json", *place))
        queues = {one["queue"]: one for one in found["queues"]}
        assert (1, 0) == (queues["reports"]["running"], queues["reports"]["overdue"])
        assert 1 == queues["mail"]["waiting"]
        (alive,) = found["workers"]
        assert (True, 64) == (alive["is_alive"], alive["shards"])
        assert [] == found["problems"]

    server.kill()
    watching.wait_for_line("no answer: ")
    watching.send(signal.SIGINT)
    assert 0 == watching.wait()
    assert "Traceback" not in watching.log
