"""The bench's side of `gnomon tasks`: the process, and what its rows say about it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import asyncpg
import msgspec

from benchmarks.processes import ROOT
from benchmarks.stand import Stand

READY_S = 30.0
WAIT_S = 600.0
LOOK_S = 0.1
READY = b"task_table_owned"


class TaskOwner(NamedTuple):
    """`gnomon tasks`, and a connection of the user's."""

    pid: int
    user: asyncpg.Connection


@asynccontextmanager
async def task_owner(stand: Stand, url: str) -> AsyncIterator[TaskOwner]:
    """`gnomon tasks` on a database, owning its table; a connection of the user's."""
    name = urlsplit(url).path.removeprefix("/")
    conf = msgspec.json.encode([{"data": name, "user": "postgres", "superuser": True}]).decode()
    log = stand.folder / f"tasks-{name}.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, *("-m", "gnomon", "tasks", "--dsn", url, "--conf", conf),
            cwd=ROOT, stderr=output, start_new_session=True,
        )  # fmt: skip
    user = None
    try:
        await _ready(log, process)
        user = await asyncpg.connect(url)
        yield TaskOwner(process.pid, user)
    finally:
        if user is not None:
            await user.close()
        process.terminate()
        await process.wait()


async def _ready(log: Path, process: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(READY_S):
        while READY not in log.read_bytes():
            if process.returncode is not None:
                raise RuntimeError(f"gnomon tasks ended:\n{log.read_text()}")
            await asyncio.sleep(LOOK_S)


async def insert(
    user: asyncpg.Connection, count: int, *, group: str, beside: int, live: str = "1 hour"
) -> int:
    """So many trivial tasks, on reused sessions unless `live` is 0, in one transaction; the first
    one's id."""
    last = await user.fetchval("SELECT coalesce(max(id), 0) FROM task")
    await user.execute(
        'INSERT INTO task ("group", max, live, input) '
        "SELECT $1, $2, $4::text::interval, 'SELECT 1' FROM generate_series(1, $3::int)",
        group, beside, count, live,
    )  # fmt: skip
    return int(last) + 1


async def performed(user: asyncpg.Connection, first: int, count: int) -> float:
    """Wait for the end of so many tasks; seconds from the first start to the last end."""
    async with asyncio.timeout(WAIT_S):
        while await user.fetchval(
            "SELECT EXISTS (SELECT FROM task WHERE id >= $1 AND id < $2 AND state <> 'DONE')",
            first, first + count,
        ):  # fmt: skip
            await asyncio.sleep(LOOK_S)
    found = await user.fetchval(
        "SELECT extract(epoch FROM max(stop) - min(start)) FROM task WHERE id >= $1 AND id < $2",
        first, first + count,
    )  # fmt: skip
    return float(found)
