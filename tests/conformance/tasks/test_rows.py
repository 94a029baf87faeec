"""What becomes of a row, in both engines: taken, ended, repeated, paused, expired, tried again."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gnomon.model.task import GroupKey, Outcome, SessionLost
from tests.conformance.tasks.sqlite_driving import Bench

SECOND = timedelta(seconds=1)
GROUP = GroupKey("group")
FAILING = "SELECT * FROM nowhere"
REFUSED: list[tuple[str, object]] = [
    ("active", "0"), ("active", "-1 sec"), ("live", "-1 sec"), ("repeat", "-1 sec"),
    ("timeout", "-1 sec"), ("count", -1), ("group", None), ("plan", None), ("state", "LATER"),
    ("retry", -1),
]  # fmt: skip


def now() -> datetime:
    return datetime.now(UTC)


def one(rows: list[dict[str, Any]]) -> dict[str, Any]:
    [found] = rows
    return found


def row_of(bench: Bench, task_id: int) -> dict[str, Any]:
    found = bench.row(task_id)
    assert found is not None
    return found


def effects(bench: Bench) -> list[int]:
    return [row["n"] for row in bench.rows("SELECT n FROM effect ORDER BY n")]


# -- taking ---------------------------------------------------------------------------------------


async def test_a_taken_row_says_when_and_by_whom(bench: Bench) -> None:
    """WORK, with `start` and `pid` of the session, and nothing about an end."""
    task_id = bench.insert("SELECT 1")
    session, task = await bench.take(task_id)
    row = row_of(bench, task_id)
    assert ("WORK", session.pid, task.start) == (row["state"], row["pid"], row["start"])
    assert row["stop"] is None


async def test_rows_that_are_not_to_be_performed_are_not_taken(bench: Bench) -> None:
    """Deleted, stopped, planned for later, expired, or of another's lease."""
    session = await bench.open(GROUP)
    deleted = bench.insert("SELECT 1")
    bench.do(f"DELETE FROM task WHERE id = {deleted}")
    refused = [
        deleted,
        bench.insert("SELECT 1", state="STOP"),
        bench.insert("SELECT 1", state="DONE"),
        bench.insert("SELECT 1", plan=now() + timedelta(hours=1)),
        bench.insert("SELECT 1", plan=now() - timedelta(hours=2)),
    ]
    for task_id in refused:
        assert await session.take(task_id, lease_guid=bench.lease_guid) is None
    fine = bench.insert("SELECT 1")
    await bench.table.release(bench.lease_guid)
    assert await session.take(fine, lease_guid=bench.lease_guid) is None
    assert "PLAN" == row_of(bench, fine)["state"]


async def test_rows_with_a_pause_do_not_expire(bench: Bench) -> None:
    """A negative `max` waits for its turn however long that takes."""
    task_id = bench.insert("SELECT 1", plan=now() - timedelta(hours=2), max=-100)
    assert 0 == await bench.expire()
    assert (await bench.perform(task_id)).recorded


async def test_the_next_task_is_taken_with_the_end_of_the_other(bench: Bench) -> None:
    """In one step, on the same session; one that was stopped meanwhile is not."""
    first, second, third = (bench.insert("SELECT 1") for _ in range(3))
    session, task = await bench.take(first)
    finished = await bench.finish(session, task, then=second)
    assert finished.next is not None
    assert ("WORK", session.pid) == (
        row_of(bench, second)["state"],
        row_of(bench, second)["pid"],
    )
    bench.do(f"UPDATE task SET state = 'STOP' WHERE id = {third}")
    finished = await bench.finish(session, finished.next, then=third)
    assert finished.recorded
    assert finished.next is None


# -- ending ---------------------------------------------------------------------------------------


async def test_a_result_is_recorded(bench: Bench) -> None:
    """DONE with the text, and `pid` stays to be seen."""
    row = await bench.performed("SELECT 1 AS a, 'x' AS b")
    assert row is not None
    assert ("DONE", "a\tb\n1\tx", None) == (row["state"], row["output"], row["error"])
    assert row["start"] <= row["stop"]
    assert row["pid"] is not None


async def test_an_error_undoes_what_the_input_did(bench: Bench) -> None:
    """FAIL with the text so far and the error; none of the statements counts."""
    bench.do("CREATE TABLE effect (n integer)")
    text = f"INSERT INTO effect VALUES (1); {FAILING}"
    row = await bench.performed(text)
    assert row is not None
    assert ("FAIL", "INSERT 0 1") == (row["state"], row["output"])
    assert row["error"].startswith("ERROR:  ")
    assert row["error"].endswith(f"\nSTATEMENT:  {text}")
    assert [] == effects(bench)


