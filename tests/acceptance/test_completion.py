"""The shell completes commands, verbs and options, and `-V` tells the version."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import gnomon

COMMAND = Path(sys.executable).parent / "gnomon"


@pytest.mark.parametrize(
    ("typed", "completed"),
    [("gnomon wor", "worker"), ("gnomon action cr", "create"), ("gnomon up --proc", "--processes")],
)  # fmt: skip
def test_the_shell_completes(typed: str, completed: str) -> None:
    """As bash asks for it, after `gnomon --install-completion`."""
    asked = {
        "_GNOMON_COMPLETE": "complete_bash",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(typed.count(" ")),
    }
    done = subprocess.run(
        [COMMAND], env={**os.environ, **asked}, capture_output=True, text=True, check=True
    )
    assert [completed] == done.stdout.split()


@pytest.mark.parametrize("flag", ["-V", "--version"])
def test_the_version_is_told(flag: str) -> None:
    done = subprocess.run([COMMAND, flag], capture_output=True, text=True, check=True)
    assert f"gnomon {gnomon.__version__}" == done.stdout.strip()
