"""SQL tasks while their processes and their server are killed: nothing lost, nothing done twice."""

from __future__ import annotations

import json
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import conninfo, sql
from psycopg.rows import dict_row

from tests.fixtures.postgres import PostgresServer
from tests.fixtures.processes import ChildProcess, Processes

pytestmark = [pytest.mark.fault, pytest.mark.postgres]

WAIT_S = 60.0
SHORT = {"GNOMON_TASKS_LEASE": "2s", "GNOMON_TASKS_BEAT": "300ms", "GNOMON_TASKS_DRAIN": "2s"}
USER = "gnomon_tasker"
BESIDE_LONG = 1_000
# Ends only when so many others did, however slow the machine is.
LONG = f"""
DO $$ BEGIN
    WHILE (SELECT count(*) FROM task WHERE state = 'DONE') <= {BESIDE_LONG} LOOP
        PERFORM pg_sleep(0.1);
    END LOOP;
END $$
"""
EFFECT = "INSERT INTO effect SELECT current_setting('pg_task.id')::bigint FROM pg_sleep({})"


class Tasks:
    """A database of its own, the processes that perform its tasks, and a user beside them."""

    def __init__(self, dsn: str, processes: Processes) -> None:
        self.dsn = dsn
        self.database = f"fault_{uuid.uuid4().hex[:12]}"
        self._processes = processes
        self._user: psycopg.Connection[dict[str, Any]] | None = None

    def start(self, *, wait: bool = True, env: dict[str, str] | None = None,
              **settings: object) -> ChildProcess:  # fmt: skip
        entry = {"data": self.database, "user": USER, **settings}
        child = self._processes.start_gnomon(
            "tasks", "--dsn", self.dsn, "--conf", json.dumps([entry]), env=env or SHORT
        )
        if wait:
            child.wait_for_line("task_table_owned")
        return child

    def execute(self, text: str, *params: object) -> list[dict[str, Any]]:
        """Again on a new connection, if the server was away."""
        end = time.monotonic() + WAIT_S
        while True:
            try:
                cursor = self._connected().execute(text.encode(), params or None)
                return cursor.fetchall() if cursor.description else []
            except psycopg.OperationalError:
                self.close()
                assert time.monotonic() < end
                time.sleep(0.1)

    def _connected(self) -> psycopg.Connection[dict[str, Any]]:
        if self._user is None:
            dsn = conninfo.make_conninfo(self.dsn, dbname=self.database)
            self._user = psycopg.connect(dsn, autocommit=True, row_factory=dict_row)
        return self._user

    def close(self) -> None:
        if self._user is not None:
            self._user.close()
            self._user = None

    def states(self) -> dict[str, int]:
        rows = self.execute("SELECT state::text, count(*) FROM task GROUP BY state")
        return {row["state"]: row["count"] for row in rows}

    def until(
        self, condition: Callable[[], object], what: str, *, within_s: float = WAIT_S
    ) -> None:
        end = time.monotonic() + within_s
        while not condition():
            assert time.monotonic() < end, f"no {what} in {within_s} s: {self.states()}"
            time.sleep(0.05)

    def until_done(self, count: int) -> None:
        self.until(lambda: {"DONE": count} == self.states(), f"{count} done tasks")

    def make_effects(self) -> None:
        self.execute(f"CREATE TABLE effect (task_id bigint); GRANT ALL ON effect TO {USER}")

    def effects(self) -> dict[int, int]:
        """How often each task took effect."""
        rows = self.execute("SELECT task_id, count(*) FROM effect GROUP BY task_id")
        return {row["task_id"]: row["count"] for row in rows}

    def drop(self) -> None:
        self.close()
        with psycopg.connect(self.dsn, autocommit=True) as admin:
            dropping = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
            admin.execute(dropping.format(sql.Identifier(self.database)))


