"""One concept has one name on every surface: docs/reference/names.md says so, and is in step."""

from __future__ import annotations

import pytest

from scripts import names
from scripts.surfaces import Section
from tests.architecture.sources import ROOT

PAGE = ROOT / "docs" / "reference" / "names.md"


def test_page_is_in_step() -> None:
    """The page has the names that the code has."""
    assert names.names_page() == PAGE.read_text(), "run `make docs`"


def test_one_concept_has_one_name() -> None:
    """A name that differs from Python's has a reason in scripts/names.py, and none is stale."""
    found = names.findings()
    assert [] == found, "\n".join(["rename it, or say why in scripts/names.py:", *found])


def test_rule_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second name without a reason is found, and one with a reason joins its row."""
    section = Section("x", "X", "", {"Python": [("start_at", "at")], "CLI": [("begin", "--begin")]})
    assert ["X: CLI has '--begin', Python has no 'begin'"] == names.rows_of(section)[1]
    monkeypatch.setitem(names.DIFFERENT, ("x", "CLI", "begin"), ("start_at", "short"))
    rows, found = names.rows_of(section)
    assert ([], ["start_at"]) == (found, list(rows))
    assert {"Python": ["at"], "CLI": ["--begin"]} == rows["start_at"].names
