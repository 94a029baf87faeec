"""The original's recorded cases on SQLite, as far as SQLite understands their SQL."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.conformance.tasks.sqlite_driving import SqliteDriver

LINES = (Path(__file__).parent / "pg_task_cases.jsonl").read_text("utf-8").splitlines()
PORTABLE = frozenset(
    {
        "F05", "F08", "F09", "M00", "M01", "M04", "M06", "M07", "M08", "M11", "M18", "N03", "H02",
        "H04", "S01", "S02", "S03", "S04", "S04b", "S05", "S06", "S07", "S08", "S09", "S09b", "S10",
        "S11", "S12", "S21", "S24", "S25", "S29b", "S36", "S37", "S38",
    }
)  # fmt: skip
# Booleans and numerics are texts here: SQLite would show them as 1 and 1.5.
FIXTURES = r"""
CREATE TABLE m (id int, name text, flag text, num text, note text, day date);
INSERT INTO m VALUES
    (1, 'one', 't', '1.50', NULL, '2020-01-02'),
    (2, 'tab' || char(9) || 'here "q" b\s nl' || char(10) || 'end', 'f', '-2', '', NULL);
CREATE TABLE t1 (a int PRIMARY KEY, b text);
INSERT INTO t1 VALUES (1, 'r1'), (2, 'r2'), (3, 'r3');
"""


def insert(driver: SqliteDriver, case: dict[str, Any]) -> int:
    """The case's columns are SQL literals."""
    names = "".join(f', "{name}"' for name in case["cols"])
    values = "".join(f", {text}" for text in case["cols"].values())
    statement = f"INSERT INTO task (input{names}) VALUES (?{values})"
    found = driver.user.execute(statement, [case["input"]]).lastrowid
    assert found is not None
    return found


async def test_recorded_cases_give_the_same_bytes(tmp_path: Path) -> None:
    """State, output and error are the original's: one renderer, one set of tags."""
    cases = [case for line in LINES if (case := json.loads(line)).get("case") in PORTABLE]
    assert len(PORTABLE) == len(cases)
    differing = {}
    async with SqliteDriver(tmp_path / "tasks.db") as driver:
        driver.user.executescript(FIXTURES)
        for case in cases:
            task_id = insert(driver, case)
            await driver.perform(task_id)
            row = driver.row(task_id)
            got = row and {name: row[name] for name in ("state", "output", "error")}
            if case["remote"] != got:
                differing[case["case"]] = (case["remote"], got)
    assert {} == differing
