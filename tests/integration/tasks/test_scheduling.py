"""sql_tasks.md 6.2 on a real server. Times are those in the rows; durations are the original's,
made shorter."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from psycopg import sql

from tests.integration.tasks.stand import HOLD, Row, Stand, at_once, sessions_of


def seconds(delta: timedelta) -> float:
    return delta.total_seconds()


def in_order(rows: list[Row]) -> bool:
    starts = [row["start"] for row in rows]
    return starts == sorted(starts)


def ago(text: str) -> sql.SQL:
    return sql.SQL("now() - interval {}").format(text)  # type: ignore[return-value]


# -- plan, repeat ---------------------------------------------------------------------------------


async def test_task_is_not_started_before_its_plan(stand: Stand) -> None:
    """B01."""
    task_id = stand.insert("SELECT 1", plan=sql.SQL("now() + interval '1 second'"))
    [row] = await stand.ended([task_id])
    assert "DONE" == row["state"]
    assert row["start"] >= row["plan"]


async def test_task_planned_in_the_past_runs_at_once(stand: Stand) -> None:
    """B01b."""
    [row] = await stand.ended([stand.insert("SELECT 1", plan=ago("30 min"))])
    assert ("DONE", "1") == (row["state"], row["output"])


async def chain(stand: Stand, length: int) -> list[Row]:
    """The rows of a repeating task, until so many have ended; then it is stopped."""
    await stand.until(
        lambda: sum(row["stop"] is not None for row in stand.rows()) >= length, "repeats"
    )
    stand.execute("UPDATE task SET state = 'STOP' WHERE state = 'PLAN'")
    return stand.rows()[:length]


async def test_repeat_is_on_the_grid_of_the_plan(stand: Stand) -> None:
    """B03."""
    stand.insert("SELECT 1", repeat="400 ms")
    rows = await chain(stand, 4)
    assert [0.4, 0.4, 0.4] == [seconds(b["plan"] - a["plan"]) for a, b in pairwise(rows)]
    assert [a["id"] for a in rows[:-1]] == [b["parent"] for b in rows[1:]]


async def test_repeat_skips_what_was_missed(stand: Stand) -> None:
    """B04: the first slot after the end."""
    stand.insert("SELECT pg_sleep(0.5)", repeat="200 ms")
    rows = await chain(stand, 3)
    for row, later in pairwise(rows):
        assert timedelta(0) == (later["plan"] - row["plan"]) % timedelta(milliseconds=200)
        assert timedelta(0) <= later["plan"] - row["stop"] <= timedelta(milliseconds=200)


async def test_repeat_with_drift_counts_from_the_end(stand: Stand) -> None:
    """B05."""
    stand.insert("SELECT pg_sleep(0.3)", repeat="200 ms", drift=True)
    rows = await chain(stand, 3)
    for row, later in pairwise(rows):
        assert 0.2 == seconds(later["plan"] - row["stop"])


async def test_empty_results_are_deleted_and_the_chain_goes_on(stand: Stand) -> None:
    """B06."""
    first = stand.insert("SELECT 1 WHERE false", repeat="100 ms")
    await stand.until(lambda: stand.rows()[0]["id"] >= first + 3, "repeats")
    [row] = stand.rows()
    assert row["parent"] == row["id"] - 1


async def test_errors_do_not_end_a_chain_and_columns_are_copied(stand: Stand) -> None:
    """B07, with a column of the user's own."""
    stand.execute("ALTER TABLE task ADD COLUMN mine text")
    stand.change(remote="free")  # looks at the table anew; else it would do so within `sleep`
    await stand.until(lambda: stand.told_count("task_table_owned") == 2, "new look")
    given = {"data": "d", "mine": "m", "max": 3, "header": False, "null": "nil"}
    stand.insert("SELECT 1/0", repeat="300 ms", timeout="7 s", **given)
    rows = await chain(stand, 3)
    assert ["FAIL", "FAIL", "FAIL"] == [row["state"] for row in rows]
    last = stand.rows()[-1]
    for row in (*rows, last):
        assert given == {name: row[name] for name in given}
        assert timedelta(seconds=7) == row["timeout"]
    assert (None, None, None) == (last["pid"], last["output"], last["error"])