async def test_an_explicit_commit_keeps_what_came_before(bench: Bench) -> None:
    """That part is durable, whatever follows."""
    bench.do("CREATE TABLE effect (n integer)")
    row = await bench.performed(f"BEGIN; INSERT INTO effect VALUES (1); COMMIT; {FAILING}")
    assert row is not None
    assert ("FAIL", "BEGIN\nINSERT 0 1\nCOMMIT") == (row["state"], row["output"])
    assert [1] == effects(bench)


async def test_a_rollback_of_its_own_undoes_what_came_before(bench: Bench) -> None:
    """And what follows counts."""
    bench.do("CREATE TABLE effect (n integer)")
    row = await bench.performed(
        "BEGIN; INSERT INTO effect VALUES (1); ROLLBACK; INSERT INTO effect VALUES (2)"
    )
    assert row is not None
    assert ("DONE", "BEGIN\nINSERT 0 1\nROLLBACK\nINSERT 0 1") == (row["state"], row["output"])
    assert [2] == effects(bench)


async def test_a_stop_while_it_is_performed_is_respected(bench: Bench) -> None:
    """What it did counts, but the row stays as the user has set it."""
    bench.do("CREATE TABLE effect (n integer)")
    task_id = bench.insert("INSERT INTO effect VALUES (1)")
    session, task = await bench.take(task_id)
    bench.do(f"UPDATE task SET state = 'STOP' WHERE id = {task_id}")
    assert not (await bench.finish(session, task)).recorded
    assert "STOP" == row_of(bench, task_id)["state"]
    assert [1] == effects(bench)


async def test_a_deleted_row_stays_deleted(bench: Bench) -> None:
    """Nor is it repeated; what it did counts."""
    bench.do("CREATE TABLE effect (n integer)")
    task_id = bench.insert("INSERT INTO effect VALUES (1)", repeat="1 hour")
    session, task = await bench.take(task_id)
    bench.do(f"DELETE FROM task WHERE id = {task_id}")
    assert not (await bench.finish(session, task)).recorded
    assert [] == bench.rows("SELECT * FROM task")
    assert [1] == effects(bench)


async def test_a_task_may_delete_its_own_row(bench: Bench) -> None:
    """That is an effect like any other."""
    bench.insert("DELETE FROM task")
    task_id = one(bench.rows("SELECT id FROM task"))["id"]
    assert not (await bench.perform(task_id)).recorded
    assert [] == bench.rows("SELECT * FROM task")


async def test_an_attempt_that_was_given_to_another_changes_nothing(bench: Bench) -> None:
    """Neither its effects nor its result count: both are the other's."""
    bench.do("CREATE TABLE effect (n integer)")
    task_id = bench.insert("INSERT INTO effect VALUES (1)")
    late, late_task = await bench.take(task_id)
    await bench.table.untake([task_id], lease_guid=bench.lease_guid)
    other = await bench.open(GROUP)
    _, other_task = await bench.take(task_id, other)
    try:
        recorded = (await bench.finish(late, late_task)).recorded
    except SessionLost:
        recorded = False
    assert not recorded
    assert [] == effects(bench)
    assert (await bench.finish(other, other_task)).recorded
    assert [1] == effects(bench)
    assert "DONE" == row_of(bench, task_id)["state"]


async def test_a_late_result_of_a_task_that_only_reads_is_dropped(bench: Bench) -> None:
    """The row is the other attempt's by then."""
    task_id = bench.insert("SELECT 1")
    late, late_task = await bench.take(task_id)
    await bench.table.untake([task_id], lease_guid=bench.lease_guid)
    other = await bench.open(GROUP)
    _, other_task = await bench.take(task_id, other)
    assert not (await bench.finish(late, late_task)).recorded
    assert "WORK" == row_of(bench, task_id)["state"]
    assert (await bench.finish(other, other_task)).recorded


async def test_only_an_empty_result_removes_the_row(bench: Bench) -> None:
    """No output at all, not an empty one, and only if the row says so."""
    assert await bench.performed("SELECT 1 WHERE 1 = 2") is None
    assert await bench.performed("") is None
    assert await bench.performed("SELECT 1 WHERE 1 = 2", delete=False) is not None
    assert await bench.performed("SELECT ''") is not None
    assert await bench.performed("UPDATE task SET data = '' WHERE 1 = 2") is not None


