"""Rows of a task table: one bad or held row costs itself alone. Only REST shows them."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
import pytest
from psycopg import sql

from gnomon.contracts.task_rows import TEXT_CHARS_MAX
from gnomon.tasks.postgres import task_rows as postgres
from gnomon.tasks.sqlite import task_rows as sqlite
from tests.conformance.faces.faces import NotNow, Rest
from tests.conformance.faces.test_poison import LARGE, Poison, both, for_each
from tests.fixtures.task_tables import TaskPlace

TEXTS = ("data", "error", "output")


def moments(*columns: str) -> list[Poison]:
    """Times that no calendar of Python has, or none at all."""
    return [
        poison
        for column in columns
        for poison in (
            both(f"{column} never", f"{column} = 'infinity'"),
            both(f"{column} before all", f"{column} = '-infinity'"),
            both(f"{column} in the year 20000", f"{column} = '20000-01-01 00:00:00'"),
            both(f"{column} before Christ", f"{column} = '0044-03-15 00:00:00 BC'"),
            Poison(f"{column} in the year 0", f"{column} = '0000-01-01 00:00:00.000000'", None),
            Poison(f"{column} that is none", f"{column} = 'soon'", None),
            Poison(f"{column} in bytes", f"{column} = x'ff'", None),
            Poison(f"{column} in a number", f"{column} = 5", None),
        )
    ]


TASKS = [
    *moments("plan", "start", "stop"),
    both("an interval beyond all", "active = '178000000 years', live = '178000000 years'"),
    both("another", "repeat = '178000000 years', timeout = '178000000 years'"),
    both("a cron that is none", "cron = 'now and then'"),
    both("a long cron", f"cron = '{'* ' * 100_000}'"),
    both("no SQL", "input = ''''"),
    *[both(f"{column} in megabytes", f"{column} = '{'x' * LARGE}'") for column in TEXTS],
    both("input in megabytes", f"input = '{'x' * LARGE}'"),
    both("a group in megabytes", f"\"group\" = '{'x' * LARGE}'"),
    Poison("a remote in megabytes", None, f"remote = '{'x' * LARGE}'"),
    Poison("a remote that is none", None, "remote = 'host'"),
    *[Poison(f"{column} in bytes", f"{column} = x'ff00'", None) for column in TEXTS],
    *[
        Poison(f"{column} that is no UTF-8", f"{column} = CAST(x'ff' AS text)", None)
        for column in (*TEXTS, "input", '"group"', "cron", "active")
    ],
    Poison("a pid that is none", "pid = 'x'", "pid = -1"),
    Poison("a parent that is none", "parent = 'x'", "parent = -1"),
    Poison("a pid in bytes", "pid = x'ff'", None),
    both("numbers as large as they come", "count = 2147483647, max = -2147483648"),
]


class Rows:
    """A bad row and a good one, each time anew."""

    def __init__(self, place: TaskPlace, face: Rest) -> None:
        self._place = place
        self._face = face
        self.bad = self.good = ""

    async def renew(self) -> None:
        self._place.execute("DELETE FROM task")
        self.bad, self.good = [str((await self._face.call("insert_task"))["id"]) for _ in range(2)]

    def spoilt(self, poisons: Sequence[Poison]) -> Iterator[str]:
        for poison in poisons:
            change = poison.sqlite if self._place.is_sqlite else poison.postgres
            if change is None:
                continue
            try:
                self._place.execute(f"UPDATE task SET {change} WHERE id = {self.bad}")
            except (sqlite3.IntegrityError, psycopg.Error):
                continue
            yield poison.what

    async def spoilt_text(self, column: str) -> Any:
        """What is shown of bytes that are no text."""
        self._place.execute(rf"UPDATE task SET {column} = E'\xff' WHERE id = {self.bad}")
        return (await self._face.call("get_task", self.bad))[column]

    async def check(self) -> None:
        assert {self.bad, self.good} == set(await self._face.call("list_tasks"))
        for verb in ("get_task", "stop_task", "plan_task", "stop_task"):
            for name in (self.bad, self.good):
                await self._face.call(verb, name)
        for value in (await self._face.call("get_task", self.bad)).values():
            assert TEXT_CHARS_MAX + len("… (3145728 characters)") >= len(str(value))
        await self._face.call("insert_task")


async def test_bad_rows(task_place: TaskPlace, tasks_face: Rest) -> None:
    """Listed, shown, stopped and planned again; and others beside them."""
    rows = Rows(task_place, tasks_face)
    await for_each(rows.spoilt(TASKS), [], rows.check, rows.renew)


@pytest.fixture
def ascii_task_place(postgres_task_place: TaskPlace) -> TaskPlace:
    """A database that takes any bytes for a text."""
    create = sql.SQL(
        "CREATE DATABASE {} OWNER gnomon_tasker ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'"
        " TEMPLATE template0"
    ).format(sql.Identifier(postgres_task_place.database))
    with psycopg.connect(postgres_task_place.dsn, autocommit=True) as admin:
        admin.execute(
            "DO $$ BEGIN CREATE ROLE gnomon_tasker LOGIN; EXCEPTION WHEN OTHERS THEN NULL; END $$"
        )
        admin.execute(create)
    return postgres_task_place


@pytest.mark.parametrize("task_place", ["ascii"], indirect=True)
async def test_bytes_that_are_no_text(task_place: TaskPlace, tasks_face: Rest) -> None:
    rows = Rows(task_place, tasks_face)
    poisons = [both(f"{column} of bytes", rf"{column} = E'\xff'") for column in (*TEXTS, "input")]
    await for_each(rows.spoilt(poisons), [], rows.check, rows.renew)
    assert "\ufffd" == (await rows.spoilt_text("data"))


CALLERS = 10


async def test_held_rows(
    task_place: TaskPlace, tasks_face: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who reads is answered at once, and so is who changes another row, however many want this
    one; they are told while it is held. In SQLite a transaction holds the whole file."""
    monkeypatch.setattr(postgres, "HELD_WAITS_S", (0.05, 0.1, 0.2, 0.4, 0.8))
    monkeypatch.setattr(sqlite, "LOCK_S", 1.5)
    held, free = [str((await tasks_face.call("insert_task"))["id"]) for _ in range(2)]
    with task_place.hold(int(held)):
        calls = [
            asyncio.ensure_future(tasks_face.call(verb, held))
            for verb in ["stop_task", "plan_task"] * CALLERS
        ]

        async def first(verb: str, *names: str) -> Any:
            other = asyncio.ensure_future(tasks_face.call(verb, *names))
            await asyncio.wait([other, *calls], return_when=asyncio.FIRST_COMPLETED)
            assert other.done(), "those who wait for the held row were first"
            return await other

        assert {held, free} == set(await first("list_tasks"))
        for name in (held, free):
            assert "PLAN" == (await first("get_task", name))["state"]
        if not task_place.is_sqlite:
            assert "STOP" == (await first("stop_task", free))["state"]
            assert "PLAN" == (await first("plan_task", free))["state"]
            await first("insert_task")
        for answer in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(answer, NotNow), answer
            assert "safe to repeat" in str(answer)
    assert "STOP" == (await tasks_face.call("stop_task", held))["state"]
