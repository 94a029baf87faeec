"""The owner of a table against a table in memory: sql_tasks.md 6.2 under virtual time."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest

from gnomon.clock import wait_set
from gnomon.model.task.conf import TaskEntry
from tests.unit.tasks.fake_table import Row, World, at_once, virtually


def starts_s(rows: list[Row]) -> list[float]:
    """Seconds after the first start, in order of id."""
    begin = min(row.start for row in rows if row.start)
    return [(row.start - begin).total_seconds() for row in rows if row.start]


def sessions_of(rows: list[Row]) -> list[int]:
    """Which session performed each, numbered in order of appearance."""
    pids = list(dict.fromkeys(row.pid for row in rows))
    return [pids.index(row.pid) for row in rows]


def in_order(rows: list[Row]) -> bool:
    begins = [row.start for row in rows if row.start]
    return begins == sorted(begins)


def perform(number: int, *, settings: dict[str, Any] | None = None, **columns: Any) -> list[Row]:
    """Insert so many alike and wait for their end."""
    rows: list[Row] = []

    async def story(world: World) -> None:
        rows.extend(world.table.insert(**columns) for _ in range(number))
        await world.all_ended()

    virtually(story, **(settings or {}))
    return rows


# -- max ------------------------------------------------------------------------------------------


def test_without_max_one_at_a_time_in_order_of_id() -> None:
    """B09."""
    rows = perform(3, takes_s=0.5)
    assert 1 == at_once(rows)
    assert in_order(rows)
    assert [0, 1, 2] == sessions_of(rows)


def test_max_is_how_many_beside_it() -> None:
    """B10: concurrency exactly max + 1, in order of id."""
    rows = perform(10, takes_s=0.5, max=1)
    assert 2 == at_once(rows)
    assert in_order(rows)


def test_higher_max_overtakes() -> None:
    """B11: it starts while two others run, before four that are older."""
    rows: list[Row] = []

    async def story(world: World) -> None:
        rows.extend(world.table.insert(takes_s=1.0, max=1) for _ in range(6))
        await asyncio.sleep(0.4)
        rows.append(world.table.insert(takes_s=1.0, max=2))
        await world.all_ended()

    virtually(story)
    assert 3 == at_once(rows)
    assert 3 == sorted(starts_s(rows)).index(starts_s(rows)[6]) + 1
    assert in_order(rows[:6])


def test_highest_max_first_then_one_by_one() -> None:
    """3.2: of 3 x max 0 and 1 x max 5 inserted together the last one goes first."""
    rows: list[Row] = []

    async def story(world: World) -> None:
        world.table.hints = False  # seen together
        rows.extend(world.table.insert(takes_s=0.5) for _ in range(3))
        rows.append(world.table.insert(takes_s=0.5, max=5))
        await world.all_ended()

    virtually(story)
    assert [1, 2, 3, 0] == [sorted(starts_s(rows)).index(at) for at in starts_s(rows)]


def test_plan_is_no_order() -> None:
    """B11c."""
    rows: list[Row] = []

    async def story(world: World) -> None:
        rows.extend(world.table.insert(plan_s=plan) for plan in (-1, -10, -5))
        await world.all_ended()

    virtually(story)
    assert in_order(rows)


@pytest.mark.parametrize(("drift", "takes_s"), [(False, 0.01), (False, 1.2), (True, 0.01)])
def test_negative_max_is_a_pause(drift: bool, takes_s: float) -> None:
    """B12, B12b, B12c: on the grid of the plan, or from the end."""
    rows = perform(4, takes_s=takes_s, max=-500, drift=drift)
    assert 1 == at_once(rows)
    gaps = [(later.plan - row.plan).total_seconds() for row, later in pairwise(rows)]
    if drift:
        waits = [
            (later.plan - row.stop).total_seconds() for row, later in pairwise(rows) if row.stop
        ]
        assert [0.5, 0.5, 0.5] == waits
    else:
        assert [0.5 if takes_s < 0.5 else 1.5] * 3 == gaps


def test_groups_do_not_count_against_each_other() -> None:
    """B16: two groups x max 1 are four at once."""
    rows: list[Row] = []

    async def story(world: World) -> None:
        for group in ("a", "b"):
            rows.extend(world.table.insert(group, takes_s=1.0, max=1) for _ in range(4))
        await world.all_ended()

    virtually(story)
    assert 4 == at_once(rows)
    assert 2 == at_once(rows[:4])
    assert 2 == at_once(rows[4:])


def test_remote_is_a_part_of_the_group() -> None:
    """B16b: the same name with and without a remote are two groups."""
    rows: list[Row] = []

    async def story(world: World) -> None:
        rows.append(world.table.insert("g", takes_s=0.5))
        rows.append(world.table.insert("g", takes_s=0.5, remote="host=x"))
        await world.all_ended()

    virtually(story)
    assert 2 == at_once(rows)


def test_run_caps_all_groups() -> None:
    """J3."""
    rows: list[Row] = []

    async def story(world: World) -> None:
        rows.extend(world.table.insert(f"g{number}", takes_s=0.6) for number in range(5))
        await world.all_ended()

    virtually(story, run=2)
    assert 2 == at_once(rows)
    assert in_order(rows)


# -- live and count -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "takes_s", "count", "expected"),
    [
        ({"count": 3}, 0.01, 7, [0, 0, 0, 1, 1, 1, 2]),  # B15
        ({"live_s": 1.0}, 0.3, 7, [0, 0, 0, 0, 1, 1, 1]),  # B15b
        ({"live_s": 1.0, "count": 2}, 0.01, 7, [0, 0, 1, 1, 2, 2, 3]),  # B15c
        ({"max": -300, "count": 5}, 0.01, 3, [0, 1, 2]),  # B15g
        ({}, 0.01, 3, [0, 1, 2]),
    ],
)
def test_sessions_are_reused(
    columns: dict[str, Any], takes_s: float, count: int, expected: list[int]
) -> None:
    assert expected == sessions_of(perform(count, takes_s=takes_s, **columns))


def test_sessions_side_by_side_are_reused() -> None:
    """B15e: two at once, three tasks each."""
    sessions = sessions_of(perform(6, takes_s=0.3, max=1, count=10))
    assert [3, 3] == [sessions.count(0), sessions.count(1)]


def test_error_does_not_end_reuse() -> None:
    """B15h."""
    rows: list[Row] = []

    async def story(world: World) -> None:
        rows.extend(world.table.insert(count=5) for _ in range(4))
        rows[1].error = "ERROR:  division by zero"
        await world.all_ended()

    virtually(story)
    assert ["DONE", "FAIL", "DONE", "DONE"] == [row.state for row in rows]
    assert [0, 0, 0, 0] == sessions_of(rows)


def test_rows_without_count_are_skipped_by_reuse() -> None:
    """3.7: a later row with count goes before an earlier one without."""
    rows: list[Row] = []

    async def story(world: World) -> None:
        world.table.hints = False
        rows.append(world.table.insert(count=5, takes_s=0.1))
        rows.append(world.table.insert(takes_s=0.1))
        rows.append(world.table.insert(count=5, takes_s=0.1))
        await world.all_ended()

    virtually(story)
    assert [0, 1, 0] == sessions_of(rows)
    assert starts_s(rows)[2] < starts_s(rows)[1]


def test_row_that_is_gone_ends_no_reuse() -> None:
    """The next one that can be had is taken on the same session."""
    rows: list[Row] = []

    async def story(world: World) -> None:
        rows.extend(world.table.insert(count=9, takes_s=0.5) for _ in range(4))
        await world.until(lambda: rows[0].state == "WORK")
        rows[1].state = "STOP"
        rows[2].plan += timedelta(hours=9)
        await world.until(lambda: rows[3].state == "DONE")

    virtually(story)
    assert rows[0].pid == rows[3].pid
    assert ["DONE", "STOP", "PLAN", "DONE"] == [row.state for row in rows]


# -- fairness and speed ---------------------------------------------------------------------------


def test_long_queue_does_not_starve_another_group() -> None:
    """5.12: one row of another group starts at once beside 3,000 that are older."""
    late: list[Row] = []

    async def story(world: World) -> None:
        for _ in range(3_000):
            world.table.insert("a", takes_s=0.1)
        await asyncio.sleep(1.0)
        late.append(world.table.insert("b"))
        await world.until(lambda: late[0].state == "DONE", within_s=1.0)
        world.table.rows.clear()

    virtually(story)
    assert "DONE" == late[0].state


def test_reused_session_gives_way_to_a_group_that_waits_for_a_slot() -> None:
    """With `run` reached, an endless queue on a reused session does not starve another group."""
    late: list[Row] = []

    async def story(world: World) -> None:
        for _ in range(300):
            world.table.insert("a", takes_s=0.1, live_s=3600.0)
        await asyncio.sleep(0.5)
        late.append(world.table.insert("b"))
        await world.until(lambda: late[0].state == "DONE", within_s=3.0)
        await world.all_ended()

    virtually(story, run=1)
    assert "DONE" == late[0].state


def test_groups_take_turns() -> None:
    """With `run` reached, no group gets ahead of another by more than one."""
    rows: list[Row] = []

    async def story(world: World) -> None:
        for group in ("a", "b", "c"):
            rows.extend(world.table.insert(group, takes_s=0.1) for _ in range(5))
        await world.all_ended()

    virtually(story, run=1)
    order = [row.group for row in sorted(rows, key=lambda row: row.start or row.plan)]
    assert {3} == {len(set(order[begin : begin + 3])) for begin in range(1, 11)}


def test_queue_longer_than_the_window_is_performed_whole() -> None:
    """More rows than are kept in memory: none is forgotten, the order holds, and more are read
    before they run out, so that the session goes on."""
    rows = perform(4_500, count=10_000)
    assert {"DONE"} == {row.state for row in rows}
    assert in_order(rows)
    assert {0} == set(sessions_of(rows))


def test_windows_are_read_rarely() -> None:
    """A queue costs a window now and then, not one for each task."""
    calls: dict[str, int] = {}

    async def story(world: World) -> None:
        for _ in range(3_000):
            world.table.insert(count=10_000)
        await world.all_ended()
        calls.update(world.table.calls)

    virtually(story)
    assert calls["window"] < 20


def test_a_session_wakes_the_finder_for_what_it_lacks_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A task that starts does not have its owner look for others while enough are known, nor while
    these are being read: 5,000 of them have it rest some dozen times."""
    rests: list[float] = []

    async def rest(event: asyncio.Event, timeout_s: float) -> bool:
        rests.append(timeout_s)
        return await wait_set(event, timeout_s)

    monkeypatch.setattr("gnomon.tasks.finder.wait_set", rest)
    perform(5_000, count=10_000)
    assert len(rests) < 100


