"""Why a SQL task waits, in a sentence."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import gnomon.tasks
from gnomon.contracts.task_rows import TaskDetail
from gnomon.model.why import WaitReason
from gnomon.tasks.wait_reason import _WORDS, explain_task

NOW = datetime(2030, 1, 1, tzinfo=UTC)
VIEWS = ("postgres/queries/schema.sql", "sqlite/queries/schema.sql")


def task(**fields: Any) -> TaskDetail:
    row: dict[str, Any] = dict.fromkeys(TaskDetail.__struct_fields__)
    row |= {"id": 7, "group": "mail", "state": "PLAN", "plan": NOW, "max": 0, "count": 0}
    return TaskDetail(**(row | {"retry": 3, "retried": 1, "input": "SELECT 1"} | fields))


@pytest.mark.parametrize("view", VIEWS)
def test_every_word_of_the_views_has_a_sentence(view: str) -> None:
    """A view that says something new would be passed on as it is."""
    text = (Path(gnomon.tasks.__file__).parent / view).read_text()
    part = text[text.index("task_waiting") :]
    words = set(re.findall(r"(?:THEN|ELSE|^\s+)\s*'([a-z][a-z ]+)'$", part, re.MULTILINE))
    assert len(words) >= 6
    assert [] == [word for word in words if word not in _WORDS]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"why": "planned later", "until": NOW}, WaitReason.NOT_DUE),
        ({"why": "tried again later", "until": NOW}, WaitReason.RETRYING),
        ({"why": "nobody owns the table"}, WaitReason.UNOWNED),
        ({"why": "behind 5, 6 in its group"}, WaitReason.GROUP),
        ({"why": "stopped", "state": "STOP"}, WaitReason.ENDED),
        ({"state": "WORK", "start": NOW, "pid": 12}, WaitReason.RUNNING),
        ({"state": "DONE", "stop": NOW}, WaitReason.ENDED),
        ({"why": "something {new}"}, WaitReason.SOON),
    ],
)
def test_its_row_says_why(fields: dict[str, Any], code: WaitReason) -> None:
    """Whatever it holds, there is a sentence."""
    found = explain_task(task(**fields), at=NOW)
    assert (code, fields.get("until"), "7") == (found.code, found.until, found.id)
    assert found.sentence


def test_the_group_and_its_room_are_told() -> None:
    """`max` is one less than what works at once."""
    found = explain_task(task(why="behind 5 in its group", max=2), at=NOW)
    assert "It comes behind 5 in its group 'mail', which lets 3 work at once." == found.sentence
