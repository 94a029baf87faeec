"""A task table in PostgreSQL as its owner sees it: making, owning, finding, hints."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import msgspec
import psycopg
import pytest
from psycopg import conninfo, sql

from gnomon.model.errors import ConfigurationError, Unavailable
from gnomon.model.secret import Secret
from gnomon.model.task import GroupKey, RowRefused
from gnomon.model.task.conf import TaskEntry
from gnomon.tasks.postgres.queries import TableNames, render
from tests.conformance.tasks.driving import Driver, acquire

GROUP = GroupKey("group")
MANY = 20_000


async def until(condition: Callable[[], object], *, within_s: float = 20.0) -> None:
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        await asyncio.sleep(0.01)


# -- making ---------------------------------------------------------------------------------------


async def test_preparing_again_does_nothing(driver: Driver) -> None:
    assert [] == list(await driver.table.prepare())


async def test_several_may_prepare_at_once(task_dsn: str, entry: TaskEntry) -> None:
    """Whoever is first makes it; the others find it made."""
    drivers = [Driver(task_dsn, entry) for _ in range(4)]
    try:
        await asyncio.gather(*(driver.table.prepare() for driver in drivers))
        assert [] == list(await drivers[0].table.prepare())
    finally:
        for driver in drivers:
            driver.user.close()
            await driver.table.close()


async def test_the_columns_are_the_originals_in_their_order(driver: Driver) -> None:
    """And ours after them."""
    expected = (
        "id parent plan start stop active live repeat timeout count max pid state delete drift "
        "header save string delimiter escape quote data error group input null output remote "
        "cron retry retried since"
    )
    found = driver.rows(
        "SELECT attname FROM pg_attribute WHERE attrelid = 'task'::regclass AND attnum > 0 "
        "ORDER BY attnum"
    )
    assert expected == " ".join(row["attname"] for row in found)
    states = driver.value("SELECT array_agg(x::text) FROM unnest(enum_range(NULL::state)) x")
    assert ["PLAN", "GONE", "TAKE", "WORK", "DONE", "FAIL", "STOP"] == states


async def test_a_table_of_pg_task_is_mended(task_dsn: str, entry: TaskEntry) -> None:
    """Its defaults fail without pg_task; columns that it did not have are added; rows stay."""
    with psycopg.connect(task_dsn, autocommit=True) as user:
        user.execute(
            "CREATE TYPE state AS ENUM ('PLAN','GONE','TAKE','WORK','DONE','FAIL','STOP');"
            "CREATE TABLE task (id bigserial PRIMARY KEY, plan timestamptz NOT NULL, "
            "max int NOT NULL DEFAULT current_setting('pg_task.max')::int, "
            "state state NOT NULL DEFAULT 'PLAN', input text NOT NULL, note text);"
            "INSERT INTO task (plan, max, input) VALUES (now(), 0, 'SELECT 5')"
        )
    async with Driver(task_dsn, entry) as driver:
        assert [] == list(await driver.table.prepare())
        await driver.perform(1)
        row = driver.row(1)
        assert row is not None
        assert ("DONE", "5", timedelta(hours=1)) == (row["state"], row["output"], row["active"])
        assert "DONE" == ((await driver.performed("SELECT 1")) or {})["state"]


async def test_odd_names_are_only_names(task_dsn: str, entry: TaskEntry) -> None:
    """Capitals, blanks, quotes and backslashes in schema, table and group."""
    odd = msgspec.structs.replace(entry, schema='My "sch\\ema', table="Ta'sk %s $1")
    async with Driver(task_dsn, odd) as driver:
        task_id = driver.insert("SELECT current_setting('pg_task.table')", group="it's \\ \t odd")
        session = await driver.open(GroupKey("it's \\ \t odd"))
        await driver.perform(task_id, session)
        table = sql.Identifier(odd.schema, odd.table)
        found = driver.user.execute(sql.SQL("SELECT * FROM {}").format(table)).fetchone()
        assert found is not None
        assert ("DONE", odd.table) == (found["state"], found["output"])
        assert frozenset() == (await driver.table.poll(None)).groups


async def test_a_superuser_is_refused_unless_wanted(task_dsn: str, entry: TaskEntry) -> None:
    """The message says what to do."""
    driver = Driver(task_dsn, msgspec.structs.replace(entry, superuser=False))
    try:
        with pytest.raises(ConfigurationError, match='"superuser": true'):
            await driver.table.prepare()
    finally:
        driver.user.close()
        await driver.table.close()


async def test_a_missing_database_and_user_are_made(task_dsn: str, entry: TaskEntry) -> None:
    """The user is no superuser, owns its database, and its password is not in the log."""
    name = f"gnomon_test_{uuid4().hex[:12]}"
    made = msgspec.structs.replace(
        entry, data=name, user=name, superuser=False, schema="tasks", password=Secret("s3cret'x")
    )
    admin = psycopg.connect(task_dsn, autocommit=True)
    driver = Driver(task_dsn, made)
    try:
        done = await driver.table.prepare()
        assert [f"created user {name}", f"created database {name}"] == list(done[:2])
        lease_guid = await acquire(driver.table, lease_for=timedelta(seconds=5))
        assert lease_guid is not None
        with psycopg.connect(conninfo.make_conninfo(task_dsn, dbname=name)) as user:
            user.execute("INSERT INTO tasks.task (input) VALUES ('SELECT current_user')")
        session = await driver.table.open(GROUP)
        task = await session.take(1, lease_guid=lease_guid)
        assert task is not None
        assert name == (await session.perform(task)).output
        await session.close()
        found = admin.execute("SELECT rolsuper FROM pg_roles WHERE rolname = %s", [name])
        assert (False,) == found.fetchone()
    finally:
        driver.user.close()
        await driver.table.close()
        admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} (FORCE)").format(sql.Identifier(name)))
        admin.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(name)))
        admin.close()


async def test_what_a_login_may_not_is_said_exactly(task_dsn: str, entry: TaskEntry) -> None:
    """A plain login in another's database: which thing it may not make, in the server's words."""
    name = f"gnomon_test_{uuid4().hex[:12]}"
    admin = psycopg.connect(task_dsn, autocommit=True)
    admin.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(name)))
    admin.execute(b"REVOKE CREATE ON SCHEMA public FROM PUBLIC")  # as it is from 15 on
    plain_dsn = conninfo.make_conninfo(task_dsn, user=name)
    plain = msgspec.structs.replace(entry, user=name, superuser=False)
    try:
        for changed, expected in [
            (plain, "may not create type state in database .*permission denied for schema public"),
            (
                msgspec.structs.replace(plain, schema="own"),
                "may not create schema own in database .*permission denied for database",
            ),
            (
                msgspec.structs.replace(plain, user="nobody_yet"),
                "the user nobody_yet is missing, and .* may not create it: permission denied",
            ),
            (
                msgspec.structs.replace(plain, data="nodb_yet"),
                "the database nodb_yet is missing, and .* may not create it: permission denied",
            ),
        ]:
            driver = Driver(plain_dsn, changed)
            with pytest.raises(ConfigurationError, match=expected):
                await driver.table.prepare()
            driver.user.close()
            await driver.table.close()
    finally:
        admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))
        admin.close()


# -- owning ---------------------------------------------------------------------------------------


async def test_a_table_has_one_owner(driver: Driver) -> None:
    """Until it gives the table back; its lease is worth nothing then."""
    other = driver.another()
    try:
        assert await acquire(other, lease_for=timedelta(seconds=30)) is None
        assert await driver.table.beat(driver.lease_guid)
        await driver.table.release(driver.lease_guid)
        assert await acquire(other, lease_for=timedelta(seconds=30)) is not None
        assert not await driver.table.beat(driver.lease_guid)
    finally:
        await other.close()


async def test_a_silent_owner_loses_the_table(driver: Driver) -> None:
    """By the database's clock; what it had taken goes back, but for what is still performed."""
    kept = driver.insert("SELECT pg_sleep(60)")
    session, _ = await driver.take(kept)
    stuck = [driver.insert("SELECT 1", state="TAKE"), driver.insert("SELECT 1", remote="x")]
    driver.user.execute(
        b"UPDATE task SET state = 'WORK', pid = 1, start = now() WHERE remote = 'x'"
    )
    dead = driver.insert("SELECT 1", state="WORK", pid=999_999_999, start=datetime.now(UTC))
    driver.user.execute(b"UPDATE gnomon_task_owner SET heartbeat_at = now() - interval '6 s'")
    other = driver.another()
    try:
        lease_guid = await acquire(other, lease_for=timedelta(seconds=5))
        assert lease_guid is not None
        assert not await driver.table.beat(driver.lease_guid)
        states = {task_id: (driver.row(task_id) or {})["state"] for task_id in [*stuck, dead, kept]}
        assert {stuck[0]: "PLAN", stuck[1]: "PLAN", dead: "PLAN", kept: "WORK"} == states
        rescued = await other.rescue(lease_guid=lease_guid)
        assert (0, {GROUP: 1}) == (rescued.count, dict(rescued.others))
        await session.close()
        await until(
            lambda: (
                not driver.value(
                    "SELECT count(*) FROM pg_stat_activity WHERE pid = %s", [session.pid]
                )
            )
        )
        rescued = await other.rescue(lease_guid=lease_guid)
        assert (1, {}) == (rescued.count, dict(rescued.others))
    finally:
        await other.close()


