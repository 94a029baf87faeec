"""Task tables in a SQLite file: what an input cannot reach, and how one writer is shared."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gnomon.clock import SystemClock, SystemEntropy
from gnomon.model.errors import ConfigurationError
from gnomon.model.task import GroupKey, RemoteRefused
from gnomon.stores.sqlite import open_sqlite
from gnomon.tasks.sqlite import SqliteTaskTable
from gnomon.tasks.sqlite.queries import queries_for
from tests.conformance.tasks.driving import acquire
from tests.conformance.tasks.sqlite_driving import SqliteDriver

GROUP = GroupKey("group")
ENDLESS = "WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r)"
HOUR = timedelta(hours=1)


def now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncIterator[SqliteDriver]:
    async with SqliteDriver(tmp_path / "tasks.db") as driver:
        yield driver


def row_of(driver: SqliteDriver, task_id: int) -> dict[str, Any]:
    found = driver.row(task_id)
    assert found is not None
    return found


# -- what an input cannot do ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "ATTACH '{outside}' AS x",
        "VACUUM INTO '{outside}'",
        "VACUUM",
        "PRAGMA journal_mode = DELETE",
        "PRAGMA writable_schema = ON",
        "SELECT * FROM pragma_database_list",
        "SELECT load_extension('{outside}')",
        "SELECT writefile('{outside}', 'x')",
        "SELECT readfile('/etc/passwd')",
        "DETACH main",
        "UPDATE gnomon_task_owner SET owner = 'me'",
        "DELETE FROM gnomon_task_owner",
        "DROP TABLE gnomon_task_owner",
        "CREATE TRIGGER x AFTER INSERT ON task BEGIN DELETE FROM gnomon_task_owner; END;{insert}",
        "DROP TRIGGER gnomon_inherit",
        "INSERT INTO task (input) VALUES ('x'); RELEASE gnomon_input",
        "INSERT INTO task (input) VALUES ('x'); ROLLBACK TO gnomon_input",
        "SELECT zeroblob(1000000000)",
        "SELECT hex(randomblob(10000000))",
        "SELECT printf('%1000000000d', 1)",
        "SELECT ?",
        "SELECT :name",
    ],
)
async def test_an_input_cannot_leave_its_box(
    driver: SqliteDriver, tmp_path: Path, text: str
) -> None:
    """It fails, leaves nothing behind, and the table goes on."""
    outside = tmp_path / "outside.db"
    insert = "INSERT INTO task (input) VALUES ('SELECT 1')"
    row = await driver.performed(text.format(outside=outside, insert=insert))
    assert row is not None
    assert "FAIL" == row["state"]
    assert row["error"].startswith("ERROR:  ")
    assert not outside.exists()
    assert 1 == len(driver.rows("SELECT * FROM task"))
    assert await driver.table.beat(driver.lease_guid)
    after = await driver.performed("SELECT 1")
    assert after is not None
    assert "DONE" == after["state"]


async def test_an_input_without_an_end_ends_at_its_time(driver: SqliteDriver) -> None:
    """Also while it writes; the lock is free afterwards."""
    driver.do("CREATE TABLE effect (n integer)")
    for body in ("SELECT count(*) FROM r", "INSERT INTO effect SELECT n FROM r"):
        row = await driver.performed(f"{ENDLESS} {body}", timeout="150 ms")
        assert row is not None
        assert row["error"].startswith("ERROR:  canceling statement due to statement timeout\n")
    assert [] == driver.rows("SELECT * FROM effect")


async def test_the_schedulers_own_file_is_refused(tmp_path: Path) -> None:
    """Whatever name it has."""
    own = tmp_path / "gnomon.db"
    store = open_sqlite(own, clock=SystemClock(), entropy=SystemEntropy())
    await store.installation.migrate(shard_count=16)
    await store.close()
    link = tmp_path / "tasks.db"
    link.symlink_to(own)
    table = SqliteTaskTable(link, clock=SystemClock())
    try:
        with pytest.raises(ConfigurationError, match="scheduler's own file"):
            await table.prepare()
    finally:
        await table.close()


async def test_another_table_of_that_name_is_refused(tmp_path: Path) -> None:
    """What lacks a column is no task table, and stays as it is."""
    path = tmp_path / "tasks.db"
    with sqlite3.connect(path) as user:
        user.execute("CREATE TABLE task (id integer PRIMARY KEY, state text, plan text)")
    user.close()
    table = SqliteTaskTable(path, clock=SystemClock())
    try:
        with pytest.raises(ConfigurationError, match=r"cannot be used|has no columns"):
            await table.prepare()
    finally:
        await table.close()
    with sqlite3.connect(path) as user:
        assert [("task",)] == user.execute("SELECT name FROM sqlite_master").fetchall()
    user.close()


async def test_remote_is_refused(driver: SqliteDriver) -> None:
    """When it is inserted, in words; and by the table itself."""
    with pytest.raises(sqlite3.IntegrityError, match="remote tasks need PostgreSQL"):
        driver.insert("SELECT 1", remote="host=x")
    task_id = driver.insert("SELECT 1")
    with pytest.raises(sqlite3.IntegrityError, match="remote tasks need PostgreSQL"):
        driver.do(f"UPDATE task SET remote = 'host=x' WHERE id = {task_id}")
    with pytest.raises(RemoteRefused, match="remote tasks need PostgreSQL"):
        await driver.table.open(GroupKey("group", "host=x"))


# -- what a user writes ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("2026-11-15 12:00:00.123456", "2026-11-15 12:00:00.123456"),
        ("2026-11-15T12:00:00.123456+00:00", "2026-11-15 12:00:00.123456"),
        ("2026-11-15T12:00:00.123456Z", "2026-11-15 12:00:00.123456"),
        ("2026-11-15 01:00:00.999999+02:00", "2026-11-14 23:00:00.999999"),
        ("2026-11-15T12:00:00Z", "2026-11-15 12:00:00.000000"),
        ("2026-11-15 12:00:00.5", "2026-11-15 12:00:00.500000"),
        ("2026-11-15 12:00", "2026-11-15 12:00:00.000000"),
        ("2026-11-15", "2026-11-15 00:00:00.000000"),
        ("2026-02-30 12:00:00.123456", "2026-03-02 12:00:00.123456"),
    ],
)
async def test_times_are_kept_in_one_form(
    driver: SqliteDriver, written: str, expected: str
) -> None:
    """However they are written: they are compared as texts."""
    task_id = driver.insert("SELECT 1", plan=written)
    [found] = driver.user.execute("SELECT plan FROM task WHERE id = ?", [task_id]).fetchone()
    assert expected == found
    driver.user.execute("UPDATE task SET plan = '2020-01-01' WHERE id = ?", [task_id])
    driver.user.execute("UPDATE task SET plan = ? WHERE id = ?", [written, task_id])
    [found] = driver.user.execute("SELECT plan FROM task WHERE id = ?", [task_id]).fetchone()
    assert expected == found


@pytest.mark.parametrize("written", ["now", "soon", "12:00", "1700000000", "2026-13-01", ""])
async def test_what_is_no_time_is_refused(driver: SqliteDriver, written: str) -> None:
    """By the table, whoever inserts."""
    with pytest.raises(sqlite3.IntegrityError):
        driver.insert("SELECT 1", plan=written)


@pytest.mark.parametrize("column", ["repeat", "live", "timeout", "active"])
async def test_an_interval_that_cannot_be_read_is_the_tasks_error(
    driver: SqliteDriver, column: str
) -> None:
    """It is not performed, and does not stay in the way of others."""
    task_id = driver.insert("SELECT 1", **{column: "5 fortnights"})
    assert [task_id] == [row.id for row in await driver.window(GROUP, limit=5)]
    session = await driver.open(GROUP)
    assert await session.take(task_id, lease_guid=driver.lease_guid) is None
    row = row_of(driver, task_id)
    assert ("FAIL", "") == (row["state"], row["output"])
    assert row["error"].startswith(
        'ERROR:  invalid input syntax for type interval: "5 fortnights"\nSTATEMENT:  SELECT 1'
    )


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("plan", "0000-01-01 00:00:00.000000"),
        ("plan", "9999-12-31 00:00:00.000000"),
        ("active", "9999 years"),
        ("active", "999999999999 years"),
        ("repeat", "9999 years"),
        ("live", "9999 years"),
        ("timeout", "9999 years"),
        ("count", 2**63 - 1),
        ("retry", 2**63 - 1),
        ("max", -(2**31)),
        ("cron", "NaN"),
        ("group", "g" * 1_000_000),
        ("since", "never"),
    ],
)
async def test_a_value_costs_its_own_row_only(
    driver: SqliteDriver, column: str, value: object
) -> None:
    """Whatever a column takes: it is looked past, ended or left waiting, and the next one runs."""
    odd = driver.insert("SELECT 1", **{"group": "odd", column: value})
    fine = driver.insert("SELECT 2")
    polled = await driver.table.poll(None)
    assert GROUP in polled.groups
    await driver.expire()
    for key in polled.groups:
        rows = await driver.window(key)
        for row in rows:
            if row.id == odd:
                session = await driver.open(key)
                task = await session.take(odd, lease_guid=driver.lease_guid)
                if task is not None:
                    await driver.finish(session, task)
    await driver.perform(fine)
    assert "DONE" == (driver.row(fine) or {})["state"]


async def test_a_text_that_is_none_fails_its_own_task(driver: SqliteDriver) -> None:
    """SQLite takes any bytes for a text; a blob is refused where it is inserted."""
    driver.do("INSERT INTO task (input, \"group\") VALUES ('SELECT 1', CAST(X'67ff' AS text))")
    driver.do("INSERT INTO task (input) VALUES (CAST(X'ff' AS text))")
    [first, second] = [row["id"] for row in driver.rows("SELECT id FROM task ORDER BY id")]
    for key in (await driver.table.poll(None)).groups:
        [row] = await driver.window(key)
        session = await driver.open(key)
        assert await session.take(row.id, lease_guid=driver.lease_guid) is None
    found = driver.rows("SELECT id, state, error FROM task ORDER BY id")
    assert [(first, "FAIL"), (second, "FAIL")] == [(row["id"], row["state"]) for row in found]
    assert found[0]["error"].startswith('ERROR:  invalid byte sequence for encoding "UTF8"')
    with pytest.raises(sqlite3.IntegrityError, match="text_check"):
        driver.do("INSERT INTO task (input, \"group\") VALUES ('SELECT 1', X'67')")


async def test_a_column_added_meanwhile_is_copied(driver: SqliteDriver) -> None:
    """The columns are those that the table has at that moment."""
    task_id = driver.insert("SELECT 1", repeat="1 hour")
    session, task = await driver.take(task_id)
    driver.do("ALTER TABLE task ADD COLUMN extra text DEFAULT 'x'")
    driver.do("UPDATE task SET extra = 'y'")
    await driver.finish(session, task)
    [following] = driver.rows(f"SELECT * FROM task WHERE parent = {task_id}")
    assert "y" == following["extra"]


async def test_a_value_of_any_type_has_its_text(driver: SqliteDriver) -> None:
    """As PostgreSQL would write it."""
    row = await driver.performed(
        "SELECT 1, -2.5, 1e100, 9e999, NULL, x'00ff', 'ü' || char(0) || 'x'", header=False
    )
    assert row is not None
    assert "1\t-2.5\t1e+100\tInfinity\t\\N\t\\x00ff\tü" == row["output"]


async def test_a_constraint_that_is_looked_at_last_is_the_tasks_error(
    driver: SqliteDriver,
) -> None:
    """It is found with the commit that would have said DONE."""
    driver.user.executescript(
        "CREATE TABLE a (id integer PRIMARY KEY);"
        "CREATE TABLE b (a integer REFERENCES a (id) DEFERRABLE INITIALLY DEFERRED);"
    )
    row = await driver.performed("INSERT INTO b VALUES (9)", repeat="1 hour")
    assert row is not None
    assert ("FAIL", "INSERT 0 1") == (row["state"], row["output"])
    assert row["error"].startswith("ERROR:  FOREIGN KEY constraint failed\n")
    assert [] == driver.rows("SELECT * FROM b")
    assert 1 == len(driver.rows("SELECT * FROM task WHERE state = 'PLAN'"))


# -- one writer -----------------------------------------------------------------------------------


async def test_tasks_that_read_are_performed_beside_one_that_writes(driver: SqliteDriver) -> None:
    """What they read is what was committed before."""
    driver.do("CREATE TABLE effect (n integer)")
    reader, read_task = await driver.take(driver.insert("SELECT count(*) FROM effect"))
    writer, write_task = await driver.take(driver.insert("INSERT INTO effect VALUES (1)"))
    written = await writer.perform(write_task)
    outcome = await reader.perform(read_task)
    assert "0" == outcome.output
    await writer.finish(write_task, written, lease_guid=driver.lease_guid)
    assert (await reader.finish(read_task, outcome, lease_guid=driver.lease_guid)).recorded
    assert "0" == row_of(driver, read_task.id)["output"]


async def test_writers_take_turns(driver: SqliteDriver) -> None:
    """The second waits for the first's end, and then sees what it did."""
    driver.do("CREATE TABLE effect (n integer)")
    text = "INSERT INTO effect SELECT count(*) FROM effect"
    first, first_task = await driver.take(driver.insert(text))
    second, second_task = await driver.take(driver.insert(text))
    outcome = await first.perform(first_task)
    waiting = asyncio.create_task(second.perform(second_task))
    done, _ = await asyncio.wait([waiting], timeout=0.2)
    assert not done
    await first.finish(first_task, outcome, lease_guid=driver.lease_guid)
    await second.finish(second_task, await waiting, lease_guid=driver.lease_guid)
    assert [0, 1] == [row["n"] for row in driver.rows("SELECT n FROM effect ORDER BY n")]