def test_task_starts_within_10_ms_of_its_insert() -> None:
    """At idle, by the hint and not by the poll."""

    async def story(world: World) -> None:
        await asyncio.sleep(5.0)
        row = world.table.insert()
        await world.all_ended(1.0)
        assert row.start is not None
        assert row.start - row.plan <= timedelta(milliseconds=10)

    virtually(story, sleep=timedelta(seconds=1))


def test_without_a_hint_a_task_is_found_within_sleep() -> None:
    """The poll is the truth."""

    async def story(world: World) -> None:
        await asyncio.sleep(5.05)
        row = world.table.insert()
        await world.all_ended()
        assert row.start is not None
        assert row.start - row.plan <= timedelta(milliseconds=120)

    virtually(story, hints=False, sleep=timedelta(milliseconds=100))


def test_planned_task_starts_at_its_time() -> None:
    """B01: it is waited for, not polled for."""

    async def story(world: World) -> None:
        row = world.table.insert(plan_s=70.25)
        await world.all_ended()
        assert row.start is not None
        assert timedelta(0) <= row.start - row.plan <= timedelta(milliseconds=12)

    virtually(story, sleep=timedelta(seconds=30))


def test_stopped_row_set_back_to_plan_is_found() -> None:
    """S1: by a look at everything, for neither its id nor its plan is new."""

    async def story(world: World) -> None:
        row = world.table.insert(state="STOP")
        world.table.insert()
        await asyncio.sleep(60)
        assert row.start is None
        row.state = "PLAN"
        await world.all_ended(12.0)

    virtually(story, hints=False)


