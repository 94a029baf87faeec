"""`gnomon bench`: a small self-test: how fast does this machine store and drain no-ops?"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from gnomon.app import App
from gnomon.cli import options
from gnomon.cli.output import print_json, print_table, progress
from gnomon.cli.place import say_installation
from gnomon.cli.process import run
from gnomon.config import Settings
from gnomon.model.action import State
from gnomon.model.errors import BugError, GnomonError
from gnomon.model.spec import Mock, Spec
from gnomon.scheduler import Request

CHUNK = 2_000
POLL_S = 0.1
PATIENCE_S = 60.0  # without any progress

EPILOG = options.examples(
    "gnomon bench",
    "gnomon bench --count 50000 --database postgresql://gnomon@localhost/scratch",
)


@dataclass(frozen=True, slots=True)
class Result:
    """What was measured."""

    engine: str
    durability: str
    count: int
    create_s: float
    drain_s: float
    creates_per_s: int
    drains_per_s: int


@options.on_database
def bench(
    shared: options.DatabaseOptions,
    count: Annotated[
        int, typer.Option("--count", metavar="N", min=1, max=10_000_000, help="How many actions.")
    ] = 10_000,
) -> None:
    """Measure how fast actions are stored and performed.

    They do nothing. Without --database they are in a temporary SQLite file.
    """
    with tempfile.TemporaryDirectory(prefix="gnomon-bench-") as folder:
        settings = shared.settings
        if settings.source_of("database.url") != "flag":
            scratch = replace(settings.database, url=f"sqlite:///{Path(folder) / 'bench.db'}")
            settings = replace(settings, database=scratch, sources={"database.url": "bench"})
        result = run(_bench(settings, count))
    if shared.json:
        print_json(asdict(result))
    else:
        print_table(("measured", "value"), list(asdict(result).items()))


async def _bench(settings: Settings, count: int) -> Result:
    say_installation(settings)
    async with App(settings=settings, migrate=True) as app:
        done_before = (await app.store.actions.count()).get(State.DONE, 0)
        with progress() as bar:
            storing = bar.add_task("storing", total=count)
            began = time.perf_counter()
            for start in range(0, count, CHUNK):
                await _store(app, min(CHUNK, count - start))
                bar.advance(storing, min(CHUNK, count - start))
            create_s = time.perf_counter() - began
            draining = bar.add_task("draining", total=count)
            began = time.perf_counter()
            async for done in _drained(app, done_before, count):
                bar.update(draining, completed=done)
            drain_s = time.perf_counter() - began
        return Result(
            engine=app.installation.engine,
            durability=app.installation.durability,
            count=count,
            create_s=round(create_s, 3),
            drain_s=round(drain_s, 3),
            creates_per_s=round(count / create_s),
            drains_per_s=round(count / drain_s),
        )


async def _store(app: App, count: int) -> None:
    spec = Spec(action=Mock(), queue="bench")
    for result in await app.scheduler.create_many([Request(spec=spec)] * count):
        if isinstance(result, GnomonError):
            raise result


async def _drained(app: App, done_before: int, count: int) -> AsyncIterator[int]:
    """Work until all are done, telling how many are."""
    stop = asyncio.Event()
    working = asyncio.create_task(app.work(stop))
    done, changed_at = 0, time.monotonic()
    try:
        while done < count:
            await asyncio.wait({working}, timeout=POLL_S)
            if working.done():
                raise working.exception() or BugError("the worker ended by itself")
            now = (await app.store.actions.count()).get(State.DONE, 0) - done_before
            if now != done:
                done, changed_at = now, time.monotonic()
            elif time.monotonic() - changed_at > PATIENCE_S:
                raise BugError(f"nothing was done for {PATIENCE_S:g} s; {done} of {count} are done")
            yield done
    finally:
        stop.set()
        await working
