"""The checker is checked: histories made by hand, each broken in one way."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest

from gnomon.contracts.store import Finding
from gnomon.model.action import Action, Attempt, Meta, State, Status
from gnomon.model.spec import Mock, Spec
from tests.fault.history import History, Run, check, read_runs

T0 = datetime(2026, 1, 1, tzinfo=UTC)
RESERVATION = timedelta(seconds=2)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def attempt(no: int, outcome: str, *, began_s: float) -> Attempt:
    return Attempt(
        attempt_id=UUID(int=no), attempt_no=no, occurrence_no=1, began_at=at(began_s),
        outcome=outcome,
    )  # fmt: skip


def run(no: int, started_s: float, ended_s: float | None, **fields: Any) -> Run:
    values: dict[str, Any] = {
        "id": "a", "key": "key-a", "attempt_id": str(UUID(int=no)), "attempt_no": no,
        "occurrence_no": 1, "n": 0, "pid": no, **fields,
    }  # fmt: skip
    ended_at = None if ended_s is None else at(ended_s)
    return Run(started_at=at(started_s), ended_at=ended_at, **values)


def action(**status: Any) -> Action:
    meta = Meta(id="a", guid=UUID(int=9), shard=0, created_at=T0, updated_at=T0)
    return Action(meta=meta, spec=Spec(action=Mock()), status=Status(**status))


def killed_once() -> History:
    """A good one: killed in the first attempt, done in the second."""
    return History(
        acknowledged=["a"],
        runs=[run(1, 0.1, None), run(2, 2.6, 2.7)],
        actions={"a": action(state=State.DONE, attempts=2, succeeded=1, interrupted=1)},
        attempts={
            "a": [attempt(2, "succeeded", began_s=2.5), attempt(1, "interrupted", began_s=0)]
        },
        reservation=RESERVATION,
    )


def status(history: History, **fields: Any) -> History:
    found = history.actions["a"]
    changed = msgspec.structs.replace(found.status, **fields)
    return replace(history, actions={"a": msgspec.structs.replace(found, status=changed)})


def outcome(history: History, no: int, name: str) -> History:
    log = [
        msgspec.structs.replace(a, outcome=name) if a.attempt_no == no else a
        for a in history.attempts["a"]
    ]
    return replace(history, attempts={"a": log})


GOOD = killed_once()
BEGAN_EARLY = [attempt(2, "succeeded", began_s=1.0), attempt(1, "interrupted", began_s=0)]
BAD = {
    "lost action": ("lost", replace(GOOD, actions={}, runs=[], attempts={})),
    "lost in a state": ("lost", status(GOOD, state=State.ACTIVE)),
    "dead instead of done": ("lost", status(GOOD, state=State.DEAD)),
    "done unseen": ("lost", replace(GOOD, runs=[])),
    "nobody asked": ("phantom", replace(GOOD, acknowledged=[])),
    "begun by nobody": ("unrecorded", replace(GOOD, runs=[*GOOD.runs, run(3, 9, 9.1)])),
    "sent though abandoned": ("abandoned_was_sent", outcome(GOOD, 1, "abandoned")),
    "one attempt twice": ("started_twice", replace(GOOD, runs=[*GOOD.runs, run(2, 9, 9.1)])),
    "two successes": ("duplicate", outcome(GOOD, 1, "succeeded")),
    "again beside a running one": ("duplicate", outcome(GOOD, 1, "running")),
    "two keys": ("key", replace(GOOD, runs=[run(1, 0.1, None, key="other"), GOOD.runs[1]])),
    "one key for two": (
        "key",
        replace(GOOD, runs=[*GOOD.runs, run(1, 0.1, None, id="b")], unknown=["b"]),
    ),
    "one key for two generations": ("key", replace(GOOD, runs=[*GOOD.runs, run(2, 5, 6, n=1)])),
    "counters": ("counters", status(GOOD, attempts=3)),
    "an attempt without record": ("record", status(GOOD, attempts=3, interrupted=2)),
    "miscounted success": ("record", status(GOOD, succeeded=2, interrupted=0)),
    "a gap in the numbers": (
        "numbering",
        replace(
            GOOD,
            attempts={
                "a": [attempt(3, "succeeded", began_s=2.5), attempt(1, "interrupted", began_s=0)]
            },
        ),
    ),
    "numbers against time": (
        "numbering",
        replace(
            GOOD,
            attempts={
                "a": [attempt(1, "succeeded", began_s=2.5), attempt(2, "interrupted", began_s=0)]
            },
        ),
    ),
    "overlap with a run that ended later": (
        "overlap",
        replace(GOOD, runs=[run(1, 0.1, 9.0), run(2, 1.1, 1.2)], attempts={"a": BEGAN_EARLY}),
    ),
    "overlap with a run that never ended": (
        "overlap",
        replace(GOOD, runs=[run(1, 0.1, None), run(2, 1.1, 1.2)], attempts={"a": BEGAN_EARLY}),
    ),
    "doctor": ("doctor", replace(GOOD, findings=[Finding(rule="r", subject="a", detail="d")])),
}


def test_good_history_has_no_violation() -> None:
    assert [] == check(GOOD)


def test_unanswered_create_may_have_been_applied() -> None:
    """An action whose create was never answered is no phantom."""
    assert [] == check(replace(GOOD, acknowledged=[], unknown=["a"]))


def test_frozen_attempt_may_overlap_after_its_reservation() -> None:
    """The late end of a frozen worker is explained by its record."""
    late = outcome(replace(GOOD, runs=[run(1, 0.1, 9.0), run(2, 2.6, 2.7)]), 1, "late_succeeded")
    assert [] == check(late)


@pytest.mark.parametrize("name", BAD)
def test_bad_history_is_rejected_by_the_right_rule(name: str) -> None:
    """Every broken history violates the rule it was broken by."""
    rule, history = BAD[name]
    assert rule in {violation.rule for violation in check(history)}


def test_every_rule_is_shown_to_fail() -> None:
    """No rule is without a history that it rejects."""
    rules = {
        "lost", "phantom", "unrecorded", "abandoned_was_sent", "started_twice", "duplicate", "key",
        "counters", "record", "numbering", "overlap", "doctor",
    }  # fmt: skip
    assert rules == {rule for rule, _ in BAD.values()}


def test_runs_are_read_from_the_lines_of_several_processes(tmp_path: Path) -> None:
    """Starts find their ends by attempt and process; a start of a killed process has none."""
    entry = {"id": "a", "key": "k", "attempt_id": "x", "attempt_no": 1, "occurrence_no": 1, "n": 0}
    lines = [
        {**entry, "event": "start", "t": 1.0, "pid": 1},
        {**entry, "event": "start", "t": 2.0, "pid": 2},
        {**entry, "event": "end", "t": 3.0, "pid": 2},
    ]
    path = tmp_path / "log"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    found = [(found.pid, found.ended_at) for found in read_runs(path)]
    assert [(1, None), (2, datetime.fromtimestamp(3.0, UTC))] == found
