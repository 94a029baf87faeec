"""What was committed gets from SQLite's log into its file beside the writer, and the log stays
bounded."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

import pytest

from gnomon.clock import SystemClock
from gnomon.contracts.observer import SilentObserver
from gnomon.stores.sqlite import ThreadRunner, checkpointer
from gnomon.stores.sqlite.checkpointer import Checkpointer
from gnomon.stores.sqlite.connection import connect

PATIENCE_S = 20.0
KIB = 1024
ROW_BYTES = 100 * KIB


class Listener(SilentObserver):
    def __init__(self) -> None:
        self.events: list[str] = []

    def event(self, name: str, /, **fields: object) -> None:
        self.events.append(name)


async def eventually(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():
            await asyncio.sleep(0.01)


def put_row(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO big (bytes) VALUES (zeroblob(?))", (ROW_BYTES,))


def make_table(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE big (bytes BLOB)")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "gnomon.db"


def log_bytes(path: Path) -> int:
    return path.with_name(path.name + "-wal").stat().st_size


@pytest.fixture
async def runner(path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ThreadRunner]:
    """Four rows are a reason to look after the log, and twenty its bound."""
    monkeypatch.setattr(checkpointer, "CHANGES_MAX", 4 * checkpointer.COMMIT_COUNTS)
    monkeypatch.setattr(checkpointer, "LOG_PAGES_MAX", 20 * ROW_BYTES // 4096)
    opened = ThreadRunner(str(path), clock=SystemClock(), observer=SilentObserver())
    await opened.write(make_table)
    yield opened
    await opened.close()


async def test_what_is_committed_gets_into_the_file_beside_the_writer(
    runner: ThreadRunner, path: Path
) -> None:
    """Long before the writer's own bound."""
    for _ in range(10):
        await runner.write(put_row)
    await eventually(lambda: path.stat().st_size > 3 * ROW_BYTES)


async def test_the_log_is_bounded(runner: ThreadRunner, path: Path) -> None:
    """Also while there is no moment at which nobody writes."""
    longest = 0
    for _ in range(200):
        await runner.write(put_row)
        longest = max(longest, log_bytes(path))
    assert longest < 60 * ROW_BYTES
    await eventually(lambda: path.stat().st_size > 100 * ROW_BYTES)


async def test_a_log_that_had_to_grow_is_cut_back(runner: ThreadRunner, path: Path) -> None:
    """Somebody reads one snapshot for long: nothing of the log can begin anew meanwhile."""
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM big").fetchone()
        for _ in range(100):
            await runner.write(put_row)
        assert log_bytes(path) > 90 * ROW_BYTES
        reader.execute("COMMIT")

    async def cut_back() -> None:
        while log_bytes(path) > 30 * ROW_BYTES:
            await runner.write(put_row)

    await asyncio.wait_for(cut_back(), PATIENCE_S)


async def test_a_checkpoint_that_fails_is_told_and_stops_nobody(path: Path) -> None:
    """A full disk, say: who commits hears of it there. The next is tried when it is time again."""
    writer, broken, listener = connect(str(path)), connect(str(path)), Listener()
    make_table(writer)
    keeper = Checkpointer(writer, broken, listener)
    broken.close()
    for times in (1, 2):
        for _ in range(checkpointer.CHANGES_MAX // checkpointer.COMMIT_COUNTS):
            keeper.note(writer)
        await eventually(lambda: len(listener.events) == times)  # noqa: B023 - awaited here
    put_row(writer)
    keeper.close()
    writer.close()
    assert ["store_checkpoint_failed"] * 2 == listener.events


async def test_a_memory_database_has_none() -> None:
    """It has no log."""
    opened = ThreadRunner(":memory:", clock=SystemClock(), observer=SilentObserver())
    await opened.write(make_table)
    await opened.write(put_row)
    await opened.close()
    assert opened._checkpointer is None
