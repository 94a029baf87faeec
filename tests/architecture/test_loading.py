"""What an import loads: who schedules an action pays neither for stages nor for servers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gnomon.cli.root import COMMANDS, whole_tree

LIBRARIES = (
    "aiohttp", "asyncpg", "google", "grpc", "litestar", "prometheus_client", "psycopg", "rich",
    "typer",
)  # fmt: skip
RUNNING = ("gnomon.app", "gnomon.config", "gnomon.stages", "gnomon.stores", "gnomon.worker")


def loaded_by(program: str) -> set[str]:
    """The modules that a fresh interpreter has after a program."""
    listing = f"{program}\nimport json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", listing], capture_output=True, check=True, text=True
    )
    return set(json.loads(done.stdout))


def test_the_package_loads_the_model_alone() -> None:
    """`import gnomon` loads no engine, no stages and no large library."""
    loaded = loaded_by("import gnomon")
    assert set() == loaded & {*LIBRARIES, *RUNNING, "asyncio"}
    assert "gnomon.model.spec" in loaded


@pytest.mark.parametrize(
    "program", ["from gnomon import App; App()", "import gnomon.cli.root", "import gnomon.config"]
)
def test_an_app_and_the_commands_load_a_library_when_they_use_it(program: str) -> None:
    """Neither an app nor `gnomon --help` loads clients, drivers, servers and stages."""
    libraries = set(LIBRARIES) - {"rich", "typer"}
    assert set() == loaded_by(program) & {*libraries, "gnomon.stages.service"}


@pytest.mark.parametrize("command", ["action list", "doctor"])
def test_a_command_at_a_database_loads_no_client(command: str, tmp_path: Path) -> None:
    """It asks no server: aiohttp would be a quarter of its time."""
    url = f"sqlite:///{tmp_path}/gnomon.db"
    program = f"""
import asyncio, contextlib, io, sys
from gnomon.app import App
from gnomon.cli import main
asyncio.run(App({url!r}).open())
sys.argv = ["gnomon", *{command.split()}, "--database", {url!r}]
with contextlib.redirect_stdout(io.StringIO()):
    assert 0 == main()
"""
    assert set() == loaded_by(program) & {*LIBRARIES, "gnomon.client"} - {"rich", "typer"}


def test_where_nobody_listens_no_client_is_loaded(tmp_path: Path) -> None:
    """A command at the default file asks first whether there is a server."""
    program = f"""
import asyncio, contextlib, io, os, sys
from gnomon.app import App
from gnomon.cli import main
os.chdir({str(tmp_path)!r})
os.environ["GNOMON_SERVER_PORT"] = "1"
asyncio.run(App("sqlite:///gnomon.db").open())
sys.argv = ["gnomon", "action", "list"]
with contextlib.redirect_stdout(io.StringIO()):
    assert 0 == main()
"""
    assert set() == loaded_by(program) & {"aiohttp", "gnomon.client"}


HELP = """
import contextlib, io, sys
from gnomon.cli import main
sys.argv = ["gnomon", "--help"]
with contextlib.redirect_stdout(io.StringIO()):
    assert 0 == main()
"""


def test_help_loads_neither_commands_nor_what_they_need() -> None:
    """Most of what `gnomon --help` takes is Python itself, typer and the model."""
    loaded = loaded_by(HELP)
    ours = {name for name in loaded if name.startswith("gnomon.")}
    assert {"gnomon.cli", "gnomon.gateways", "gnomon.model"} == {
        ".".join(name.split(".")[:2]) for name in ours
    }
    assert {"gnomon.cli.root"} == {name for name in ours if name.startswith("gnomon.cli.")}
    assert set() == loaded & {*LIBRARIES, "asyncio"} - {"typer"}


def test_texts_of_commands_are_their_own() -> None:
    """`gnomon --help` shows of every command what `gnomon COMMAND --help` begins with."""
    limit = 200
    shown = {name: whole_tree().commands[name].get_short_help_str(limit) for name in COMMANDS}
    assert dict(COMMANDS) == shown


def test_late_names_are_there() -> None:
    """Names that are loaded when they are used are the public ones all the same."""
    program = "import gnomon; assert all(hasattr(gnomon, name) for name in gnomon.__all__)"
    assert "gnomon.app" in loaded_by(program)


def test_unknown_names_are_refused() -> None:
    for package in ("gnomon", "gnomon.stages"):
        with pytest.raises(subprocess.CalledProcessError):
            loaded_by(f"import {package}; {package}.nothing")
