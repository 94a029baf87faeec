"""Every command of the pages is run as it is printed, with real processes and servers."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.acceptance.pages.blocks import ROOT, pages_with, to_run
from tests.acceptance.pages.shell import Shell, steps_of
from tests.fixtures.postgres import free_port
from tests.fixtures.up import clean_environment

pytestmark = pytest.mark.acceptance

USUAL = "http://127.0.0.1:8321"


@dataclass(frozen=True, slots=True)
class Terminal:
    """What the reader of a page has: files, and what the page's places are here.

    `{dsn}`, `{admin}` and `{url}` are the test's database, as whom, and its server.
    """

    files: Mapping[str, str] = field(default_factory=dict)
    instead: Mapping[str, str] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    before: tuple[str, ...] = ()
    needs_postgres: bool = False


SHOP = "import gnomon\napp = gnomon.App()\n"
TARGETS = """
[targets.reports]
kind = "sql"
place = "local"
dsn = "secret://reports-dsn"
[secrets.reports-dsn]
env = "REPORTS_DSN"
[targets.warehouse]
kind = "sql"
dsn = "secret://warehouse-dsn"
inbox = "public.gnomon_inbox"
[secrets.warehouse-dsn]
env = "WAREHOUSE_DSN"
"""
TERMINALS = {
    "README.md": Terminal(
        files={"yourmodule.py": SHOP},
        instead={"postgresql://user@host/db": "{dsn}"},
        needs_postgres=True,
    ),
    "docs/howto/authentication.md": Terminal(
        instead={
            "postgresql://…": "sqlite:///gnomon.db",
            "https://gnomon.example:8321": "{url}",
        },
        before=("gnomon migrate", "gnomon server"),
    ),
    "docs/howto/change.md": Terminal(before=("gnomon up",)),
    "docs/howto/console.md": Terminal(before=("gnomon up",)),
    "docs/howto/idempotency.md": Terminal(before=("gnomon up",)),
    "docs/howto/limits.md": Terminal(before=("gnomon up",)),
    "docs/howto/stages.md": Terminal(
        files={"ads.jsonl": '{"id": "ad-2", "document": {"status": "draft"}}\n'},
        before=("gnomon up",),
    ),
    "docs/howto/sql.md": Terminal(
        files={"gnomon.toml": TARGETS},
        instead={
            "postgresql://postgres@db/gnomon": "{admin}",
            "postgresql://postgres@other/shop": "{admin}",
        },
        environ={
            "REPORTS_DSN": "postgresql://{dbname}_reports:secret@{host}:{port}/{dbname}",
            "WAREHOUSE_DSN": "postgresql://{dbname}_ware:secret@{host}:{port}/{dbname}",
            "GNOMON_DATABASE__URL": "{admin}",
        },
        before=("gnomon migrate",),
        needs_postgres=True,
    ),
    "docs/howto/sql-tasks.md": Terminal(
        instead={
            "postgresql://shop@localhost/shop": "{dsn}",
            "of shop.public": "of {dbname}.public",
        },
        needs_postgres=True,
    ),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What a clone has that the pages use."""
    for name in ("Makefile", "pyproject.toml", "requirements.lock", "scripts", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / ".venv").symlink_to(Path(sys.prefix))
    (tmp_path / "installed").touch()
    return tmp_path


@pytest.fixture
def shell(folder: Path) -> Iterator[Shell]:
    port = str(free_port())
    environ = clean_environment(
        PATH=f"{Path(sys.prefix) / 'bin'}:/usr/bin:/bin",
        GNOMON_SERVER__PORT=port,
        MAKEFLAGS="-o installed -- RUN_STAMP=installed",  # it must not touch our environment
        PYTHONUNBUFFERED="1",
        COLUMNS="200",
    )
    made = Shell(folder, environ)
    yield made
    made.close()


def filled(text: str, known: Mapping[str, str]) -> str:
    for name, value in known.items():
        text = text.replace(f"{{{name}}}", value)
    return text


@pytest.mark.parametrize("page", pages_with("console", "sh"))
def test_the_commands_of_a_page(page: str, shell: Shell, request: pytest.FixtureRequest) -> None:
    """From top to bottom, in one folder."""
    if shutil.which("curl") is None or shutil.which("psql") is None:
        pytest.skip("needs curl and psql")
    terminal = TERMINALS.get(page, Terminal())
    known = {"url": f"http://127.0.0.1:{shell.environ['GNOMON_SERVER__PORT']}"}
    if terminal.needs_postgres:
        known |= on_postgres(request.getfixturevalue("own_database"), shell)
    for name, text in terminal.files.items():
        (shell.folder / name).write_text(filled(text, known))
    for block in to_run(page, "python"):
        if block.file is not None:
            (shell.folder / block.file).write_text(block.text)
    shell.environ |= {name: filled(text, known) for name, text in terminal.environ.items()}
    shell.run([(command, []) for command in terminal.before])
    for block in to_run(page, "console", "sh"):
        text = block.text.replace(USUAL, known["url"])
        for usual, here in terminal.instead.items():
            text = text.replace(usual, filled(here, known))
        if "=> " not in text:  # a session of psql is in test_sql_blocks.py
            shell.run(steps_of(text, has_prompts=block.language == "console"))


def on_postgres(place: Mapping[str, str], shell: Shell) -> dict[str, str]:
    shell.environ |= {
        "PGHOST": place["host"],
        "PGPORT": place["port"],
        "PGUSER": place["user"],
        "PGDATABASE": place["dbname"],
    }
    return dict(place)


def test_the_first_screen_welcomes(shell: Shell) -> None:
    """The program of the README, run twice, and the worker that performs what it stored."""
    program, *_ = to_run("README.md", "python")
    assert "shop.py" == program.file
    (shell.folder / "shop.py").write_text(program.text)
    first, *_ = to_run("README.md", "console")
    shell.run([("python shop.py", [])])
    shell.run(steps_of(first.text, has_prompts=True))
    shell.wait_for("welcome, ann")


def test_steps_are_read_as_they_are_typed() -> None:
    """Quotes and backslashes go on; what has no prompt was printed."""
    text = "$ one '\nx'\n1\n$ two \\\n  three\n"
    assert [("one '\nx'", ["1"]), ("two \\\n  three", [])] == steps_of(text, has_prompts=True)
    assert [("one", []), ("two", [])] == steps_of("one\ntwo\n", has_prompts=False)
