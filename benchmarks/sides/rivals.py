"""The rivals, by their public APIs and with their best settings: PgQueuer, huey on SQLite."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

import asyncpg
from pgqueuer import Queries

from benchmarks.processes import Crew, crew_of
from benchmarks.sides.huey_app import make_huey
from benchmarks.stand import Stand

# What was best on 2 cores, if nothing is swept.
BATCH_BEST = 1_000
BATCHES_TRIED = (250, 500, 1_000, 2_000)
CREW_BEST = (2, 1)
CREWS_TRIED = ((1, 1), (1, 2), (2, 1), (2, 2))  # processes, threads in each
BULK = 1_000  # rows of one enqueue call: more gains nothing


class Rival(Protocol):
    """What a scenario asks of a rival. `due` is in seconds since 1970; None: at once."""

    name: str

    def opened(self, url: str) -> AbstractAsyncContextManager[None]:
        """Install it in this database, for as long as it is needed."""
        ...

    async def create(self, due: Sequence[float | None]) -> None:
        """Create no-ops the fastest way it has."""
        ...

    async def create_singly(self, count: int) -> None:
        """Create no-ops with one call each."""
        ...

    async def waiting(self) -> int:
        """How many are not yet finished and recorded."""
        ...

    def crew(self, *, timed: bool = False) -> AbstractAsyncContextManager[Crew]:
        """Its worker processes; `timed`: they note when each was due and when it began."""
        ...


def rival_of(stand: Stand) -> Rival:
    """The rival on the stand's engine."""
    return PgQueuerRival(stand) if stand.engine == "postgres" else HueyRival(stand)


class PgQueuerRival:
    """PgQueuer: bulk enqueue, durable tables, its own autovacuum settings, two processes."""

    def __init__(self, stand: Stand, *, batch_size: int | None = None) -> None:
        self.name = f"PgQueuer {version('pgqueuer')}"
        self._stand = stand
        self._batch_size = batch_size or stand.best.get("pgqueuer_batch", BATCH_BEST)

    @asynccontextmanager
    async def opened(self, url: str) -> AsyncIterator[None]:
        connection = await asyncpg.connect(url)
        try:
            self._url = url
            self._queries = Queries.from_asyncpg_connection(connection)
            await self._queries.install()
            await self._queries.optimize_autovacuum()
            yield
        finally:
            await connection.close()

    async def create(self, due: Sequence[float | None]) -> None:
        for start in range(0, len(due), BULK):
            part = due[start : start + BULK]
            now = time.time()
            after: list[timedelta | None] = [
                timedelta(0) if at is None else timedelta(seconds=at - now) for at in part
            ]
            count = len(part)
            await self._queries.enqueue(["noop"] * count, [None] * count, [0] * count, after)

    async def create_singly(self, count: int) -> None:
        for _ in range(count):
            await self._queries.enqueue("noop", None)

    async def waiting(self) -> int:
        return sum(row.count for row in await self._queries.queue_size())

    def crew(self, *, timed: bool = False) -> AbstractAsyncContextManager[Crew]:
        return crew_of(
            "benchmarks.sides.pgqueuer_worker",
            {"dsn": self._url, "batch_size": self._batch_size, "timed": timed},
            size=2,
            folder=self._stand.folder,
        )


class HueyRival:
    """huey on SQLite. It has no bulk call; it forgets an action when it takes it up."""

    def __init__(self, stand: Stand, *, crew: tuple[int, int] | None = None) -> None:
        self.name = f"huey {version('huey')}"
        self._stand = stand
        chosen: tuple[int, int] = crew or stand.best.get("huey_crew", CREW_BEST)
        self._processes, self._threads = chosen

    @asynccontextmanager
    async def opened(self, url: str) -> AsyncIterator[None]:
        self._path = str(Path(url.removeprefix("sqlite:///")).with_name("huey.db"))
        self._huey, self._noop = make_huey(self._path, lambda _due: None)
        yield
        self._huey.storage.close()

    async def create(self, due: Sequence[float | None]) -> None:
        await asyncio.to_thread(self._create, due)

    def _create(self, due: Sequence[float | None]) -> None:
        for at in due:
            if at is None:
                self._noop()
            else:
                self._noop.schedule(args=(at,), eta=datetime.fromtimestamp(at, UTC))

    async def create_singly(self, count: int) -> None:
        await self.create([None] * count)

    async def waiting(self) -> int:
        return int(self._huey.pending_count()) + int(self._huey.scheduled_count())

    def crew(self, *, timed: bool = False) -> AbstractAsyncContextManager[Crew]:  # noqa: ARG002
        """Those with a due time are always timed."""
        return crew_of(
            "benchmarks.sides.huey_worker",
            {"path": self._path, "threads": self._threads},
            size=self._processes,
            folder=self._stand.folder,
        )
