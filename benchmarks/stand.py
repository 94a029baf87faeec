"""The stand: what a scenario needs to measure on one engine: fresh databases, calibrated rounds."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import asyncpg

from benchmarks.calibration import Calibration, Gauge, is_disturbed, strain
from benchmarks.peers.peer import OpenPeer, Peer, Peers, Settings, opened_peer
from benchmarks.processes import WorkerDied
from benchmarks.progress import Progress
from benchmarks.scale import Engine, Scale
from tests.fixtures.postgres import PostgresServer, find_binaries

T = TypeVar("T")

# Durable, and otherwise as anybody would set it up on a machine of this size: the checkpoints of a
# small `max_wal_size` would hit one side or the other by chance.
SERVER_SETTINGS: Mapping[str, str] = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "512MB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "30min",
    "wal_compression": "off",
    "autovacuum_naptime": "1min",  # autovacuum as Debian ships it; the tests' servers are quicker
}


class Round(NamedTuple, Generic[T]):
    """What a round gave, and how the machine was before and after it."""

    value: T
    around: tuple[Calibration, Calibration]


class Interrupted(Exception):  # noqa: N818 - what happened
    """Somebody wants the measurement to end."""


@dataclass(slots=True)
class Stand:
    """One engine, ready to be measured on."""

    engine: Engine
    scale: Scale
    folder: Path
    progress: Progress
    gauge: Gauge
    all_peers: Peers
    profiled: bool = False
    server: PostgresServer | None = None
    interrupted: bool = False
    troubles: list[str] = field(default_factory=list)  # of peers, by scenario
    numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def worker_count(self) -> int:
        """Worker processes of Gnomon: SQLite has one writer."""
        return 2 if self.engine == "postgres" else 1

    @property
    def peers(self) -> list[Peer]:
        """Those on this engine that are installed."""
        return self.all_peers.on(self.engine)

    @asynccontextmanager
    async def opened_peer(
        self, peer: Peer, url: str, settings: Settings | None = None
    ) -> AsyncIterator[OpenPeer]:
        async with opened_peer(self.all_peers, peer, url, self.folder, settings) as found:
            yield found

    async def beside(self, measure: Callable[[Peer], Awaitable[T]]) -> dict[Peer, T]:
        """The same with every peer. One that breaks is named in the report, and others go on."""
        found = {}
        for peer in self.peers:
            try:
                found[peer] = await measure(peer)
            except (WorkerDied, TimeoutError, RuntimeError) as exc:
                trouble = f"{peer.name}: {str(exc).strip().splitlines()[-1][:200]}"
                self.say(f"{peer.name} failed: {exc}")
                if trouble not in self.troubles:
                    self.troubles.append(trouble)
        return found

    def say(self, text: str) -> None:
        """A line for people, beside the results."""
        self.progress.say(text)

    async def rounds(
        self, one: Callable[[], Awaitable[T]], *, count: int | None = None, again: bool = True
    ) -> list[Round[T]]:
        """So many rounds, a calibration before and after each. One on a disturbed machine is
        repeated some times (`again`), and the least disturbed is kept. What is done when somebody
        interrupts is kept, too."""
        wanted = self.scale.rounds if count is None else count
        done: list[Round[T]] = []
        while len(done) < wanted and not self.interrupted:
            try:
                done.append(await self._round(one, len(done) + 1, wanted, again=again))
            except asyncio.CancelledError:
                self.interrupted = True
                task = asyncio.current_task()
                assert task is not None
                task.uncancel()  # we end in our own way: with what is there
        if not done:
            raise Interrupted
        return done

    async def once(self, one: Callable[[], Awaitable[T]], *, again: bool = True) -> Round[T]:
        """One round, for what takes long."""
        (found,) = await self.rounds(one, count=1, again=again)
        return found

    async def _round(
        self, one: Callable[[], Awaitable[T]], number: int, count: int, *, again: bool
    ) -> Round[T]:
        tried: list[Round[T]] = []
        for repeat in range(1 + (self.scale.repeats if again else 0)):
            self.progress.round(number, count, again=repeat)
            before = await asyncio.to_thread(self.gauge.take, self.folder)
            value = await one()
            tried.append(
                Round(value, (before, await asyncio.to_thread(self.gauge.take, self.folder)))
            )
            if not is_disturbed(tried[-1].around, self.gauge.best):
                break
            self.say("the machine was disturbed in this round")
        best = self.gauge.best
        return min(tried, key=lambda each: max(strain(c, best) for c in each.around))

    @asynccontextmanager
    async def database(self) -> AsyncIterator[str]:
        """The URL of a new and empty database, dropped afterwards."""
        name = f"bench_{next(self.numbers)}"
        if self.server is None:
            folder = self.folder / name
            folder.mkdir()
            yield f"sqlite:///{folder / 'bench.db'}"
            shutil.rmtree(folder, ignore_errors=True)
            return
        admin = self.server.dsn
        await statement(admin, f"CREATE DATABASE {name}")
        yield f"{admin.rpartition('/')[0]}/{name}"
        await statement(admin, f"DROP DATABASE {name} WITH (FORCE)")

    async def settle(self, url: str) -> None:
        """Let no former work be paid for by what is measured next."""
        if self.server is not None:
            await statement(url, "CHECKPOINT")

    async def analyze(self, url: str) -> None:
        """As autovacuum would have done by and by."""
        if self.server is not None:
            await statement(url, "VACUUM ANALYZE")


async def statement(dsn: str, text: str) -> None:
    """One statement on a connection of its own."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(text)
    finally:
        await connection.close()


@contextmanager
def stand_for(
    engine: Engine,
    scale: Scale,
    progress: Progress,
    gauge: Gauge,
    peers: Peers,
    *,
    profiled: bool = False,
) -> Iterator[Stand]:
    """Set a stand up and take it down again."""
    folder = Path(tempfile.mkdtemp(prefix="gnomon-bench-"))
    stand = Stand(engine, scale, folder, progress, gauge, peers, profiled)
    try:
        if engine == "sqlite":
            yield stand
        else:
            with PostgresServer(durable=True, settings=server_settings(profiled)) as server:
                stand.server = server
                yield stand
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def server_settings(profiled: bool) -> dict[str, str]:
    settings = dict(SERVER_SETTINGS)
    if profiled and has_statement_account():
        settings["shared_preload_libraries"] = "pg_stat_statements"
    return settings


def has_statement_account() -> bool:
    """Whether pg_stat_statements is installed with the server."""
    program = find_binaries() / "pg_config"
    if not program.exists():
        version = find_binaries().parent.name
        return Path(f"/usr/lib/postgresql/{version}/lib/pg_stat_statements.so").exists()
    told = subprocess.run([program, "--pkglibdir"], capture_output=True, text=True, check=True)
    return (Path(told.stdout.strip()) / "pg_stat_statements.so").exists()
