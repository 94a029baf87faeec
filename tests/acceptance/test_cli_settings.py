"""One place for settings: which installation a command acts on, and what it says about it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.commands import run_command
from tests.fixtures.postgres import PostgresSchema
from tests.fixtures.processes import Processes

pytestmark = pytest.mark.acceptance

EXIT_CONFIGURATION, EXIT_UNAVAILABLE = 12, 8
SHOP = """\
import gnomon

jobs = gnomon.App("sqlite:///shop.db")


@jobs.action
async def hello(ctx: gnomon.Attempt, name: str) -> None:
    print(f"hello {name}", flush=True)
"""


class Folder:
    """A folder with a program of the user's own, and commands that are run in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "shop.py").write_text(SHOP)
        kept = {name: text for name, text in os.environ.items() if not name.startswith("GNOMON_")}
        self.environment = {**kept, "GNOMON_SERVER_PORT": "9", "COLUMNS": "200"}

    def run(
        self, *arguments: str, code: int = 0, **environ: str
    ) -> subprocess.CompletedProcess[str]:
        done = run_command(arguments, folder=self.path, environ={**self.environment, **environ})
        assert code == done.returncode, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done

    def python(self, program: str, **environ: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=self.path, text=True,
            env={**self.environment, **environ}, capture_output=True, timeout=200, check=False,
        )  # fmt: skip
        return done.stdout + done.stderr

    def worker_lines(self, *arguments: str, **environ: str) -> list[str]:
        """What a worker says until it works, and then it is stopped."""
        child = subprocess.Popen(
            [sys.executable, "-m", "gnomon", "worker", *arguments], cwd=self.path, text=True,
            env={**self.environment, **environ}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert child.stderr is not None
        lines: list[str] = []
        with child:
            for line in child.stderr:
                lines.append(line.rstrip())
                if "working on" in line or "workers on" in line:
                    break
            child.terminate()
            child.stderr.read()
        return lines


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_a_worker_works_on_the_database_of_the_app_that_it_imports(folder: Folder) -> None:
    """And says so; the default file is not made."""
    lines = folder.worker_lines("--import", "shop:jobs")
    assert [f"working on SQLite {folder.path / 'shop.db'}, by App(…)"] == lines
    assert (folder.path / "shop.db").exists()
    assert not (folder.path / "gnomon.db").exists()


@pytest.mark.parametrize("how", ["flag", "environment", "file"])
def test_who_says_otherwise_counts_and_the_difference_is_told(folder: Folder, how: str) -> None:
    """In one line, before anything happens."""
    arguments, environ = ["--import", "shop:jobs"], {}
    if how == "flag":
        arguments += ["--database", "sqlite:///other.db"]
    elif how == "environment":
        environ = {"GNOMON_DATABASE_URL": "sqlite:///other.db"}
    else:
        (folder.path / "gnomon.toml").write_text('[database]\nurl = "sqlite:///other.db"\n')

    note, working = folder.worker_lines(*arguments, **environ)

    assert note.startswith("note: the App of shop:jobs names sqlite:///shop.db")
    assert how in note
    assert f"working on SQLite {folder.path / 'other.db'}, by {how}" in working
    assert not (folder.path / "shop.db").exists()


def test_the_same_database_said_twice_is_no_difference(folder: Folder) -> None:
    """Nothing to tell."""
    lines = folder.worker_lines("--import", "shop:jobs", "--database", "sqlite:///shop.db")
    assert 1 == len(lines)


def test_an_app_without_arguments_reads_what_commands_read(folder: Folder) -> None:
    """The file, the environment, and what is wrong with them."""
    program = "import gnomon; a = gnomon.App(); print(a.settings.database.url_shown)"
    assert "sqlite:///gnomon.db" == folder.python(program).strip()
    (folder.path / "gnomon.toml").write_text('[database]\nurl = "sqlite:///filed.db"\n')
    assert "sqlite:///filed.db" == folder.python(program).strip()
    said = folder.python(program, GNOMON_DATABASE_URL="postgresql://me:secret@db/shop")
    assert "postgresql://me:***@db/shop" == said.strip()
    assert "did you mean GNOMON_DATABASE_URL" in folder.python(program, GNOMON_DATABASE_ULR="x")
    given = "import gnomon; print(gnomon.App('sqlite:///own.db').settings.database.url)"
    assert "sqlite:///own.db" == folder.python(given).strip()


def test_an_app_without_arguments_shares_the_database_with_its_worker(folder: Folder) -> None:
    """Both by the environment, and nothing is told of it."""
    (folder.path / "shop.py").write_text(SHOP.replace('"sqlite:///shop.db"', ""))
    lines = folder.worker_lines("--import", "shop:jobs", GNOMON_DATABASE_URL="sqlite:///env.db")
    place = f"SQLite {folder.path / 'env.db'}, by environment GNOMON_DATABASE_URL"
    assert [f"working on {place}"] == lines


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("shop:job", "shop has no 'job'; write --import shop:jobs"),
        ("shop", "shop has no 'app'; write --import shop:jobs"),
        ("shop.jobs", "there is no module shop.jobs: write --import shop:jobs"),
        ("shop.py:jobs", "that is a file: write its module, --import shop:app"),
        ("shpo:jobs", "there is no module shpo in "),
        (":jobs", "write MODULE:APP"),
        ("shop:gnomon", "gnomon is a module, not a gnomon.App; write --import shop:jobs"),
        ("broken:app", "loading it failed: ZeroDivisionError: division by zero ("),
        ("needy:app", "loading it failed: ModuleNotFoundError: No module named 'missing_library'"),
    ],
)
def test_a_wrong_import_says_what_to_write(folder: Folder, place: str, words: str) -> None:
    """One sentence, no traceback."""
    (folder.path / "broken.py").write_text("1 / 0\n")
    (folder.path / "needy.py").write_text("import missing_library\n")
    done = folder.run("worker", "--import", place, code=EXIT_CONFIGURATION)
    assert words in done.stderr
    assert not (folder.path / "gnomon.db").exists()


