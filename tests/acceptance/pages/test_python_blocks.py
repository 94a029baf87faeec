"""Every Python block of the pages is executed as it is printed, page by page."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import gnomon
from tests.acceptance.pages.blocks import Block, pages_with, to_run
from tests.acceptance.pages.preludes import POSTGRES, PRELUDES, Prelude
from tests.fixtures.postgres import PostgresSchema
from tests.fixtures.up import clean_environment

pytestmark = pytest.mark.acceptance

PATIENCE_S = 60


async def execute(text: str, names: dict[str, Any], label: str) -> None:
    """As Python would, with `await` and `async with` at the top."""
    code = compile(text, label, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(code, names)
    if inspect.iscoroutine(result):
        await result


@asynccontextmanager
async def names_of(prelude: Prelude, place: PostgresSchema | None) -> AsyncIterator[dict[str, Any]]:
    names: dict[str, Any] = {"gnomon": gnomon, "__name__": "page"}
    async with AsyncExitStack() as stack:
        if place is not None:
            names["dsn"], names["schema"] = place
        if not prelude.makes_app:
            url = "sqlite:///page.db" if place is None else place[0]
            app = gnomon.App(url, schema=None if place is None else place[1], migrate=True)
            names["app"] = await stack.enter_async_context(app)
        await execute(prelude.code, names, "prelude")
        yield names
        for value in list(names.values()):
            if isinstance(value, gnomon.App) or type(value).__module__.startswith("asyncpg."):
                await value.close()


@pytest.mark.parametrize("page", pages_with("python"))
async def test_the_blocks_of_a_page(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """In one namespace after the page's prelude; a block that is a file is run as a program."""
    monkeypatch.chdir(tmp_path)
    prelude = PRELUDES.get(page, Prelude())
    place = request.getfixturevalue("postgres_schema") if prelude.needs_postgres else None
    async with names_of(prelude, place) as names:
        for block in to_run(page, "python"):
            if block.file is not None:
                run_twice(block, tmp_path)
                continue
            await execute(prelude.between.get(block.number, ""), names, "between")
            text = on_the_test_database(block.text, place)
            for usual, here in prelude.instead.items():
                text = text.replace(usual, here)
            await execute(text, names, f"{page} #{block.number}")


def on_the_test_database(text: str, place: PostgresSchema | None) -> str:
    if place is None:
        return text
    return text.replace(f'"{POSTGRES}"', f'"{place[0]}", schema="{place[1]}"')


def run_twice(block: Block, folder: Path) -> None:
    """A program works in a folder where it has been before."""
    assert block.file is not None
    (folder / block.file).write_text(block.text)
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, block.file], cwd=folder, env=clean_environment(), timeout=PATIENCE_S,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert 0 == done.returncode, done.stderr


async def test_a_block_that_fails_is_noticed() -> None:
    """The test can fail."""
    names: dict[str, Any] = {}
    await execute("async def f(): return 1\nassert 1 == await f()", names, "right")
    with pytest.raises(NameError, match="nothing"):
        await execute("await nothing()", names, "wrong")