@pytest.fixture
def tasks(syncing_postgres: PostgresServer, processes: Processes) -> Iterator[Tasks]:
    found = Tasks(syncing_postgres.dsn, processes)
    yield found
    processes.close()
    found.drop()


def test_killed_with_100_tasks_in_flight(tasks: Tasks) -> None:
    """Another process takes over within seconds; every task takes effect exactly once."""
    first = tasks.start(run=120)
    second = tasks.start(wait=False, run=120)
    tasks.make_effects()
    tasks.execute(
        "INSERT INTO task (\"group\", input) SELECT 'g' || g, %s FROM generate_series(1, 150) AS g",
        EFFECT.format("5 + random()"),
    )
    tasks.until(lambda: tasks.states().get("WORK", 0) >= 100, "100 tasks in flight")
    first.kill()
    second.wait_for_line("task_table_owned", timeout_s=30)
    tasks.until_done(150)
    assert {1} == set(tasks.effects().values())
    assert 150 == len(tasks.effects())


def test_killed_again_and_again(tasks: Tasks) -> None:
    """A queue on reused sessions, with its owner killed three times: once each, none left out."""
    child = tasks.start()
    tasks.make_effects()
    tasks.execute(
        "INSERT INTO task (\"group\", max, live, input) SELECT 'g' || g %% 4, 1, '1 hour', %s "
        "FROM generate_series(1, 3000) AS g",
        EFFECT.format("0"),
    )
    for part in (1, 2, 3):
        tasks.until(lambda part=part: tasks.states().get("DONE", 0) > part * 500, "progress")  # type: ignore[misc]
        child.kill()
        child = tasks.start()
    tasks.until_done(3000)
    assert {1} == set(tasks.effects().values())
    assert 3000 == len(tasks.effects())


def test_stopped_process_gives_tasks_back(tasks: Tasks) -> None:
    """SIGTERM: what ends in time ends, the rest goes back to PLAN, the next owner need not wait."""
    child = tasks.start()
    tasks.execute("SELECT pg_advisory_lock(1)")
    tasks.execute(
        "INSERT INTO task (\"group\", input) VALUES ('a', 'SELECT pg_advisory_lock_shared(1)'), "
        "('b', 'SELECT pg_sleep(600)'), ('a', 'SELECT 1')"
    )
    tasks.until(lambda: tasks.states().get("WORK") == 2, "two tasks in flight")
    child.send(signal.SIGTERM)
    child.wait_for_line("^stopping")
    tasks.execute("SELECT pg_advisory_unlock(1)")
    assert 0 == child.wait()
    assert {"DONE": 1, "PLAN": 2} == tasks.states()
    began = time.monotonic()
    other = tasks.start()
    other.wait_for_line("task_table_owned")
    tasks.until(lambda: tasks.states().get("DONE") == 2, "the next task")
    assert time.monotonic() - began < WAIT_S
    assert 0 == other.stop()


def test_server_restart(processes: Processes, durable_postgres: PostgresServer) -> None:
    """PostgreSQL crashes under load: the tasks go on by themselves, and none takes effect twice."""
    tasks = Tasks(durable_postgres.dsn, processes)
    child = tasks.start()
    tasks.make_effects()
    tasks.execute(
        "INSERT INTO task (\"group\", count, input) SELECT 'g' || g %% 10, 20, %s "
        "FROM generate_series(1, 600) AS g",
        EFFECT.format("0.02"),
    )
    tasks.until(lambda: tasks.states().get("DONE", 0) > 100, "progress")
    tasks.close()
    durable_postgres.restart("immediate")
    tasks.until_done(600)
    assert {1} == set(tasks.effects().values())
    assert 600 == len(tasks.effects())
    assert child.is_running
    tasks.close()
    assert 0 == child.stop()


