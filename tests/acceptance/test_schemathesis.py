"""Requests made from the OpenAPI document: nothing but documented answers, and never our fault."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.test_cli import Shell

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

CONFIG = Path(__file__).with_name("schemathesis.toml")
CASES_MIN = {"open": 3_000, "token": 500}
# Every edge of every schema is tried once, without tokens: behind the door it is the same server.
PHASES = {"open": "examples,coverage,fuzzing,stateful", "token": "examples,fuzzing,stateful"}
EXAMPLES = {"open": "3", "token": "12"}  # per operation; what it comes to is asserted
SEED = "20261116"
ANSWER_WITHIN_S = "60"  # 10,001 actions in one body take their time on a busy machine

LINE_MAX = 300


class Server:
    """`gnomon server` over a SQLite file of its own."""

    def __init__(self, shell: Shell, way: str, *, token: str | None) -> None:
        self.way = way
        self.child = shell.start("server", "--port", "0", *shell.target)
        self.token = token
        assert self.child.stderr is not None
        self.url = ""
        while not self.url:
            line = self.child.stderr.readline()
            assert line, "the server did not start"
            found = re.search(r"serving (\S+)", line)
            self.url = found[1] if found else ""

    def stop(self) -> str:
        """End it; what it said."""
        self.child.terminate()
        return self.child.communicate(timeout=120)[1]


@pytest.fixture(params=["open", "token"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    shell = Shell(tmp_path)
    shell.install()
    token = None
    if request.param == "token":
        made = shell.run(
            "token", "create", "tester", "--scope", "read", "--scope", "write", *shell.target
        )
        token = made.stdout.strip()
    started = Server(shell, request.param, token=token)
    yield started
    if started.child.poll() is None:
        started.stop()


def test_documented_answers_only(server: Server, tmp_path: Path) -> None:
    """No 5xx, no undocumented status, header or body; bad requests refused; a token is needed
    where the document says so. Events are left out: their answer does not end."""
    command = [
        sys.executable, "-m", "schemathesis.cli", "--config-file", str(CONFIG), "run",
        f"{server.url}/openapi.json", "--exclude-path-regex", "/events$", "--max-examples",
        EXAMPLES[server.way], "--seed", SEED, "--generation-database", "none", "--phases",
        PHASES[server.way], "--no-color", "--warnings", "off",
        "--request-timeout", ANSWER_WITHIN_S,
    ]  # fmt: skip
    if server.token is not None:
        command += ["--header", f"Authorization: Bearer {server.token}"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False
    )
    lines = [line[:LINE_MAX] for line in done.stdout.splitlines()]  # a body may be of a megabyte
    assert 0 == done.returncode, "\n".join(lines[-100:]) + done.stderr[-2000:]
    found = re.search(r"([\d,]+) generated", done.stdout)
    assert found, done.stdout[-2000:]
    assert CASES_MIN[server.way] <= int(found[1].replace(",", "")), done.stdout[-2000:]
    assert "Stateful" in done.stdout
    assert "request_failed" not in server.stop()
