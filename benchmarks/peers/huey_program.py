"""huey on SQLite: `synchronous=FULL`, no results, threads, quick polling. It has no bulk call, and
it forgets an action when it takes it up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from huey import SqliteHuey

from benchmarks.peers.program import Due, run_program
from benchmarks.sides.worker import Tally

CALLERS_MAX = 16


def make_huey(url: str, perform: Callable[[Due], None]) -> tuple[SqliteHuey, Any]:
    """The app and its no-op, as both ends use it. `fsync` makes a commit survive the machine; a
    function that returns None has no result, so none is kept."""
    path = str(Path(url.removeprefix("sqlite:///")).with_name("huey.db"))
    app = SqliteHuey("bench", filename=path, fsync=True, results=False, cache_mb=64)

    @app.task(name="noop")
    def noop(due: float | None = None) -> None:
        perform(due)

    return app, noop


class HueyClient:
    """Creates and looks; each concurrent caller is a thread."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._huey, self._noop = make_huey(given["url"], lambda _due: None)
        self._threads = ThreadPoolExecutor(CALLERS_MAX)

    async def open(self) -> None:
        await self.waiting()  # its tables are made

    async def create(self, due: Sequence[Due]) -> None:
        await asyncio.to_thread(self._create, due)

    def _create(self, due: Sequence[Due]) -> None:
        for at in due:
            if at is None:
                self._noop()
            else:
                self._noop.schedule(args=(at,), eta=datetime.fromtimestamp(at, UTC))

    async def create_one(self, *, alone: bool) -> None:  # noqa: ARG002
        await asyncio.get_running_loop().run_in_executor(self._threads, self._noop)

    async def waiting(self) -> int:
        return int(self._huey.pending_count()) + int(self._huey.scheduled_count())

    async def close(self) -> None:
        self._threads.shutdown()
        self._huey.storage.close()


async def work(given: dict[str, Any]) -> None:
    tally, timed = Tally(), given["timed"]
    perform = tally.add_call if timed else lambda _due: tally.add()
    app, _ = make_huey(given["url"], perform)
    consumer = app.create_consumer(
        workers=given["threads"],
        worker_type="thread",
        periodic=False,
        initial_delay=0.01,
        max_delay=0.05,
        scheduler_interval=1,
        check_worker_health=False,
    )
    await asyncio.to_thread(tally.wait_go)
    consumer.start()
    await asyncio.to_thread(tally.wait_stop)
    consumer.stop(graceful=True)
    tally.bye()


if __name__ == "__main__":
    run_program(HueyClient, work)