def test_expired_task_is_gone_when_it_expires() -> None:
    """B13d: not when its turn comes."""
    rows: list[Row] = []

    async def story(world: World) -> None:
        rows.extend(world.table.insert(takes_s=1.5, active=timedelta(seconds=1)) for _ in range(3))
        await world.all_ended()

    virtually(story)
    assert ["DONE", "GONE", "GONE"] == [row.state for row in rows]
    for row in rows[1:]:
        assert row.start is not None
        assert timedelta(seconds=1) <= row.start - row.plan <= timedelta(seconds=1.05)


def test_idle_table_is_looked_at_once_per_sleep() -> None:
    """No busy waiting."""
    calls: dict[str, int] = {}

    async def story(world: World) -> None:
        await asyncio.sleep(1)
        before = dict(world.table.calls)
        await asyncio.sleep(100)
        calls.update({name: world.table.calls[name] - before.get(name, 0) for name in before})

    virtually(story, sleep=timedelta(seconds=1))
    assert 90 <= calls["poll full"] + calls.get("poll", 0) <= 110
    assert 0 == calls.get("window", 0)


# -- trouble --------------------------------------------------------------------------------------


def test_too_many_connections_are_waited_out() -> None:
    """No task fails because the server has no connection left."""
    rows: list[Row] = []

    async def story(world: World) -> None:
        world.table.connections_max = 2
        rows.extend(world.table.insert(f"g{number}", takes_s=0.5) for number in range(6))
        await world.all_ended()

    virtually(story)
    assert {"DONE"} == {row.state for row in rows}


