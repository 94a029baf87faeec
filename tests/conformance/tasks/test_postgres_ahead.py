"""Sessions on PostgreSQL that send the next input with the end of the task before."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
from psycopg import sql

from gnomon.contracts.task_table import TaskFinishResult, TaskSession
from gnomon.model.task import GroupKey, SessionLost, Task
from tests.conformance.tasks.driving import Driver, Row
from tests.conformance.tasks.test_postgres_sessions import IN_A_FUNCTION

GROUP = GroupKey("group")
TRACE = "SELECT nextval('trace')"  # stays to be seen, whatever becomes of its transaction


async def finished_before(
    driver: Driver, first: int, then: int, *, change: str | None = None
) -> tuple[TaskSession, TaskFinishResult]:
    """Both rows were looked at; the first is performed and ended, the other is to follow."""
    session = await driver.open(GROUP)
    await driver.window(GROUP, limit=10)
    if change is not None:
        driver.user.execute(change.encode(), [then])
    _, task = await driver.take(first, session)
    return session, await driver.finish(session, task, then=then)


async def performed_in_turn(driver: Driver, *texts: str) -> list[Row]:
    """The rows of tasks of which each follows the one before; but for the first one, each was on
    its way when the one before ended."""
    ids = [driver.insert(text, live="1 hour") for text in texts]
    session, finished = await finished_before(driver, *ids[:2])
    for then in [*ids[2:], None]:
        assert finished.next is not None
        finished = await driver.finish(session, finished.next, then=then)
    rows = [driver.row(task_id) for task_id in ids]
    return [row for row in rows if row is not None]


async def performed_after(driver: Driver, first: str, then: str) -> tuple[Row, Row]:
    """The rows of two tasks, of which one follows the other."""
    one, other = await performed_in_turn(driver, first, then)
    return one, other


async def performed_ahead(driver: Driver, text: str) -> tuple[TaskSession, Task]:
    """A session that performs this input, which was sent with the end of a task before it: its
    pipeline is held."""
    first, then = driver.insert("SELECT 1", live="1 hour"), driver.insert(text, live="1 hour")
    session, finished = await finished_before(driver, first, then)
    assert finished.next is not None
    return session, finished.next


async def until(condition: Callable[[], object], *, within_s: float = 20.0) -> None:
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        await asyncio.sleep(0.01)


def is_traced(driver: Driver) -> bool:
    return bool(driver.value("SELECT is_called FROM trace"))


@pytest.fixture(autouse=True)
def trace(driver: Driver) -> None:
    driver.user.execute(b"CREATE SEQUENCE trace; CREATE TABLE effect (n int)")


async def test_a_foreseen_input_begins_with_the_end_of_the_task_before(driver: Driver) -> None:
    """It is performed before anybody asks for it, while its row says WORK, and is recorded as any
    other."""
    first, then = driver.insert("SELECT 1", live="1 hour"), driver.insert(TRACE, live="1 hour")
    session, finished = await finished_before(driver, first, then)
    assert finished.recorded
    assert finished.next is not None
    await until(lambda: is_traced(driver))
    answered = "SELECT wait_event = 'ClientRead' FROM pg_stat_activity WHERE pid = %s"
    await until(lambda: driver.value(answered, [session.pid]))
    for _ in range(2):  # the answer is read while nobody waits for it
        await asyncio.sleep(0)
    assert ["DONE", "WORK"] == [
        row["state"] for row in driver.rows("SELECT * FROM task ORDER BY id")
    ]
    assert (await driver.finish(session, finished.next)).recorded
    assert "1" == driver.value("SELECT output FROM task WHERE id = %s", [then])


@pytest.mark.parametrize(
    ("change", "is_taken"),
    [
        ("UPDATE task SET input = 'SELECT 7' WHERE id = %s", True),
        ("UPDATE task SET input = 'SELECT NULL', \"null\" = '7' WHERE id = %s", True),
        ("UPDATE task SET cron = 'no cron' WHERE id = %s", True),
        ("UPDATE task SET state = 'STOP' WHERE id = %s", False),
        ("UPDATE task SET plan = now() + interval '1 hour' WHERE id = %s", False),
        ("DELETE FROM task WHERE id = %s", False),
        ("UPDATE gnomon_task_owner SET lease_guid = gen_random_uuid() WHERE %s > 0", False),
    ],
    ids=["changed", "looks otherwise", "cron", "stopped", "put off", "deleted", "lease lost"],
)
async def test_an_input_that_is_not_to_be_performed_any_more_is_not(
    driver: Driver, change: str, is_taken: bool
) -> None:
    """It is on its way, and the server drops it; the end of the task before counts all the same.
    A row that says something else now is performed as it is."""
    first = driver.insert("INSERT INTO effect VALUES (1)", live="1 hour")
    then = driver.insert(TRACE, live="1 hour")
    if change.startswith("UPDATE gnomon"):
        session = await driver.open(GROUP)
        await driver.window(GROUP, limit=10)
        _, task = await driver.take(first, session)
        driver.user.execute(change.encode(), [then])
        finished = await driver.finish(session, task, then=then)
    else:
        session, finished = await finished_before(driver, first, then, change=change)
    assert finished.recorded
    assert is_taken is (finished.next is not None)
    if finished.next is not None:
        await driver.finish(session, finished.next)
        expected = "7" if "7" in change else ""
        assert expected == driver.value("SELECT output FROM task WHERE id = %s", [then])
    assert not is_traced(driver)
    assert 1 == driver.value("SELECT count(*) FROM effect")
    assert "DONE" == driver.value("SELECT state FROM task WHERE id = %s", [first])


async def test_each_row_has_its_own_columns_though_they_do_not_come_with_it(driver: Driver) -> None:
    """Rows that look alike are known by one of them; those beside them that look otherwise keep
    their own words, whichever came before."""
    ids = [
        driver.insert("SELECT NULL", live="1 hour", null=text, max=0)
        for text in ("a", "b", "a", "b", "c", "a")
    ]
    session = await driver.open(GROUP)
    await driver.window(GROUP, limit=10)
    _, task = await driver.take(ids[0], session)
    for then in [*ids[1:], None]:
        finished = await driver.finish(session, task, then=then)
        assert finished.recorded
        if finished.next is not None:
            task = finished.next
    found = driver.rows("SELECT output FROM task ORDER BY id")
    assert ["a", "b", "a", "b", "c", "a"] == [row["output"] for row in found]


@pytest.mark.parametrize(
    ("body", "question"),
    [
        ("PERFORM set_config('work_mem', '1MB', false);", "current_setting('work_mem') <> '1MB'"),
        ("PERFORM set_config('role', 'pg_monitor', false);", "current_user = session_user"),
        ("PERFORM set_config('session_authorization', 'pg_monitor', false);",
         "session_user <> 'pg_monitor' AND current_user = session_user"),
        ("PERFORM set_config('pg_task.id', '0', false);", "true"),
        ("PERFORM set_config('gnomon.left', '', false); EXECUTE 'PREPARE p AS SELECT 1';",
         "NOT EXISTS (SELECT FROM pg_prepared_statements WHERE name = 'p')"),
        ("EXECUTE 'PREPARE p AS SELECT 1';",
         "NOT EXISTS (SELECT FROM pg_prepared_statements WHERE name = 'p')"),
        ("EXECUTE 'LISTEN here';", "NOT EXISTS (SELECT FROM pg_listening_channels())"),
        ("EXECUTE 'DECLARE c CURSOR WITH HOLD FOR SELECT 1';",
         "NOT EXISTS (SELECT FROM pg_cursors WHERE name = 'c')"),
        ("EXECUTE 'CREATE TEMP TABLE mine (n int)';", "to_regclass('mine') IS NULL"),
        ("PERFORM pg_advisory_lock(7);",
         "NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory')"),
    ],
    ids=[
        "setting", "role", "login", "id", "hidden", "prepared", "listen", "cursor", "temp", "lock",
    ],
)  # fmt: skip
@pytest.mark.parametrize("before", [(), ("SELECT 1",)], ids=["first", "ahead"])
async def test_the_task_that_follows_finds_a_session_as_new(
    driver: Driver, body: str, question: str, before: tuple[str, ...]
) -> None:
    """Whatever a function within a plain SELECT leaves behind, the input that is sent with its end
    does not see it, and sees its own id. So it is where what leaves something was sent ahead."""
    driver.user.execute(IN_A_FUNCTION.format(body=body).encode())
    asking = f"SELECT ({question})::text || ' ' || current_setting('pg_task.id')"
    *_, left, asked = await performed_in_turn(driver, *before, "SELECT leave()", asking)
    assert ("DONE", "1", None) == (left["state"], left["output"], left["error"])
    assert (f"true {asked['id']}", None) == (asked["output"], asked["error"])


async def test_an_error_of_the_task_that_follows_is_its_own(driver: Driver) -> None:
    """The task before keeps its effects, and the next one is performed on the same session."""
    one, other = await performed_after(driver, "INSERT INTO effect VALUES (1)", "SELECT 1/0")
    assert ("DONE", "INSERT 0 1") == (one["state"], one["output"])
    assert ("FAIL", "") == (other["state"], other["output"])
    assert "ERROR:  division by zero\nSTATEMENT:  SELECT 1/0" == other["error"]
    assert 1 == driver.value("SELECT count(*) FROM effect")
    assert one["pid"] == other["pid"]


async def test_a_task_that_ends_its_session_is_not_mixed_up_with_the_one_before(
    driver: Driver,
) -> None:
    """The end of the task before is known; the loss belongs to the one that follows."""
    first = driver.insert("SELECT 1", live="1 hour")
    then = driver.insert("SELECT pg_terminate_backend(pg_backend_pid())", live="1 hour")
    session, finished = await finished_before(driver, first, then)
    assert finished.recorded
    assert finished.next is not None
    with pytest.raises(SessionLost, match="terminating connection"):
        await session.perform(finished.next)
    assert "DONE" == driver.value("SELECT state FROM task WHERE id = %s", [first])


async def test_a_time_out_is_kept_by_an_input_that_is_on_its_way(driver: Driver) -> None:
    """It counts from the start."""
    first = driver.insert("SELECT 1", live="1 hour")
    then = driver.insert("SELECT pg_sleep(20)", live="1 hour", timeout="200 ms")
    session, finished = await finished_before(driver, first, then)
    assert finished.next is not None
    await driver.finish(session, finished.next)
    error = driver.value("SELECT error FROM task WHERE id = %s", [then])
    assert error.startswith("ERROR:  canceling statement due to statement timeout\n")


# -- what must be on the disk ---------------------------------------------------------------------

NOTE_COMMITS = """
CREATE TABLE durability (input text, mode text);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO durability VALUES (NEW.input, current_setting('synchronous_commit'));
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER note AFTER UPDATE ON task DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW WHEN (NEW.state = 'DONE') EXECUTE FUNCTION note()
"""


@pytest.mark.parametrize("live", ["1 hour", "0"], ids=["ahead", "alone"])
async def test_only_a_task_that_has_written_nothing_ends_without_the_disk(
    driver: Driver, live: str
) -> None:
    """At its commit: what the loss of the end would only repeat need not be waited for; effects
    must be."""
    driver.user.execute(NOTE_COMMITS.encode())
    expected = {
        "SELECT 1": "off",
        "INSERT INTO effect VALUES (1)": "on",
        "SELECT nextval('trace')": "on",
        "SELECT 1; SELECT 2": "on",
    }
    ids = [driver.insert(text, live=live) for text in expected]
    session, task = await driver.take(ids[0], await driver.open(GROUP))
    await driver.window(GROUP, limit=10)
    for then in [*ids[1:], None]:
        finished = await driver.finish(session, task, then=then)
        assert finished.recorded
        if finished.next is not None:
            task = finished.next
    found = driver.rows("SELECT input, mode FROM durability")
    assert expected == {row["input"]: row["mode"] for row in found}


async def test_a_task_that_keeps_its_settings_keeps_them_for_the_next_one(driver: Driver) -> None:
    """Also where it was on its way when the one before ended, as the second of them is: the first
    one has shown what such rows are like."""
    ids = [
        driver.insert(text, live="1 hour", save=saves)
        for text, saves in (
            ("SELECT 1", False), ("SELECT 2", True), ("SELECT 3", False),
            ("SELECT set_config('work_mem', '1MB', false)", True),
            ("SELECT current_setting('work_mem')", False),
        )
    ]  # fmt: skip
    session = await driver.open(GROUP)
    await driver.window(GROUP, limit=10)
    _, task = await driver.take(ids[0], session)
    for then in [*ids[1:], None]:
        finished = await driver.finish(session, task, then=then)
        if finished.next is not None:
            task = finished.next
    assert "1MB" == driver.value("SELECT output FROM task WHERE id = %s", [ids[-1]])


async def test_after_another_login_a_session_has_the_role_that_it_began_with(
    driver: Driver,
) -> None:
    """The database may set one; a session that becomes another login has none, and so would the one
    that becomes itself again."""
    name = sql.Identifier(driver.entry.data)
    driver.user.execute(b"DROP ROLE IF EXISTS gnomon_role")
    driver.user.execute(b"CREATE ROLE gnomon_role SUPERUSER")
    try:
        driver.user.execute(sql.SQL("ALTER DATABASE {} SET role = 'gnomon_role'").format(name))
        driver.user.execute(
            IN_A_FUNCTION.format(
                body="PERFORM set_config('session_authorization', 'pg_monitor', false);"
            ).encode()
        )
        rows = await performed_in_turn(
            driver, "SELECT current_user", "SELECT leave()", "SELECT current_user"
        )
    finally:
        driver.user.execute(sql.SQL("ALTER DATABASE {} RESET role").format(name))
        driver.user.execute(b"DROP ROLE gnomon_role")
    assert ["gnomon_role", "1", "gnomon_role"] == [row["output"] for row in rows]


async def test_what_nobody_looked_at_follows_one_that_was_sent_ahead(driver: Driver) -> None:
    """Its row was not known when the group was looked at, so that it is taken and then sent."""
    session, task = await performed_ahead(driver, "INSERT INTO effect VALUES (1)")
    unknown = driver.insert("SELECT 7", live="1 hour")
    finished = await driver.finish(session, task, then=unknown)
    assert finished.recorded
    assert finished.next is not None
    await driver.finish(session, finished.next)
    assert "7" == driver.value("SELECT output FROM task WHERE id = %s", [unknown])
    assert 1 == driver.value("SELECT count(*) FROM effect")


async def test_a_session_that_ends_before_the_result_is_written_leaves_nothing(
    driver: Driver,
) -> None:
    """The input was performed, its transaction is open: it goes with its session, and the row says
    WORK until it is rescued."""
    session, task = await performed_ahead(driver, "INSERT INTO effect VALUES (1)")
    outcome = await session.perform(task)
    assert "INSERT 0 1" == outcome.output
    driver.user.execute(b"SELECT pg_terminate_backend(%s, 20000)" % str(session.pid).encode())
    with pytest.raises(SessionLost):
        await session.finish(task, outcome, lease_guid=driver.lease_guid)
    assert 0 == driver.value("SELECT count(*) FROM effect")
    assert "WORK" == driver.value("SELECT state FROM task WHERE id = %s", [task.id])


async def test_a_deferred_constraint_of_an_input_that_was_sent_ahead_is_cancelled_with_it(
    driver: Driver,
) -> None:
    """Nothing of what was sent behind it is performed, and the session can record its error."""
    driver.user.execute(
        b"CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS "
        b"'BEGIN PERFORM pg_sleep(20); RETURN NULL; END'; "
        b"CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON effect DEFERRABLE INITIALLY DEFERRED "
        b"FOR EACH ROW EXECUTE FUNCTION slow()"
    )
    session, task = await performed_ahead(driver, "INSERT INTO effect VALUES (1)")
    performing = asyncio.ensure_future(session.perform(task))
    sleeping = "SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE pid = %s"
    await until(lambda: driver.value(sleeping, [session.pid]))
    await session.cancel()
    outcome = await performing
    assert outcome.error is not None
    assert (await session.finish(task, outcome, lease_guid=driver.lease_guid)).recorded
    assert 0 == driver.value("SELECT count(*) FROM effect")
    error = driver.value("SELECT error FROM task WHERE id = %s", [task.id])
    assert error.startswith("ERROR:  canceling statement due to user request")
