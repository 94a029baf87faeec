"""A reader's terminals: commands of a page, one after the other; what serves goes on meanwhile."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

PATIENCE_S = 90.0
POLL_S = 0.05
SERVES = re.compile(r"^(?:make up|(?:\S*/)?gnomon (?:up|worker|server|tasks)\b)")
READY = re.compile(r"Gnomon is up|working on |workers on |serving http|performing tasks of")
TOKEN = re.compile(r"\bgnomon_[A-Za-z0-9_-]{43}\b")

Step = tuple[str, list[str]]


def steps_of(text: str, *, has_prompts: bool) -> list[Step]:
    """Commands with the lines that they are said to print. A quote or a backslash goes on."""
    found: list[Step] = []
    is_open = False
    for line in text.splitlines():
        if is_open:
            command, output = found[-1]
            found[-1] = (f"{command}\n{line}", output)
        elif not has_prompts or line.startswith("$ "):
            found.append((line.removeprefix("$ "), []))
        else:
            found[-1][1].append(line)
            continue
        command = found[-1][0]
        is_open = command.count("'") % 2 == 1 or command.endswith("\\")
    return found


def is_like(expected: str, printed: str) -> bool:
    """Whether a line is as the page says, but for spaces at its end; `…` may be anything."""
    pattern = ".*".join(re.escape(part) for part in expected.rstrip().split("…"))
    return re.fullmatch(pattern, printed.rstrip()) is not None


class Shell:
    """Runs steps in a folder; what serves is ended with the shell."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self.folder = folder
        self.environ = dict(environ)
        self._serving: list[tuple[subprocess.Popen[bytes], Path]] = []

    def run(self, steps: list[Step]) -> None:
        """Errors: AssertionError, with what was printed."""
        if any(SERVES.match(command) for command, _ in steps):
            self.close()  # a page that starts something anew means it instead of what there was
        for command, expected in steps:
            if SERVES.match(command):
                self.serve(command)
            else:
                self._check(command, expected)

    def serve(self, command: str) -> None:
        """Start it and wait until it says that it is ready."""
        log = self.folder / f"serving-{len(self._serving)}-{time.monotonic_ns()}.log"
        with log.open("wb") as file:
            child = subprocess.Popen(
                ["bash", "-c", command], cwd=self.folder, env=self.environ, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
            )  # fmt: skip
        self._serving.append((child, log))
        end = time.monotonic() + PATIENCE_S
        while not READY.search(log.read_text()):
            assert child.poll() is None, (command, log.read_text())
            assert time.monotonic() < end, (command, log.read_text())
            time.sleep(POLL_S)

    def wait_for(self, text: str) -> None:
        """Until what serves has printed a text."""
        end = time.monotonic() + PATIENCE_S
        while text not in (printed := "".join(log.read_text() for _, log in self._serving)):
            assert time.monotonic() < end, printed
            time.sleep(POLL_S)

    def close(self) -> None:
        """End what serves."""
        for child, _ in self._serving:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGTERM)
        for child, log in self._serving:
            try:
                child.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
                raise AssertionError(f"it did not stop: {log.read_text()}") from None
        self._serving.clear()

    def _check(self, command: str, expected: list[str]) -> None:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command], cwd=self.folder, env=self.environ,
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        assert 0 == done.returncode, (command, done.stdout + done.stderr)
        printed = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        for wanted in expected:
            assert any(is_like(wanted, line) for line in printed), (command, wanted, printed)
        if token := TOKEN.search(done.stdout + done.stderr):
            self.environ["GNOMON_TOKEN"] = token[0]
