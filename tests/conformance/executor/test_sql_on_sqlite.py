"""The executor of SQL statements on a SQLite file that is not the scheduler's."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gnomon.clock import SystemClock
from gnomon.executors import _sqlite
from gnomon.executors.sql import SqlExecutor, SqlTarget
from gnomon.model.errors import ConfigurationError
from gnomon.model.outcome import Failed, Interrupted, Outcome, Succeeded
from gnomon.model.secret import Secret
from gnomon.model.spec import Effect, Sql
from gnomon.sqlite_box import BoxResult, SqliteBox
from tests.conformance.executor.suite import ExecutorSuite, order_of

ENDLESS = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r"
INSERT = "INSERT INTO effect VALUES (1)"
DONE = Succeeded(answer="done by an earlier attempt")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    owner = sqlite3.connect(path)
    owner.execute("PRAGMA journal_mode = WAL")
    owner.execute("CREATE TABLE effect (n INTEGER)")
    owner.close()
    return path


def target_of(file: Path, name: str = "shop", **options: Any) -> SqlTarget:
    return SqlTarget(name=name, dsn=Secret(f"sqlite:///{file}"), **options)


@pytest.fixture
async def executor(file: Path) -> AsyncIterator[SqlExecutor]:
    soon = {"statement_timeout": timedelta(milliseconds=50)}
    targets = {
        "shop": target_of(file),
        "hasty": target_of(file, "hasty", **soon),
        "named": target_of(file, "named", inbox="seen"),
        "nowhere": target_of(file.with_name("missing.db"), "nowhere"),
    }
    found = SqlExecutor(targets, clock=SystemClock())
    yield found
    await found.close()


class FileStand:
    """Counts the statements that were tried: what failed leaves no trace in the file."""

    def __init__(self, executor: SqlExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
        self.executor = executor
        self.sent_count = 0
        self._key = 0

        class Counting(SqliteBox):
            def perform(box, statement: str, parameters: Sequence[object] = ()) -> BoxResult:  # noqa: N805
                self.sent_count += 1
                return super().perform(statement, parameters)

        monkeypatch.setattr(_sqlite, "SqliteBox", Counting)
        execute = executor.execute

        async def with_its_own_key(order: Any) -> Outcome:
            """The suite's orders are all of one occurrence: here each is another."""
            self._key += 1
            key = f"act_{self._key}"
            return await execute(msgspec.structs.replace(order, key_of=lambda: key))

        monkeypatch.setattr(executor, "execute", with_its_own_key)

    def succeeding(self) -> Effect:
        return Sql(target="shop", statement=INSERT)

    def failing(self) -> Effect:
        return Sql(target="hasty", statement=ENDLESS)

    def hanging(self) -> Effect:
        return Sql(target="shop", statement=ENDLESS)

    def talkative(self) -> Effect:
        return Sql(target="shop", statement="SELECT hex(zeroblob(5000))")

    def broken(self) -> Sequence[Effect]:
        texts = ("nonsense", "\x00", "\ud800", "SELECT 1; SELECT 2", "COMMIT", "VACUUM")
        return [
            Sql(target="x", statement="SELECT 1"),
            Sql(target="nowhere", statement="SELECT 1"),
            *(Sql(target="shop", statement=text) for text in texts),
            Sql(target="shop", statement="SELECT $1", parameters=[]),
            Sql(target="shop", statement="SELECT 1", parameters=[1]),
            Sql(target="shop", statement="SELECT $1", parameters=[object()]),
            Sql(target="shop", statement="SELECT $1", parameters=[10**30]),
            Sql(target="shop", statement=INSERT, autocommit=True),
        ]


@pytest.fixture
def stand(executor: SqlExecutor, monkeypatch: pytest.MonkeyPatch) -> FileStand:
    return FileStand(executor, monkeypatch)


class TestSqlOnSqlite(ExecutorSuite):
    """The common promises."""


async def perform(
    executor: SqlExecutor, statement: str, *parameters: Any, target: str = "shop", **order: Any
) -> Outcome:
    effect = Sql(target=target, statement=statement, parameters=list(parameters))
    return await executor.execute(order_of(effect, **order))


def rows_of(file: Path, query: str) -> list[tuple[Any, ...]]:
    owner = sqlite3.connect(file)
    try:
        return owner.execute(query).fetchall()
    finally:
        owner.close()


async def test_rows_are_the_answer(executor: SqlExecutor) -> None:
    """As JSON; a change says how many rows it changed."""
    found = await perform(executor, "SELECT $1 AS a, $2 AS b", 1, {"k": "v"}, key="a")
    assert Succeeded(answer='[{"a":1,"b":"{\\"k\\": \\"v\\"}"}]') == found
    found = await perform(executor, "INSERT INTO effect VALUES ($1), ($2)", 1, 2, key="b")
    assert Succeeded(answer="rows changed: 2") == found


async def test_the_inbox_makes_it_once(executor: SqlExecutor, file: Path) -> None:
    """Another attempt of the occurrence finds its key; another occurrence does not."""
    assert Succeeded(answer="rows changed: 1") == await perform(executor, INSERT)
    assert DONE == await perform(executor, INSERT, attempt_no=2)
    assert Succeeded(answer="rows changed: 1") == await perform(executor, INSERT, key="other")
    assert [(2,)] == rows_of(file, "SELECT count(*) FROM effect")
    assert [(2,)] == rows_of(file, "SELECT count(*) FROM gnomon_inbox")
    assert isinstance(await perform(executor, INSERT, target="named"), Succeeded)
    assert [(1,)] == rows_of(file, "SELECT count(*) FROM seen")


