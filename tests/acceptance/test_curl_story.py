"""docs/tutorial/curl.md is true: each of its commands is run, and its answers are compared."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.test_cli import Shell

pytestmark = pytest.mark.acceptance

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "curl.md"
USUAL = "http://127.0.0.1:8321"
MARK = "-- next --"


def steps(page: str) -> list[tuple[str, list[str]]]:
    """The commands of the page, each with the lines that it is said to print."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"^```console\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        is_open = False
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
                is_open = line.count("'") % 2 == 1
            elif is_open:  # the rest of a quoted body
                command, output = found[-1]
                found[-1] = (f"{command}\n{line}", output)
                is_open = line.count("'") % 2 == 0
            else:
                found[-1][1].append(line)
    return found


def is_like(expected: str, printed: str) -> bool:
    """Whether a line is as the page says; `…` may be anything."""
    pattern = ".*".join(re.escape(part) for part in expected.split("…"))
    return re.fullmatch(pattern, printed) is not None


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """`gnomon up`, as a reader has it."""
    shell = Shell(tmp_path)
    child = shell.start("up", "--port", "0", "--json", *shell.target)
    try:
        assert child.stdout is not None
        text = ""
        while not text.rstrip().endswith("}"):
            line = child.stdout.readline()
            assert line, child.communicate()[1]
            text += line
        yield json.loads(text)["url"]
    finally:
        child.terminate()
        child.communicate(timeout=120)


def test_the_story_is_true(url: str, tmp_path: Path) -> None:
    """From the first command to the last, in one shell, with the answers of the page."""
    if shutil.which("curl") is None:
        pytest.skip("there is no curl")
    told = steps(PAGE.read_text().replace(USUAL, url))
    assert len(told) > 15
    script = "".join(f"{command}\necho '{MARK}'\n" for command, _ in told)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], cwd=tmp_path, capture_output=True, text=True,
        timeout=200, check=False,
    )  # fmt: skip
    assert 0 == done.returncode, done.stdout + done.stderr
    printed = re.split(rf"{MARK}\n", done.stdout)
    for (command, expected), output in zip(told, printed[:-1], strict=True):
        lines = output.strip().splitlines()
        assert len(expected) == len(lines), (command, output)
        for wanted, line in zip(expected, lines, strict=True):
            assert is_like(wanted, line), (command, wanted, line)


def test_a_story_that_is_not_true_is_noticed() -> None:
    """The comparison can fail."""
    assert is_like('{"a":…,"c":1}', '{"a":7,"b":2,"c":1}')
    assert not is_like('{"a":…,"c":1}', '{"a":7,"c":2}')
    found = steps("```console\n$ one '\nx'\n1\n$ two\n```\n")
    assert [("one '\nx'", ["1"]), ("two", [])] == found
