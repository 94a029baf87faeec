"""docs/tutorial/sql.md is true: its blocks are run with psql, beside a worker."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from pathlib import Path
from uuid import uuid4

import pytest

from gnomon.app import App
from gnomon.executors.python import AttemptContext
from tests.fixtures.postgres import PostgresSchema

pytestmark = pytest.mark.acceptance

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "sql.md"


async def psql(dsn: str, script: str) -> str:
    command = ["psql", "-X", "-At", "-q", "-v", "ON_ERROR_STOP=1", dsn]
    done = await asyncio.to_thread(
        subprocess.run, command, input=script, capture_output=True, text=True, check=False
    )
    assert 0 == done.returncode, done.stderr
    return done.stdout


async def test_the_story_is_true(postgres_schema: PostgresSchema) -> None:
    """Rolled back: nothing. Committed: called soon. Cancelled: never."""
    if shutil.which("psql") is None:
        pytest.skip("there is no psql")
    dsn, schema = postgres_schema
    role = f"shop_{uuid4().hex[:8]}"
    page = PAGE.read_text().replace("gnomon.", f"{schema}.").replace("orders", f"{schema}.orders")
    blocks = re.findall(r"```sql\n(.*?)```", re.sub(r"\bshop\b", role, page), re.DOTALL)
    app = App(dsn, schema=schema)
    called: list[int] = []

    @app.action(name="remind")
    async def remind(context: AttemptContext, number: int) -> None:
        del context
        called.append(number)

    stop = asyncio.Event()
    async with app, asyncio.timeout(40):
        working = asyncio.create_task(app.work(stop))
        prepare, taken_back, kept, look = blocks
        await psql(dsn, prepare)
        try:
            await psql(dsn, taken_back)
            assert "" == await psql(dsn, look)
            await psql(dsn, kept)
            while "remind-2|completed|1" not in (seen := await psql(dsn, look)):
                await asyncio.sleep(0.1)
            assert "remind-2|completed|1\nremind-3|cancelled|0\n" == seen
            assert "2\n" == await psql(dsn, f"SELECT id FROM {schema}.orders")
        finally:
            await psql(dsn, f"DROP OWNED BY {role}; DROP ROLE {role};")
        stop.set()
        await working
    assert [2] == called
