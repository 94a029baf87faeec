"""Runs one scenario after the other, keeps every result at once, ends well when interrupted."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import asyncpg

from benchmarks.calibration import Gauge, is_disturbed
from benchmarks.peers.peer import PEERS, Peers
from benchmarks.progress import Progress, Step
from benchmarks.report import RUNS, Run, circumstances, commit, plain, save
from benchmarks.scale import Scale
from benchmarks.scenarios import SCENARIOS
from benchmarks.stand import Interrupted, Stand, stand_for

REFRESH_S = 1.0


class Runner:
    """One measurement."""

    def __init__(self, scale: Scale, progress: Progress, run: Run, path: Path) -> None:
        self._scale = scale
        self._progress = progress
        self._gauge = Gauge()
        self._peers = Peers()
        self.run = run
        self._path = path

    async def measure(self, steps: Sequence[Step], peers: Sequence[str], *, profiled: bool) -> None:
        await self._prepare([p.key for p in PEERS if p.key in peers], {s.engine for s in steps})
        for engine, group in groupby(steps, key=lambda step: step.engine):
            with stand_for(
                "postgres" if engine == "postgres" else "sqlite",
                self._scale,
                self._progress,
                self._gauge,
                self._peers,
                profiled=profiled,
            ) as stand:
                if stand.server is not None:
                    self.run.about["postgres"] = await server_version(stand)
                for step in group:
                    await self._measure_step(stand, step)
                    if self.run.interrupted:
                        return

    async def _prepare(self, keys: Sequence[str], engines: set[str]) -> None:
        wanted = [peer for peer in PEERS if peer.key in keys and peer.engine in engines]
        if wanted:
            self._progress.say(f"peers: {', '.join(peer.name for peer in wanted)}")
        await self._peers.prepare(wanted)
        for why in self._peers.missing.values():
            self._progress.say(why)
        self.run.missing = dict(self._peers.missing)
        self.run.about["peers"] = [p.name for p in wanted if p.key in self._peers.pythons]

    async def _measure_step(self, stand: Stand, step: Step) -> None:
        """A scenario that breaks is named in the run, and the others go on."""
        self._progress.begin(step)
        try:
            async for result in SCENARIOS[step.scenario].measure(stand):
                self.run.results.append(result)
                self._keep()
        except (Interrupted, asyncio.CancelledError):
            self.run.interrupted = True
        except Exception as exc:  # a scenario may break in any way, and the run goes on
            self._progress.say(f"{step} failed:\n{traceback.format_exc()}")
            self.run.failed.append(f"{step}: {type(exc).__name__}")
        self.run.interrupted = self.run.interrupted or stand.interrupted
        self.run.failed += [f"{step}, {trouble}" for trouble in stand.troubles]
        stand.troubles.clear()
        self.run.took_s[str(step)] = self._progress.end()
        self._keep()

    def _keep(self) -> None:
        """Write down all that is there."""
        taken = self._gauge.taken
        if taken:
            best = self._gauge.best
            self.run.best = best
            self.run.calibrations = len(taken)
            self.run.disturbed = sum(is_disturbed([each], best) for each in taken)
        save(self.run, self._path)


async def server_version(stand: Stand) -> str:
    """The version, after checking that the server is durable: else no figure means anything."""
    assert stand.server is not None
    connection = await asyncpg.connect(stand.server.dsn)
    try:
        for name in ("fsync", "synchronous_commit", "full_page_writes"):
            value = await connection.fetchval(f"SHOW {name}")
            if value != "on":
                raise RuntimeError(f"{name} is {value}")
        return str(await connection.fetchval("SHOW server_version"))
    finally:
        await connection.close()


async def measure_all(
    steps: Sequence[Step],
    scale: Scale,
    *,
    peers: Sequence[str],
    profiled: bool = False,
    quick: bool = False,
    folder: Path = RUNS,
) -> Run:
    """Measure, keep and show; what is measured when somebody interrupts is kept as well."""
    progress = Progress(steps)
    about = circumstances(
        quick=quick, rounds=scale.rounds, scenarios=sorted({s.scenario for s in steps})
    )
    path = folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{commit()}.json"
    runner = Runner(scale, progress, Run(about=about), path)
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    refreshing = asyncio.create_task(keep_refreshing(progress))
    try:
        await runner.measure(steps, peers, profiled=profiled)
    except (asyncio.CancelledError, Interrupted):
        runner.run.interrupted = True
    finally:
        refreshing.cancel()
        progress.close()
        asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
    save(runner.run, path)
    tell(runner.run, path)
    return runner.run


async def keep_refreshing(progress: Progress) -> None:
    while True:
        await asyncio.sleep(REFRESH_S)
        progress.refresh()


def tell(run: Run, path: Path) -> None:
    """What people want to know at the end."""
    lines = [
        plain(run),
        "",
        f"machine disturbed in {run.disturbed} of {run.calibrations} calibrations",
    ]
    missed = [f"{r.scenario} ({r.engine})" for r in run.results if r.met is False]
    lines += [f"goals missed: {', '.join(missed)}"] if missed else []
    lines += [f"not there: {why}" for why in run.missing.values()]
    lines += [f"failed: {name}" for name in run.failed]
    lines += ["interrupted: only what was finished is kept"] if run.interrupted else []
    print("\n".join([*lines, f"written to {path}"]), file=sys.stderr)
