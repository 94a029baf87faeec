"""Sessions on PostgreSQL: what a task can do to its session, and what it cannot."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import pytest

from gnomon.model.task import GroupKey, SessionLost
from tests.conformance.tasks.driving import Driver, Row

GROUP = GroupKey("group")
IN_A_FUNCTION = """
CREATE FUNCTION leave() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
    {body}
    RETURN 1;
END $$
"""


async def row_after(driver: Driver, task_input: str, **columns: object) -> Row:
    found = await driver.performed(task_input, **columns)
    assert found is not None
    return found


# -- what is left behind --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "question"),
    [
        ("PERFORM set_config('work_mem', '1MB', false);", "SHOW work_mem"),
        ("PERFORM set_config('role', 'pg_monitor', false);", "SELECT current_user"),
        ("EXECUTE 'PREPARE p AS SELECT 1';",
         "SELECT count(*) FROM pg_prepared_statements WHERE name = 'p'"),
        ("EXECUTE 'LISTEN here';", "SELECT count(*) FROM pg_listening_channels()"),
        ("EXECUTE 'DECLARE c CURSOR WITH HOLD FOR SELECT 1';",
         "SELECT count(*) FROM pg_cursors WHERE name = 'c'"),
        ("EXECUTE 'CREATE TEMP TABLE mine (n int)';", "SELECT to_regclass('mine') IS NULL"),
        ("PERFORM pg_advisory_lock(7);",
         "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"),
    ],
    ids=["setting", "role", "prepared", "listen", "cursor", "temp", "lock"],
)  # fmt: skip
async def test_a_session_is_as_new_after_a_task(driver: Driver, body: str, question: str) -> None:
    """Whatever a function within a plain SELECT leaves behind, the next task does not see it, and
    its own id and group are right; one that saves keeps it."""
    driver.user.execute(IN_A_FUNCTION.format(body=body).encode())
    fresh = (await row_after(driver, question))["output"]
    session = await driver.open(GROUP)
    for save in (False, True):
        leaving = driver.insert("SELECT leave()", save=save)
        asking = driver.insert(f"{question}; SELECT current_setting('pg_task.id')")
        _, task = await driver.take(leaving, session)
        finished = await driver.finish(session, task, then=asking)
        assert finished.next is not None
        await driver.finish(session, finished.next)
        found = driver.row(asking)
        assert found is not None
        answer, _, seen_id = found["output"].rpartition("\n")
        assert (fresh != answer) is save, f"save={save}: {answer}"
        assert str(asking) == seen_id
        last = driver.row(leaving)
        assert last is not None
        assert ("DONE", "1", None) == (last["state"], last["output"], last["error"])
        if save:
            return


async def test_settings_of_a_task_do_not_reach_our_own_statements(driver: Driver) -> None:
    """A search_path, a time-out or a date style that would spoil the end of the task."""
    driver.user.execute(
        b"CREATE SCHEMA odd; CREATE FUNCTION odd.statement_timestamp() RETURNS timestamptz "
        b"LANGUAGE sql AS $$SELECT '-infinity'::timestamptz$$"
    )
    for name, value in [
        ("search_path", "odd, pg_catalog"), ("statement_timeout", "1"), ("datestyle", "German"),
        ("intervalstyle", "iso_8601"), ("bytea_output", "escape"), ("timezone", "Asia/Tokyo"),
        ("standard_conforming_strings", "off"),
    ]:  # fmt: skip
        for save in (False, True):
            if save and name == "statement_timeout":
                continue  # it is what it asked for
            row = await row_after(
                driver, f"SELECT set_config('{name}', '{value}', false) IS NOT NULL", save=save
            )
            assert ("DONE", "t") == (row["state"], row["output"]), f"{name}: {row['error']}"
            assert row["start"] <= row["stop"]


async def test_a_task_that_makes_its_transaction_read_only_is_recorded(driver: Driver) -> None:
    """It can have changed nothing: its result is written apart."""
    row = await row_after(driver, "SELECT set_config('transaction_read_only', 'on', false)")
    assert ("DONE", "on") == (row["state"], row["output"])


async def test_a_task_that_drops_our_prepared_statements_does_no_harm(driver: Driver) -> None:
    """They are made anew."""
    session = await driver.open(GROUP)
    for text in ("DEALLOCATE ALL", "DISCARD ALL", "SELECT 1"):
        for save in (True, False):
            task_id = driver.insert(text, save=save)
            await driver.perform(task_id, session)
            row = driver.row(task_id)
            assert row is not None
            assert "DONE" == row["state"], row["error"]


async def test_columns_that_users_add_are_copied_at_once(driver: Driver) -> None:
    """Also on a session that was there before; generated ones make themselves."""
    session = await driver.open(GROUP)
    await driver.perform(driver.insert("SELECT 1", repeat="1 hour"), session)
    driver.user.execute(b'ALTER TABLE task ADD COLUMN "ex tra" text')
    driver.user.execute(
        b"ALTER TABLE task ADD COLUMN twice int GENERATED ALWAYS AS (max * 2) STORED"
    )
    task_id = driver.insert("SELECT 1", repeat="1 hour", max=3, **{"ex tra": "e"})
    await driver.perform(task_id, session)
    (copy,) = driver.rows("SELECT * FROM task WHERE parent = %s", [task_id])
    assert ("e", 6) == (copy["ex tra"], copy["twice"])


async def test_a_task_may_begin_its_own_repetition(driver: Driver) -> None:
    """`repeat` is read at the end, in the transaction of the task."""
    task_id = driver.insert("UPDATE task SET repeat = '1 hour' WHERE id = "
                            "current_setting('pg_task.id')::bigint")  # fmt: skip
    await driver.perform(task_id)
    assert 1 == driver.value("SELECT count(*) FROM task WHERE parent = %s", [task_id])


@pytest.mark.parametrize(
    ("plan", "repeat", "expected"),
    [
        ("2026-08-31 10:00+00", "1 mon", "2026-10-30 10:00+00"),
        ("2026-01-31 10:00+00", "1 mon", "2026-10-28 10:00+00"),
        ("2024-02-29 10:00+00", "1 year", "2027-02-28 10:00+00"),
        ("2026-09-30 09:00+00", "7 days", "2026-10-14 09:00+00"),
        ("2026-10-01 00:00+00", "1 hour", "2026-10-10 13:00+00"),
        ("2026-10-10 12:34:56.5+00", "0.25 sec", "2026-10-10 12:34:56.75+00"),
        ("2026-02-10 11:00+00", "1 mon -28 days", None),
    ],
)
async def test_repeats_lie_on_the_grid(
    driver: Driver, plan: str, repeat: str, expected: str | None
) -> None:
    """From the end at 2026-10-10 12:34:56.6; an interval that leads nowhere counts from there."""
    stop = "2026-10-10 12:34:56.6+00"
    found = driver.value(
        "SELECT gnomon_task_next(%s::timestamptz, %s::interval, false, %s::timestamptz)",
        [plan, repeat, stop],
    )
    wanted = expected or driver.value("SELECT %s::timestamptz + %s::interval", [stop, repeat])
    if expected:
        wanted = driver.value("SELECT %s::timestamptz", [expected])
    assert wanted == found


# -- defaults -------------------------------------------------------------------------------------


async def test_a_session_may_set_its_own_defaults(driver: Driver) -> None:
    """As with pg_task; what is reset, or was never set, is the table's own default."""
    wanted = {"max": "3", "delete": "false", "null": "x", "repeat": "1 day", "delimiter": ";"}
    for name, value in wanted.items():
        driver.value("SELECT set_config('pg_task.' || %s, %s, false)", [name, value])
    row = driver.row(driver.insert("SELECT 1"))
    assert row is not None
    row["delimiter"] = row["delimiter"].decode() if isinstance(row["delimiter"], bytes) else ";"
    assert {**wanted, "max": 3, "delete": False, "repeat": timedelta(days=1)} == {
        name: row[name] for name in wanted
    }
    driver.user.execute(b"RESET pg_task.max; RESET pg_task.delete")
    row = driver.row(driver.insert("SELECT 1"))
    assert row is not None
    assert (0, True) == (row["max"], row["delete"])


