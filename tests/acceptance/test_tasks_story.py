"""docs/howto/sql-tasks.md as a user lives it."""

from __future__ import annotations

import json
import signal
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from urllib.request import urlopen

import psycopg
import pytest
from psycopg import conninfo, sql

from tests.fixtures.postgres import SCHEMA_PREFIX, ExternalPostgres, PostgresServer
from tests.fixtures.processes import Processes

pytestmark = pytest.mark.acceptance

WAIT_S = 60.0


def until(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, f"no {what} in {WAIT_S} s"
        time.sleep(0.02)


@pytest.fixture
def shop(postgres: PostgresServer | ExternalPostgres) -> Iterator[str]:
    """A database and a login of the same name, the login being its owner; its dsn."""
    if isinstance(postgres, ExternalPostgres):
        pytest.skip("needs a server on which databases may be made")
    name = f"{SCHEMA_PREFIX}{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres.dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(name)))
        admin.execute(sql.SQL("CREATE DATABASE {0} OWNER {0}").format(sql.Identifier(name)))
        parts = conninfo.conninfo_to_dict(postgres.dsn)
        yield f"postgresql://{name}@{parts['host']}:{parts['port']}/{name}"
        dropping = sql.SQL("DROP DATABASE {} WITH (FORCE)")
        admin.execute(dropping.format(sql.Identifier(name)))
        admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


def test_a_table_that_runs_what_is_put_into_it(shop: str, processes: Processes) -> None:
    """One command with a plain login of its own database, then nothing but SQL."""
    child = processes.start_gnomon("tasks", "--dsn", shop)
    child.wait_for_line("performing tasks of .*\\.public\\.task")
    with psycopg.connect(shop, autocommit=True) as user:
        user.execute("INSERT INTO task (input) VALUES ('SELECT 1 AS a, ''x'' AS b')")
        user.execute("INSERT INTO task (input) VALUES ('SELECT 1/0')")
        user.execute("INSERT INTO task (repeat, input) VALUES ('1 hour', 'SELECT 2')")

        def rows() -> list[tuple[object, ...]]:
            return user.execute(
                "SELECT id, state::text, output, error FROM task ORDER BY id"
            ).fetchall()

        until(lambda: [row[1] for row in rows()] == ["DONE", "FAIL", "DONE", "PLAN"], "results")
        assert (1, "DONE", "a\tb\n1\tx", None) == rows()[0]
        assert "ERROR:  division by zero\nSTATEMENT:  SELECT 1/0" == rows()[1][3]
        waiting = user.execute("SELECT id, why FROM task_waiting").fetchall()
        assert [(4, "planned later")] == waiting
    child.send(signal.SIGTERM)
    assert 0 == child.wait()


def test_superuser_is_refused_with_the_way_out(
    postgres: PostgresServer | ExternalPostgres, processes: Processes
) -> None:
    """The exit code and the message of a setting that is wrong."""
    if isinstance(postgres, ExternalPostgres):
        pytest.skip("the login of another's server may be anybody")
    child = processes.start_gnomon("tasks", "--dsn", postgres.dsn)
    assert 12 == child.wait()
    assert '"superuser": true' in child.log


def test_up_serves_the_tasks_of_its_configuration(tmp_path: Path, processes: Processes) -> None:
    """`[tasks]` in gnomon.toml: performed by the same process, and shown over REST."""
    file = tmp_path / "tasks.db"
    (tmp_path / "gnomon.toml").write_text(
        f'[database]\nurl = "sqlite:///{tmp_path / "gnomon.db"}"\n[server]\nport = 0\n'
        f'[tasks]\ndsn = "sqlite:///{file}"\n'
    )
    child = processes.start_gnomon("up", "--json", cwd=tmp_path)
    url = child.wait_for_line(r'"url": ?"(http[^"]*)"')[1]
    child.wait_for_line("task_table_owned")
    with closing(sqlite3.connect(file, isolation_level=None, timeout=10)) as user:
        user.execute("INSERT INTO task (input) VALUES ('SELECT 40 + 2')")

    def task() -> dict[str, object]:
        with urlopen(f"{url}/v1/task-tables/tasks.public.task/tasks/1") as answer:
            found: dict[str, object] = json.load(answer)
            return found

    until(lambda: task()["state"] == "DONE", "result")
    assert "42" == task()["output"]
    child.send(signal.SIGTERM)
    assert 0 == child.wait()