async def test_time_is_for_the_whole_task(bench: Bench) -> None:
    """Two statements within the time, that together take longer, are too long."""
    row = await bench.performed(f"SELECT 1; {bench.endless}", timeout="200 ms")
    assert row is not None
    assert ("FAIL", "1") == (row["state"], row["output"])
    assert row["error"].startswith("ERROR:  canceling statement due to statement timeout\n")
    assert row["stop"] - row["start"] >= timedelta(milliseconds=200)


async def test_a_cancelled_task_fails_by_request(bench: Bench) -> None:
    """And its session goes on."""
    task_id = bench.insert(bench.endless)
    session, task = await bench.take(task_id)
    performing = asyncio.create_task(session.perform(task))
    while not performing.done():
        await session.cancel()
        await asyncio.wait([performing], timeout=0.05)
    outcome = performing.result()
    assert outcome.error is not None
    assert outcome.error.startswith("ERROR:  canceling statement due to user request\n")
    assert (await session.finish(task, outcome, lease_guid=bench.lease_guid)).recorded
    assert (await bench.perform(bench.insert("SELECT 1"), session)).recorded


async def test_a_result_that_is_too_large_is_an_error(bench: Bench) -> None:
    """It is neither cut nor kept in memory."""
    table = bench.another(result_bytes_max=1_000)
    await table.prepare()
    session = await table.open(GROUP)
    try:
        task_id = bench.insert(f"SELECT '{'x' * 600}' UNION ALL SELECT '{'y' * 600}'")
        assert (await bench.perform(task_id, session)).recorded
    finally:
        await session.close()
        await table.close()
    assert ("FAIL", "") == (row_of(bench, task_id)["state"], row_of(bench, task_id)["output"])
    assert "is larger than 1000 bytes" in row_of(bench, task_id)["error"]


async def test_a_large_input_and_a_large_result_are_no_trouble(bench: Bench) -> None:
    """A million characters, there and back."""
    text = "x" * 1_000_000
    row = await bench.performed(f"SELECT '{text}'")
    assert row is not None
    assert ("DONE", text) == (row["state"], row["output"])


# -- repeating ------------------------------------------------------------------------------------


async def test_a_repeat_copies_every_column_but_those_of_one_attempt(bench: Bench) -> None:
    """Also columns that the user has added; its parent is the row that it comes from."""
    bench.do("ALTER TABLE task ADD COLUMN extra text")
    await bench.table.prepare()
    given = {
        "repeat": "1 hour", "data": "d", "extra": "e", "max": 3, "timeout": "7 sec", "count": 2,
        "header": False, "null": "nil", "group": "g", "retry": 0, "delete": False, "quote": "'",
    }  # fmt: skip
    plan = now()
    task_id = bench.insert("SELECT 1", plan=plan, **given)
    await bench.perform(task_id)
    was = row_of(bench, task_id)
    following = one(bench.rows(f"SELECT * FROM task WHERE parent = {task_id}"))
    changed = {name for name in was if was[name] != following[name]}
    assert {"id", "parent", "plan", "start", "stop", "pid", "state", "output", "since"} == changed
    assert ("PLAN", plan + timedelta(hours=1)) == (following["state"], following["plan"])


async def test_errors_and_empty_results_do_not_end_a_chain(bench: Bench) -> None:
    """Missed slots are skipped: the next plan is on the grid, and ahead."""
    plan = now() - timedelta(seconds=10)
    for text in (FAILING, "SELECT 1", "SELECT 1 WHERE 1 = 2"):
        task_id = bench.insert(text, plan=plan, repeat="3 sec")
        await bench.perform(task_id)
        following = one(bench.rows(f"SELECT * FROM task WHERE parent = {task_id}"))
        assert timedelta(0) == (following["plan"] - plan) % timedelta(seconds=3)
        assert plan + timedelta(seconds=12) <= following["plan"]


async def test_months_are_added_by_the_calendar(bench: Bench) -> None:
    """31 August, repeated monthly, is on the 30th from then on."""
    plan = datetime(2026, 8, 31, 10, tzinfo=UTC)
    task_id = bench.insert("SELECT 1", plan=plan, repeat="1 mon", active="100 years")
    await bench.perform(task_id)
    following = one(bench.rows(f"SELECT * FROM task WHERE parent = {task_id}"))
    assert 30 == following["plan"].day or following["plan"].month == 2