async def test_a_pid_that_is_anothers_now_does_not_keep_a_row(driver: Driver) -> None:
    """A backend that began after the task did is not the task's."""
    pid = driver.user.info.backend_pid
    earlier = datetime.now(UTC) - timedelta(hours=1)
    driver.insert("SELECT 1", state="WORK", pid=pid, start=earlier)
    assert 1 == (await driver.table.rescue(lease_guid=driver.lease_guid)).count


async def test_a_pid_that_another_role_has_now_does_not_keep_a_row(driver: Driver) -> None:
    """However the clocks stand: only a session of the table's own login can be at it."""
    driver.user.execute(b"DROP ROLE IF EXISTS gnomon_other_role")
    driver.user.execute(b"CREATE ROLE gnomon_other_role LOGIN")
    try:
        other = conninfo.make_conninfo(driver.dsn, user="gnomon_other_role")
        later = datetime.now(UTC) + timedelta(hours=1)
        with psycopg.connect(other) as stranger:
            pid = stranger.info.backend_pid
            driver.insert("SELECT 1", state="WORK", pid=pid, start=later)
            rescued = await driver.table.rescue(lease_guid=driver.lease_guid)
            assert (1, {}) == (rescued.count, dict(rescued.others))
    finally:
        driver.user.execute(b"DROP ROLE gnomon_other_role")