def test_server_crash_loses_nothing() -> None:
    """What was performed goes back to PLAN and is performed again."""
    rows: list[Row] = []

    async def story(world: World) -> None:
        rows.extend(world.table.insert(f"g{number}", takes_s=5.0) for number in range(10))
        await world.until(lambda: all(row.state == "WORK" for row in rows))
        world.table.crash()
        await asyncio.sleep(3.0)
        world.table.is_away = False
        await world.all_ended()

    virtually(story)
    assert {"DONE"} == {row.state for row in rows}


def test_task_that_breaks_its_session_twice_is_performed_again() -> None:
    rows = perform(1, kills=2)
    assert ["DONE"] == [row.state for row in rows]


def test_task_that_breaks_its_session_three_times_fails() -> None:
    """With the server's words, instead of a loop without end."""
    rows = perform(1, kills=10)
    assert ["FAIL"] == [row.state for row in rows]
    assert "FATAL:  terminating connection" == rows[0].error
    assert 7 == rows[0].kills


def test_remote_that_cannot_be_reached_fails_the_task() -> None:
    """R1: start and pid stay empty."""
    rows: list[Row] = []

    async def story(world: World) -> None:
        world.table.refused_remotes.add("host=x")
        rows.append(world.table.insert(remote="host=x"))
        await world.all_ended()

    virtually(story)
    assert ("FAIL", "ERROR:  no way", None) == (rows[0].state, rows[0].error, rows[0].start)


def test_row_stuck_in_take_goes_back_after_reset() -> None:
    """S1b."""

    async def story(world: World) -> None:
        await asyncio.sleep(1)
        row = world.table.insert(state="TAKE")
        await asyncio.sleep(30)
        assert "TAKE" == row.state
        await world.all_ended(40)

    virtually(story, reset=timedelta(seconds=60))


def test_stop_lets_tasks_end_and_takes_no_more() -> None:
    rows: list[Row] = []

    async def story(world: World) -> None:
        rows.extend(world.table.insert(takes_s=5.0) for _ in range(2))
        await world.until(lambda: rows[0].state == "WORK")

    world = virtually(story)
    assert ["DONE", "PLAN"] == [row.state for row in rows]
    assert world.table.lease is None