# -- ends -----------------------------------------------------------------------------------------


async def test_a_deferred_constraint_is_the_tasks_error(driver: Driver) -> None:
    """Also of one statement that shares its transaction; nothing of it stays."""
    driver.user.execute(b"CREATE TABLE d (a int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED)")
    row = await row_after(driver, "INSERT INTO d VALUES (1), (1)")
    assert ("FAIL", "") == (row["state"], row["output"])
    assert row["error"].startswith(
        'ERROR:  duplicate key value violates unique constraint "d_pkey"\nDETAIL:  '
    )
    assert 0 == driver.value("SELECT count(*) FROM d")


async def test_an_attempt_that_was_rescued_loses_its_effects(driver: Driver) -> None:
    """Another has the row now: what shares the transaction is undone, and nothing is recorded."""
    driver.user.execute(b"CREATE TABLE effect (n int)")
    task_id = driver.insert("INSERT INTO effect VALUES (1)", repeat="1 hour")
    session, task = await driver.take(task_id)
    outcome = await session.perform(task)
    driver.user.execute(b"UPDATE task SET state = 'PLAN', start = NULL, pid = NULL")
    finished = await session.finish(task, outcome, then=task_id, lease_guid=driver.lease_guid)
    assert not finished.recorded
    assert 0 == driver.value("SELECT count(*) FROM effect")
    assert 1 == driver.value("SELECT count(*) FROM task")
    following = driver.insert("SELECT 1")
    assert (await driver.perform(following, session)).recorded