async def test_a_failure_leaves_no_key(executor: SqlExecutor, file: Path) -> None:
    """What failed may be tried again: nothing of it is there, not even the inbox."""
    for statement in ("SELECT abs(-9223372036854775808)", "SELECT 1 FROM gnomon_inbox", "nonsense"):
        assert isinstance(await perform(executor, statement), Failed)
    assert [("effect",)] == rows_of(file, "SELECT name FROM sqlite_schema")


async def test_a_conflict_that_rolls_back_is_no_success(executor: SqlExecutor, file: Path) -> None:
    """`OR ROLLBACK` ends our transaction: the key is gone with it, and the attempt failed."""
    await perform(executor, "CREATE UNIQUE INDEX i ON effect (n)", key="index")
    await perform(executor, INSERT, key="first")
    again = await perform(executor, "INSERT OR ROLLBACK INTO effect VALUES (1)", key="second")
    assert isinstance(again, Failed)
    assert not again.retryable
    assert [(0,)] == rows_of(file, "SELECT count(*) FROM gnomon_inbox WHERE key = 'second'")


def _is_locked(file: Path) -> bool:
    """Whether somebody writes: the statement has begun."""
    with closing(sqlite3.connect(file, timeout=0, isolation_level=None)) as other:
        try:
            other.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
        other.execute("ROLLBACK")
        return False


async def test_a_cancelled_statement_really_stops(executor: SqlExecutor, file: Path) -> None:
    """Its lock is free soon afterwards, and nothing of it is committed."""
    effect = Sql(target="shop", statement=_insert_endlessly())
    executing = asyncio.ensure_future(executor.execute(order_of(effect)))
    async with asyncio.timeout(10):
        while not _is_locked(file):
            await asyncio.sleep(0.01)
    executing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await executing
    assert isinstance(await perform(executor, INSERT, key="next"), Succeeded)
    assert [(1,)] == rows_of(file, "SELECT n FROM effect")


def _insert_endlessly() -> str:
    return ENDLESS.replace("SELECT count(*) FROM r", "INSERT INTO effect SELECT n FROM r")


async def test_waiting_for_a_lock_may_be_tried_again(file: Path) -> None:
    """Who writes for long is waited for only a while."""
    target = target_of(file, lock_timeout=timedelta(milliseconds=20))
    executor = SqlExecutor({"shop": target}, clock=SystemClock())
    holder = sqlite3.connect(file, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    busy = await perform(executor, INSERT)
    holder.close()
    assert isinstance(busy, Failed)
    assert ("refused with SQLITE_BUSY", True) == (busy.error, busy.retryable)
    assert isinstance(await perform(executor, INSERT), Succeeded)
    await executor.close()


async def test_a_lost_commit_is_unknown(
    executor: SqlExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut short while committing, the next attempt will see whether it is there."""
    perform_in_thread = _sqlite._FileAttempt.perform

    def lose(attempt: Any) -> Outcome:
        attempt.is_committing = True
        return perform_in_thread(attempt)

    monkeypatch.setattr(_sqlite._FileAttempt, "perform", lose)
    outcome = await perform(executor, ENDLESS, target="hasty")
    assert Interrupted(reason="the connection was lost while committing") == outcome


OWN_NAMES = [
    "gnomon.db",
    "link.db",
    "hard.db",
    "sub/../gnomon.db",
    "gnomon.db-wal",
    "gnomon.db-shm",
]


@pytest.mark.parametrize("name", OWN_NAMES)
def test_the_own_file_is_refused_at_start(tmp_path: Path, name: str) -> None:
    """By path, by link, and by what lies beside it."""
    own = own_file(tmp_path)
    (tmp_path / "link.db").symlink_to(own)
    os.link(own, tmp_path / "hard.db")
    target = target_of(tmp_path / name, "own")
    with pytest.raises(ConfigurationError, match=r"targets\.own\.dsn"):
        SqlExecutor({"own": target}, clock=SystemClock(), database_url=f"sqlite:///{own}")


async def test_the_own_file_is_refused_before_each_attempt(tmp_path: Path) -> None:
    """A link that was made after the start leads nowhere."""
    own = own_file(tmp_path)
    target = target_of(tmp_path / "later.db", "own")
    executor = SqlExecutor({"own": target}, clock=SystemClock(), database_url=f"sqlite:///{own}")
    os.link(own, tmp_path / "later.db")
    outcome = await perform(executor, "DROP TABLE scheduled_action", target="own")
    assert Failed(error="cannot connect", retryable=False) == outcome
    assert [("scheduled_action",)] == rows_of(own, "SELECT name FROM sqlite_schema")
    await executor.close()


def own_file(folder: Path) -> Path:
    (folder / "sub").mkdir()
    own = folder / "gnomon.db"
    owner = sqlite3.connect(own)
    owner.execute("CREATE TABLE scheduled_action (id)")
    owner.close()
    return own


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("dsn", Secret("sqlite:///relative.db")),
        ("dsn", Secret("sqlite:///:memory:")),
        ("dsn", Secret("sqlite://")),
        ("dsn", Secret("sqlite://host//file.db")),
        ("place", "local"),
        ("inbox", "main.seen"),
        ("search_path", "shop"),
    ],
)
def test_wrong_options_are_refused(option: str, value: Any) -> None:
    """When the worker starts, and the error names the option."""
    options: dict[str, Any] = {"name": "shop", "dsn": Secret("sqlite:////a/b.db"), option: value}
    with pytest.raises(ConfigurationError, match=rf"targets\.shop\.{option}"):
        SqlTarget(**options)