async def test_a_beat_waits_for_no_other_statement(driver: Driver) -> None:
    """Somebody has the whole table locked: a look waits for that, the lease does not."""
    with psycopg.connect(driver.dsn) as locking:
        locking.execute(b"LOCK TABLE task")
        looking = asyncio.create_task(driver.table.poll(None))
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        await until(lambda: driver.value(waiting) > 0)
        assert await driver.table.beat(driver.lease_guid)
        assert not looking.done()
    await looking


async def test_a_row_that_somebody_has_locked_holds_up_nobody(driver: Driver) -> None:
    """It is left for later, and said to be, by whatever changes rows beside the sessions."""
    old = datetime.now(UTC) - timedelta(hours=2)
    gone, held = driver.insert("SELECT 1", plan=old), driver.insert("SELECT 1", plan=old)
    taken = driver.insert("SELECT 1", state="TAKE")
    lost = driver.insert("SELECT 1", state="WORK", start=old)
    due = driver.insert("SELECT 1")
    own = {"lease_guid": driver.lease_guid}
    with psycopg.connect(driver.dsn) as locking:
        ids = [held, taken, lost, due]
        locking.execute("SELECT 1 FROM task WHERE id = ANY (%s) FOR UPDATE", [ids])
        assert 1 == await driver.expire()
        assert [taken] == list(await driver.table.untake([taken], **own))
        assert [] == list(await driver.table.mark_taken([due], **own))
        assert not await driver.table.refuse(due, "ERROR:  no", **own)
        assert {taken, lost} == (await driver.table.rescue(stale=True, **own)).held
    rescued = await driver.table.rescue(stale=True, **own)
    assert (2, frozenset()) == (rescued.count, rescued.held)
    assert await driver.table.refuse(due, "ERROR:  no", **own)
    assert 1 == await driver.expire()
    states = driver.rows("SELECT id, state FROM task WHERE state = 'GONE' ORDER BY id")
    assert [gone, held] == [row["id"] for row in states]