def test_stop_gives_up_what_takes_too_long() -> None:
    """The rest is cancelled and goes back to PLAN."""
    rows: list[Row] = []

    async def story(world: World) -> None:
        rows.append(world.table.insert(takes_s=500.0))
        await world.until(lambda: rows[0].state == "WORK")

    world = virtually(story)
    assert ["PLAN"] == [row.state for row in rows]
    assert world.table.lease is None
    assert not world.table.sessions


def test_settings_change_while_it_serves() -> None:
    """A larger `run` counts at once."""
    rows: list[Row] = []

    async def story(world: World) -> None:
        rows.extend(world.table.insert(f"g{number}", takes_s=5.0) for number in range(4))
        await world.until(lambda: [row.state for row in rows].count("WORK") == 1)
        owner.change(TaskEntry(data="fake", user="fake", run=3))
        await world.until(lambda: [row.state for row in rows].count("WORK") == 3, within_s=1.0)
        await world.all_ended()

    owner: Any = None

    async def with_owner(world: World) -> None:
        nonlocal owner
        world.stop.set()
        await asyncio.sleep(1)
        world.stop = asyncio.Event()
        owner, serving = world.start("two")
        await story(world)
        world.stop.set()
        await serving

    virtually(with_owner, run=1)
    assert 3 == at_once(rows)


# -- several owners -------------------------------------------------------------------------------


def test_another_owner_takes_over_when_the_lease_ends() -> None:
    """One owner at a time; the other takes over within the lease and a beat."""

    async def story(world: World) -> None:
        await world.until(lambda: world.table.lease is not None)
        second, serving = world.start("two")
        await asyncio.sleep(20)
        assert not second.is_ours
        world.table.lease = None  # the first one finds out at its next beat
        await world.until(lambda: world.table.lease is not None, within_s=7.0)
        world.stop.set()
        await serving

    virtually(story)


async def lost_to_another(world: World, process: str | None) -> None:
    """Somebody else has the table, and has just fallen silent."""
    owner, table = world.owners[0], world.table
    await world.until(lambda: owner.is_ours)
    table.lease, table.process = UUID(int=7), process
    table.beat_at = world.env.clock.monotonic()
    await world.until(lambda: not owner.is_ours)


def taken_over_after_s(process: str | None) -> float:
    """How long the table stays without an owner; `process` is the silent one's."""
    waited: list[float] = []

    async def story(world: World) -> None:
        await lost_to_another(world, process)
        silent_since = world.table.beat_at
        world.processes.ended.add("gone")
        await world.until(lambda: world.owners[0].is_ours)
        waited.append(world.env.clock.monotonic() - silent_since)

    virtually(story)
    return waited[0]


def test_table_of_a_dead_process_is_taken_over_at_once() -> None:
    """The machine says that it has ended, and it missed two beats: nobody waits for the lease."""
    assert 2.0 <= taken_over_after_s("gone") < 3.0


@pytest.mark.parametrize("process", ["lives", None])
def test_table_of_a_silent_process_is_taken_over_when_both_clocks_agree(process: str) -> None:
    """The database's, and our own since we saw its lock."""
    assert 5.0 <= taken_over_after_s(process) < 7.0


def test_owner_whose_server_was_away_goes_on_at_once() -> None:
    """Its own lease is still there: nobody had it meanwhile, so there is nobody to wait for."""

    async def story(world: World) -> None:
        owner, table = world.owners[0], world.table
        await world.until(lambda: owner.is_ours)
        lease_guid, table.is_away = table.lease, True
        await world.until(lambda: not owner.is_ours)
        table.is_away = False
        await world.until(lambda: owner.is_ours, within_s=2.5)
        assert lease_guid == table.lease

    virtually(story)


def test_backends_of_a_former_owner_count_against_max() -> None:
    """What they perform is left to them, and nothing starts beside it that may not."""
    rows: list[Row] = []

    async def story(world: World) -> None:
        world.stop.set()
        await asyncio.sleep(1)
        table = world.table
        old, new = table.insert(takes_s=1.0), table.insert(takes_s=1.0)
        rows.extend([old, new])
        table.alive.add(7)
        old.state, old.pid, old.start = "WORK", 7, table.clock.now()
        world.stop = asyncio.Event()
        _, serving = world.start("two")
        await asyncio.sleep(5)
        assert "PLAN" == new.state
        table.alive.remove(7)
        await world.all_ended()
        world.stop.set()
        await serving

    virtually(story)
    assert ["DONE", "DONE"] == [row.state for row in rows]
    assert 1 == at_once(rows)


