"""A filter that no index knows costs the same, however many rows a task table has."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from psycopg import conninfo

from gnomon.contracts.task_rows import TaskRows
from gnomon.tasks.postgres.queries import QUERIES, TableNames, render
from gnomon.tasks.sqlite.queries import queries_for
from tests.fixtures.task_tables import TaskPlace

FEW, MANY = 2_000, 16_000
LOOKS = 500
GROWTH_MAX = 1.4  # a deeper tree; what goes through the table grows eight times
ROWS = """
WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < {count})
INSERT INTO task (state, input) SELECT {state}, 'SELECT 1' FROM number
"""


def steps(path: Path) -> int:
    """Of SQLite's machine, for the first page of a state that no row has."""
    queries, taken = queries_for("task"), 0

    def step() -> int:
        nonlocal taken
        taken += 1
        return 0

    with closing(sqlite3.connect(path)) as connection:
        connection.set_progress_handler(step, 1)
        (end,) = connection.execute(
            queries["task_page_end"], {"after": 0, "looks": LOOKS}
        ).fetchone()
        wanted = {
            "states": "FAIL",
            "group": None,
            "after": 0,
            "until": end,
            "limit": 50,
            "chars": 9,
        }
        assert [] == connection.execute(queries["task_page"], wanted).fetchall()
    return taken


def blocks(place: TaskPlace) -> int:
    """What PostgreSQL reads for it."""
    names = TableNames(schema="public", table="task", state_type="text")
    read = 0
    with psycopg.connect(conninfo.make_conninfo(place.dsn, dbname=place.database)) as user:
        user.autocommit = True
        user.execute("VACUUM ANALYZE task")
        for verb, values in (
            ("task_page_end", f"0, {LOOKS}"),
            ("task_page", f"0, 'FAIL', NULL, 50, 9, 9, {LOOKS}"),
        ):
            user.execute(f"PREPARE {verb} AS {render(QUERIES[verb].sql, names)}".encode())
            explained = user.execute(
                f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE {verb} ({values})".encode()
            ).fetchone()
            assert explained is not None
            told = explained[0] if isinstance(explained[0], list) else json.loads(explained[0])
            plan = told[0]["Plan"]
            read += plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    return read


def cost(place: TaskPlace) -> int:
    if place.is_sqlite:
        return steps(Path(place.dsn.removeprefix("sqlite:///")))
    return blocks(place)


@pytest.mark.usefixtures("task_rows")
def test_a_state_without_rows_is_not_sought_through_the_table(task_place: TaskPlace) -> None:
    """By the rows that one page may look at."""
    state = "'DONE'" if task_place.is_sqlite else "CAST('DONE' AS state)"
    task_place.execute(ROWS.format(count=FEW, state=state))
    few = cost(task_place)
    task_place.execute(ROWS.format(count=MANY - FEW, state=state))
    assert few > 0
    assert cost(task_place) <= GROWTH_MAX * few


async def test_looking_ends_with_the_table(task_rows: TaskRows, task_place: TaskPlace) -> None:
    """None where no more rows are than may be looked at."""
    state = "'DONE'" if task_place.is_sqlite else "CAST('DONE' AS state)"
    task_place.execute(ROWS.format(count=5, state=state))
    assert [None, 5, 4] == [
        await task_rows.page_end(0, looks=6),
        await task_rows.page_end(0, looks=5),
        await task_rows.page_end(2, looks=2),
    ]
