"""What an import loads: who schedules an action pays neither for stages nor for servers."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

LIBRARIES = ("aiohttp", "asyncpg", "google", "grpc", "litestar", "psycopg", "rich", "typer")
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


def test_late_names_are_there() -> None:
    """Names that are loaded when they are used are the public ones all the same."""
    program = "import gnomon; assert all(hasattr(gnomon, name) for name in gnomon.__all__)"
    assert "gnomon.app" in loaded_by(program)


def test_unknown_names_are_refused() -> None:
    for package in ("gnomon", "gnomon.stages"):
        with pytest.raises(subprocess.CalledProcessError):
            loaded_by(f"import {package}; {package}.nothing")
