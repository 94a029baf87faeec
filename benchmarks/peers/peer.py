"""The bench's side of the peers: which there are, with which settings, and how they are asked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.peers.environment import PeerMissing, python_of, version_of
from benchmarks.processes import AskedProcess, Crew, Program, Used, crew_of
from benchmarks.scale import Engine

Settings = Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Peer:
    """A peer: what it is called, and its settings, the best of them first."""

    key: str  # of its environment, its requirements and its program
    title: str
    package: str
    engine: Engine
    settings: tuple[Settings, ...]  # those that a sweep tries; the first was best on two cores
    slow: bool = False  # it is given fewer actions, for it would take minutes

    @property
    def name(self) -> str:
        return f"{self.title} {version_of(self.key, self.package)}"

    @property
    def module(self) -> str:
        return f"benchmarks.peers.{self.key}_program"

    def share(self, count: int) -> int:
        """How many of so many actions it is given: rates are compared, so fewer will do."""
        return max(1, count // SLOW_SHARE) if self.slow else count


SLOW_SHARE = 10
SETTLE = 10
SETTLE_AHEAD_S = 0.5
PEERS = (
    Peer(
        "pgqueuer", "PgQueuer", "pgqueuer", "postgres",
        tuple({"processes": 2, "batch_size": size} for size in (1_000, 250, 500, 2_000)),
    ),
    Peer(
        "awa", "awa", "awa-pg", "postgres",
        tuple(
            {
                "processes": 2, "max_workers": workers, "claimers": claimers,
                "claim_batch_size": 512, "poll_interval_ms": 10, "promote_interval_ms": 25,
            }
            for workers, claimers in ((512, 2), (256, 1), (1_024, 4))
        ),
    ),
    Peer(
        "procrastinate", "procrastinate", "procrastinate", "postgres",
        tuple(
            {
                "processes": 2, "concurrency": concurrency, "polling_s": 0.1,
                "delete_jobs": delete_jobs,
            }
            for concurrency, delete_jobs in ((10, "never"), (30, "never"), (10, "successful"))
        ),
        slow=True,
    ),
    Peer(
        "huey", "huey", "huey", "sqlite",
        tuple(
            {"processes": processes, "threads": threads}
            for processes, threads in ((2, 1), (1, 1), (1, 2), (2, 2))
        ),
    ),
)  # fmt: skip


@dataclass(slots=True)
class Peers:
    """The peers that are there on this machine, and why others are not."""

    pythons: dict[str, Path] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    best: dict[str, Settings] = field(default_factory=dict)  # as a sweep found

    async def prepare(self, peers: Sequence[Peer]) -> None:
        """Make their environments, if need be."""
        for peer in peers:
            try:
                self.pythons[peer.key] = await asyncio.to_thread(python_of, peer.key)
            except PeerMissing as exc:
                self.missing[peer.key] = str(exc)

    def on(self, engine: Engine) -> list[Peer]:
        return [peer for peer in PEERS if peer.engine == engine and peer.key in self.pythons]

    def settings(self, peer: Peer) -> Settings:
        return self.best.get(peer.key, peer.settings[0])


@dataclass(slots=True)
class OpenPeer:
    """A peer, installed in a database."""

    peer: Peer
    python: Path
    url: str
    folder: Path
    settings: Settings
    client: AskedProcess

    async def create(self, due: Sequence[float | None]) -> Used:
        return await self.client.ask(verb="create", due=list(due))

    async def create_singly(self, count: int, *, callers: int = 1) -> Used:
        return await self.client.ask(verb="create_singly", count=count, callers=callers)

    async def waiting(self) -> int:
        return int((await self.client.ask(verb="waiting")).value or 0)

    async def settled(self, crew: Crew) -> int:
        """Wait until its workers perform what becomes due later: some elect first who looks after
        that, as Gnomon's workers first share the shards. How many actions it took."""
        before = crew.count
        await self.create([time.time() + SETTLE_AHEAD_S] * SETTLE)
        await crew.performed(before + SETTLE)
        return SETTLE

    def crew(self, *, timed: bool = False) -> AbstractAsyncContextManager[Crew]:
        """Its worker processes; `timed`: they note when each was due and when it was called."""
        options = {"role": "worker", "url": self.url, "timed": timed, **self.settings}
        program = Program(self.peer.module, options, self.python)
        return crew_of(program, size=self.settings["processes"], folder=self.folder)


@asynccontextmanager
async def opened_peer(
    peers: Peers, peer: Peer, url: str, folder: Path, settings: Settings | None = None
) -> AsyncIterator[OpenPeer]:
    """Install a peer in this database, for as long as it is needed."""
    python = peers.pythons[peer.key]
    program = Program(peer.module, {"role": "client", "url": url}, python)
    log = folder / f"{peer.key}-client.log"
    client = await AskedProcess.start(program, log)
    try:
        await client.ready()
        chosen = settings or peers.settings(peer)
        yield OpenPeer(peer, python, url, folder, chosen, client)
    finally:
        await client.end()
