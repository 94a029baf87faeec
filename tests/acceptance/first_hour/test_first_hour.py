"""The first hour of a team with Gnomon: its own wheel, a FastAPI shop on PostgreSQL, and what goes
wrong in such an hour. It is about what one *sees*: output, log, status, metrics."""

from __future__ import annotations

import json
import re
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.first_hour.shop import Shop, make_environment, post, until
from tests.fixtures.postgres import PostgresServer
from tests.fixtures.processes import ChildProcess, Processes

TOLD = {  # by the typo, what the user reads
    "option": r"TypeError: .*delay.*did you mean.*in_",
    "nearest": r"TypeError: .*retires.*did you mean.*retry",
    "at": r"InvalidSpec: .*write in_",
    "naive": r"InvalidSpec: .*zone",
    "call": r"TypeError: .*write send_receipt\(…\)",
    "type": r"TypeError: .*purchase",
    "missing": r"TypeError: .*purchase",
    "zone": r"InvalidSpec: .*Europe/Berlim",
    "cron": r"InvalidSpec: .*61",
    "retry": r"InvalidSpec: .*a number of retries",
    "url": r"InvalidSpec: .*http://",
}


@pytest.fixture
def shop(tmp_path: Path, durable_postgres: PostgresServer, processes: Processes) -> Iterator[Shop]:
    commands = make_environment(tmp_path)
    yield Shop(tmp_path / "shop", commands, durable_postgres.dsn, processes)
    processes.close()


def test_the_first_hour(shop: Shop, durable_postgres: PostgresServer) -> None:
    """From `pip install` to a mixed fleet and a restarted database: nothing is lost, and whatever
    is wrong says so."""
    install(shop)
    web = start_web(shop)
    worker, metrics = start_worker(shop)
    sell(shop, web)
    mistype(shop)
    fail(shop, worker, metrics)
    deploy(shop, worker)
    worker = crash(shop, worker)
    lose_the_database(shop, durable_postgres, worker)
    roll_back(shop)
    assert "all is well" in shop.says("gnomon", "doctor")


def install(shop: Shop) -> None:
    """A web process on an empty database says what to do, and does not do it by itself."""
    assert re.match(r"gnomon \d+\.\d+\.\d+", shop.says("gnomon", "-V"))
    assert "gnomon migrate" in shop.says("uvicorn", "shop.web:web", "--port", "0", exit_code=3)
    migrated = shop.says("gnomon", "migrate")
    assert "PostgreSQL" in migrated
    assert "GNOMON_DATABASE_URL" in migrated
    make_tables = "import asyncio; from shop.models import *; asyncio.run(make_tables())"
    shop.says("python", "-c", make_tables)


def start_web(shop: Shop) -> str:
    """The web process; its address."""
    port = free_port()
    web = shop.start("uvicorn", "shop.web:web", "--port", str(port))
    web.wait_for_line("Application startup complete")
    return f"http://127.0.0.1:{port}"


def start_worker(shop: Shop) -> tuple[ChildProcess, str]:
    """A worker that says where it works, with metrics; their address."""
    port = free_port()
    worker = shop.start(
        "gnomon", "worker", "--import", "shop.jobs:app", "--metrics", f"127.0.0.1:{port}"
    )
    worker.wait_for_line("working on")
    assert "password" not in worker.log
    return worker, f"http://127.0.0.1:{port}/metrics"


def sell(shop: Shop, web: str) -> None:
    """The purchase and its receipt are there together, or neither is."""
    status, bought = post(f"{web}/purchases?item=lamp")
    assert 200 == status
    assert 500 == post(f"{web}/purchases?item=bomb")[0]
    until(lambda: shop.letters("receipt"), "the receipt")
    assert [(bought["id"], "lamp", "")] == shop.rows("SELECT * FROM purchase")
    assert 1 == shop.letters("receipt")
    sent = f"sent for {bought['id']}"
    show = ("gnomon", "action", "get", f"receipt-{bought['id']}", "--json")
    until(lambda: sent in shop.says(*show), "what the function returned")


