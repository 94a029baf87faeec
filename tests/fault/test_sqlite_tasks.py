"""SQL tasks in a SQLite file while their processes are killed and frozen: nothing twice."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fixtures.processes import ChildProcess, Processes

pytestmark = pytest.mark.fault

WAIT_S = 60.0
SHORT = {"GNOMON_TASKS_LEASE": "1s", "GNOMON_TASKS_BEAT": "200ms", "GNOMON_TASKS_DRAIN": "2s"}
# Some milliseconds of counting before the effect, so that kills hit tasks in the middle.
EFFECT = """
WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r LIMIT 20000)
INSERT INTO effect SELECT current_setting('pg_task.id') FROM (SELECT max(n) FROM r)
"""


class Tasks:
    """A file, the processes that perform its tasks, and a user beside them."""

    def __init__(self, path: Path, processes: Processes) -> None:
        self.path = path
        self._processes = processes
        self._children: dict[int, ChildProcess] = {}
        self.start()
        self.until(lambda: self.owner() is not None, "owner")
        self.user = sqlite3.connect(path, isolation_level=None, timeout=30)
        self.user.execute("CREATE TABLE effect (task_id integer)")

    def start(self) -> None:
        child = self._processes.start_gnomon("tasks", "--dsn", f"sqlite:///{self.path}", env=SHORT)
        self._children[child.process_id] = child

    def owner(self) -> ChildProcess | None:
        """The process whose the table is."""
        user = sqlite3.connect(self.path, timeout=30)
        try:
            [(name,)] = user.execute("SELECT owner FROM gnomon_task_owner").fetchall()
        except (ValueError, sqlite3.OperationalError):  # it is being made
            return None
        finally:
            user.close()
        return None if name is None else self._children.get(int(name.rpartition("/")[2]))

    def insert(self, count: int) -> None:
        self.user.execute("BEGIN")
        for number in range(count):
            values = (f"g{number % 10}", 5 if number % 2 else 0, EFFECT)
            self.user.execute('INSERT INTO task ("group", count, input) VALUES (?, ?, ?)', values)
        self.user.execute("COMMIT")

    def effects(self) -> list[int]:
        """The tasks that took effect, as often as they did."""
        found = self.user.execute("SELECT task_id FROM effect ORDER BY task_id").fetchall()
        return [task_id for (task_id,) in found]

    def states(self) -> dict[str, int]:
        return dict(self.user.execute("SELECT state, count(*) FROM task GROUP BY state").fetchall())

    def until_effects(self, count: int) -> None:
        self.until(lambda: len(self.effects()) >= count, f"{count} effects")

    def until(self, condition: Callable[[], object], what: str) -> None:
        end = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < end, f"no {what} in {WAIT_S} s"
            time.sleep(0.02)


@pytest.fixture
def tasks(tmp_path: Path, processes: Processes) -> Iterator[Tasks]:
    found = Tasks(tmp_path / "tasks.db", processes)
    yield found
    processes.close()
    found.user.close()


def test_killed_owners_lose_nothing_and_repeat_no_effect(tasks: Tasks) -> None:
    """Another takes over each time; every task takes effect exactly once, and is DONE."""
    tasks.start()
    tasks.insert(300)
    kills = 0
    for wanted in range(30, 300, 50):
        tasks.until_effects(wanted)
        owner = tasks.owner()
        if owner is not None:
            owner.kill()
            kills += 1
            tasks.start()
    tasks.until(lambda: tasks.states() == {"DONE": 300}, "end of all tasks")
    assert list(range(1, 301)) == tasks.effects()
    assert 4 <= kills


def test_a_frozen_owner_changes_nothing_when_it_wakes(tasks: Tasks) -> None:
    """Another has taken over by then, unless the frozen one was just writing; then it goes on."""
    tasks.start()
    tasks.insert(100)
    tasks.until_effects(20)
    first = tasks.owner()
    assert first is not None
    first.freeze()
    time.sleep(2.5)  # more than the lease
    first.thaw()
    tasks.until(lambda: tasks.states() == {"DONE": 100}, "end of all tasks")
    assert list(range(1, 101)) == tasks.effects()
