"""Metrics as Prometheus scrapes them: real processes, one of which dies."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import urllib.request
from pathlib import Path

import pytest

import gnomon
from tests.fixtures.postgres import PostgresSchema
from tests.fixtures.processes import ChildProcess, Processes

pytestmark = pytest.mark.acceptance

ACTIONS = 40


async def scheduled(place: PostgresSchema) -> None:
    async with gnomon.App(place.dsn, schema=place.schema) as app:
        await app.schedule_many([app.request(gnomon.Mock()) for _ in range(ACTIONS)])


def scraped(url: str) -> dict[str, float]:
    with urllib.request.urlopen(url, timeout=30) as answer:
        text = answer.read().decode()
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {series: float(value) for series, _, value in lines}


def begun(url: str) -> float:
    return scraped(url).get('gnomon_attempts_begun_total{queue="default"}', 0.0)


def recorded(url: str) -> float:
    return scraped(url).get('gnomon_results_total{recorded="applied"}', 0.0)


def children_of(process_id: int) -> list[int]:
    text = Path(f"/proc/{process_id}/task/{process_id}/children").read_text()
    return [int(word) for word in text.split()]


def url_of(child: ChildProcess) -> str:
    return child.wait_for_line(r"^metrics on (http://127\.0\.0\.1:\d+/metrics)$")[1]


def test_several_processes_are_scraped_as_one_and_what_they_counted_stays(
    processes: Processes, postgres_schema: PostgresSchema
) -> None:
    """Also what a process had counted that was killed since."""
    dsn, schema = postgres_schema
    place = ("--database", dsn, "--schema", schema)
    worker = processes.start_gnomon(
        "worker", "--processes", "2", "--metrics", "127.0.0.1:0", *place
    )
    url = url_of(worker)
    worker.wait_for_line("^2 workers on PostgreSQL ")
    asyncio.run(scheduled(postgres_schema))
    # What a killed process had not recorded yet would be begun again.
    worker.wait_until(lambda: recorded(url) == ACTIONS, "all of them recorded")
    assert ACTIONS == begun(url)
    page = scraped(url)
    assert 64.0 == page["gnomon_shards"]

    first, *_ = children_of(worker.process_id)
    os.kill(first, signal.SIGKILL)
    worker.wait_for_line("worker_crashed")
    worker.wait_until(
        lambda: (
            len(children_of(worker.process_id)) == 2 and scraped(url)["gnomon_shards_held"] == 64
        ),
        "both at work again",
    )
    assert ACTIONS == begun(url)
    assert 0 == worker.stop()


def test_the_page_of_a_server_has_the_figures_of_the_installation(processes: Processes) -> None:
    """What waits, by queue; by its own listener as well."""
    up = processes.start_gnomon("up", "--port", "0", "--metrics", "127.0.0.1:0")
    server = up.wait_for_line(r"Gnomon is up: (http://127\.0\.0\.1:\d+)")[1]
    made = processes.start_gnomon(
        "action", "create", "--in", "1h", "--mock", "--queue", "mail", "--server", server
    )
    assert 0 == made.wait()
    for url in (f"{server}/metrics", url_of(up)):
        page = scraped(url)
        assert 1.0 == page['gnomon_actions_waiting{queue="mail"}']
        assert (1.0, 64.0) == (page["gnomon_workers_alive"], page["gnomon_shards"])


@pytest.mark.parametrize("command", ["worker", "server", "tasks", "up"])
def test_nobody_listens_off_loopback_by_accident(processes: Processes, command: str) -> None:
    """One sentence that says what to write."""
    extra = ("--dsn", "sqlite:///tasks.db") if command == "tasks" else ()
    child = processes.start_gnomon(command, "--metrics", "0.0.0.0:0", *extra)
    assert 12 == child.wait()
    assert "metrics.listen: '0.0.0.0' is not a loopback address" in child.log
    assert re.search(r"metrics\.token_file.*--metrics-open", child.log)
