"""A Gnomon worker process: an app with one function that does nothing, as a user would write it."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time

import uvloop

# Loaded by who begins to work, so here before the word: a process begins once.
import gnomon.executors.http.executor
import gnomon.stages.relays
import gnomon.stages.service
import gnomon.worker.pump
from benchmarks.profiling import StoreProfile
from benchmarks.sides.worker import Tally, options
from gnomon.app import App
from gnomon.cli.process import calm_collector
from gnomon.config import HttpConfig, Settings
from gnomon.config.targets import TargetTable
from gnomon.contracts.observer import SilentObserver
from gnomon.executors.python import AttemptContext
from gnomon.model.secret import Secret

EVENTS_MAX = 100
SIGNING_KEY = "whsec_" + "A" * 44


class Complaints(SilentObserver):
    """Writes the first events to the worker's log, and no metrics: a failing store must show."""

    def __init__(self) -> None:
        self._left = EVENTS_MAX

    def event(self, name: str, /, **fields: object) -> None:
        if self._left:
            self._left -= 1
            print(time.strftime("%H:%M:%S"), name, fields, file=sys.stderr, flush=True)


class NoTally:
    """In place of an `AttemptTally`: counts nothing."""

    def begun(self, _counts: object) -> None: ...

    def ended(self, _queue: str, _finish: object, _late_s: float, _took_s: float) -> None: ...

    def settled(self, _settlements: object) -> None: ...

    def take(self) -> dict[str, list[int]]:
        return {}


def settings_for(signed: str | None) -> Settings:
    """With a receiver on this machine whose calls are signed, if there is to be one."""
    if signed is None:
        return Settings()
    options = {"url_prefix": signed, "signing_keys": (Secret(SIGNING_KEY),)}
    return Settings(
        http=HttpConfig(allow_loopback=True),
        targets={"receiver": TargetTable("receiver", "http", options)},
    )


async def work(url: str, *, profiled: bool, signed: str | None, timed: bool) -> None:
    tally = Tally()
    app = App(url, settings=settings_for(signed), observer=Complaints(), migrate=True)

    @app.action(name="noop")
    async def noop(attempt: AttemptContext) -> None:
        if timed:
            tally.add_call(attempt.scheduled_at.timestamp(), attempt.id)
        else:
            tally.add()

    profile = StoreProfile()
    async with app:
        if profiled:
            profile.attach(app)
        calm_collector()  # as `gnomon worker` does
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
    if not given["tallied"]:
        setattr(gnomon.worker.pump, "AttemptTally", NoTally)  # noqa: B010 - it is not exported
    uvloop.run(
        work(
            given["url"],
            profiled=given["profiled"],
            signed=given["signed"],
            timed=given["timed"],
        )
    )
