"""What an operator reads while the database is away, and when a worker has died."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import psycopg

from tests.fixtures.postgres import PostgresServer
from tests.fixtures.processes import ChildProcess, Processes

QUICK = {"GNOMON_WORKER_LEASE": "5s"}


def events(child: ChildProcess) -> list[dict[str, Any]]:
    """The events in its log; other lines are for people."""
    lines = child.log.splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def held_count(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        rows = connection.execute("SELECT count(lease_guid) FROM gnomon.shard_lock").fetchone()
    assert rows is not None
    return int(rows[0])


def test_an_outage_is_a_line_at_its_start_and_one_at_its_end(
    durable_postgres: PostgresServer, processes: Processes
) -> None:
    """Not a line for each loop and each try."""
    worker = processes.start_gnomon("worker", "--database", durable_postgres.dsn, env=QUICK)
    worker.wait_for_line("^working on ")
    durable_postgres.stop("immediate")
    worker.wait_for_line('"store_away"')
    durable_postgres.start()
    worker.wait_for_line('"store_back"')
    worker.stop()

    counted = Counter(line["event"] for line in events(worker) if line["level"] != "info")

    assert (1, 1) == (counted.pop("store_away"), counted.pop("store_back"))
    assert {"leases_lost", "leases_stolen"} >= counted.keys(), worker.log
    assert all(count == 1 for count in counted.values())


def test_the_shards_of_a_dead_worker_are_one_line(
    durable_postgres: PostgresServer, processes: Processes
) -> None:
    """Sixty-four leases are stolen at once."""
    first = processes.start_gnomon("worker", "--database", durable_postgres.dsn, env=QUICK)
    first.wait_for_line("^working on ")
    first.wait_until(lambda: held_count(durable_postgres.dsn) == 64, "its shards")
    first.freeze()
    second = processes.start_gnomon("worker", "--database", durable_postgres.dsn, env=QUICK)
    second.wait_for_line('"leases_stolen"')
    first.kill()
    stolen = [line for line in events(second) if line["event"] == "leases_stolen"]
    assert sum(line["count"] for line in stolen) <= 64
    assert len(stolen) <= 2, second.log  # its part first, the rest when the other is not counted
    second.stop()
