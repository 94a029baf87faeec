"""SQLite: what is small and urgent waits neither behind long reads nor behind long writes."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest

from gnomon.app import App
from gnomon.clock import SystemClock, SystemEntropy
from gnomon.contracts.observer import SilentObserver
from gnomon.contracts.store import AuditSelection, HeldShard, Selection, Store
from gnomon.model.errors import StoreUnavailable
from gnomon.stores.sqlite import InlineRunner, ThreadRunner, open_sqlite
from gnomon.stores.sqlite.connection import BUSY_TIMEOUT_S, Call
from gnomon.stores.sqlite.purge import PURGED_AT_ONCE

T = TypeVar("T")
PATIENCE_S = 60.0
NOBODY = SystemEntropy().token()


class Blocked:
    """A call that holds its thread until it is told to go on."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.go_on = threading.Event()

    def __call__(self, _connection: sqlite3.Connection) -> None:
        self.began.set()
        assert self.go_on.wait(PATIENCE_S)


@pytest.fixture
async def runner(tmp_path: Path) -> AsyncIterator[ThreadRunner]:
    opened = ThreadRunner(
        str(tmp_path / "gnomon.db"), clock=SystemClock(), observer=SilentObserver()
    )
    yield opened
    await opened.close()


def changes(connection: sqlite3.Connection) -> int:
    found: int = connection.execute("SELECT total_changes()").fetchone()[0]
    return found


async def test_small_reads_and_writes_do_not_wait_behind_a_long_read(runner: ThreadRunner) -> None:
    """The doctor looks at everything, for seconds: actions go on at their time."""
    long = Blocked()
    browsing = asyncio.create_task(runner.browse(long))
    try:
        await asyncio.to_thread(long.began.wait, PATIENCE_S)
        async with asyncio.timeout(PATIENCE_S):
            assert 0 == await runner.read(changes)
            assert 0 == await runner.write(changes)
        assert not browsing.done()
    finally:
        long.go_on.set()
        await browsing


class HandClock(SystemClock):
    """Stands still until it is told."""

    at = 0.0

    def monotonic(self) -> float:
        return self.at


async def test_nobody_waits_for_the_file_after_others_who_waited(tmp_path: Path) -> None:
    """A transaction of another process holds it: all who ask are told when their own time is over,
    however many came before them."""
    clock, path = HandClock(), tmp_path / "gnomon.db"
    runner = ThreadRunner(str(path), clock=clock, observer=SilentObserver())
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        writes = [asyncio.create_task(runner.write(changes)) for _ in range(5)]
        await asyncio.sleep(0)  # all of them are asked for
        clock.at = BUSY_TIMEOUT_S
        async with asyncio.timeout(PATIENCE_S):
            answers = await asyncio.gather(*writes, return_exceptions=True)
        holder.execute("ROLLBACK")
    assert [StoreUnavailable] * 5 == [type(answer) for answer in answers]
    assert 0 == await runner.write(changes)
    await runner.close()


async def test_what_is_urgent_is_written_next(runner: ThreadRunner) -> None:
    """However many writes wait, a heartbeat waits for the one that is under way only."""
    long, order = Blocked(), []

    def noted(name: str) -> Call[None]:
        return lambda _connection: order.append(name)

    first = asyncio.create_task(runner.write(long))
    await asyncio.to_thread(long.began.wait, PATIENCE_S)
    others = [asyncio.create_task(runner.write(noted(f"write {n}"))) for n in range(3)]
    beat = asyncio.create_task(runner.write(noted("beat"), urgent=True))
    await asyncio.sleep(0)  # all of them are asked for
    long.go_on.set()
    await asyncio.gather(first, *others, beat)

    assert ["beat", "write 0", "write 1", "write 2"] == order


class Listening(InlineRunner):
    """Remembers by which way each call came, and how many rows each write changed."""

    def __init__(self) -> None:
        super().__init__()
        self.ways: list[str] = []
        self.changed: list[int] = []

    async def write(self, call: Call[T], *, urgent: bool = False) -> T:
        self.ways.append("urgent" if urgent else "write")
        before = self.connection.total_changes
        result = await super().write(call)
        self.changed.append(self.connection.total_changes - before)
        return result

    async def read(self, call: Call[T]) -> T:
        self.ways.append("read")
        return await super().read(call)

    async def browse(self, call: Call[T]) -> T:
        self.ways.append("browse")
        return await InlineRunner.read(self, call)


