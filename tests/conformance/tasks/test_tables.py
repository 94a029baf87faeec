"""What an owner asks of a table, in both engines: the lease, what is due, whose rows they are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gnomon.contracts.task_table import PollMark, TaskTable
from gnomon.model.task import GroupKey
from gnomon.tasks.postgres import table as postgres_table
from gnomon.tasks.sqlite import row_store as sqlite_rows
from tests.conformance.tasks.driving import acquire
from tests.conformance.tasks.sqlite_driving import Bench

GROUP = GroupKey("group")
LEASE = timedelta(seconds=30)
HOUR = timedelta(hours=1)


def now() -> datetime:
    return datetime.now(UTC)


def state_of(bench: Bench, task_id: int) -> Any:
    row = bench.row(task_id)
    return None if row is None else row["state"]


@asynccontextmanager
async def another(bench: Bench) -> AsyncIterator[TaskTable]:
    """The same table as a second process has it."""
    table = bench.another()
    try:
        await table.prepare()
        yield table
    finally:
        await table.close()


# -- the lease ------------------------------------------------------------------------------------


async def test_a_table_has_one_owner(bench: Bench) -> None:
    """Until it lets go."""
    async with another(bench) as other:
        assert await acquire(other, lease_for=LEASE) is None
        assert await bench.table.beat(bench.lease_guid)
        await bench.table.release(bench.lease_guid)
        assert await acquire(other, lease_for=LEASE) is not None
        assert not await bench.table.beat(bench.lease_guid)


async def test_a_silent_owner_is_followed_by_another(bench: Bench) -> None:
    """Its lease is worth nothing from then on."""
    task_id = bench.insert("SELECT 1")
    session = await bench.open(GROUP)
    async with another(bench) as other:
        found = None
        while found is None:
            await asyncio.sleep(0.02)
            found = await acquire(other, lease_for=timedelta(milliseconds=100))
        assert not await bench.table.beat(bench.lease_guid)
        assert await session.take(task_id, lease_guid=bench.lease_guid) is None
        assert [] == list(await bench.table.mark_taken([task_id], lease_guid=bench.lease_guid))
        bench.do("UPDATE task SET plan = '2020-01-01'")
        assert 0 == await bench.expire()
        assert "PLAN" == state_of(bench, task_id)


async def test_a_new_owner_finds_no_row_taken(bench: Bench) -> None:
    """TAKE, and WORK that nobody is at, go back to PLAN."""
    taken, working = bench.insert("SELECT 1"), bench.insert("SELECT 1")
    assert [taken] == list(await bench.table.mark_taken([taken], lease_guid=bench.lease_guid))
    session, _ = await bench.take(working)
    await session.close()
    await bench.table.release(bench.lease_guid)
    async with another(bench) as other:
        while "WORK" == state_of(bench, working):  # a backend may take a moment to end
            lease_guid = await acquire(other, lease_for=LEASE)
            assert lease_guid is not None
            await other.release(lease_guid)
    assert ["PLAN", "PLAN"] == [state_of(bench, taken), state_of(bench, working)]
    row = bench.row(working)
    assert row is not None
    assert (None, None) == (row["pid"], row["start"])


async def test_preparing_is_safe_to_repeat_and_at_once(bench: Bench) -> None:
    """What is there is left alone."""
    task_id = bench.insert("SELECT 1")
    async with another(bench) as first, another(bench) as second:
        assert [[], [], []] == [
            list(done)
            for done in await asyncio.gather(
                bench.table.prepare(), first.prepare(), second.prepare()
            )
        ]
    assert "PLAN" == state_of(bench, task_id)


# -- what is due ----------------------------------------------------------------------------------


async def test_a_poll_names_the_groups_that_have_due_rows(bench: Bench) -> None:
    """All of them without a mark; with one, those that have something new."""
    bench.insert("SELECT 1", group="a")
    bench.insert("SELECT 1", group="b", plan=now() - HOUR / 2)
    bench.insert("SELECT 1", group="later", plan=now() + HOUR)
    bench.insert("SELECT 1", group="stopped", state="STOP")
    polled = await bench.table.poll(None)
    assert {GroupKey("a"), GroupKey("b")} == polled.groups
    again = await bench.table.poll(polled.mark)
    assert frozenset() == again.groups
    bench.insert("SELECT 1", group="new")
    assert {GroupKey("new")} == (await bench.table.poll(again.mark)).groups


async def test_a_poll_finds_what_has_come_due_since(bench: Bench) -> None:
    """By its plan, though its id is old."""
    plan = now() - timedelta(minutes=10)
    task_id = bench.insert("SELECT 1", plan=plan, group="old")
    before, after = plan - timedelta(minutes=1), plan + timedelta(minutes=1)
    assert {GroupKey("old")} == (await bench.table.poll(PollMark(id=task_id, plan=before))).groups
    assert frozenset() == (await bench.table.poll(PollMark(id=task_id, plan=after))).groups


async def test_a_poll_says_when_to_look_again(bench: Bench) -> None:
    """At the earliest plan ahead, and at the earliest end of an `active`."""
    assert (None, None) == (
        (await bench.table.poll(None)).next_plan,
        (await bench.table.poll(None)).next_expiry,
    )
    start = now()
    bench.insert("SELECT 1", plan=start + HOUR)
    bench.insert("SELECT 1", plan=start + HOUR / 2)
    bench.insert("SELECT 1", plan=start - HOUR / 4, active="30 min")
    bench.insert("SELECT 1", plan=start - HOUR / 4, active="20 min")
    bench.insert("SELECT 1", plan=start - HOUR, active="1 min", max=-1)
    polled = await bench.table.poll(None)
    assert start + HOUR / 2 == polled.next_plan
    assert start - HOUR / 4 + timedelta(minutes=20) == polled.next_expiry
    assert abs(polled.now - now()) < timedelta(seconds=10)


async def test_a_window_is_in_order_of_max_and_id(bench: Bench) -> None:
    """The highest `max` first, negative ones like 0; only due rows of the group, and not more
    than wanted."""
    ids = [bench.insert("SELECT 1", max=most) for most in (0, 2, -5, 1, 2)]
    bench.insert("SELECT 1", max=9, group="other")
    bench.insert("SELECT 1", max=9, plan=now() + HOUR)
    bench.insert("SELECT 1", max=9, state="STOP")
    expected = [ids[1], ids[4], ids[3], ids[0], ids[2]]
    assert expected == [row.id for row in await bench.window(GROUP, limit=10)]
    assert expected[:2] == [row.id for row in await bench.window(GROUP, limit=2)]


async def test_a_window_has_what_decides_about_reuse(bench: Bench) -> None:
    """`max`, `count`, and `live` in seconds."""
    bench.insert("SELECT 1", max=3, count=7, live="1 min 30 sec")
    [row] = await bench.window(GROUP, limit=10)
    assert (3, 7, 90.0) == (row.max, row.count, row.live_s)


async def test_an_insert_is_noticed(bench: Bench) -> None:
    """By whoever listens, soon; the listener ends when it is told to."""
    woken = asyncio.Event()
    listening = asyncio.create_task(bench.table.listen(woken.set))
    try:
        async with asyncio.timeout(20):
            while not woken.is_set():
                bench.insert("SELECT 1")
                await asyncio.wait([listening], timeout=0.2)
                assert not listening.done()
    finally:
        listening.cancel()
        await asyncio.wait([listening])


# -- rows that are taken --------------------------------------------------------------------------


async def test_only_due_rows_in_plan_are_marked(bench: Bench) -> None:
    """The answer says which; they can be given back."""
    fine = bench.insert("SELECT 1")
    ids = [
        fine,
        bench.insert("SELECT 1", state="STOP"),
        bench.insert("SELECT 1", plan=now() + HOUR),
        bench.insert("SELECT 1", plan=now() - 2 * HOUR),  # its hour is over
        10**9,
    ]
    assert [fine] == list(await bench.table.mark_taken(ids, lease_guid=bench.lease_guid))
    assert "TAKE" == state_of(bench, fine)
    await bench.table.untake(ids, lease_guid=bench.lease_guid)
    assert ["PLAN", "STOP"] == [state_of(bench, task_id) for task_id in ids[:2]]


async def test_a_refused_row_fails_without_a_start(bench: Bench) -> None:
    """And is repeated all the same."""
    task_id = bench.insert("SELECT 1", repeat="1 hour")
    await bench.table.mark_taken([task_id], lease_guid=bench.lease_guid)
    await bench.table.refuse(task_id, "ERROR:  no way", lease_guid=bench.lease_guid)
    row = bench.row(task_id)
    assert row is not None
    assert ("FAIL", "", "ERROR:  no way") == (row["state"], row["output"], row["error"])
    assert (None, None) == (row["start"], row["pid"])
    assert row["stop"] is not None
    assert 1 == len(bench.rows(f"SELECT * FROM task WHERE parent = {task_id}"))


async def test_a_rescue_frees_what_nobody_performs(bench: Bench) -> None:
    """WORK without a session; TAKE only if the caller says that it has none."""
    working, lost, taken = (bench.insert("SELECT 1", max=9) for _ in range(3))
    session, task = await bench.take(working)
    bench.do(f"UPDATE task SET state = 'WORK', pid = 1 WHERE id = {lost}")
    bench.do(f"UPDATE task SET start = plan WHERE id = {lost}")
    bench.do(f"UPDATE task SET state = 'TAKE' WHERE id = {taken}")
    rescued = await bench.table.rescue(lease_guid=bench.lease_guid)
    assert (1, {}) == (rescued.count, dict(rescued.others))
    assert ["WORK", "PLAN", "TAKE"] == [state_of(bench, i) for i in (working, lost, taken)]
    assert 1 == (await bench.table.rescue(lease_guid=bench.lease_guid, stale=True)).count
    assert "PLAN" == state_of(bench, taken)
    assert (await bench.finish(session, task)).recorded


# -- why it waits ---------------------------------------------------------------------------------


async def test_the_view_says_why_a_task_waits(bench: Bench) -> None:
    """And until when, where that is known."""
    first = bench.insert("SELECT 1")
    second = bench.insert("SELECT 1")
    expected = {
        bench.insert("SELECT 1", state="STOP"): "stopped",
        bench.insert("SELECT 1", plan=now() + HOUR): "planned later",
        bench.insert("SELECT 1", plan=now() + HOUR, max=-1000): "paused",
        bench.insert("SELECT 1", plan=now() + HOUR, retry=1, retried=1): "tried again later",
        bench.insert("SELECT 1", group="free"): "about to start",
        second: f"behind {first} in its group",
    }
    found = {row["id"]: row for row in bench.rows("SELECT * FROM task_waiting")}
    assert expected == {task_id: found[task_id]["why"] for task_id in expected}
    waiting = [task_id for task_id in found if found[task_id]["until"] is not None]
    assert 3 == len(waiting)
    await bench.take(first)
    reasons = {row["id"]: row["why"] for row in bench.rows("SELECT * FROM task_waiting")}
    assert f"behind {first} in its group" == reasons[second]
    assert first not in reasons


async def test_the_view_says_that_nobody_owns_the_table(bench: Bench) -> None:
    """Then nothing will start."""
    bench.insert("SELECT 1")
    await bench.table.release(bench.lease_guid)
    [row] = bench.rows("SELECT why FROM task_waiting")
    assert "nobody owns the table" == row["why"]


# -- many rows ------------------------------------------------------------------------------------


async def test_many_rows_expire_some_at_a_time(bench: Bench) -> None:
    """One call is bounded, says that there is more, and the next one goes on."""
    series = "WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 2500)"
    bench.do(f"INSERT INTO task (input, plan) {series} SELECT 'SELECT 1', '2020-01-01' FROM s")
    own = {"lease_guid": bench.lease_guid}
    counts = []
    while (expired := await bench.table.expire(**own)).has_more:
        counts.append(expired.count)
    assert [1000, 1000, 500] == [*counts, expired.count]
    assert 0 == len(bench.rows("SELECT 1 AS one FROM task WHERE state <> 'GONE'"))


async def test_what_has_expired_is_not_offered(bench: Bench) -> None:
    """Whatever waits behind it comes first."""
    for _ in range(5):
        bench.insert("SELECT 1", plan=now() - 2 * HOUR)
    paused = bench.insert("SELECT 1", plan=now() - 2 * HOUR, max=-1)  # waits as long as it takes
    fresh = bench.insert("SELECT 1")
    assert [paused, fresh] == [row.id for row in await bench.window(GROUP)]


async def test_a_look_at_everything_comes_in_pages(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every group is in one of them; a group that has nothing due does not end them."""
    for module in (postgres_table, sqlite_rows):
        monkeypatch.setattr(module, "GROUPS_MAX", 3)
    names = {f"group {number}" for number in range(8)}
    for name in names:
        bench.insert("SELECT 1", group=name)
    for number in range(5):
        bench.insert("SELECT 1", group=f"later {number}", plan=now() + HOUR)
    found: list[GroupKey] = []
    polled = await bench.table.poll(None)
    found += polled.groups
    while polled.rest is not None:
        assert len(polled.groups) <= 3
        polled = await bench.table.poll(None, after=polled.rest)
        found += polled.groups
    assert (8, names) == (len(found), {key.group for key in found})