async def test_waiting_for_a_turn_counts_as_time(driver: SqliteDriver) -> None:
    """As waiting for a lock does in PostgreSQL; it can be cancelled, too."""
    late, late_task = await driver.take(driver.insert("DELETE FROM task", timeout="100 ms"))
    other, other_task = await driver.take(driver.insert("DELETE FROM task"))
    writer, task = await driver.take(driver.insert("CREATE TABLE effect (n integer)"))
    await writer.perform(task)
    outcome = await late.perform(late_task)
    assert outcome.error is not None
    assert "statement timeout" in outcome.error
    performing = asyncio.create_task(other.perform(other_task))
    done, _ = await asyncio.wait([performing], timeout=0.1)
    assert not done
    await other.cancel()
    outcome = await performing
    assert outcome.error is not None
    assert "user request" in outcome.error


async def test_a_beat_does_not_wait_for_a_task_that_writes(driver: SqliteDriver) -> None:
    """Nobody can take the table over meanwhile, so there is nothing to write."""
    session, task = await driver.take(driver.insert("CREATE TABLE effect (n integer)"))
    outcome = await session.perform(task)
    other = driver.another()
    try:
        assert await driver.table.beat(driver.lease_guid)
        assert await acquire(other, lease_for=timedelta(0)) is None
        await session.finish(task, outcome, lease_guid=driver.lease_guid)
        assert await acquire(other, lease_for=timedelta(0)) is not None
        assert not await driver.table.beat(driver.lease_guid)
    finally:
        await other.close()