Verb = Callable[[Store], Coroutine[Any, Any, Any]]
LARGE: dict[str, Verb] = {
    "doctor": lambda store: store.installation.doctor(),
    "list": lambda store: store.actions.list(Selection(), after=None, limit=5),
    "count": lambda store: store.actions.count(),
    "list_audit": lambda store: store.tokens.list_audit(AuditSelection(), limit=5),
    "entities": lambda store: store.entities.list(after=None, prefix="", limit=5),
    "parked": lambda store: store.queues.parked(prefix="", stage=None, after=None, limit=5),
    "stages": lambda store: store.register.stages(),
    "backlog": lambda store: store.outbox.backlog(),
}
URGENT: dict[str, Verb] = {
    "heartbeat": lambda store: store.leases.heartbeat(
        NOBODY, owner="me", holdings=[], alive_for=timedelta(1)
    ),
    "release": lambda store: store.leases.release([HeldShard(shard=0, lease_guid=NOBODY)]),
    "remove_worker": lambda store: store.leases.remove_worker(NOBODY),
}
SMALL: dict[str, Verb] = {
    "list_locks": lambda store: store.leases.list_locks(),
    "poll": lambda store: store.work.poll([HeldShard(shard=0, lease_guid=NOBODY)]),
    "list_lanes": lambda store: store.work.list_lanes([HeldShard(shard=0, lease_guid=NOBODY)]),
    "get": lambda store: store.actions.get("x"),
    "limits": lambda store: store.limits.list(),
}
WAYS = {
    **{(name, "browse"): verb for name, verb in LARGE.items()},
    **{(name, "urgent"): verb for name, verb in URGENT.items()},
    **{(name, "read"): verb for name, verb in SMALL.items()},
}


@pytest.fixture
async def listening() -> AsyncIterator[Listening]:
    runner = Listening()
    yield runner
    await runner.close()


@pytest.fixture
async def store(listening: Listening) -> Store:
    opened = open_sqlite(":memory:", clock=SystemClock(), entropy=SystemEntropy(), runner=listening)
    await opened.installation.migrate(shard_count=4)
    listening.ways.clear()
    listening.changed.clear()
    return opened


@pytest.mark.parametrize(("name", "way"), list(WAYS))
async def test_every_verb_goes_its_way(
    store: Store, listening: Listening, name: str, way: str
) -> None:
    """What may look at very many rows has a thread of its own; a lease goes before all."""
    await WAYS[name, way](store)

    assert {way} == set(listening.ways)


async def test_a_purge_is_many_small_transactions(store: Store, listening: Listening) -> None:
    """A heartbeat waits for the removal of a few hundred rows, not of all."""
    rows = 2 * PURGED_AT_ONCE + 1
    listening.connection.execute(
        "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?) "
        "INSERT INTO attempt_log (shard_id, id, guid, attempt_id, attempt_no, occurrence_no, "
        "began_at, outcome) SELECT 0, 'a' || n, x'00', randomblob(16), 1, 1, 0, 'failed' FROM n",
        [rows],
    )

    assert rows == await store.installation.purge(limit=10 * rows)

    assert PURGED_AT_ONCE == max(listening.changed)
    assert rows == sum(listening.changed)


async def test_the_heart_writes_through_the_writer_of_its_app(tmp_path: Path) -> None:
    """A second writer of the same process would fight the first one for the file, and lose for
    seconds. What the heart closes in the end stays open for the app."""
    async with App(f"sqlite:///{tmp_path}/gnomon.db") as app:
        open_store = app._heart_store()
        assert open_store is not None
        heart = await open_store()
        assert app.store.leases is heart.leases
        await heart.close()
        assert [] == list(await app.store.installation.doctor())


async def test_a_writer_that_never_rests_lets_another_process_in(tmp_path: Path) -> None:
    """Two stores of one file stand for two processes: each write of the second one gets between
    the writes of the first, and does not wait until they end."""
    path = str(tmp_path / "gnomon.db")
    busy, other = (
        ThreadRunner(path, clock=SystemClock(), observer=SilentObserver()) for _ in range(2)
    )
    await busy.write(lambda connection: connection.execute("CREATE TABLE t (n)").close())
    is_over = asyncio.Event()

    def insert(connection: sqlite3.Connection) -> None:
        connection.executemany("INSERT INTO t VALUES (?)", [(n,) for n in range(200)])

    async def keep_writing() -> None:
        while not is_over.is_set():
            await asyncio.gather(*(busy.write(insert) for _ in range(5)))

    writing = asyncio.create_task(keep_writing())
    try:
        async with asyncio.timeout(PATIENCE_S):
            for _ in range(20):
                await other.write(insert)
    finally:
        is_over.set()
        await writing
        await busy.close()
        await other.close()

    assert writing.done()


async def test_a_store_is_closed_although_somebody_reads_for_long(runner: ThreadRunner) -> None:
    """With ten million actions the doctor's look at one shard took a minute, and so long a worker
    did not end that was told to."""
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n"
    began = threading.Event()

    def read_on(connection: sqlite3.Connection) -> None:
        began.set()
        connection.execute(endless).fetchone()

    readings = []
    for read in (runner.read, runner.browse):
        began.clear()
        readings.append(asyncio.create_task(read(read_on)))
        await asyncio.to_thread(began.wait, PATIENCE_S)
    async with asyncio.timeout(PATIENCE_S):
        await runner.close()
    for reading in readings:
        with pytest.raises(StoreUnavailable, match="interrupted"):
            await reading


async def test_a_store_that_is_closed_leaves_all_in_its_file(tmp_path: Path) -> None:
    """Without its log it can be moved: what cuts long reads short must not cut that short."""
    for number in range(30):
        path = tmp_path / f"{number}.db"
        store = open_sqlite(path, clock=SystemClock(), entropy=SystemEntropy())
        await store.installation.migrate(shard_count=4)
        await store.close()
        assert [path] == list(tmp_path.glob(f"{number}.db*"))
