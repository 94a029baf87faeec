"""One process that makes HTTP calls in a loop, with nothing remembered: by aiohttp as it is, which
is the floor of `callbacks`, or by our executor."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import uvloop

from benchmarks.sides.gnomon_worker import SIGNING_KEY
from benchmarks.sides.worker import Tally, options
from gnomon.contracts.observer import SilentObserver
from gnomon.executors.http import HttpConfig, HttpTarget
from gnomon.executors.http.executor import HttpExecutor
from gnomon.model.outcome import Succeeded
from gnomon.model.secret import Secret
from gnomon.model.spec import Http
from tests.conformance.executor.suite import order_of

Call = Callable[[], Awaitable[None]]


@asynccontextmanager
async def by_aiohttp(url: str, body: object, concurrency: int) -> AsyncIterator[Call]:
    connector = aiohttp.TCPConnector(limit_per_host=concurrency)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def call() -> None:
            async with session.post(url, json=body) as response:
                await response.read()
                assert response.status == 200

        yield call


@asynccontextmanager
async def by_executor(url: str, body: object, concurrency: int) -> AsyncIterator[Call]:
    config = HttpConfig(allow_loopback=True, connections_per_host_max=concurrency)
    target = HttpTarget(name="bench", url_prefix=url, signing_keys=(Secret(SIGNING_KEY),))
    executor = HttpExecutor(config, SilentObserver(), targets={"bench": target})
    order = order_of(Http("POST", url, json=body))

    async def call() -> None:
        assert isinstance(await executor.execute(order), Succeeded)

    yield call
    await executor.close()


async def work(given: dict[str, Any]) -> None:
    tally = Tally()
    left = iter(range(given["count"]))
    making = by_executor if given["by_executor"] else by_aiohttp
    async with making(given["url"], given["body"], given["concurrency"]) as call:

        async def call_on() -> None:
            for _ in left:
                await call()
                tally.add()

        await asyncio.to_thread(tally.wait_go)
        await asyncio.gather(*(call_on() for _ in range(given["concurrency"])))
        await asyncio.to_thread(tally.wait_stop)
    tally.bye()


if __name__ == "__main__":
    uvloop.run(work(options()))