async def test_too_much_news_is_said_to_be_that(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New rows, or rows that have come due: what one poll does not look at is looked for."""
    for module in (postgres_table, sqlite_rows):
        monkeypatch.setattr(module, "NEWS_MAX", 3)
    mark = (await bench.table.poll(None)).mark
    for number in range(4):
        bench.insert("SELECT 1", group=f"group {number}")
    polled = await bench.table.poll(mark)
    assert (True, 3) == (polled.is_cut, len(polled.groups))
    before = now() - timedelta(minutes=1)
    assert (await bench.table.poll(PollMark(id=polled.mark.id, plan=before))).is_cut
    assert not (await bench.table.poll(PollMark(id=polled.mark.id, plan=now()))).is_cut


# -- cron -----------------------------------------------------------------------------------------


async def test_a_cron_row_without_a_plan_waits_for_its_first_time(bench: Bench) -> None:
    """One with a plan is performed then, and one that is no cron fails when it is taken."""
    waits = bench.insert("SELECT 1", cron="0 3 * * *")
    given = bench.insert("SELECT 1", cron="0 3 * * *", plan=now())
    wrong = bench.insert("SELECT 1", cron="whenever")
    assert [given, wrong] == [row.id for row in await bench.window(GROUP)]
    row = bench.row(waits) or {}
    assert ("PLAN", 3, 0) == (row["state"], row["plan"].hour, row["plan"].minute)
    assert timedelta(0) < row["plan"] - now() <= timedelta(days=1)
    assert [given, wrong] == [row.id for row in await bench.window(GROUP)]


async def test_a_cron_row_that_nobody_looked_at_is_not_gone(bench: Bench) -> None:
    """Its first time counts from when it was inserted: no outage passes over it."""
    task_id = bench.insert("SELECT 1", cron="0 3 1 1 *")
    stamp = "'2020-01-01 12:00:00.000000'"
    bench.do(f"UPDATE task SET plan = {stamp}, since = {stamp} WHERE id = {task_id}")
    assert 0 == await bench.expire()
    row = bench.row(task_id) or {}
    assert ("PLAN", datetime(2021, 1, 1, 3, tzinfo=UTC)) == (row["state"], row["plan"])
    assert 1 == await bench.expire()
    following = bench.rows(f"SELECT * FROM task WHERE parent = {task_id}")
    assert ["PLAN"] == [row["state"] for row in following]
