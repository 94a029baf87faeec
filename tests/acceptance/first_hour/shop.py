"""The user's machine: a fresh environment with the wheel in it, a folder with the shop, a database,
and what the user reads there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import psycopg

from tests.acceptance.first_hour import programs
from tests.fixtures.authority import NOBODY
from tests.fixtures.processes import ROOT, ChildProcess, Processes

PACKAGES = ("fastapi", "uvicorn", "sqlalchemy[asyncio]")
WAIT_S = 60.0
POLL_S = 0.1
T = TypeVar("T")


def until(look: Callable[[], T], what: str, *, within_s: float = WAIT_S) -> T:
    """A bounded poll: the first answer that is true."""
    end = time.monotonic() + within_s
    while not (seen := look()):
        assert time.monotonic() < end, f"not within {within_s:g} s: {what}"
        time.sleep(POLL_S)
    return seen


def make_environment(folder: Path) -> Path:
    """`python -m venv` and `pip install` of the wheel, as a user does it; the folder of its
    commands. The versions of other packages are those that we test with.

    A third of the work would be a second pip, and to compile what nobody imports here."""
    wheels, pinned = folder / "wheels", folder / "constraints.txt"
    locked = (ROOT / "requirements-dev.lock").read_text()
    pinned.write_text("\n".join(re.findall(r"^[\w.-]+==[^ \\]+", locked, re.MULTILINE)))
    pip = ("-m", "pip", "--quiet", "--disable-pip-version-check")
    made = folder / "venv"
    for command in (
        (sys.executable, *pip, "wheel", "--no-deps", "--wheel-dir", str(wheels), str(ROOT)),
        (sys.executable, "-m", "venv", "--without-pip", str(made)),
    ):
        subprocess.run(command, check=True, capture_output=True, text=True, env=outside())
    (wheel,) = wheels.glob("gnomon_scheduler-*.whl")
    ours = f"{wheel}[postgres,server]"
    into = (sys.executable, *pip, "--python", str(made / "bin/python"))
    install = (*into, "install", "--no-compile", "--constraint", str(pinned))
    bought = (*install, ours, *PACKAGES)
    subprocess.run(bought, check=True, capture_output=True, text=True, env=outside())
    return made / "bin"


def outside() -> dict[str, str]:
    """Our environment for pip, which fetches packages: it trusts whom the machine trusts."""
    ours = ("SSL_CERT_FILE", str(NOBODY))
    return {name: value for name, value in os.environ.items() if (name, value) != ours}


class Shop:
    """A folder of the user's with the shop in it, and what he starts there."""

    def __init__(
        self,
        folder: Path,
        commands: Path,
        dsn: str,
        processes: Processes,
        jobs: str = programs.JOBS,
    ) -> None:
        self._folder = folder
        self._commands = commands
        self._dsn = dsn
        self._processes = processes
        package = folder / "shop"
        package.mkdir(parents=True)
        texts = {
            "__init__": "",
            "models": programs.MODELS,
            "jobs": jobs,
            "web": programs.WEB,
            "typos": programs.TYPOS,
        }
        for name, text in texts.items():
            (package / f"{name}.py").write_text(text)
        alchemy = re.sub(r"^postgres(ql)?://", "postgresql+asyncpg://", dsn)
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("GNOMON")},
            "PATH": f"{commands}:{os.environ['PATH']}",
            "PYTHONPATH": str(folder),
            "SHOP_DATABASE_URL": alchemy,
            "GNOMON_DATABASE_URL": dsn,
        }

    def release(self) -> Shop:
        """The next version of the shop, in a folder of its own."""
        return Shop(
            self._folder / "next", self._commands, self._dsn, self._processes, programs.NEXT_JOBS
        )

    def says(self, *command: str, exit_code: int = 0, env: Mapping[str, str] | None = None) -> str:
        """What a command prints, standard output and error together."""
        done = subprocess.run(
            (str(self._commands / command[0]), *command[1:]),
            cwd=self._folder, env={**self.environment, **(env or {})}, check=False,
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=WAIT_S,
        )  # fmt: skip
        assert exit_code == done.returncode, f"{command}: {done.returncode}\n{done.stdout}"
        return done.stdout

    def start(self, *command: str) -> ChildProcess:
        """A command that goes on."""
        return self._processes.start(
            (str(self._commands / command[0]), *command[1:]),
            name=Path(command[0]).name,
            env=self.environment,
            cwd=self._folder,
        )

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """What the shop's own tables hold."""
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            return connection.execute(query).fetchall()

    def letters(self, kind: str) -> int:
        """How many of this kind were sent."""
        ((count,),) = self.rows(f"SELECT count(*) FROM letter WHERE kind LIKE '{kind}'")
        return int(count)


def post(url: str) -> tuple[int, Any]:
    """The status of the answer, and the answer."""
    request = urllib.request.Request(url, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
