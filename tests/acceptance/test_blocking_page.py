"""The page about programs without an event loop, as printed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "blocking.md"
BLOCK = re.compile(r"^```python\n# (\S+\.py)\n(.*?)^```", re.MULTILINE | re.DOTALL)
CALLER = """
from shop import gnomon_app, web

client = web.test_client()
id = client.post("/orders/ann").json["reminder"]
print(client.get(f"/reminders/{id}").json)
print(gnomon_app.blocking)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The page's files, each named by its first line."""
    for name, text in BLOCK.findall(PAGE.read_text()):
        (tmp_path / name).write_text(text)
    return tmp_path


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, capture_output=True, text=True, check=False
    )
    assert (0, "") == (done.returncode, done.stderr)
    return done.stdout


def test_its_script_runs_twice(folder: Path) -> None:
    for _ in range(2):
        lines = run(folder, "remind.py").splitlines()
        assert ["active", "['remind-ann']"] == lines[1:]


def test_its_shop_answers(folder: Path) -> None:
    """The order and its reminder are stored together."""
    assert "{'state': 'active'}\nBlockingApp(open)\n" == run(folder, "-c", CALLER)
