"""The floor of `callbacks`: aiohttp in a loop, with nothing remembered and nothing promised."""

from __future__ import annotations

import asyncio

import aiohttp
import uvloop

from benchmarks.sides.worker import Tally, options


async def work(url: str, *, count: int, concurrency: int, body: object) -> None:
    tally = Tally()
    left = iter(range(count))

    async def call_on() -> None:
        for _ in left:
            async with session.post(url, json=body) as response:
                await response.read()
                assert response.status == 200
            tally.add()

    connector = aiohttp.TCPConnector(limit_per_host=concurrency)
    async with aiohttp.ClientSession(connector=connector) as session:
        await asyncio.to_thread(tally.wait_go)
        await asyncio.gather(*(call_on() for _ in range(concurrency)))
        await asyncio.to_thread(tally.wait_stop)
    tally.bye()


if __name__ == "__main__":
    given = options()
    uvloop.run(
        work(
            given["url"],
            count=given["count"],
            concurrency=given["concurrency"],
            body=given["body"],
        )
    )
