"""Sessions as the original has them: what they keep, what they forget, what a task can ask."""

from __future__ import annotations

import pytest
from psycopg import conninfo, sql

from gnomon.model.task import GroupKey, RowRefused
from tests.conformance.tasks.driving import LEASE, Driver, Row, acquire

GROUP = GroupKey("group")


async def performed_in_turn(driver: Driver, *inputs: str, **columns: object) -> list[Row]:
    """Rows that are performed one after the other on one session."""
    ids = [driver.insert(text, count=len(inputs), **columns) for text in inputs]
    row = driver.row(ids[0])
    assert row is not None
    key = GroupKey(row["group"], row["remote"])
    await driver.window(key)
    session, task = await driver.take(ids[0])
    for following in [*ids[1:], None]:
        finished = await driver.finish(session, task, then=following)
        if finished.next is not None:
            task = finished.next
    return [found for task_id in ids if (found := driver.row(task_id)) is not None]


def ends(rows: list[Row]) -> list[tuple[str, str | None, str | None]]:
    return [(row["state"], row["output"], (row["error"] or "").partition("\n")[0]) for row in rows]


@pytest.mark.parametrize("is_remote", [False, True])
async def test_a_saved_setting_is_there_for_the_next_task(driver: Driver, is_remote: bool) -> None:
    """Also where the task itself had no rows, and also elsewhere."""
    columns = {"remote": conninfo.make_conninfo(driver.dsn)} if is_remote else {}
    rows = await performed_in_turn(
        driver, "SET work_mem = '7MB'", "SHOW work_mem", "SELECT 1", save=True, **columns
    )
    assert [("DONE", "SET", ""), ("DONE", "7MB", ""), ("DONE", "1", "")] == ends(rows)
    assert 1 == len({row["pid"] for row in rows})


@pytest.mark.parametrize("drawing", ["SELECT nextval('numbers')", "BEGIN; {}; COMMIT"])
async def test_what_a_task_drew_from_a_sequence_is_its_own(driver: Driver, drawing: str) -> None:
    """Nor does the next one see what our own repeat drew."""
    driver.user.execute(b"CREATE SEQUENCE numbers")
    draw = drawing.format("SELECT nextval('numbers')")
    for columns in ({}, {"repeat": "1 day"}):
        rows = await performed_in_turn(driver, draw, "SELECT lastval()", **columns)
        expected = ("FAIL", "", "ERROR:  lastval is not yet defined in this session")
        assert expected == ends(rows)[1]


async def test_a_task_that_becomes_another_login_is_recorded(driver: Driver) -> None:
    """And the next one on its session is the table's own again."""
    driver.user.execute(b"DROP ROLE IF EXISTS gnomon_somebody")
    driver.user.execute(b"CREATE ROLE gnomon_somebody")
    try:
        rows = await performed_in_turn(
            driver,
            "SELECT set_config('session_authorization', 'gnomon_somebody', false)",
            "SELECT session_user",
        )
    finally:
        driver.user.execute(b"DROP ROLE gnomon_somebody")
    assert [("DONE", "gnomon_somebody", ""), ("DONE", "postgres", "")] == ends(rows)


async def test_a_copy_of_nothing_is_a_result(driver: Driver) -> None:
    row = await driver.performed("COPY (SELECT 1 WHERE false) TO STDOUT")
    assert row is not None
    assert ("DONE", "", None) == (row["state"], row["output"], row["error"])


async def test_a_task_can_ask_for_every_setting_of_the_original(driver: Driver) -> None:
    """With the original's values, unless role or database has others."""
    wanted = {
        "active": "1 hour", "count": "0", "delete": "on", "delimiter": "\t", "drift": "off",
        "escape": "", "group": "group", "header": "on", "live": "0 sec", "max": "0",
        "null": "\\N", "plan": "statement_timestamp()", "quote": "", "repeat": "0 sec",
        "save": "off", "schema": "public", "string": "on", "table": "task", "timeout": "0 sec",
    }  # fmt: skip
    for name, value in wanted.items():
        row = await driver.performed(f"SELECT current_setting('pg_task.{name}')")
        assert row is not None
        assert value == row["output"], name
    altering = sql.SQL("ALTER DATABASE {} SET pg_task.max = '7'")
    driver.user.execute(altering.format(sql.Identifier(driver.entry.data)))
    row = await driver.performed("SELECT current_setting('pg_task.max')")
    assert "7" == (row or {})["output"]


@pytest.mark.parametrize("name", ["null", "delimiter"])
async def test_a_setting_may_be_empty(driver: Driver, name: str) -> None:
    driver.user.execute(f"SET pg_task.\"{name}\" = ''".encode())
    task_id = driver.insert("SELECT 1")
    assert "" == driver.value(f'SELECT "{name}"::text FROM task WHERE id = %s', [task_id])


async def test_a_session_opened_ahead_has_the_settings_of_today(driver: Driver) -> None:
    """What a role or a database sets counts for the next task, however long its session waited."""
    await driver.performed("SELECT 1")
    for value in ("3MB", "4MB"):
        altering = sql.SQL("ALTER DATABASE {} SET work_mem = {}")
        driver.user.execute(altering.format(sql.Identifier(driver.entry.data), sql.Literal(value)))
        row = await driver.performed("SHOW work_mem")
        assert value == (row or {})["output"]


async def test_a_login_that_may_only_read_fails_its_tasks_visibly(driver: Driver) -> None:
    """The table is kept all the same, and says why."""
    altering = sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on")
    driver.user.execute(altering.format(sql.Identifier(driver.entry.data)))
    task_id = driver.insert("SELECT 1")
    words = "cannot execute UPDATE in a read-only transaction"
    with pytest.raises(RowRefused, match=words):
        await driver.take(task_id)
    other = driver.another()
    try:
        await driver.table.release(driver.lease_guid)
        assert await acquire(other, lease_for=LEASE) is not None
    finally:
        await other.close()
