"""The stand: what a scenario needs to measure on one engine, fresh databases above all."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import asyncpg

from tests.fixtures.postgres import PostgresServer, find_binaries

Engine = Literal["postgres", "sqlite"]
ENGINES: tuple[Engine, ...] = ("postgres", "sqlite")

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
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much is measured: all of it, or just enough to see that it works."""

    rounds: int = 3  # of A and B in turn; the median counts
    drained: int = 50_000
    created: int = 10_000  # in one bulk call
    created_singly: int = 2_000
    created_by_sql: int = 100_000
    burst: int = 100_000
    burst_ahead_s: float = 5.0  # from the last created to the instant
    idle_count: int = 200
    idle_for_s: float = 20.0
    loaded_rate: int = 1_000
    loaded_for_s: float = 10.0
    pending: int = 1_000_000
    growth: tuple[int, ...] = (10_000, 100_000, 1_000_000)
    growth_batches: int = 15
    steady_for_s: float = 20.0
    snapshot_for_s: float = 60.0
    campaign: int = 2_000_000  # actions due at one moment, and cancelled before it
    campaign_for_s: float = 40.0
    memory_for_s: float = 15.0
    called: int = 20_000
    tasks: int = 10_000
    tasks_growth: tuple[int, ...] = (10_000, 100_000, 1_000_000)
    tasks_idle: int = 200
    staged: int = 40_000  # entities through stages
    walked: int = 100_000
    staged_bases: tuple[int, ...] = (10_000, 100_000, 1_000_000)
    sweep: int = 10_000  # actions per setting of a rival that is tried; 0: the known best is taken


FULL = Scale()
QUICK = Scale(
    rounds=1,
    drained=4_000,
    created=2_000,
    created_singly=200,
    created_by_sql=2_000,
    burst=5_000,
    burst_ahead_s=1.0,
    idle_count=40,
    idle_for_s=1.5,
    campaign=5_000,
    campaign_for_s=5.0,
    loaded_for_s=1.5,
    pending=50_000,
    growth=(1_000, 10_000, 50_000),
    growth_batches=5,
    steady_for_s=1.5,
    snapshot_for_s=3.0,
    memory_for_s=1.0,
    called=3_000,
    tasks=500,
    tasks_growth=(500, 5_000),
    tasks_idle=10,
    staged=1_000,
    walked=1_000,
    staged_bases=(500, 2_000),
    sweep=0,
)


@dataclass(frozen=True, slots=True)
class Stand:
    """One engine, ready to be measured on."""

    engine: Engine
    scale: Scale
    folder: Path
    profiled: bool = False
    server: PostgresServer | None = None
    best: dict[str, Any] = field(default_factory=dict)  # rivals' settings, found by sweeping
    numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def worker_count(self) -> int:
        """Worker processes of Gnomon: SQLite has one writer."""
        return 2 if self.engine == "postgres" else 1

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
def stand_for(engine: Engine, scale: Scale, *, profiled: bool) -> Iterator[Stand]:
    """Set a stand up and take it down again."""
    folder = Path(tempfile.mkdtemp(prefix="gnomon-bench-"))
    try:
        if engine == "sqlite":
            yield Stand(engine, scale, folder, profiled)
        else:
            with PostgresServer(durable=True, settings=server_settings(profiled)) as server:
                yield Stand(engine, scale, folder, profiled, server)
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


def progress(text: str) -> None:
    """A line for people, beside the results."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)
