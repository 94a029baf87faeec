"""A process that serves a stage over gRPC, as another team would."""

from __future__ import annotations

import asyncio

import uvloop

from benchmarks.sides.stage_chain import Remote
from benchmarks.sides.worker import Tally, options
from gnomon.stages.stage_server import serve_stage


async def serve(address: str) -> None:
    tally = Tally()
    stop = asyncio.Event()
    serving = asyncio.create_task(serve_stage("ad", Remote(), address, stop=stop))
    await asyncio.to_thread(tally.wait_go)
    await asyncio.to_thread(tally.wait_stop)
    stop.set()
    await serving
    tally.bye()


if __name__ == "__main__":
    uvloop.run(serve(options()["address"]))
