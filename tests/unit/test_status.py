"""What is wrong with an installation, out of its figures."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest
from rich.console import Console

from gnomon.cli.status import shown
from gnomon.contracts.status import (
    InstallationStatus,
    TaskTableStatus,
    UnservedStatus,
    WorkerStatus,
)
from gnomon.contracts.store.figures import QueueFigures, StageFigures

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LONG, SHORT = timedelta(minutes=5), timedelta(seconds=30)
WORKER = WorkerStatus(owner="host/1", silent_for=SHORT / 60, is_alive=True, shards=64)


def status(**fields: Any) -> InstallationStatus:
    given: dict[str, Any] = {"queues": (), "stages": (), "workers": (WORKER,), "shards_unowned": 0}
    return InstallationStatus(
        installation=UUID(int=1), engine="sqlite", durability="local", at=NOW, limit=10_000,
        shards=64, **(given | fields),
    )  # fmt: skip


def screen(found: InstallationStatus) -> str:
    out = Console(width=100, no_color=True, file=io.StringIO())
    with out.capture() as captured:
        out.print(shown(found))
    return captured.get()


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"workers": ()}, "no worker is alive"),
        (
            {"workers": (msgspec.structs.replace(WORKER, is_alive=False),)},
            "no worker is alive",
        ),
        ({"shards_unowned": 3}, "3 of 64 shards have no living owner"),
        (
            {"queues": (QueueFigures(queue="mail", overdue=1_234, overdue_for=LONG),)},
            "queue mail: 1,234 overdue, the first for 5m",
        ),
        (
            {"stages": (StageFigures(stage="expire", overdue=2, overdue_for=LONG),)},
            "stage expire: 2 overdue, the first for 5m",
        ),
        (
            {"unserved": (UnservedStatus(need="function welcome", count=7, since=NOW),)},
            "nobody serves function welcome: 7 wait, since 2026-01-01T00:00:00+00:00",
        ),
        (
            {"task_tables": (TaskTableStatus(table="task", limit=500, problem="gone"),)},
            "task table task: gone",
        ),
        (
            {"task_tables": (TaskTableStatus(table="t", limit=9, overdue=1, overdue_for=LONG),)},
            "task table t: 1 overdue, the first for 5m",
        ),
    ],
)
def test_what_is_wrong_is_said(fields: dict[str, Any], problem: str) -> None:
    """One line each, with the numbers; and the screen shows it."""
    found = status(**fields)
    assert [problem] == found.find_problems()
    told = msgspec.structs.replace(found, problems=[problem])
    assert f"! {problem}" in screen(told)


def test_what_is_usual_is_no_problem() -> None:
    """Something waits, runs, is a little late, has died, is parked."""
    found = status(
        queues=(
            QueueFigures(
                queue="mail", waiting=9, overdue=5, running=3, dead=12_345, overdue_for=SHORT
            ),
        ),
        stages=(StageFigures(stage="expire", overdue=1, parked=2, overdue_for=SHORT),),
    )
    assert [] == found.find_problems()
    lines = screen(found)
    assert "all is well" in lines
    assert "10,000+" not in lines
    assert "mail" in lines
    assert "12,345+" in lines  # at the limit or beyond it