async def test_with_drift_the_repeat_counts_from_the_end(bench: Bench) -> None:
    """A second after the end, whatever the plan was."""
    task_id = bench.insert(
        "SELECT 1", plan=now() - timedelta(seconds=10), repeat="1 sec", drift=True
    )
    await bench.perform(task_id)
    following = one(bench.rows(f"SELECT * FROM task WHERE parent = {task_id}"))
    assert SECOND <= following["plan"] - row_of(bench, task_id)["start"]
    late = following["plan"] - row_of(bench, task_id)["stop"]
    assert timedelta(0) <= late - SECOND < timedelta(seconds=0.1)


async def test_a_task_may_end_its_own_repetition(bench: Bench) -> None:
    """`repeat` is read at the end."""
    task_id = bench.insert("UPDATE task SET repeat = '0'", repeat="1 hour")
    await bench.perform(task_id)
    assert [task_id] == [row["id"] for row in bench.rows("SELECT id FROM task")]


async def test_cron_says_when_the_next_is(bench: Bench) -> None:
    """Instead of `repeat`, which may be there as well."""
    task_id = bench.insert("SELECT 1", cron="0 3 * * * Europe/Berlin", repeat="1 sec")
    await bench.perform(task_id)
    following = one(bench.rows(f"SELECT * FROM task WHERE parent = {task_id}"))
    assert following["plan"].astimezone(UTC).hour in (1, 2)
    assert timedelta(0) < following["plan"] - now() <= timedelta(hours=25)


async def test_a_cron_that_cannot_be_read_is_the_tasks_error(bench: Bench) -> None:
    """It is not performed, and does not stay in the way."""
    bench.do("CREATE TABLE effect (n integer)")
    task_id = bench.insert("INSERT INTO effect VALUES (1)", cron="at noon")
    session = await bench.open(GROUP)
    task = await session.take(task_id, lease_guid=bench.lease_guid)
    if task is not None:
        await bench.finish(session, task)
    assert "FAIL" == row_of(bench, task_id)["state"]
    assert "at noon" in row_of(bench, task_id)["error"]


# -- pauses, expiry, retries ----------------------------------------------------------------------


async def test_a_pause_moves_the_due_rows_of_the_group_that_have_one(bench: Bench) -> None:
    """Each on its own grid or from now; others, and other groups, stay where they are."""
    plan = now() - timedelta(seconds=1.1)
    first = bench.insert("SELECT 1", max=-500, plan=plan)
    on_grid = bench.insert("SELECT 1", max=-500, plan=plan)
    drifting = bench.insert("SELECT 1", max=-60_000, plan=plan, drift=True)
    unmoved = [
        bench.insert("SELECT 1", plan=plan),
        bench.insert("SELECT 1", max=-500, plan=plan, group="other"),
        bench.insert("SELECT 1", max=-500, plan=plan, state="STOP"),
    ]
    later = bench.insert("SELECT 1", max=-500, plan=now() + timedelta(hours=1))
    was_later = row_of(bench, later)["plan"]
    await bench.perform(first)
    ended = row_of(bench, first)["stop"]
    moved = row_of(bench, on_grid)["plan"]
    assert timedelta(0) == (moved - plan) % timedelta(milliseconds=500)
    assert timedelta(0) < moved - ended <= timedelta(milliseconds=500)
    from_now = row_of(bench, drifting)["plan"] - ended
    assert timedelta(0) <= from_now - timedelta(seconds=60) < timedelta(seconds=0.1)
    assert {plan} == {row_of(bench, task_id)["plan"] for task_id in unmoved}
    assert was_later == row_of(bench, later)["plan"]


async def test_expired_rows_are_gone(bench: Bench) -> None:
    """With an error, never removed; and only those that are due, wait, and may expire."""
    early, late = now() - timedelta(hours=2), now() - timedelta(minutes=30)
    gone = [
        bench.insert("SELECT 1", plan=early),
        bench.insert("SELECT 1", plan=late, active="29 min"),
    ]
    kept = [
        bench.insert("SELECT 1", plan=late),
        bench.insert("SELECT 1", plan=early, max=-1),
        bench.insert("SELECT 1", plan=early, state="STOP"),
        bench.insert("SELECT 1", plan=early, active="1 day"),
    ]
    assert 2 == await bench.expire()
    for task_id in gone:
        row = row_of(bench, task_id)
        assert ("GONE", "ERROR:  task not active") == (row["state"], row["error"])
        assert row["start"] == row["stop"]
        assert (None, None) == (row["pid"], row["output"])
    assert {"PLAN", "STOP"} == {row_of(bench, task_id)["state"] for task_id in kept}
    assert 0 == await bench.expire()


