"""What docs/explain/promise.md says is held by tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROMISE = ROOT / "docs" / "explain" / "promise.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(?:(\w+)::)?(\w+)`")


def promises() -> list[str]:
    """The sentences promised: the items of all lists, each with its tests."""
    text, _, _ = PROMISE.read_text().partition("## Not promised")
    return [
        " ".join(item.split())
        for item in re.findall(r"^- (.+?)(?=\n\n|\n- )", text, re.MULTILINE | re.DOTALL)
    ]


def test_every_sentence_names_its_tests() -> None:
    """A promise that no test holds is a wish."""
    found = promises()
    assert len(found) >= 15
    assert [] == [item for item in found if not NAMED.search(item)]


def test_the_tests_that_are_named_exist() -> None:
    """Renamed or removed: then the page has to follow."""
    missing = []
    for path, case, name in (
        match.groups() for item in promises() for match in NAMED.finditer(item)
    ):
        file = ROOT / path
        text = file.read_text() if file.exists() else ""
        is_there = re.search(rf"^ *(?:async )?def {name}\b|^class {name}\b", text, re.MULTILINE)
        is_in_case = case is None or re.search(rf"^class {case}\b|\b{case}\b", text, re.MULTILINE)
        if not is_there or not is_in_case:
            missing.append(f"{path}::{name}")
    assert [] == missing
