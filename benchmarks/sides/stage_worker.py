"""A worker process with stages: the chain of four, or one that another process serves."""

from __future__ import annotations

import asyncio

import uvloop

from benchmarks.sides.gnomon_worker import Complaints
from benchmarks.sides.stage_chain import Document, chain
from benchmarks.sides.worker import Tally, options
from gnomon.app import App
from gnomon.cli.process import calm_collector
from gnomon.stages import Stages


async def work(url: str, *, remote: str | None, fused: bool) -> None:
    tally = Tally()
    async with App(url, observer=Complaints(), migrate=True) as app:
        stages: Stages[Document] = Stages(app, "ad")
        if remote is None:
            stages.add(*chain(fused=fused))
        else:
            stages.remote("s1", remote, tls=False, backfill=False)
        await asyncio.to_thread(tally.wait_go)
        calm_collector()  # as `gnomon worker` does
        stop = asyncio.Event()
        working = asyncio.create_task(app.work(stop))
        stopped = asyncio.create_task(asyncio.to_thread(tally.wait_stop))
        await asyncio.wait({working, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stop.set()
        await working
    tally.bye()


if __name__ == "__main__":
    given = options()
    uvloop.run(work(given["url"], remote=given["remote"], fused=given["fused"]))