def test_every_command_says_on_which_installation_it_acts(folder: Folder) -> None:
    """On standard error, so that output can be piped."""
    place = f"on SQLite {folder.path / 'gnomon.db'}, by default\n"
    for command in (["migrate"], ["action", "list", "--json"], ["doctor"], ["token", "list"]):
        done = folder.run(*command)
        assert done.stderr.startswith(place), done.stderr
        assert place not in done.stdout


def test_a_password_is_not_said(folder: Folder) -> None:
    """Nor shown in what went wrong."""
    url = "postgresql://me:secret@127.0.0.1:9/shop"
    done = folder.run("action", "list", code=EXIT_UNAVAILABLE, GNOMON_DATABASE_URL=url)
    assert (
        "on PostgreSQL postgresql://me:***@127.0.0.1:9/shop, schema gnomon, by env" in done.stderr
    )
    assert "secret" not in done.stdout + done.stderr


def test_a_named_database_is_used_though_a_server_listens(
    folder: Folder, processes: Processes, installed_schema: PostgresSchema
) -> None:
    """The server at the default address may have another one."""
    folder.environment["GNOMON_SERVER_PORT"] = "0"
    dsn, schema = installed_schema
    named: dict[str, Any] = {"GNOMON_DATABASE_URL": dsn, "GNOMON_DATABASE_SCHEMA": schema}
    done = folder.run("action", "create", "--id", "here", "--in", "1h", "--mock", **named)
    assert f"schema {schema}, by environment GNOMON_DATABASE_URL" in done.stderr
    server = processes.start_gnomon(
        "up", "--port", "0", "--database", f"sqlite:///{folder.path / 'other.db'}"
    )
    port = server.wait_for_line(r"http://127\.0\.0\.1:(\d+)")
    folder.environment["GNOMON_SERVER_PORT"] = str(port[1])

    by_name = folder.run("action", "list", **named)
    by_default = folder.run("action", "list")

    assert "here" in by_name.stdout
    assert "here" not in by_default.stdout
    assert f"on the server http://127.0.0.1:{port[1]}\n" == by_default.stderr


def test_a_missing_settings_file_is_one_sentence(folder: Folder) -> None:
    """By flag and by environment."""
    for done in (
        folder.run("doctor", "--config", "prod.toml", code=EXIT_CONFIGURATION),
        folder.run("doctor", code=EXIT_CONFIGURATION, GNOMON_CONFIG="prod.toml"),
    ):
        assert "prod.toml: there is no such file" in done.stderr