async def test_a_row_that_cannot_be_changed_holds_up_nobody(driver: Driver) -> None:
    """Here a trigger of the user's refuses it; the others expire, and go back."""
    driver.user.execute(
        b"CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS "
        b"$$ BEGIN RAISE EXCEPTION 'not this one'; END $$"
    )
    driver.user.execute(
        b"CREATE TRIGGER no BEFORE UPDATE ON task FOR EACH ROW WHEN (OLD.data = 'no') "
        b"EXECUTE FUNCTION no()"
    )
    old = datetime.now(UTC) - timedelta(hours=2)
    for data in ("a", "no", "b"):
        driver.insert("SELECT 1", plan=old, data=data)
        driver.insert("SELECT 1", state="WORK", data=data)
    poisoned = driver.insert("SELECT 1", data="no")
    own = {"lease_guid": driver.lease_guid}
    expired = await driver.table.expire(**own)
    assert (2, ["not this one"]) == (expired.count, list(expired.troubles.values()))
    assert 0 == await driver.expire()
    rescued = await driver.table.rescue(lease_guid=driver.lease_guid)
    assert (2, 1) == (rescued.count, len(rescued.held))
    with pytest.raises(RowRefused, match="not this one"):
        await driver.table.mark_taken([poisoned], **own)
    with pytest.raises(RowRefused, match="not this one"):
        await driver.table.refuse(poisoned, "ERROR:  no", **own)
    with pytest.raises(RowRefused, match="not this one"):
        await driver.take(poisoned)


async def test_rows_in_take_are_left_alone_unless_stale(driver: Driver) -> None:
    task_id = driver.insert("SELECT 1", state="TAKE")
    assert 0 == (await driver.table.rescue(lease_guid=driver.lease_guid)).count
    rescued = await driver.table.rescue(lease_guid=driver.lease_guid, stale=True)
    assert 1 == rescued.count
    assert "PLAN" == (driver.row(task_id) or {})["state"]


async def test_nothing_is_changed_without_the_lease(driver: Driver) -> None:
    """An owner that was away and does not know it."""
    task_id = driver.insert("SELECT 1", plan=datetime.now(UTC) - timedelta(hours=2))
    taken = driver.insert("SELECT 1", state="TAKE")
    stale = {"lease_guid": uuid4()}
    assert 0 == (await driver.table.expire(**stale)).count
    assert [] == list(await driver.table.mark_taken([task_id], **stale))
    await driver.table.untake([taken], **stale)
    await driver.table.refuse(taken, "ERROR:  no", **stale)
    assert 0 == (await driver.table.rescue(stale=True, **stale)).count
    await driver.table.release(**stale)
    assert await driver.table.beat(driver.lease_guid)
    states = driver.rows("SELECT state FROM task ORDER BY id")
    assert ["PLAN", "TAKE"] == [row["state"] for row in states]


# -- finding --------------------------------------------------------------------------------------


async def test_a_poll_finds_what_is_new_or_has_come_due(driver: Driver) -> None:
    """All groups at first; then those with new rows, or rows whose time has come."""
    driver.insert("SELECT 1", group="a")
    driver.insert("SELECT 1", group="a", remote="x")
    soon = datetime.now(UTC) + timedelta(hours=1)
    later = driver.insert("SELECT 1", group="later", plan=soon)
    driver.insert("SELECT 1", group="stopped", state="STOP")
    found = await driver.table.poll(None)
    assert {GroupKey("a"), GroupKey("a", "x")} == found.groups
    assert soon == found.next_plan
    assert later + 1 == found.mark.id
    again = await driver.table.poll(found.mark)
    assert (frozenset(), soon) == (again.groups, again.next_plan)
    driver.insert("SELECT 1", group="b")
    driver.user.execute("UPDATE task SET plan = clock_timestamp() WHERE id = %s", [later])
    found = await driver.table.poll(again.mark)
    assert {GroupKey("b"), GroupKey("later")} == found.groups
    assert found.next_plan is None
    assert 4 == len((await driver.table.poll(None)).groups)


