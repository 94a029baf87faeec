"""Whoever may insert may write whatever a column takes: that costs his own row, and no other."""

from __future__ import annotations

import asyncio

import pytest
from psycopg import sql

from tests.integration.tasks.stand import Stand

ENDED: frozenset[str | None] = frozenset(
    {"DONE", "FAIL", "GONE", None}
)  # without a result a row is removed
WAITS: frozenset[str | None] = frozenset({"PLAN"})
HUGE = "178000000 years"
CONTRADICTORY = "-100000 years 36525001 days"  # above 0, and each part leads beyond the calendar
# Each with what may become of the row.
VALUES: dict[str, list[tuple[object, frozenset[str | None]]]] = {
    "plan": [
        ("-infinity", ENDED), ("infinity", WAITS), ("4713-01-01 00:00:00 BC", ENDED),
        ("294276-12-31 23:59:59", WAITS), ("epoch", ENDED),
    ],
    "active": [
        ("293000 years", ENDED), (HUGE, ENDED), (CONTRADICTORY, ENDED), ("1 microsecond", ENDED),
        ("2562047788 hours", ENDED), ("1 mon -29 days", ENDED),
    ],
    "repeat": [
        ("293000 years", ENDED), (HUGE, ENDED), (CONTRADICTORY, ENDED), ("1 mon -29 days", ENDED),
        ("2562047788 hours", ENDED),
    ],
    "live": [("293000 years", ENDED), (HUGE, ENDED), ("1 microsecond", ENDED)],
    "timeout": [("293000 years", ENDED), (HUGE, ENDED), ("1 microsecond", ENDED)],
    "count": [(2147483647, ENDED)],
    "max": [(2147483647, ENDED), (-2147483648, ENDED), (-1, ENDED)],
    "retry": [(2147483647, ENDED)],
    "retried": [(2147483647, ENDED)],
    "parent": [(-9223372036854775808, ENDED)],
    "pid": [(-1, ENDED), (1, ENDED)],
    "start": [("infinity", ENDED), ("-infinity", ENDED)],
    "stop": [("infinity", ENDED)],
    "since": [("infinity", ENDED), ("-infinity", ENDED), (None, ENDED)],
    "cron": [("NaN", ENDED), ("* " * 100_000, ENDED), ("0 0 30 2 *", ENDED), (" ", ENDED)],
    "null": [("", ENDED), ("n" * 1_000_000, ENDED)],
    "delimiter": [("", ENDED), ("é", ENDED)],
    "quote": [("é", ENDED)],
    "escape": [("é", ENDED)],
    "data": [("d" * 1_000_000, ENDED)],
    "remote": [
        ("", ENDED), ("host", ENDED), ("host=\x01 password=x", ENDED), ("r" * 1_000_000, ENDED),
        ("postgresql://[", ENDED), ("host=é password=x", ENDED), ("NaN", ENDED),
    ],
    "group": [("", ENDED), ("g" * 1_000_000, ENDED), ("\x01\n'\"\\", ENDED)],
    "input": [
        ("", ENDED), (";", ENDED), ("'", ENDED), ("SELECT '" + "x" * 5_000_000 + "'", ENDED),
        ("SELECT 1" + " " * 10_000_000, ENDED), ("SELECT " + "1," * 500_000 + "1", ENDED),
    ],
}  # fmt: skip
BAD_EVENTS = ("task_table_lost", "task_table_unavailable", "loop_failed", "task_session_lost")


def given(column: str, value: object) -> dict[str, object]:
    """A row that has this value in this column, in a group of its own unless that is it."""
    return {"group": f"odd {column}", "input": "SELECT 1, 2", column: value}


async def over(stand: Stand, task_id: int) -> None:
    """Wait for the end of a row without reading it: its times may be beyond our calendar."""
    await stand.until(lambda: stand.state(task_id) in ENDED, f"end of {task_id}")


@pytest.mark.parametrize("column", VALUES)
async def test_a_value_costs_its_own_row_only(stand: Stand, column: str) -> None:
    """Each ends by itself or waits for its time, and a task beside it in its group is performed."""
    stand.change(remote="free")
    for value, expected in VALUES[column]:
        columns = given(column, value)
        text = str(columns.pop("input"))
        odd = await asyncio.to_thread(stand.insert, text, **columns)  # the owner is in this process
        beside = stand.insert("SELECT 3", max=1, group=columns["group"])
        await over(stand, beside)
        assert "DONE" == stand.state(beside), value
        if expected is ENDED:
            await over(stand, odd)
        assert stand.state(odd) in expected, str(value)[:50]
    assert [] == [event for event in stand.told.events if event[0] in BAD_EVENTS]


async def test_rows_with_pauses_of_any_kind_do_not_stop_their_group(stand: Stand) -> None:
    """The end of one puts the others off, whatever their plans are."""
    plans = ("-infinity", "4713-01-01 BC", "epoch")
    odd = [
        stand.insert("SELECT 1", max=most, drift=drift, plan=plan, group="paused")
        for plan in plans
        for most in (-1, -2147483648)
        for drift in (True, False)
    ]
    beside = stand.insert("SELECT 3", max=1, group="paused")
    await over(stand, odd[0])
    await over(stand, beside)
    assert 0 == stand.told_count("task_table_lost")
    assert "DONE" == stand.state(odd[0])


async def test_a_repeat_that_cannot_be_written_fails_its_row_visibly(stand: Stand) -> None:
    """Here a column that the user has added may hold each value but once."""
    stand.execute("ALTER TABLE task ADD COLUMN name text UNIQUE")
    task_id = stand.insert("SELECT 1", repeat="1 hour", name="only")
    [row] = await stand.ended([task_id])
    assert "FAIL" == row["state"]
    assert "duplicate key value violates unique constraint" in row["error"]
    other = stand.insert("SELECT 2", count=sql.SQL("3"))
    assert ["DONE"] == [row["state"] for row in await stand.ended([other])]
