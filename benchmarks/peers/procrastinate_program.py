"""procrastinate: batched defer, psycopg with its binary part, many jobs at once in each worker,
quick polling for what becomes due."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import uvloop
from procrastinate import App, PsycopgConnector

from benchmarks.peers.program import Due, run_program, together, until_stopped
from benchmarks.sides.worker import Tally

BULK = 1_000
CONNECTIONS = 16


def make_app(url: str, perform: Callable[[Due], None]) -> tuple[App, Any]:
    """The app and its no-op, as both ends use it."""
    app = App(connector=PsycopgConnector(conninfo=url, min_size=4, max_size=CONNECTIONS + 2))

    @app.task(name="noop")
    async def noop(due: float | None = None) -> None:
        perform(due)

    return app, noop


class ProcrastinateClient:
    """Creates and looks."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._app, self._noop = make_app(given["url"], lambda _due: None)

    async def open(self) -> None:
        await self._app.open_async()
        await self._app.schema_manager.apply_schema_async()

    async def create(self, due: Sequence[Due]) -> None:
        for at, count in together(due, BULK):
            when = None if at is None else datetime.fromtimestamp(at, UTC)
            jobs = [{"due": at}] * count
            await self._noop.configure(schedule_at=when).batch_defer_async(*jobs)

    async def create_one(self, *, alone: bool) -> None:  # noqa: ARG002
        await self._noop.defer_async()

    async def waiting(self) -> int:
        queues = await self._app.job_manager.list_queues_async()
        return sum(queue["todo"] + queue["doing"] for queue in queues)

    async def close(self) -> None:
        await self._app.close_async()


async def work(given: dict[str, Any]) -> None:
    tally, timed = Tally(), given["timed"]
    perform = tally.add_call if timed else lambda _due: tally.add()
    app, _ = make_app(given["url"], perform)
    async with app.open_async():
        await asyncio.to_thread(tally.wait_go)
        working = asyncio.create_task(
            app.run_worker_async(
                concurrency=given["concurrency"],
                fetch_job_polling_interval=given["polling_s"],
                delete_jobs=given["delete_jobs"],
                install_signal_handlers=False,
            )
        )
        await until_stopped(tally, working)
        working.cancel()  # it ends what runs first
        await asyncio.gather(working, return_exceptions=True)
    tally.bye()


if __name__ == "__main__":
    uvloop.install()
    run_program(ProcrastinateClient, work)