async def test_an_expired_row_that_repeats_gets_its_next(bench: Bench) -> None:
    """As the document says: not performed, and the chain goes on."""
    plan = now() - timedelta(minutes=150)
    task_id = bench.insert("SELECT 1", plan=plan, repeat="1 hour")
    assert 1 == await bench.expire()
    assert "GONE" == row_of(bench, task_id)["state"]
    following = one(bench.rows(f"SELECT * FROM task WHERE parent = {task_id}"))
    assert plan + timedelta(hours=3) == following["plan"]


async def test_a_task_is_tried_again_as_often_as_it_says(bench: Bench) -> None:
    """The same row, later each time; then it has failed, and its repeat starts afresh."""
    task_id = bench.insert(FAILING, retry=2, repeat="1 hour")
    for retried in (1, 2):
        await bench.perform(task_id)
        row = row_of(bench, task_id)
        assert ("PLAN", retried) == (row["state"], row["retried"])
        assert (None, None) == (row["pid"], row["start"])
        assert "nowhere" in row["error"]
        assert timedelta(seconds=0.1) > abs(row["plan"] - row["stop"] - retried * SECOND)
        bench.do(f"UPDATE task SET plan = stop WHERE id = {task_id}")
    await bench.perform(task_id)
    row = row_of(bench, task_id)
    assert ("FAIL", 2) == (row["state"], row["retried"])
    following = one(bench.rows(f"SELECT * FROM task WHERE parent = {task_id}"))
    assert ("PLAN", 2, 0, None) == tuple(
        following[name] for name in ("state", "retry", "retried", "error")
    )


async def test_a_retry_that_succeeds_leaves_no_error(bench: Bench) -> None:
    """What was wrong before is over."""
    task_id = bench.insert(FAILING, retry=1)
    await bench.perform(task_id)
    bench.do("CREATE TABLE nowhere (n integer)")
    bench.do("INSERT INTO nowhere VALUES (7)")
    bench.do(f"UPDATE task SET plan = stop WHERE id = {task_id}")
    await bench.perform(task_id)
    row = row_of(bench, task_id)
    assert ("DONE", "7", None) == (row["state"], row["output"], row["error"])


# -- sessions -------------------------------------------------------------------------------------


async def test_a_task_that_inserts_a_task_is_its_parent(bench: Bench) -> None:
    """And the group is the same, unless the child says another."""
    child = "INSERT INTO task (input) VALUES ('SELECT 2')"
    stranger = "INSERT INTO task (input, \"group\") VALUES ('SELECT 3', 'far')"
    task_id = bench.insert(f"{child}; {stranger}", group="near")
    await bench.perform(task_id)
    found = bench.rows(f'SELECT "group" FROM task WHERE parent = {task_id} ORDER BY id')
    assert ["near", "far"] == [row["group"] for row in found]


async def test_what_a_task_leaves_on_its_session_is_for_those_that_save(bench: Bench) -> None:
    """Temporary tables are gone with the task, unless it says otherwise."""
    session = await bench.open(GROUP)
    states = []
    for save in (False, True):
        first = bench.insert("CREATE TEMP TABLE mine (n integer)", save=save)
        await bench.perform(first, session)
        second = bench.insert("SELECT count(*) FROM mine")
        await bench.perform(second, session)
        states.append(row_of(bench, second)["state"])
    assert ["FAIL", "DONE"] == states


async def test_a_closed_session_undoes_what_is_open(bench: Bench) -> None:
    """Nothing is half done, and the row can be given back."""
    bench.do("CREATE TABLE effect (n integer)")
    task_id = bench.insert("INSERT INTO effect VALUES (1)")
    session, task = await bench.take(task_id)
    assert Outcome(output="INSERT 0 1") == await session.perform(task)
    await session.close()
    await bench.table.untake([task_id], lease_guid=bench.lease_guid)
    assert [] == effects(bench)
    row = row_of(bench, task_id)
    assert ("PLAN", None, None) == (row["state"], row["start"], row["pid"])


async def test_the_table_refuses_what_cannot_be(bench: Bench) -> None:
    """By its own checks, whoever inserts."""
    for name, value in REFUSED:
        with pytest.raises(Exception, match=r"(?i)constraint|invalid input value"):
            bench.insert("SELECT 1", **{name: value})
    assert [] == bench.rows("SELECT * FROM task")
