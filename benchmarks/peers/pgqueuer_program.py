"""PgQueuer: bulk enqueue, its own autovacuum settings, an asyncpg pool, uvloop as in its CLI."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import asyncpg
import uvloop
from pgqueuer import PgQueuer, Queries
from pgqueuer.models import Job

from benchmarks.peers.program import Due, run_program, until_stopped
from benchmarks.sides.worker import Tally

BULK = 1_000  # rows of one enqueue call: more gains nothing
CLIENT_POOL = 16
WORKER_POOL = 4


class PgQueuerClient:
    """Creates and looks."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._url = given["url"]

    async def open(self) -> None:
        self._pool = await asyncpg.create_pool(
            self._url, min_size=CLIENT_POOL, max_size=CLIENT_POOL
        )
        self._connection = await asyncpg.connect(self._url)
        self._pooled = Queries.from_asyncpg_pool(self._pool)
        self._queries = Queries.from_asyncpg_connection(self._connection)
        await self._queries.install()
        await self._queries.optimize_autovacuum()

    async def create(self, due: Sequence[Due]) -> None:
        for start in range(0, len(due), BULK):
            part = due[start : start + BULK]
            now = time.time()
            after = [timedelta(0) if at is None else timedelta(seconds=at - now) for at in part]
            count = len(part)
            await self._queries.enqueue(["noop"] * count, [None] * count, [0] * count, after)

    async def create_one(self, *, alone: bool) -> None:
        # A pool costs a round trip more, so it is for those who need it.
        await (self._queries if alone else self._pooled).enqueue("noop", None)

    async def waiting(self) -> int:
        return sum(row.count for row in await self._queries.queue_size())

    async def close(self) -> None:
        await self._connection.close()
        await self._pool.close()


async def work(given: dict[str, Any]) -> None:
    tally, timed = Tally(), given["timed"]
    async with asyncpg.create_pool(
        given["url"], min_size=WORKER_POOL, max_size=WORKER_POOL
    ) as pool:
        peer = PgQueuer.from_asyncpg_pool(pool)

        @peer.entrypoint("noop")
        async def noop(job: Job) -> None:
            if timed:
                tally.add_call(job.execute_after.timestamp())
            else:
                tally.add()

        await asyncio.to_thread(tally.wait_go)
        working = asyncio.create_task(
            peer.run(
                batch_size=given["batch_size"],
                dequeue_timeout=timedelta(seconds=1),
                log_aggregation_interval=timedelta(0),  # off: it only costs
            )
        )
        await until_stopped(tally, working)
        peer.shutdown.set()
        await working
    tally.bye()


if __name__ == "__main__":
    uvloop.install()
    run_program(PgQueuerClient, work)
