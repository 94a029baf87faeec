"""The page about testing, as printed: its program, its tests and its script, in a folder of its
own, under a pytest that knows Gnomon by its entry point alone."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.test_loading import LIBRARIES, RUNNING, loaded_by

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "testing.md"
BLOCK = re.compile(r"^```python\n# (\S+\.py)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The page's files, each named by its first line."""
    blocks = BLOCK.findall(PAGE.read_text())
    assert ["shop.py", "conftest.py", "test_shop.py", "check_books.py"] == [
        name for name, _ in blocks
    ]
    for name, text in blocks:
        (tmp_path / name).write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n")
    return tmp_path


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command], cwd=folder, capture_output=True, text=True, check=False
    )


def test_its_tests_pass(folder: Path) -> None:
    done = run(folder, "-m", "pytest", "-q", "-p", "no:schemathesis")
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_its_tests_can_fail(folder: Path) -> None:
    """A shop that forgets its buyers is found out."""
    shop = folder / "shop.py"
    shop.write_text(shop.read_text().replace('in_="3h"', 'in_="4h"'))
    done = run(folder, "-m", "pytest", "-q", "-p", "no:schemathesis")
    assert "2 failed" in done.stdout, done.stdout + done.stderr


def test_its_script_runs(folder: Path) -> None:
    done = run(folder, "check_books.py")
    assert (0, "") == (done.returncode, done.stderr)


def test_the_plugin_loads_the_model_alone() -> None:
    """Whoever has Gnomon installed and tests something else pays next to nothing."""
    loaded = loaded_by("import gnomon.testing.plugin")
    assert set() == loaded & {*LIBRARIES, *RUNNING}