async def test_late_repeat_runs_once(stand: Stand) -> None:
    """B08."""
    first = stand.insert("SELECT 1", plan=ago("10 s"), repeat="3 s")
    [row] = await stand.ended([first])
    [waiting] = [row for row in stand.rows() if row["state"] == "PLAN"]
    assert 12.0 == seconds(waiting["plan"] - row["plan"])


# -- max ------------------------------------------------------------------------------------------


async def test_max_0_is_one_at_a_time(stand: Stand) -> None:
    """B09."""
    rows = await stand.ended(stand.insert_many(3, "SELECT pg_sleep(0.2)"))
    assert 1 == at_once(rows)
    assert in_order(rows)
    assert [0, 1, 2] == sessions_of(rows)


async def test_max_1_is_two_at_a_time(stand: Stand) -> None:
    """B10."""
    rows = await stand.ended(stand.insert_many(6, "SELECT pg_sleep(0.2)", max=1))
    assert 2 == at_once(rows)
    # Two that begin together may do so in either order, on sessions of their own.
    assert in_order(rows[::2])
    assert in_order(rows[1::2])


async def test_higher_max_overtakes(stand: Stand) -> None:
    """B11."""
    with stand.held():
        first = stand.insert_many(6, HOLD, max=1)
        await stand.working(first[1])
        late = stand.insert(HOLD, max=2)
        await stand.working(late)
    rows = await stand.ended([*first, late])
    assert 3 == at_once(rows)
    assert sum(row["start"] > rows[6]["start"] for row in rows) >= 4


async def test_plan_is_no_order(stand: Stand) -> None:
    """B11c."""
    stand.execute(
        "INSERT INTO task (plan, input) SELECT now() - make_interval(secs => s), 'SELECT 1' "
        "FROM unnest(ARRAY[1, 10, 5]) AS s"
    )
    assert in_order(await stand.ended([row["id"] for row in stand.rows()]))


@pytest.mark.parametrize("body_s", [0.0, 0.5])
async def test_pause_is_on_the_grid(stand: Stand, body_s: float) -> None:
    """B12, B12c: the first step of the grid after the end."""
    rows = await stand.ended(stand.insert_many(4, f"SELECT pg_sleep({body_s})", max=-200))
    for row, later in pairwise(rows):
        assert timedelta(0) == (later["plan"] - row["plan"]) % timedelta(milliseconds=200)
        assert timedelta(0) < later["plan"] - row["stop"] <= timedelta(milliseconds=200)
    assert 1 == at_once(rows)
    assert all(row["start"] >= row["plan"] for row in rows)


async def test_pause_with_drift_counts_from_the_end(stand: Stand) -> None:
    """B12b."""
    rows = await stand.ended(stand.insert_many(3, "SELECT 1", max=-200, drift=True))
    assert [0.2, 0.2] == [seconds(b["plan"] - a["stop"]) for a, b in pairwise(rows)]


# -- active, timeout ------------------------------------------------------------------------------


async def test_expired_task_is_gone(stand: Stand) -> None:
    """B13."""
    [row] = await stand.ended([stand.insert("SELECT 1", plan=ago("2 hours"))])
    assert ("GONE", "ERROR:  task not active", None, None) == (
        row["state"],
        row["error"],
        row["output"],
        row["pid"],
    )
    assert row["start"] == row["stop"]


async def test_expired_repeat_is_not_performed_and_comes_again(stand: Stand) -> None:
    """B13b, as the document has it."""
    task_id = stand.insert("SELECT 1", plan=ago("150 min"), repeat="1 hour")
    [row] = await stand.ended([task_id])
    assert "GONE" == row["state"]
    [waiting] = [row for row in stand.rows() if row["state"] == "PLAN"]
    assert timedelta(hours=3) == waiting["plan"] - row["plan"]


async def test_task_with_a_pause_never_expires(stand: Stand) -> None:
    """B13c."""
    [row] = await stand.ended([stand.insert("SELECT 1", plan=ago("2 hours"), max=-100)])
    assert ("DONE", "1") == (row["state"], row["output"])


async def test_task_expires_before_its_turn(stand: Stand) -> None:
    """B13d."""
    with stand.held():
        ids = stand.insert_many(3, HOLD, active="1500 ms")
        await stand.ended(ids[1:])
    rows = await stand.ended(ids)
    assert ["DONE", "GONE", "GONE"] == [row["state"] for row in rows]
    assert all(row["stop"] < rows[0]["stop"] for row in rows[1:])