async def test_a_finish_waits_for_a_rescue_that_is_not_committed(driver: Driver) -> None:
    """The row is looked at after the wait, not before: there is no gap between the two."""
    driver.user.execute(b"CREATE TABLE effect (n int)")
    task_id = driver.insert("INSERT INTO effect VALUES (1)")
    session, task = await driver.take(task_id)
    outcome = await session.perform(task)
    driver.user.execute(b"BEGIN")
    driver.user.execute(b"UPDATE task SET state = 'PLAN', start = NULL, pid = NULL")
    finishing = asyncio.create_task(session.finish(task, outcome, lease_guid=driver.lease_guid))
    await until(lambda: driver.value("SELECT count(*) FROM pg_locks WHERE NOT granted") > 0)
    driver.user.execute(b"COMMIT")
    assert not (await finishing).recorded
    assert 0 == driver.value("SELECT count(*) FROM effect")
    assert "PLAN" == driver.value("SELECT state FROM task")


async def until(condition: object, *, within_s: float = 20.0) -> None:
    assert callable(condition)
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        await asyncio.sleep(0.01)


async def test_time_is_kept_to_the_millisecond(driver: Driver) -> None:
    """The original counts whole seconds; its words are kept."""
    row = await row_after(driver, "SELECT pg_sleep(20)", timeout="499 ms")
    assert ("FAIL", "") == (row["state"], row["output"])
    assert (
        "ERROR:  canceling statement due to statement timeout\nSTATEMENT:  SELECT pg_sleep(20)"
        == row["error"]
    )
    assert timedelta(milliseconds=499) <= row["stop"] - row["start"]
    row = await row_after(driver, "SELECT pg_sleep(0.01)", timeout="10 sec")
    assert "DONE" == row["state"]


async def test_a_task_that_will_not_be_cancelled_is_ended(driver: Driver) -> None:
    """Its backend is terminated, its end recorded, and its session is gone."""
    text = (
        "DO $$ BEGIN LOOP BEGIN PERFORM pg_sleep(60); EXCEPTION WHEN query_canceled THEN NULL; "
        "END; END LOOP; END $$"
    )
    task_id = driver.insert(text, timeout="100 ms")
    session, task = await driver.take(task_id)
    assert (await driver.finish(session, task)).recorded
    row = driver.row(task_id)
    assert row is not None
    assert row["error"].startswith("ERROR:  canceling statement due to statement timeout\n")
    gone = "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = %s"
    await until(lambda: driver.value(gone, [row["pid"]]))
    with pytest.raises(SessionLost):
        await session.take(task_id, lease_guid=driver.lease_guid)


