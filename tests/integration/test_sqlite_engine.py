"""What only the SQLite engine promises: its file, its writer's thread, its plans."""

from __future__ import annotations

import asyncio
import re
import shutil
import sqlite3
import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from gnomon.app import App
from gnomon.clock import SystemClock, SystemEntropy
from gnomon.contracts.observer import SilentObserver
from gnomon.contracts.store import ActionDraft, Store
from gnomon.model.action import State
from gnomon.model.errors import (
    Conflict,
    InvalidRequest,
    NotSupported,
    SchemaMismatch,
    StoreUnavailable,
)
from gnomon.model.ids import shard_of
from gnomon.model.spec import Mock, Spec
from gnomon.stores.sqlite import InlineRunner, ThreadRunner, installation, open_sqlite
from gnomon.stores.sqlite.queries import SQL
from gnomon.stores.sqlite.schema import VERSION, migrations

SHARD_COUNT = 4


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "gnomon.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[Store]:
    opened = opened_store(path)
    await opened.installation.migrate(shard_count=SHARD_COUNT)
    yield opened
    await opened.close()


def opened_store(path: Path) -> Store:
    return open_sqlite(path, clock=SystemClock(), entropy=SystemEntropy())


def draft(name: str) -> ActionDraft:
    now = SystemClock().now()
    return ActionDraft(
        id=name, guid=SystemEntropy().guid(), shard=shard_of(name, SHARD_COUNT),
        spec=Spec(action=Mock(), start_at=now), scheduled_at=now, occurrence_at=now,
        expires_at=None, retention=timedelta(hours=1),
    )  # fmt: skip


class Counting(SilentObserver):
    """Remembers how many verbs shared a commit."""

    def __init__(self) -> None:
        self.groups: list[float] = []

    def observe(self, name: str, value: float, /, **labels: str) -> None:
        if name == "store_group_verbs":
            self.groups.append(value)


async def test_a_new_file_is_its_owners_alone(tmp_path: Path) -> None:
    """With what lies beside it; one that is there keeps the rights it was given."""
    old = tmp_path / "old.db"
    old.touch(mode=0o644)
    old.chmod(0o644)
    for path, mode in ((tmp_path / "new.db", 0o600), (old, 0o644)):
        store = open_sqlite(str(path), clock=SystemClock(), entropy=SystemEntropy())
        await store.installation.migrate(shard_count=1)
        found = {each.name: each.stat().st_mode & 0o777 for each in tmp_path.glob(f"{path.stem}*")}
        await store.close()
        assert {mode} == set(found.values())
        assert {f"{path.name}-wal", f"{path.name}-shm"} <= found.keys()