def mistype(shop: Shop) -> None:
    """Nothing misspelled is taken, in Python, on the command line or in the environment."""
    told = shop.says("python", "-m", "shop.typos")
    for name, pattern in TOLD.items():
        assert re.search(rf"^{name}: {pattern}", told, re.MULTILINE | re.IGNORECASE), (name, told)
    assert "--queues" in shop.says("gnomon", "worker", "--quues", "mail", exit_code=2)
    misspelled = {"GNOMON_DATABSE_URL": "x"}
    assert "GNOMON_DATABASE_URL" in shop.says("gnomon", "status", exit_code=12, env=misspelled)
    assert "shop.jbos" in shop.says("gnomon", "worker", "--import", "shop.jbos:app", exit_code=12)


def fail(shop: Shop, worker: ChildProcess, metrics: str) -> None:
    """A failed attempt is a warning with its traceback, a dead action an error; both can be seen
    in the status and in the metrics, and tried again."""
    schedule(shop, "charge('1234')", "charge-1")
    worker.wait_for_line(r'"event": "action_dead".*charge-1')
    assert re.search(r'"event": "attempt_failed".*charge-1.*"level": "warning"', worker.log)
    assert "the bank refused 1234" in worker.log
    assert "Traceback" in worker.log
    assert "dead" in shop.says("gnomon", "action", "get", "charge-1")
    assert re.search(r"mail .* 1\s*$", shop.says("gnomon", "status"), re.MULTILINE)
    until(
        lambda: re.search(r'actions_dead\{queue="mail"\} 1\b', scraped(metrics)),
        "the metric of dead actions",
    )
    assert "1" in shop.says("gnomon", "action", "retry", "--all", "--queue", "mail", "--yes")


def deploy(shop: Shop, old: ChildProcess) -> None:
    """Old and new workers side by side, in a rolling deploy and after a roll-back: nothing fails
    for it, and what nobody serves is shown."""
    following = shop.release()
    schedule(following, "ask_for_review(__import__('uuid').uuid4())", "review-1")
    until(lambda: "ask_for_review" in shop.says("gnomon", "status"), "what nobody serves")
    assert "nobody serves" in shop.says("gnomon", "status", "--check", exit_code=14)
    new = following.start("gnomon", "worker", "--import", "shop.jobs:app")
    until(lambda: shop.letters("review"), "the new function")
    assert old.is_running
    until(lambda: shop.letters("tick") > 2, "the declared schedule")
    assert 0 == new.stop()
    assert "attempt_failed" not in new.log


def crash(shop: Shop, first: ChildProcess) -> ChildProcess:
    """kill -9: the other worker on the machine tries again within seconds, and it is counted."""
    schedule(shop, "slow_export()", "export-1")
    until(lambda: shop.letters("export 1"), "the first attempt")
    other, _ = start_worker(shop)
    first.kill()
    until(lambda: shop.letters("export 2"), "the second attempt")
    until(lambda: "done" in shop.says("gnomon", "action", "get", "export-1"), "its end")
    assert "interrupted" in shop.says("gnomon", "action", "attempts", "export-1")
    other.wait_for_line('"event": "worker_buried"')
    return other


def lose_the_database(shop: Shop, server: PostgresServer, worker: ChildProcess) -> None:
    """One line when it goes away, one when it is back; and the work goes on."""
    server.stop("immediate")
    worker.wait_for_line('"event": "store_away"')
    server.start()
    worker.wait_for_line('"event": "store_back"')
    receipts = shop.letters("receipt")
    schedule(shop, "send_receipt(__import__('uuid').uuid4())", "after")
    until(lambda: shop.letters("receipt") > receipts, "a receipt after the outage")
    lines = [line for line in worker.log.splitlines() if '"store_' in line]
    assert len(lines) <= 4, lines


def roll_back(shop: Shop) -> None:
    """The new release is gone for good: what it alone declared is paused, and says why."""
    show = ("gnomon", "action", "get", "tick", "--json")
    until(lambda: '"paused"' in shop.says(*show), "what only the new release declared is paused")
    assert "declare" in json.loads(shop.says(*show).partition("\n")[2])["status"]["reason"]


def schedule(shop: Shop, call: str, id: str) -> None:
    """As a script of the user's does it, without an event loop."""
    text = f"from shop.jobs import *; app.blocking.schedule({call}, id={id!r})"
    shop.says("python", "-c", text)


def scraped(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        text: bytes = answer.read()
    return text.decode()


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
    return port
