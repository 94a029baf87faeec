"""awa (awa-pg, a Rust core): COPY into its queue storage, several claimers, quick promotion of what
becomes due."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from awa import AsyncClient

from benchmarks.peers.program import Due, run_program, together, until_stopped
from benchmarks.sides.worker import Tally

QUEUE = "bench"
BULK = 5_000
CONNECTIONS = 20
SHUTDOWN_MS = 5_000
LEADER_MS = 500  # who promotes is elected; the workers are new


@dataclass
class Noop:
    """The arguments of the no-op: when it is due, if later."""

    due: float | None = None


class AwaClient:
    """Creates and looks."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._client = AsyncClient(given["url"], CONNECTIONS)

    async def open(self) -> None:
        await self._client.migrate()
        await self._client.install_queue_storage()  # at once, as nobody has to move there first

    async def create(self, due: Sequence[Due]) -> None:
        for at, count in together(due, BULK):
            jobs = [Noop(at) for _ in range(count)]
            await self._client.enqueue_many_copy(jobs, queue=QUEUE, run_at=_time(at))

    async def create_one(self, *, alone: bool) -> None:  # noqa: ARG002
        await self._client.insert(Noop(), queue=QUEUE)

    async def waiting(self) -> int:
        """Nobody asks: `queue_stats` takes seconds, and would be most of what is measured. So the
        recording of its last actions is not counted, which is to awa's favour."""
        return 0

    async def close(self) -> None:
        await self._client.close()


def _time(at: Due) -> datetime | None:
    return None if at is None else datetime.fromtimestamp(at, UTC)


async def work(given: dict[str, Any]) -> None:
    tally, timed = Tally(), given["timed"]
    client = AsyncClient(given["url"], CONNECTIONS)

    @client.task(Noop, queue=QUEUE)
    async def noop(job: Any) -> None:
        if timed:
            tally.add_call(job.args.due)
        else:
            tally.add()

    await asyncio.to_thread(tally.wait_go)
    queue = {
        "name": QUEUE,
        "max_workers": given["max_workers"],
        "claimers": given["claimers"],
        "claim_batch_size": given["claim_batch_size"],
    }
    await client.start(
        [queue],
        poll_interval_ms=given["poll_interval_ms"],
        promote_interval_ms=given["promote_interval_ms"],
        leader_election_interval_ms=LEADER_MS,
    )
    await until_stopped(tally, asyncio.Event().wait())
    await client.shutdown(SHUTDOWN_MS)
    await client.close()
    tally.bye()


if __name__ == "__main__":
    run_program(AwaClient, work)