async def test_a_schema_of_an_earlier_program_is_brought_up_to_date(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is missing is applied, and what is there stays; until then nothing is opened."""
    store = opened_store(path)
    try:
        with monkeypatch.context() as earlier:
            earlier.setattr(installation, "migrations", lambda: migrations()[:1])
            earlier.setattr(installation, "VERSION", 1)
            assert ["0001_install"] == list(await store.installation.migrate(shard_count=4))
            await store.actions.create([draft("kept")])
        with pytest.raises(SchemaMismatch, match="gnomon migrate"):
            await store.installation.open()

        applied = list(await store.installation.migrate(shard_count=9))

        assert [step.name for step in migrations()[1:]] == applied
        assert (4, VERSION) == (
            (await store.installation.open()).shard_count,
            (await store.installation.open()).schema_version,
        )
        assert await store.actions.get("kept") is not None
        assert [] == list(await store.entities.list(after=None, prefix="", limit=9))
    finally:
        await store.close()


async def test_without_a_schema_every_verb_names_the_remedy(path: Path) -> None:
    """Opening needs no schema; using it does, and says what to do."""
    store = opened_store(path)
    try:
        for call in (store.installation.open(), store.actions.get("a"), store.leases.list_locks()):
            with pytest.raises(SchemaMismatch, match="gnomon migrate"):
                await call
    finally:
        await store.close()


async def test_commits_survive_power_loss(store: Store, path: Path) -> None:
    """The journal is a write-ahead log, and every commit is synced."""
    runner = ThreadRunner(str(path), clock=SystemClock(), observer=SilentObserver())
    try:
        journal, synchronous = await runner.write(
            lambda connection: (
                connection.execute("PRAGMA journal_mode").fetchone()[0],
                connection.execute("PRAGMA synchronous").fetchone()[0],
            )
        )
    finally:
        await runner.close()
    assert "wal" == journal
    assert 2 == synchronous
    assert "local" == (await store.installation.open()).durability


async def test_a_copied_file_is_another_database(store: Store, path: Path, tmp_path: Path) -> None:
    """A copy begins nothing until it is adopted."""
    await store.close()
    copy = tmp_path / "copy.db"
    shutil.copy(path, copy)
    copied = opened_store(copy)
    try:
        assert "inode" in (await copied.installation.verify_identity() or "")
        assert 0 == await copied.installation.adopt(past_due="run")
        assert None is await copied.installation.verify_identity()
    finally:
        await copied.close()


async def test_a_moved_file_is_the_same_database(store: Store, path: Path, tmp_path: Path) -> None:
    """Renaming it is no copy."""
    await store.close()
    moved = opened_store(path.rename(tmp_path / "moved.db"))
    try:
        assert None is await moved.installation.verify_identity()
    finally:
        await moved.close()


async def test_verbs_that_wait_share_a_commit_and_fail_alone(path: Path) -> None:
    """Group commit: one that fails takes none of the others with it."""
    observer = Counting()
    store = open_sqlite(path, clock=SystemClock(), entropy=SystemEntropy(), observer=observer)
    try:
        await store.installation.migrate(shard_count=SHARD_COUNT)
        await store.actions.create([draft("taken")])
        wrong = SystemEntropy().guid()

        answers = await asyncio.gather(
            *(store.actions.create([draft(f"new-{number}")]) for number in range(50)),
            store.actions.delete("taken", if_match=wrong),
            *(store.actions.create([draft(f"more-{number}")]) for number in range(50)),
            return_exceptions=True,
        )

        assert 1 == sum(isinstance(answer, Conflict) for answer in answers)
        assert 101 == sum((await store.actions.count()).values())
        assert 1 < max(observer.groups)
    finally:
        await store.close()


async def test_a_failing_call_is_undone_whole(path: Path) -> None:
    """What it wrote before it failed is not in the group's commit."""
    runner = ThreadRunner(str(path), clock=SystemClock(), observer=SilentObserver())

    def fail(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO t VALUES (1)")
        raise Conflict("x", expected="a", found="b")

    try:
        await runner.write(lambda connection: connection.execute("CREATE TABLE t (x)"))
        results = await asyncio.gather(
            runner.write(fail),
            runner.write(lambda connection: connection.execute("INSERT INTO t VALUES (2)")),
            return_exceptions=True,
        )
        rows = await runner.read(
            lambda connection: connection.execute("SELECT x FROM t").fetchall()
        )
    finally:
        await runner.close()
    assert isinstance(results[0], Conflict)
    assert [(2,)] == rows


async def test_a_call_that_ends_the_transaction_fails_the_whole_group(path: Path) -> None:
    """As a full disk does: nobody is told of a success that was undone."""
    runner = ThreadRunner(str(path), clock=SystemClock(), observer=SilentObserver())

    gate = threading.Event()

    def ruin(connection: sqlite3.Connection) -> None:
        connection.execute("ROLLBACK")
        raise sqlite3.OperationalError("database or disk is full")

    try:
        await runner.write(lambda connection: connection.execute("CREATE TABLE t (x)"))
        calls = [
            asyncio.create_task(runner.write(call))
            for call in (
                lambda _: gate.wait(5),  # so that the others wait for one and the same commit
                lambda connection: connection.execute("INSERT INTO t VALUES (1)"),
                ruin,
            )
        ]
        await asyncio.sleep(0)
        gate.set()
        results = await asyncio.gather(*calls, return_exceptions=True)
        rows = await runner.read(
            lambda connection: connection.execute("SELECT x FROM t").fetchall()
        )
        await runner.write(lambda connection: connection.execute("INSERT INTO t VALUES (2)"))
    finally:
        await runner.close()
    assert [] == rows
    assert [True] * 3 == [isinstance(result, StoreUnavailable) for result in results]


async def test_a_locked_file_is_unavailable_not_a_crash(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process holds the write lock for longer than we wait."""
    monkeypatch.setattr("gnomon.stores.sqlite.connection.BUSY_TIMEOUT_S", 0.05)
    impatient = opened_store(path)
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(StoreUnavailable):
            await impatient.actions.create([draft("late")])
        assert None is await impatient.actions.get("late")
        blocker.execute("ROLLBACK")
        assert await impatient.actions.create([draft("late")])
    finally:
        blocker.close()
        await impatient.close()


async def test_bytes_that_are_no_text_end_dead(path: Path) -> None:
    """A worker goes on with what is beside a spec that others filled with anything."""
    spoilt = {"text": "CAST(x'ff7b' AS TEXT)", "null": "CAST(x'00' AS TEXT)", "empty": "''"}
    async with App(f"sqlite:///{path}") as app:
        for name in ("good", *spoilt):
            await app.schedule(Mock(), id=name)
        with sqlite3.connect(path) as other:
            for name, value in spoilt.items():
                other.execute(f"UPDATE scheduled_action SET spec = {value} WHERE id = '{name}'")
        other.close()
        stop = asyncio.Event()
        working = asyncio.create_task(app.work(stop))
        async with asyncio.timeout(20):
            for name in ("good", *spoilt):
                while not (found := await app.scheduler.get(name)).status.state.is_terminal:
                    await asyncio.sleep(0.02)
                wanted = State.DONE if name == "good" else State.DEAD
                assert wanted is found.status.state
        stop.set()
        await working


async def test_joining_minds_the_callers_settings(store: Store, path: Path) -> None:
    """Row factories of the caller neither disturb us nor get lost."""
    connection = sqlite3.connect(path)
    connection.row_factory = lambda _cursor, row: {"row": row}
    try:
        await store.joining(connection).create([draft("joined"), draft("second")])
        assert connection.in_transaction
        connection.commit()
        assert {"row": (1,)} == connection.execute("SELECT 1").fetchone()
    finally:
        connection.close()
    assert await store.actions.get("joined") is not None


async def test_joining_without_a_transaction_is_refused(store: Store, path: Path) -> None:
    """A connection that commits by itself must begin first."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        with pytest.raises(InvalidRequest, match="begin a transaction"):
            await store.joining(connection).create([draft("joined")])
        connection.execute("BEGIN")
        await store.joining(connection).create([draft("joined")])
        connection.execute("COMMIT")
    finally:
        connection.close()
    assert await store.actions.get("joined") is not None


async def test_joining_another_file_is_refused(store: Store, tmp_path: Path) -> None:
    """The action would be stored where nobody looks."""
    for elsewhere in (tmp_path / "other.db", ":memory:"):
        connection = sqlite3.connect(elsewhere)
        try:
            with pytest.raises(NotSupported):
                store.joining(connection)
        finally:
            connection.close()


async def test_the_inline_runner_lets_others_in_around_each_verb() -> None:
    """The simulation's coroutines interleave between verbs, not inside them."""
    runner = InlineRunner()
    order: list[str] = []

    async def verb(name: str) -> None:
        await runner.write(lambda _: order.append(name))
        order.append(f"{name} done")

    await asyncio.gather(verb("a"), verb("b"))
    await runner.close()

    assert ["a", "b", "a done", "b done"] == order


HOT = (
    "begin_due", "begin_stamp", "begin_next_due", "move_head", "move_insert",
    "move_delete", "move_lanes", "move_and_begin_heads", "move_and_begin_due",
    "move_and_begin_delete", "poll", "finish_plain_archive", "finish_plain_fence",
    "finish_plain_remove", "finish_fence", "settle_fence", "continue_action", "finish_reschedule",
    "extend", "list_lanes_after", "delete_stale", "list_lapsed_running", "list_lapsed_expired",
    "list_cancelling",
    "load_few", "load_due", "list_due", "list_due_arrived",
    "get_live", "get_finished", "list_attempts", "create", "create_bulk", "find_begun",
    "purge_finished",
    # entities and their stages
    "get_entity", "list_entities", "write_change", "changes_since", "rows", "row_update",
    "row_remove", "parked", "next_work_lane", "next_work_times", "fire_timers",
    "changed_entities", "route_done", "route_since", "lane_head", "load_entities",
    "load_states", "load_rows", "load_versions", "load_states_of", "save_entity", "save_count",
    "due_saves", "due_saves_load", "remove_saves", "put_off_count", "put_off", "save_publish",
    "quarantine", "rows_undelivered", "parked_undelivered", "release_saves",
    "backfill_page_backlog", "backfill_page_keys", "advance_backfill", "purge_changes",
    "purge_tombstones",
)  # fmt: skip
BIG_TABLES = (
    r"(?:scheduled_action|processing_queue|incoming_queue|finished_action|attempt_log"
    r"|entity|entity_change|stage_queue|stage_state|changed_entity|stage_outbox)"
)


@pytest.mark.parametrize("name", sorted(SQL))
def test_values_by_position_have_no_numbers(name: str) -> None:
    """Python 3.14 refuses them; 3.12 and 3.13 warn."""
    assert not re.search(r"\?\d", SQL[name])


@pytest.mark.parametrize("name", HOT)
async def test_a_hot_query_never_walks_a_whole_table(name: str) -> None:
    """Nor a whole shard of the processing queue: each step of its plan is bounded."""
    runner = InlineRunner()
    store = open_sqlite(":memory:", clock=SystemClock(), entropy=SystemEntropy(), runner=runner)
    await store.installation.migrate(shard_count=SHARD_COUNT)
    count = SQL[name].count("?")
    parameters = [None] * count if count else dict.fromkeys(re.findall(r":(\w+)", SQL[name]))

    plan = [
        row[3] for row in runner.connection.execute(f"EXPLAIN QUERY PLAN {SQL[name]}", parameters)
    ]
    await runner.close()

    assert plan or name == "create"
    for step in plan:
        assert not re.match(rf"SCAN (?:[aqiflecos]|{BIG_TABLES})(?: (?!VIRTUAL)|$)", step), plan
        assert not step.endswith("processing_queue_lane_idx (shard_id=?)"), plan


async def test_arrivals_of_one_moment_are_found_by_their_whole_key() -> None:
    """A million that were created in one call have one time: by shard and time alone each look for
    one of them would walk over all."""
    runner = InlineRunner()
    store = open_sqlite(":memory:", clock=SystemClock(), entropy=SystemEntropy(), runner=runner)
    await store.installation.migrate(shard_count=SHARD_COUNT)
    query = f"EXPLAIN QUERY PLAN {SQL['move_and_begin_delete']}"
    plan = [row[3] for row in runner.connection.execute(query, {"ends": "[]", "guids": b""})]
    await runner.close()
    assert (
        "SEARCH incoming_queue USING PRIMARY KEY (shard_id=? AND created_at=? AND guid=?)" in plan
    )


ROWS_IN_A_LANE = 5_000
STEPS_MAX = 300  # of SQLite's machine; a walk over the lane takes ten thousands
LEAPS = {
    "list_lanes_after": {"shard": 1, "queue": "mail", "priority": 5, "need": "x"},
    "list_need_lanes_after": {"shard": 1, "queue": "mail", "priority": 5, "need": "x"},
    "next_work_lane": {"shard": 1, "stage": "s", "lane": 0},
    "figures_stages_after": {"shard": 1, "stage": "s", "lane": 0},
}


@pytest.mark.parametrize("name", LEAPS)
async def test_the_next_lane_is_found_by_a_leap(name: str) -> None:
    """However many rows wait in the one before: the pump asks every second."""
    runner = InlineRunner()
    store = open_sqlite(":memory:", clock=SystemClock(), entropy=SystemEntropy(), runner=runner)
    await store.installation.migrate(shard_count=SHARD_COUNT)
    numbers = f"""WITH RECURSIVE number (n) AS (
        SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < {ROWS_IN_A_LANE}
    )"""
    runner.connection.execute(
        "INSERT INTO processing_queue"
        " (shard_id, guid, queue, priority, need, scheduled_at, attempts)"
        f"{numbers} SELECT 1, randomblob(16), 'mail', 5, 'x', n, 0 FROM number"
    )
    runner.connection.execute(
        "INSERT INTO stage_queue (shard_id, entity_key, stage, lane, status, ready_at, first_at,"
        " seq, depth, root, reasons)"
        f"{numbers} SELECT 1, 'ad ' || n, 's', 0, 'ready', n, n, n, 0, randomblob(16), '[]'"
        " FROM number"
    )
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    runner.connection.set_progress_handler(count, 1)
    rows = runner.connection.execute(SQL[name], LEAPS[name]).fetchall()
    runner.connection.set_progress_handler(None, 1)
    await runner.close()

    assert [] == rows
    assert steps < STEPS_MAX
