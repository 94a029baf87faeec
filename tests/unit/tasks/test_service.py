"""Many tables from one configuration, and what a reload changes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

from gnomon.contracts.env import Env
from gnomon.model.errors import ConfigurationError, Unavailable
from gnomon.model.task.conf import TaskEntry
from gnomon.tasks.config import TasksConfig
from gnomon.tasks.service import TaskService
from gnomon.testing.virtual import SeededEntropy, VirtualClock, VirtualLoop
from tests.unit.tasks.fake_table import FakeTable, Told


def entry(name: str, **settings: Any) -> TaskEntry:
    return TaskEntry(data=name, user=name, **settings)


class Stand:
    """A service over tables in memory, whose configuration the test changes."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.told = Told()
        self.entries: list[TaskEntry] | ConfigurationError = []
        self.tables: dict[str, FakeTable] = {}
        self.problems: dict[str, Exception] = {}
        self.stop = asyncio.Event()
        self._loop = loop
        env = Env(
            clock=VirtualClock(loop), entropy=SeededEntropy(random.Random(3)), observer=self.told
        )
        self.service = TaskService(
            self.read, self.open, config=TasksConfig(), env=env, owner="here"
        )

    def read(self) -> list[TaskEntry]:
        if isinstance(self.entries, ConfigurationError):
            raise self.entries
        return self.entries

    def open(self, entry: TaskEntry) -> FakeTable:
        table = self.tables.setdefault(entry.data, FakeTable(self._loop))
        problem = self.problems.get(entry.data)

        async def prepare() -> list[str]:
            if problem is not None:
                raise problem
            return []

        table.prepare = prepare  # type: ignore[method-assign]
        return table

    def is_owned(self, name: str) -> bool:
        table = self.tables.get(name)
        return table is not None and table.lease is not None

    def names(self) -> list[str]:
        return [name for name, _ in self.told.events]


def virtually(story: Callable[[Stand], Coroutine[Any, Any, None]], *names: str) -> Stand:
    loop = VirtualLoop()

    async def whole() -> Stand:
        stand = Stand(loop)
        stand.entries = [entry(name) for name in names]
        serving = loop.create_task(stand.service.serve(stand.stop))
        await asyncio.sleep(1)
        await story(stand)
        stand.stop.set()
        await serving
        return stand

    try:
        return loop.run_until_complete(whole())
    finally:
        loop.close()


def test_each_table_has_an_owner() -> None:
    """And gives it back at the end."""

    async def story(stand: Stand) -> None:
        assert stand.is_owned("a")
        assert stand.is_owned("b")

    stand = virtually(story, "a", "b")
    assert not stand.is_owned("a")
    assert not stand.is_owned("b")


def test_reload_starts_new_tables_and_ends_others_after_their_tasks() -> None:
    async def story(stand: Stand) -> None:
        row = stand.tables["a"].insert(takes_s=100.0)
        await asyncio.sleep(1)
        stand.entries = [entry("b")]
        stand.service.reload()
        await asyncio.sleep(50)
        assert stand.is_owned("b")
        assert stand.is_owned("a")
        assert "WORK" == row.state
        later = stand.tables["a"].insert()
        await asyncio.sleep(60)
        assert "DONE" == row.state
        assert "PLAN" == later.state
        assert not stand.is_owned("a")

    virtually(story, "a")


def test_configuration_that_is_not_valid_changes_nothing() -> None:
    async def story(stand: Stand) -> None:
        stand.entries = ConfigurationError("tasks.conf", "is not a JSON list")
        stand.service.reload()
        row = stand.tables["a"].insert()
        await asyncio.sleep(2)
        assert "DONE" == row.state

    stand = virtually(story, "a")
    assert "tasks_conf_refused" in stand.names()


def test_changed_settings_count_without_a_new_lease() -> None:
    async def story(stand: Stand) -> None:
        lease = stand.tables["a"].lease
        stand.entries = [entry("a", run=1)]
        stand.service.reload()
        rows = [stand.tables["a"].insert(f"g{n}", takes_s=1.0) for n in range(3)]
        await asyncio.sleep(0.5)
        assert 1 == [row.state for row in rows].count("WORK")
        assert lease == stand.tables["a"].lease

    virtually(story, "a")


def test_table_that_is_refused_is_tried_again() -> None:
    """What a login may not now, it may later; the other tables go on."""

    async def story(stand: Stand) -> None:
        stand.problems["b"] = ConfigurationError("tasks", "may not")
        stand.entries = [entry("a"), entry("b")]
        stand.service.reload()
        await asyncio.sleep(15)
        assert stand.is_owned("a")
        assert not stand.is_owned("b")
        stand.problems.clear()
        await asyncio.sleep(15)
        assert stand.is_owned("b")

    stand = virtually(story, "a")
    assert "task_table_refused" in stand.names()


def test_server_that_is_away_is_waited_for() -> None:
    async def story(stand: Stand) -> None:
        stand.problems["b"] = Unavailable("no server")
        stand.entries = [entry("a"), entry("b")]
        stand.service.reload()
        await asyncio.sleep(5)
        stand.problems.clear()
        await asyncio.sleep(5)
        assert stand.is_owned("b")

    virtually(story, "a")


def test_stop_bounds_what_a_reload_let_run() -> None:
    """A removed table's tasks may take their time, until the process is to end."""

    async def story(stand: Stand) -> None:
        stand.tables["a"].insert(takes_s=10_000.0)
        await asyncio.sleep(1)
        stand.entries = []
        stand.service.reload()
        await asyncio.sleep(100)
        assert "WORK" == stand.tables["a"].rows[1].state

    stand = virtually(story, "a")
    assert "PLAN" == stand.tables["a"].rows[1].state