async def test_a_terminated_backend_is_a_lost_session(driver: Driver) -> None:
    """In the server's words; the row can be rescued at once, by its pid."""
    task_id = driver.insert("SELECT pg_sleep(60)")
    session, task = await driver.take(task_id)
    performing = asyncio.create_task(session.perform(task))
    running = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND state = 'active'"
    await until(lambda: driver.value(running, [session.pid]))
    driver.value("SELECT pg_terminate_backend(%s)", [session.pid])
    with pytest.raises(SessionLost) as caught:
        await performing
    assert str(caught.value).startswith(
        "FATAL:  terminating connection due to administrator command\nSTATEMENT:  "
    )
    await until(
        lambda: driver.value(
            "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = %s", [session.pid]
        )
    )
    assert 1 == (await driver.table.rescue(lease_guid=driver.lease_guid)).count
    row = driver.row(task_id)
    assert row is not None
    assert ("PLAN", None, None) == (row["state"], row["pid"], row["start"])


async def test_one_value_that_is_too_large_is_an_error(driver: Driver) -> None:
    """The task has failed, and nothing of it is kept; its session may be gone."""
    table = driver.another(result_bytes_max=100_000)
    session = await table.open(GROUP)
    try:
        driver.user.execute(b"CREATE TABLE effect (n int)")
        text = "INSERT INTO effect VALUES (1) RETURNING repeat('x', 60000000)"
        task_id = driver.insert(text)
        assert (await driver.perform(task_id, session)).recorded
        row = driver.row(task_id)
        assert row is not None
        assert ("FAIL", "") == (row["state"], row["output"])
        assert row["error"].startswith("ERROR:  the result is larger than 100000 bytes\n")
        assert 0 == driver.value("SELECT count(*) FROM effect")
    finally:
        await session.close()
        await table.close()


async def test_a_copy_that_is_too_large_is_cancelled(driver: Driver) -> None:
    """Rows and COPY alike are dropped, and the session goes on."""
    table = driver.another(result_bytes_max=100_000)
    session = await table.open(GROUP)
    try:
        series = "generate_series(1, 3000000)"
        for text in (f"COPY (SELECT * FROM {series}) TO STDOUT", f"SELECT * FROM {series}"):
            task_id = driver.insert(text)
            assert (await driver.perform(task_id, session)).recorded
            row = driver.row(task_id)
            assert row is not None
            assert "larger than 100000 bytes" in row["error"]
        assert (await driver.perform(driver.insert("SELECT 1"), session)).recorded
    finally:
        await session.close()
        await table.close()


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("log_error_verbosity = 'default'", "ERROR:  division by zero\nSTATEMENT:  SELECT 1/0"),
        ("log_error_verbosity = 'terse'", "ERROR:  division by zero\nSTATEMENT:  SELECT 1/0"),
        ("log_min_error_statement = 'panic'", "ERROR:  division by zero"),
        (
            "log_error_verbosity = 'verbose'",
            "ERROR:  22012: division by zero\nLOCATION:  int4div, ",
        ),
    ],
)
async def test_the_servers_verbosity_is_that_of_the_errors(
    driver: Driver, setting: str, expected: str
) -> None:
    driver.user.execute(f'ALTER DATABASE "{driver.entry.data}" SET {setting}'.encode())
    table = driver.another()
    session = await table.open(GROUP)
    try:
        task_id = driver.insert("SELECT 1/0")
        await driver.perform(task_id, session)
        row = driver.row(task_id)
        assert row is not None
        assert row["error"].startswith(expected)
        assert ("STATEMENT" in row["error"]) is ("panic" not in setting)
    finally:
        await session.close()
        await table.close()
