"""The original's recorded cases, byte for byte."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from psycopg import sql

from gnomon.model.task import GroupKey
from tests.conformance.tasks.driving import Driver

LINES = (Path(__file__).parent / "pg_task_cases.jsonl").read_text("utf-8").splitlines()
CASES: list[dict[str, Any]] = [json.loads(line) for line in LINES]
T1_AT_END = "1:w,2:r2!,3:z,10:ten,11:eleven,13:thirteen"
FIXTURES = r"""
CREATE TABLE m(id int, name text, flag bool, num numeric, note text, day date);
INSERT INTO m VALUES (1,'one',true,1.50,NULL,'2020-01-02'),
                     (2,E'tab\there "q" b\\s nl\nend',false,-2,'',NULL);
CREATE TABLE t1(a int PRIMARY KEY, b text);
INSERT INTO t1 SELECT g,'r'||g FROM generate_series(1,3) g;
CREATE PROCEDURE p_out(INOUT x int) LANGUAGE plpgsql AS 'begin x := x+1; end';
"""
# Bytes that are no UTF-8 are replaced: the original stores what no client can read.
REPLACED = {"M16": "a\ufffdb\n1\ufffd2"}
# MERGE; a byte that is no text, which no client can read from a server before 15.
SINCE = {"S31": 150_000, "M16": 150_000}
NOW = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?\+00")


def expected_of(case: dict[str, Any], task_id: int, database: str) -> dict[str, Any] | None:
    """What the original left, with what differs from one performance to the next put in."""
    expected: dict[str, Any] | None = case["remote"]
    if expected is None:
        return None
    if case["case"] in REPLACED:
        return {**expected, "output": REPLACED[case["case"]]}
    if case["case"] == "X01":
        output = expected["output"].replace("\n1717\t", f"\n{task_id}\t")
        return {**expected, "output": output.replace('\tpostgres\t"$user', f'\t{database}\t"$user')}
    return expected


@pytest.mark.parametrize("mode", ["local", "remote"])
@pytest.mark.parametrize("reuse", [False, True], ids=["own-session", "one-session"])
async def test_every_recorded_case_gives_the_same_bytes(
    driver: Driver, mode: str, reuse: bool
) -> None:
    """State, output and error of all recorded cases, in their order, are the original's."""
    driver.user.execute(FIXTURES.encode())
    remote = driver.dsn if mode == "remote" else None
    kept = await driver.open(GroupKey("kept", remote)) if reuse else None
    differing = {}
    for case in CASES[:-1]:
        if case["case"] in SINCE and driver.user.info.server_version < SINCE[case["case"]]:
            continue
        columns = {name: sql.SQL(text) for name, text in case["cols"].items()}
        group = "kept" if reuse and case["case"] != "X01" else case["case"]
        task_id = driver.insert(case["input"], group=group, remote=remote, **columns)
        await driver.perform(task_id, kept if group == "kept" else None)
        row = driver.row(task_id)
        got = row and {name: row[name] for name in ("state", "output", "error")}
        expected = expected_of(case, task_id, driver.entry.data)
        if case["case"] == "F01" and got and NOW.fullmatch(got["output"]):
            got["output"] = expected["output"] if expected else None
        if expected != got:
            differing[case["case"]] = (expected, got)
    assert {} == differing
    found = driver.value("SELECT string_agg(a || ':' || b, ',' ORDER BY a) FROM t1")
    assert T1_AT_END == found == CASES[-1]["remote"]