async def test_timeout_is_for_the_whole_task_and_exact(stand: Stand) -> None:
    """B14 in the original's words, B14m as the document has it."""
    ids = [
        stand.insert("SELECT pg_sleep(5)", timeout="300 ms", group="a"),
        stand.insert("SELECT pg_sleep(0.3);SELECT pg_sleep(5)", timeout="400 ms", group="b"),
        stand.insert("SELECT pg_sleep(0.1)", timeout="5 s", group="c"),
    ]
    rows = await stand.ended(ids)
    assert ["FAIL", "FAIL", "DONE"] == [row["state"] for row in rows]
    error = "ERROR:  canceling statement due to statement timeout\nSTATEMENT:  SELECT pg_sleep(5)"
    assert ("", error) == (rows[0]["output"], rows[0]["error"])


# -- live, count ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "body_s", "count", "expected"),
    [
        ({"count": 3}, 0.0, 7, [0, 0, 0, 1, 1, 1, 2]),  # B15
        ({"live": "1 s", "count": 2}, 0.0, 7, [0, 0, 1, 1, 2, 2, 3]),  # B15c
        ({"max": -100, "count": 5}, 0.0, 3, [0, 1, 2]),  # B15g
    ],
)
async def test_sessions_are_reused(
    stand: Stand, columns: dict[str, Any], body_s: float, count: int, expected: list[int]
) -> None:
    ids = stand.insert_many(count, f"SELECT pg_sleep({body_s})", **columns)
    assert expected == sessions_of(await stand.ended(ids))


async def test_session_is_reused_for_as_long_as_it_lives(stand: Stand) -> None:
    """B15b: none begins on a session that is older than `live`."""
    rows = await stand.ended(stand.insert_many(7, "SELECT pg_sleep(0.2)", live="700 ms"))
    begun: dict[int, datetime] = {}
    for row in rows:
        begun.setdefault(row["pid"], row["start"])
        assert row["start"] - begun[row["pid"]] < timedelta(milliseconds=750)
    assert 2 <= len(begun) <= 3


async def test_two_sessions_are_reused_side_by_side(stand: Stand) -> None:
    """B15e."""
    rows = await stand.ended(stand.insert_many(6, "SELECT pg_sleep(0.2)", max=1, count=10))
    assert {0, 1} == set(sessions_of(rows))
    assert 2 == at_once(rows)


async def test_error_does_not_end_reuse(stand: Stand) -> None:
    """B15h."""
    stand.execute(
        "INSERT INTO task (count, input) SELECT 5, format('SELECT 1/(%s-2)', g) "
        "FROM generate_series(1, 4) AS g"
    )
    rows = await stand.ended([row["id"] for row in stand.rows()])
    assert [("DONE", "-1"), ("FAIL", ""), ("DONE", "1"), ("DONE", "0")] == [
        (row["state"], row["output"]) for row in rows
    ]
    assert [0, 0, 0, 0] == sessions_of(rows)


# -- groups ---------------------------------------------------------------------------------------


async def test_groups_run_side_by_side(stand: Stand) -> None:
    """B16."""
    ids = [
        task_id
        for group in ("a", "b")
        for task_id in stand.insert_many(4, "SELECT pg_sleep(0.4)", group=group, max=1)
    ]
    rows = await stand.ended(ids)
    assert [2, 2] == [at_once(rows[:4]), at_once(rows[4:])]
    assert at_once(rows) > 2


async def test_run_caps_all_groups(stand: Stand) -> None:
    """J3, set by a reload."""
    stand.change(run=2)
    ids = [stand.insert("SELECT pg_sleep(0.3)", group=f"g{number}") for number in range(5)]
    assert 2 == at_once(await stand.ended(ids))


async def test_a_long_task_holds_up_neither_other_groups_nor_those_beside_it(stand: Stand) -> None:
    """The short ones begin and end while it is performed, in its own group and in others."""
    with stand.held():
        long = stand.insert(HOLD, group="mixed", max=1)
        await stand.working(long)
        beside = stand.insert_many(5, "SELECT 1", group="mixed", max=1)
        others = stand.insert_many(10, "SELECT 1", group="short")
        await stand.ended([*beside, *others])
    rows = await stand.ended([*beside, *others, long])
    *short, last = sorted(rows, key=lambda row: row["stop"])
    assert long == last["id"]
    assert all(last["start"] < row["start"] <= row["stop"] < last["stop"] for row in short)
    assert {"DONE"} == {row["state"] for row in rows}
