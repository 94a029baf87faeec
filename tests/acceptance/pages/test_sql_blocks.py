"""SQL on the pages is sent to PostgreSQL as it is printed, with a worker of SQL tasks beside it."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import LiteralString

import psycopg
import pytest

from tests.acceptance.pages.blocks import to_run
from tests.fixtures.processes import Processes

pytestmark = pytest.mark.acceptance

PATIENCE_S = 60.0
PROMPT = "shop=> "
# What the reader's database has.
BESIDE = """
CREATE TABLE orders (id int);
INSERT INTO orders SELECT generate_series(1, 1042);
CREATE TABLE letters (id int);
INSERT INTO letters VALUES (1), (2), (3), (4), (5);
CREATE MATERIALIZED VIEW sales AS SELECT count(*) FROM orders;
CREATE FUNCTION send(id int) RETURNS int LANGUAGE sql AS 'SELECT id';
CREATE PROCEDURE close_day() LANGUAGE sql AS 'SELECT 1';
CREATE PROCEDURE nightly() LANGUAGE sql AS 'SELECT 1';
"""


@pytest.fixture
def session(
    own_database: Mapping[str, str], processes: Processes
) -> psycopg.Connection[tuple[object, ...]]:
    """A reader's psql, with `gnomon tasks` at work."""
    child = processes.start_gnomon("tasks", "--dsn", own_database["dsn"])
    child.wait_for_line("performing tasks of")
    connection = psycopg.connect(own_database["dsn"], autocommit=True)
    connection.execute(BESIDE)
    return connection


def until(session: psycopg.Connection[tuple[object, ...]], question: LiteralString) -> None:
    """Ask until the answer is yes."""
    end = time.monotonic() + PATIENCE_S
    while session.execute(question).fetchone() != (True,):
        assert time.monotonic() < end, question
        time.sleep(0.05)


def test_the_session_of_the_page(session: psycopg.Connection[tuple[object, ...]]) -> None:
    """Every statement is accepted; the first one's result is the page's."""
    (block,) = (
        each for each in to_run("docs/howto/sql-tasks.md", "console") if PROMPT in each.text
    )
    statements = [
        line.removeprefix(PROMPT) for line in block.text.splitlines() if line.startswith(PROMPT)
    ]
    assert 7 == len(statements)
    with session:
        for statement in statements:
            session.execute(statement)
            if "count(*)" in statement:
                until(session, "SELECT state = 'DONE' FROM task")
                row = session.execute("SELECT output, error FROM task").fetchone()
                shown = re.search(r"DONE  \| (\S+)", block.text)
                assert shown is not None
                assert row is not None
                assert (shown[1], None) == (str(row[0]).split()[-1], row[1])
        waiting = session.execute("SELECT why FROM task_waiting").fetchall()
        assert ("planned later",) in waiting


def test_coming_from_pg_cron(session: psycopg.Connection[tuple[object, ...]]) -> None:
    """Planned in its zone, and stopped."""
    (block,) = to_run("docs/howto/coming-from.md", "sql")
    insert, update = block.text.strip().splitlines()
    with session:
        session.execute(insert)
        until(session, "SELECT plan > now() AND state = 'PLAN' FROM task")
        session.execute(update)
        assert ("STOP",) == session.execute("SELECT state::text FROM task").fetchone()
