"""A PgQueuer worker process, by its public API: an asyncpg pool, uvloop as in its own CLI."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.models import Job

from benchmarks.sides.worker import Tally, options

POOL_SIZE = 4


async def work(dsn: str, *, batch_size: int, timed: bool) -> None:
    tally = Tally()
    async with asyncpg.create_pool(dsn, min_size=POOL_SIZE, max_size=POOL_SIZE) as pool:
        rival = PgQueuer.from_asyncpg_pool(pool)

        @rival.entrypoint("noop")
        async def noop(given: Job) -> None:
            if timed:
                tally.add_due(given.execute_after.timestamp())
            else:
                tally.add()

        await asyncio.to_thread(tally.wait_go)
        working = asyncio.create_task(
            rival.run(
                batch_size=batch_size,
                dequeue_timeout=timedelta(seconds=1),
                log_aggregation_interval=timedelta(0),  # off: it only costs
            )
        )
        stopped = asyncio.create_task(asyncio.to_thread(tally.wait_stop))
        await asyncio.wait({working, stopped}, return_when=asyncio.FIRST_COMPLETED)
        rival.shutdown.set()
        await working
    tally.bye()


if __name__ == "__main__":
    given = options()
    uvloop.run(work(given["dsn"], batch_size=given["batch_size"], timed=given["timed"]))
