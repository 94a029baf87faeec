"""A Gnomon worker process: an app with one function that does nothing, as a user would write it."""

from __future__ import annotations

import asyncio
import os
import socket

import uvloop

from benchmarks.profiling import StoreProfile
from benchmarks.sides.worker import Tally, options
from gnomon.app import App
from gnomon.executors.python import AttemptContext


async def work(url: str, *, profiled: bool) -> None:
    tally = Tally()
    app = App(url)

    @app.action(name="noop")
    async def noop(_attempt: AttemptContext) -> None:
        tally.add()

    profile = StoreProfile()
    async with app:
        if profiled:
            profile.attach(app)
        await asyncio.to_thread(tally.wait_go)
        stop = asyncio.Event()
        working = asyncio.create_task(app.work(stop))
        stopped = asyncio.create_task(asyncio.to_thread(tally.wait_stop))
        await asyncio.wait({working, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stop.set()
        await working
    tally.bye(profile=profile.rows(), owner=f"{socket.gethostname()}/{os.getpid()}")


if __name__ == "__main__":
    given = options()
    uvloop.run(work(given["url"], profiled=given["profiled"]))
