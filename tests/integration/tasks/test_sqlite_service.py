"""The owner over a SQLite file: rows that any client inserts are performed by the same rules."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import pytest

from gnomon.app import task_service
from gnomon.clock import SystemClock, SystemEntropy
from gnomon.config import load_settings
from gnomon.contracts.env import Env
from gnomon.model.errors import ConfigurationError
from gnomon.tasks.sqlite.rows import moment_of
from tests.integration.tasks.stand import at_once, sessions_of

WAIT_S = 60.0
HOUR = timedelta(hours=1)


class Stand:
    """The service on one file, and a user with a connection of his own."""

    def __init__(self, path: Path, conf: str = "[{}]") -> None:
        flags = {"tasks.dsn": f"sqlite:///{path}", "tasks.conf": conf}
        self.service = task_service(
            lambda: load_settings(flags=flags), Env(clock=SystemClock(), entropy=SystemEntropy())
        )
        self._path = path
        self._stop = asyncio.Event()

    async def __aenter__(self) -> Self:
        await self.service.prepare()
        self.user = sqlite3.connect(self._path, isolation_level=None, timeout=10)
        self.user.row_factory = sqlite3.Row
        self._serving = asyncio.create_task(self.service.serve(self._stop))
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        self._stop.set()
        await self._serving
        self.user.close()

    def rows(self, where: str = "true") -> list[dict[str, Any]]:
        """In order of id, with times that can be compared."""
        found = []
        for row in self.user.execute(f"SELECT * FROM task WHERE {where} ORDER BY id"):
            values = dict(row)
            for name in ("plan", "start", "stop"):
                values[name] = values[name] and moment_of(values[name])
            found.append(values)
        return found

    async def until(self, condition: Callable[[], object], what: str) -> None:
        end = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < end, f"no {what}: {self.rows()[:5]}"
            await asyncio.sleep(0.01)

    async def until_over(self) -> None:
        waiting = "SELECT count(*) FROM task WHERE state IN ('PLAN', 'TAKE', 'WORK')"
        await self.until(lambda: self.user.execute(waiting).fetchone()[0] == 0, "end")


@pytest.fixture
async def stand(tmp_path: Path) -> AsyncIterator[Stand]:
    async with Stand(tmp_path / "tasks.db") as stand:
        yield stand


async def test_what_any_client_inserts_is_performed(stand: Stand) -> None:
    """`INSERT INTO task (input) VALUES ('SELECT 1')`, and no more."""
    stand.user.execute("INSERT INTO task (input) VALUES ('SELECT 1')")
    await stand.until_over()
    [row] = stand.rows()
    assert ("DONE", "1", None) == (row["state"], row["output"], row["error"])
    assert row["plan"] <= row["start"] <= row["stop"]


async def test_a_group_is_performed_in_order_and_one_at_a_time(stand: Stand) -> None:
    """Groups beside each other; with `count` one session performs several."""
    stand.user.execute("BEGIN")
    for number in range(60):
        values = (f"g{number % 3}", 10 if number % 3 else 0)
        stand.user.execute(
            "INSERT INTO task (\"group\", count, input) VALUES (?, ?, 'SELECT 1')", values
        )
    stand.user.execute("COMMIT")
    await stand.until_over()
    for group in range(3):
        rows = stand.rows(f"\"group\" = 'g{group}'")
        assert {"DONE"} == {row["state"] for row in rows}
        assert 1 == at_once(rows)
        assert sorted(row["start"] for row in rows) == [row["start"] for row in rows]
    assert list(range(20)) == sessions_of(stand.rows("\"group\" = 'g0'"))
    assert [0] * 10 + [1] * 10 == sessions_of(stand.rows("\"group\" = 'g1'"))


async def test_repeats_pauses_and_expiry_keep_their_rules(stand: Stand) -> None:
    """On the grid, a pause apart, and gone without being performed."""
    stand.user.execute("INSERT INTO task (input, repeat) VALUES ('SELECT 1', '200 ms')")
    for _ in range(3):
        stand.user.execute(
            "INSERT INTO task (\"group\", input, max) VALUES ('p', 'SELECT 1', -300)"
        )
    old = (datetime.now(UTC) - 2 * HOUR).isoformat()
    stand.user.execute("INSERT INTO task (\"group\", input, plan) VALUES ('e', 'x', ?)", [old])
    await stand.until(lambda: len(stand.rows("repeat <> '0' AND state = 'DONE'")) >= 3, "repeats")
    await stand.until(lambda: len(stand.rows("max < 0 AND state = 'DONE'")) == 3, "pauses")
    await stand.until(lambda: stand.rows("state = 'GONE'"), "expiry")
    repeats = stand.rows("repeat <> '0'")
    steps = {(after["plan"] - row["plan"]) % timedelta(milliseconds=200)
             for row, after in pairwise(repeats)}  # fmt: skip
    assert {timedelta(0)} == steps
    paused = stand.rows("max < 0")
    for row, after in pairwise(paused):
        assert after["start"] >= after["plan"] > row["stop"]
    [gone] = stand.rows("state = 'GONE'")
    assert "ERROR:  task not active" == gone["error"]


async def test_several_tables_live_in_one_file(tmp_path: Path) -> None:
    """Each with its own name, view and lease."""
    conf = '[{"table": "task"}, {"table": "odd name", "name": "odd"}]'
    async with Stand(tmp_path / "tasks.db", conf) as stand:
        stand.user.execute("INSERT INTO \"odd name\" (input) VALUES ('SELECT 2')")
        stand.user.execute("INSERT INTO task (input) VALUES ('SELECT 1')")
        state = 'SELECT state, output FROM "odd name"'
        await stand.until_over()
        await stand.until(lambda: tuple(stand.user.execute(state).fetchone()) == ("DONE", "2"), "2")
        assert [] == stand.user.execute('SELECT * FROM "odd name_waiting"').fetchall()
        assert 2 == len(stand.user.execute("SELECT * FROM gnomon_task_owner").fetchall())


def test_the_schedulers_file_is_refused_before_it_is_made(tmp_path: Path) -> None:
    """By its name already, however it is written."""
    flags = {
        "database.url": f"sqlite:///{tmp_path}/gnomon.db",
        "tasks.dsn": f"sqlite:///{tmp_path}/../{tmp_path.name}/gnomon.db",
    }
    with pytest.raises(ConfigurationError, match="scheduler's own file"):
        task_service(
            lambda: load_settings(flags=flags), Env(clock=SystemClock(), entropy=SystemEntropy())
        )