async def test_a_lock_of_another_program_is_waited_for(driver: SqliteDriver) -> None:
    """Whoever inserts by hand may take his time."""
    driver.do("CREATE TABLE effect (n integer)")
    session, task = await driver.take(driver.insert("INSERT INTO effect VALUES (1)"))
    driver.do("BEGIN IMMEDIATE")
    performing = asyncio.create_task(session.perform(task))
    done, _ = await asyncio.wait([performing], timeout=0.2)
    assert not done
    driver.do("COMMIT")
    finished = await session.finish(task, await performing, lease_guid=driver.lease_guid)
    assert finished.recorded
    assert 1 == len(driver.rows("SELECT * FROM effect"))


# -- many rows ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "index"),
    [
        ("next_plan", "task_plan_idx"),
        ("due_groups", "task_due_idx"),
        ("new_groups", "task_plan_idx"),
        ("first_to_expire", "task_expiry_idx"),
        ("due_first", "task_expiry_idx"),
        ("window_due", "task_due_idx"),
        ("window_ordered", "task_order_idx"),
        ("pause", "task_due_idx"),
        ("busy", "task_busy_idx"),
    ],
)
async def test_looking_for_work_uses_an_index(driver: SqliteDriver, verb: str, index: str) -> None:
    """No look reads the whole table, and none sorts it."""
    driver.user.create_function("gnomon_paused", 4, lambda *_: "")
    names = ("now", "group", "limit", "id", "plan", "active", "after")
    plan = [
        row["detail"]
        for row in driver.user.execute(
            f"EXPLAIN QUERY PLAN {queries_for('task')[verb]}", dict.fromkeys(names, "")
        )
    ]
    assert any(index in step for step in plan), plan
    assert [] == [step for step in plan if step.startswith("SCAN task") and index not in step]
    assert [] == [step for step in plan if "FOR ORDER BY" in step]


async def test_a_window_of_a_large_group_is_in_order(driver: SqliteDriver) -> None:
    """Beyond the number of due rows that are sorted, they are read in order."""
    driver.user.executescript(
        f"BEGIN; INSERT INTO task (input, max) {ENDLESS} SELECT 'SELECT 1', n % 7 FROM r"
        " LIMIT 6000; COMMIT"
    )
    found = await driver.window(GROUP, limit=100)
    expected = driver.user.execute("SELECT id FROM task ORDER BY max DESC, id LIMIT 100").fetchall()
    assert [row["id"] for row in expected] == [row.id for row in found]
