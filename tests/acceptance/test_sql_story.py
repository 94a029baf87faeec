"""docs/tutorial/sql.md is true: a worker process, psql, and a receiver of HTTP calls."""

from __future__ import annotations

import asyncio
import re
import shlex
import shutil
import subprocess
from datetime import datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from gnomon.app import App
from tests.fixtures.postgres import PostgresSchema
from tests.fixtures.processes import Processes
from tests.fixtures.receiver import Receiver, receiving

pytestmark = pytest.mark.acceptance

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "sql.md"
SECOND = timedelta(seconds=1)
AT_WORK = r"^working on "


async def psql(dsn: str, script: str) -> str:
    command = ["psql", "-X", "-At", "-q", "-v", "ON_ERROR_STOP=1", dsn]
    done = await asyncio.to_thread(
        subprocess.run, command, input=script, capture_output=True, text=True, check=False
    )
    assert 0 == done.returncode, done.stderr
    return done.stdout


class Story:
    """The blocks of the page, with names of the test's own in place of the page's."""

    def __init__(self, place: PostgresSchema, receiver_url: str) -> None:
        self.dsn, self.schema = place
        self.role = f"shop_{uuid4().hex[:8]}"
        page = PAGE.read_text().replace("https://shop.example", receiver_url)
        page = page.replace("gnomon.", f"{self.schema}.").replace("orders", f"{self.schema}.orders")
        page = re.sub(r"\bshop\b", self.role, page)
        (command,) = re.findall(r"```sh\ngnomon (.*?)\n```", page)
        words = shlex.split(command.replace("postgresql://gnomon@localhost/gnomon", self.dsn))
        self.command = [*words, "--schema", self.schema]
        self.prepare, self.taken_back, self.kept, self.many, self.look = re.findall(
            r"```sql\n(.*?)```", page, re.DOTALL
        )

    async def completed(self, id: str) -> str:
        """What the page's last block shows once a task is over."""
        while f"{id}|completed" not in (seen := await psql(self.dsn, self.look)):
            await asyncio.sleep(0.1)
        return seen


@pytest.fixture(autouse=True)
def _psql() -> None:
    if shutil.which("psql") is None:
        pytest.skip("there is no psql")


async def test_the_story_is_true(postgres_schema: PostgresSchema, processes: Processes) -> None:
    """Rolled back: nothing. Committed: called within the second it is planned for. Cancelled:
    never."""
    async with receiving() as receiver, asyncio.timeout(50):
        story = Story(postgres_schema, receiver.url)
        environ = {"GNOMON_HTTP_ALLOW_LOOPBACK": "true"}
        worker = processes.start_gnomon(*story.command, env=environ)
        await asyncio.to_thread(worker.wait_for_line, AT_WORK)
        await psql(story.dsn, story.prepare)
        try:
            await psql(story.dsn, story.taken_back)
            assert "" == await psql(story.dsn, story.look)
            await psql(story.dsn, story.kept)
            assert "remind-1\nremind-2\nremind-3\nt\nt\nt\n" == await psql(story.dsn, story.many)
            seen = await story.completed("pack-2")
            reminders = "".join(f"remind-{n}|cancelled|0\n" for n in (1, 2, 3))
            rest = "ask-2|cancelled|0\npack-2|completed|1\n" + reminders
            assert f"{rest}thank-2|completed|1\n" == seen
            assert "2\n" == await psql(story.dsn, f"SELECT id FROM {story.schema}.orders")
        finally:
            await psql(story.dsn, f"DROP OWNED BY {story.role}; DROP ROLE {story.role};")
        assert 0 == await asyncio.to_thread(worker.stop)
        check_calls(receiver)
        await check_times(story)


def check_calls(receiver: Receiver) -> None:
    assert ["/thank", "/pack"] == [request.path for request in receiver.requests]
    assert [b'{"order":2}'] * 2 == receiver.bodies


async def check_times(story: Story) -> None:
    """By the store's own record: begun in the second that was asked for, and never early."""
    async with App(story.dsn, schema=story.schema) as app:
        for id in ("thank-2", "pack-2"):
            action = await app.scheduler.get(id)
            attempt, planned = action.status.last_attempt, action.spec.start_at
            assert attempt is not None
            assert isinstance(planned, datetime)
            assert timedelta(0) <= attempt.began_at - planned < SECOND, id