async def test_a_poll_says_when_the_next_row_expires(driver: Driver) -> None:
    """Of those that may: a pause waits as long as it takes."""
    plan = datetime.now(UTC) - timedelta(minutes=10)
    driver.insert("SELECT 1", plan=plan, active="1 hour")
    driver.insert("SELECT 1", plan=plan, active="20 min")
    driver.insert("SELECT 1", plan=plan, active="11 min", max=-5)
    assert plan + timedelta(minutes=20) == (await driver.table.poll(None)).next_expiry


async def test_a_window_is_in_the_order_of_starting(driver: Driver) -> None:
    """Whether a group has few due rows or many: free slots first, then id; nothing that is not
    due, nothing of others."""
    now = datetime.now(UTC)
    ids = [
        driver.insert("SELECT 1", max=most, plan=now - timedelta(seconds=age))
        for most, age in [(0, 1), (-5, 9), (2, 1), (1, 5), (2, 9)]
    ]
    driver.insert("SELECT 1", plan=now + timedelta(hours=1), max=9)
    driver.insert("SELECT 1", group="other", max=9)
    driver.insert("SELECT 1", remote="x", max=9)
    expected = [ids[2], ids[4], ids[3], ids[0], ids[1]]
    assert expected == [row.id for row in await driver.window(GROUP, limit=10)]
    assert expected[:2] == [row.id for row in await driver.window(GROUP, limit=2)]
    assert expected[:1] == [row.id for row in await driver.window(GROUP, limit=1)]


def plan_of(driver: Driver, statement: str, *params: object) -> str:
    """How the owner's connection would find its rows."""
    text = driver.table._access.statements[statement].sql.decode().rstrip().rstrip(";")
    options = "-c enable_seqscan=off -c enable_bitmapscan=off -c jit=off"
    with psycopg.connect(driver.dsn, autocommit=True, options=options) as owner:
        literals = ", ".join(sql.Literal(param).as_string(owner) for param in params)
        owner.execute(f"PREPARE it AS {text}".encode())
        owner.execute(b"SET plan_cache_mode = force_generic_plan")
        call = f"EXECUTE it ({literals})" if params else "EXECUTE it"
        (found,) = owner.execute(f"EXPLAIN (FORMAT JSON) {call}".encode()).fetchone() or ((),)
    return json.dumps(found)


@pytest.mark.parametrize("is_analyzed", [False, True])
async def test_the_owner_never_reads_the_whole_table(driver: Driver, is_analyzed: bool) -> None:
    """Each of its statements goes by an index, with fresh statistics or none."""
    driver.user.execute(
        "INSERT INTO task (input, state) SELECT 'SELECT 1', 'DONE' FROM generate_series(1, %s)",
        [MANY],
    )
    driver.user.execute(b"INSERT INTO task (input) SELECT 'SELECT 1' FROM generate_series(1, 100)")
    if is_analyzed:
        driver.user.execute(b"ANALYZE task")
    guid = str(driver.lease_guid)
    for statement, params, index in [
        ("poll_all", (None, 10), "task_gnomon_due_idx"),
        ("poll_since", (MANY, "now", 10), "_idx"),  # from 18 on also one that begins with the group
        ("poll_mark", (None,), "task_gnomon_plan_idx"),
        ("poll_mark", (None,), "task_gnomon_expiry_idx"),
        ("window_few", ("g", None, 10, 500, 20), "task_gnomon_due_idx"),
        ("window_many", ("g", None, 10, 500, 20), "task_gnomon_order_idx"),
        ("rescue", (True, True, guid, None), "task_gnomon_work_idx"),
        ("stuck", (True, True), "task_gnomon_work_idx"),
        ("others", ([1], [1]), "task_gnomon_work_idx"),
        ("expire", (guid, None, [1], 10), "task_gnomon_expiry_idx"),
        ("expirable", (None, [1], 10), "task_gnomon_expiry_idx"),
        ("expire_these", (guid, [1], [None]), "Index Cond"),
        ("mark_taken", ([1, 2], guid), "Index Cond"),
        ("untake", ([1, 2], guid), "Index Cond"),
    ]:
        found = plan_of(driver, statement, *params)
        assert index in found, statement
        assert (
            '"Seq Scan", "Parallel Aware": false, "Async Capable": false, "Relation Name": "task"'
            not in found
        ), statement