def test_frozen_owner_loses_the_table_and_does_no_harm(tasks: Tasks) -> None:
    """It wakes up after another has taken over: what it had begun counts once."""
    first = tasks.start()
    second = tasks.start(wait=False)
    tasks.make_effects()
    tasks.execute(
        "INSERT INTO task (\"group\", count, input) SELECT 'g' || g %% 5, 1000, %s "
        "FROM generate_series(1, 400) AS g",
        EFFECT.format("0.02"),
    )
    tasks.until(lambda: tasks.states().get("DONE", 0) > 50, "progress")
    first.freeze()
    second.wait_for_line("task_table_owned", timeout_s=30)
    first.thaw()
    tasks.until_done(400)
    assert {1} == set(tasks.effects().values())
    assert 400 == len(tasks.effects())


def test_10_000_tasks_in_20_groups(tasks: Tasks) -> None:
    """Mixed `max`: all are performed, never more at once than allowed, a long one beside them."""
    tasks.start(run=60)
    tasks.execute("INSERT INTO task (\"group\", input) VALUES ('long', %s)", LONG)
    tasks.execute(
        'INSERT INTO task ("group", max, live, input) '
        "SELECT 'g' || mod(g, 20), mod(mod(g, 20), 4), '1 hour', 'SELECT 1' "
        "FROM generate_series(1, 10000) AS g"
    )
    tasks.until_done(10_001)
    worst = tasks.execute(
        'WITH edge AS (SELECT "group", start AS at, 1 AS change, max FROM task '
        'UNION ALL SELECT "group", stop, -1, max FROM task), '
        'beside AS (SELECT "group", max, sum(change) OVER '
        '(PARTITION BY "group" ORDER BY at, change ROWS UNBOUNDED PRECEDING) AS running FROM edge) '
        'SELECT "group", max(running) - min(max) - 1 AS excess FROM beside GROUP BY 1 '
        "HAVING max(running) > min(max) + 1"
    )
    assert [] == worst
    [row] = tasks.execute(
        "SELECT count(*) FROM task WHERE \"group\" <> 'long' AND stop < "
        "(SELECT stop FROM task WHERE \"group\" = 'long')"
    )
    assert row["count"] > BESIDE_LONG


def test_sighup_changes_the_tables(tasks: Tasks, processes: Processes, tmp_path: Path) -> None:
    """New entries begin, removed ones end after their tasks; what is not valid changes nothing."""
    conf = tmp_path / "tasks.json"

    def write(*names: str) -> None:
        entries = [{"data": tasks.database, "user": USER, "table": name} for name in names]
        conf.write_text(json.dumps(entries))

    write("one")
    child = processes.start_gnomon("tasks", "--dsn", tasks.dsn, "--conf-file", str(conf), env=SHORT)
    child.wait_for_line("task_table_owned")
    tasks.execute("INSERT INTO one (input) VALUES ('SELECT pg_sleep(2)')")
    tasks.until(lambda: tasks.execute("SELECT 1 FROM one WHERE state = 'WORK'"), "start")
    write("two")
    child.send(signal.SIGHUP)
    child.wait_for_line(r'task_table_owned.*\.two"')
    tasks.execute("INSERT INTO two (input) VALUES ('SELECT 1')")
    tasks.execute("INSERT INTO one (input) VALUES ('SELECT 1')")
    tasks.until(lambda: tasks.execute("SELECT 1 FROM two WHERE state = 'DONE'"), "task of two")
    tasks.until(lambda: tasks.execute("SELECT 1 FROM one WHERE state = 'DONE'"), "task of one")
    conf.write_text('[{"data": ')
    child.send(signal.SIGHUP)
    child.wait_for_line("tasks_conf_refused")
    tasks.execute("INSERT INTO two (input) VALUES ('SELECT 2')")
    tasks.until(
        lambda: len(tasks.execute("SELECT 1 FROM two WHERE state = 'DONE'")) == 2, "task after it"
    )
    assert [{"state": "PLAN"}] == tasks.execute("SELECT state::text FROM one WHERE state <> 'DONE'")
    assert 0 == child.stop()
