"""A suite that nobody imports tests nothing, and nobody notices."""

from __future__ import annotations

import ast
from pathlib import Path

CONFORMANCE = Path(__file__).parents[1] / "conformance"


def test_every_class_of_a_suite_is_collected_somewhere() -> None:
    """Classes of tests in a folder `suite` are run where a test module imports them."""
    suites = {
        f"{path.relative_to(CONFORMANCE)}::{node.name}": node.name
        for path in CONFORMANCE.rglob("suite/**/*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test")
    }
    imported = {
        alias.name
        for path in CONFORMANCE.rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert [] == sorted(place for place, name in suites.items() if name not in imported)
    assert suites
