"""What every peer's program has in common. It runs in the peer's own environment, so: the standard
library only, and no module of Gnomon.

A program has two roles. As a worker it speaks like every worker program. As a client it reads one
JSON object a line (a verb and what it is given) and answers with the seconds and the processor
seconds that the peer's own calls took, so that nothing of the pipe is measured.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, Protocol

from benchmarks.sides.worker import Tally, options, say

Due = float | None  # seconds since 1970; None: at once


class Client(Protocol):
    """What a scenario asks of a peer."""

    async def open(self) -> None:
        """Install the peer in an empty database."""
        ...

    async def create(self, due: Sequence[Due]) -> None:
        """Create no-ops the fastest way it has."""
        ...

    async def create_one(self, *, alone: bool) -> None:
        """Create one no-op, due at once; `alone`: no other call is under way."""
        ...

    async def waiting(self) -> int:
        """How many are not yet finished and recorded."""
        ...

    async def close(self) -> None: ...


async def create_singly(client: Client, count: int, callers: int) -> None:
    """One call each, by so many callers at a time."""
    left = iter(range(count))

    async def call_on() -> None:
        for _ in left:
            await client.create_one(alone=callers == 1)

    await asyncio.gather(*(call_on() for _ in range(callers)))


async def serve(client: Client) -> None:
    """Do what is asked until the input ends."""
    await client.open()
    say({"event": "ready"})
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        asked = json.loads(line)
        wall, processor = time.perf_counter(), time.process_time()
        value = await _done(client, asked)
        used = {"wall_s": time.perf_counter() - wall, "python_s": time.process_time() - processor}
        say({"event": "answer", "value": value, **used})
    await client.close()


async def _done(client: Client, asked: dict[str, Any]) -> int | None:
    match asked["verb"]:
        case "create":
            await client.create(asked["due"])
        case "create_singly":
            await create_singly(client, asked["count"], asked["callers"])
        case "waiting":
            return await client.waiting()
        case verb:
            raise ValueError(f"no such verb: {verb}")
    return None


async def until_stopped(tally: Tally, working: Awaitable[Any]) -> None:
    """Return when the work ends by itself, or when the bench says so."""
    stopped = asyncio.create_task(asyncio.to_thread(tally.wait_stop))
    await asyncio.wait({asyncio.ensure_future(working), stopped}, return_when="FIRST_COMPLETED")


def together(due: Sequence[Due], most: int) -> Iterator[tuple[Due, int]]:
    """Runs of one due time, none longer than `most`: for peers that take one time for a bulk."""
    for at, group in groupby(due):
        left = len(list(group))
        while left:
            count = min(left, most)
            yield at, count
            left -= count


def run_program(
    client_of: Callable[[dict[str, Any]], Client],
    work: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    """The main function of a peer's program."""
    given = options()

    async def main() -> None:
        await (serve(client_of(given)) if given["role"] == "client" else work(given))

    asyncio.run(main())