# -- hints ----------------------------------------------------------------------------------------


async def test_a_hint_comes_with_every_way_to_wait(driver: Driver) -> None:
    """An insert, a new plan, a stopped row that is to go on; an end brings none."""
    told: list[None] = []
    listening = asyncio.create_task(driver.table.listen(lambda: told.append(None)))
    try:
        listens = "SELECT count(*) FROM pg_stat_activity WHERE query ~ '^LISTEN'"
        await until(lambda: driver.value(listens))
        task_id = driver.insert("SELECT 1", state="STOP", plan=datetime.now(UTC))
        for change in ("state = 'PLAN'", "plan = now() - interval '1 s'"):
            await until(lambda: told)
            told.clear()
            driver.user.execute(f"UPDATE task SET {change} WHERE id = {task_id}".encode())
        await until(lambda: told)
        told.clear()
        driver.user.execute(b"UPDATE task SET data = 'x'")
        await driver.perform(task_id)
        await driver.table.poll(None)  # on the connection that would be told
        assert [] == told, "nothing waits that did not wait before"
    finally:
        listening.cancel()


async def test_a_broken_owners_connection_comes_back_and_listens_again(driver: Driver) -> None:
    """One call is told; the next works, and hints go on."""
    told: list[None] = []
    listening = asyncio.create_task(driver.table.listen(lambda: told.append(None)))
    listens = "SELECT pid FROM pg_stat_activity WHERE query ~ '^LISTEN'"
    await until(lambda: driver.rows(listens))
    (row,) = driver.rows(listens)
    driver.value("SELECT pg_terminate_backend(%s)", [row["pid"]])
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            await driver.table.poll(None)
            break
        except Unavailable:
            await asyncio.sleep(0.01)
    told.clear()
    driver.insert("SELECT 1")
    await until(lambda: told)
    listening.cancel()


# -- waiting --------------------------------------------------------------------------------------


async def test_the_view_says_why_each_task_waits(driver: Driver) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    running = driver.insert("SELECT 1")
    behind = driver.insert("SELECT 1")
    first = driver.insert("SELECT 1", group="idle")
    second = driver.insert("SELECT 1", group="idle")
    planned = driver.insert("SELECT 1", plan=later)
    paused = driver.insert("SELECT 1", plan=later, max=-5)
    stopped = driver.insert("SELECT 1", state="STOP")
    free = driver.insert("SELECT 1", max=3)
    await driver.take(running)
    found = {row["id"]: (row["why"], row["until"]) for row in driver.rows("TABLE task_waiting")}
    assert {
        behind: (f"behind {running} in its group", None),
        first: ("about to start", None),
        second: (f"behind {first} in its group", None),
        planned: ("planned later", later),
        paused: ("paused", later),
        stopped: ("stopped", None),
        free: ("about to start", None),
    } == found
    await driver.table.release(driver.lease_guid)
    reasons = {row["id"]: row["why"] for row in driver.rows("TABLE task_waiting")}
    assert "nobody owns the table" == reasons[first]


def test_marks_are_all_replaced() -> None:
    """No statement is left with a mark, whatever the table is called."""
    from gnomon.tasks.postgres.queries import statements

    names = TableNames("s", "t", '"s"."state"')
    left = [name for name, found in statements(names).items() if b"/*" in found.sql]
    assert ["create_database", "create_role", "create_role_with_password", "listen"] == sorted(left)
    assert '"s"."t"' == render("/*task*/task", names)