# -- rows that hold up nobody ---------------------------------------------------------------------


def test_expired_remote_task_is_gone_and_not_performed() -> None:
    """As a local one: it is not even connected for."""
    rows: list[Row] = []
    calls: dict[str, int] = {}

    async def story(world: World) -> None:
        world.table.is_away = True
        two = timedelta(seconds=2)
        rows.extend(world.table.insert(remote=name, active=two) for name in (None, "there"))
        await asyncio.sleep(4)
        world.table.is_away = False
        await world.all_ended()
        calls.update(world.table.calls)

    virtually(story)
    assert ["GONE", "GONE"] == [row.state for row in rows]
    assert 0 == calls.get("open", 0)


def test_row_that_cannot_be_changed_waits_longer_each_time_and_alone() -> None:
    """The others of its group are performed."""
    rows: list[Row] = []
    calls: dict[str, int] = {}

    async def story(world: World) -> None:
        bad = world.table.insert(remote="there")
        world.table.poisoned.add(bad.id)
        rows.extend(world.table.insert(remote="there") for _ in range(5))
        await asyncio.sleep(60)
        calls.update(world.table.calls)

    virtually(story)
    assert ["DONE"] * 5 == [row.state for row in rows]
    assert calls["mark_taken"] < 5 + 10


def test_refused_row_that_is_locked_fails_when_it_is_free() -> None:
    """Nobody waits for it meanwhile."""
    rows: list[Row] = []

    async def story(world: World) -> None:
        world.table.refused_remotes.add("nowhere")
        locked = world.table.insert(remote="nowhere")
        rows.append(locked)
        await world.until(lambda: locked.state == "TAKE")  # and is being connected for
        world.table.locked.add(locked.id)
        rows.append(world.table.insert())
        await asyncio.sleep(30)
        assert ("TAKE", "DONE") == (rows[0].state, rows[1].state)
        world.table.locked.clear()
        await world.all_ended()

    virtually(story)
    assert "FAIL" == rows[0].state


def test_many_groups_are_found_page_by_page() -> None:
    """Whatever one poll looks at."""
    rows: list[Row] = []

    async def story(world: World) -> None:
        world.table.groups_max, world.table.news_max = 7, 3
        rows.extend(world.table.insert(f"group {number}") for number in range(100))
        await world.all_ended()

    virtually(story, hints=False)
    assert ["DONE"] * 100 == [row.state for row in rows]


def test_expiry_of_many_rows_leaves_time_for_others() -> None:
    """A fresh task does not wait for the end of it."""
    states: list[str] = []

    async def story(world: World) -> None:
        world.table.expired_max = 10
        for _ in range(2_000):
            world.table.insert("old", plan_s=-7200)
        fresh = world.table.insert("fresh")
        await asyncio.sleep(0.3)
        states.append(fresh.state)
        states.append(world.table.rows[2_000].state)
        await world.all_ended()

    virtually(story)
    assert ["DONE", "PLAN"] == states


def test_groups_that_come_and_go_are_forgotten() -> None:
    """What is known of when they were looked at is bounded by time, not by their number."""
    known: list[int] = []

    async def story(world: World) -> None:
        finder = world.owners[0]._sessions.finder  # what it keeps shows nowhere else
        for number in range(300):
            world.table.insert(f"group {number}")
            await asyncio.sleep(0.1)
        known.append(len(finder._loads))

    virtually(story)
    assert known[0] < 150


def test_max_that_is_raised_counts_at_once() -> None:
    """While the one before it goes on."""
    rows: list[Row] = []

    async def story(world: World) -> None:
        rows.extend(world.table.insert(takes_s=60) for _ in range(2))
        await asyncio.sleep(2)
        rows[1].max = 1
        world.table.hint()
        await asyncio.sleep(0.5)
        assert ["WORK", "WORK"] == [row.state for row in rows]

    virtually(story)
