"""tests/plan.md names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
NAMED = re.compile(r"`([a-z0-9_/]+)::(test_[a-z0-9_]+)`")


def test_every_test_of_the_plan_is_there() -> None:
    """A test that is renamed or taken away is missed here."""
    named = NAMED.findall((TESTS / "plan.md").read_text())
    assert len(named) > 40
    missing = []
    for path, name in named:
        file = TESTS / f"{path}.py"
        text = file.read_text() if file.exists() else ""
        if not re.search(rf"^(async )?def {name}\(", text, re.MULTILINE):
            missing.append(f"{path}::{name}")
    assert [] == missing
