"""A worker stands still, by SIGSTOP or by its own event loop, and another one takes over."""

from __future__ import annotations

import json
import time
from datetime import timedelta

import pytest

from gnomon.app import App
from gnomon.model.action import State
from tests.fault.program import DURATIONS, SHARD_COUNT, block, hold_first, note
from tests.fault.stage import Stage, all_done, create_all, owners, request, stop_all, until
from tests.fixtures.processes import ChildProcess

LEASE_S = DURATIONS["lease"]
TAKE_OVER_S = 10 * LEASE_S  # how long a test is willing to wait on a busy machine
LONG = timedelta(seconds=40)
WINDOW = timedelta(seconds=1)  # so a frozen attempt's reservation ends long before its time-out
WINDOW_OPTION = ("--window", "1")


async def _sole_owner(app: App, child: ChildProcess) -> bool:
    return {child.process_id: SHARD_COUNT} == await owners(app)


async def _freeze_three_leases(app: App, frozen: ChildProcess, other: ChildProcess) -> None:
    """SIGSTOP until the other one has everything and three lease times are over."""
    frozen.freeze()
    thaw_at = time.monotonic() + 3 * LEASE_S
    taken_s = await until(lambda: _sole_owner(app, other), "take-over", timeout_s=TAKE_OVER_S)
    print(f"\n  all shards taken over {taken_s:.2f} s after SIGSTOP (lease {LEASE_S:g} s)")
    await until(lambda: time.monotonic() >= thaw_at, "end of the freeze")


@pytest.mark.slow
async def test_frozen_worker_is_replaced_and_its_result_is_late(postgres_stage: Stage) -> None:
    """The other worker attempts again; what the thawed one reports is kept as late."""
    stage = postgres_stage
    async with stage.app() as app:
        frozen = await stage.worker(*WINDOW_OPTION)
        wanted = [request(f"h-{n}", hold_first(n), timeout=LONG) for n in range(10)]
        names = await create_all(app, wanted)
        await stage.started(10)
        other = await stage.worker(*WINDOW_OPTION)
        await _freeze_three_leases(app, frozen, other)
        await all_done(app, 10)
        assert 20 == stage.start_count()
        stage.let_go()
        frozen.thaw()

        async def late_outcomes() -> bool:
            logs = [await app.scheduler.attempts(name) for name in names]
            return all(["succeeded", "late_succeeded"] == [a.outcome for a in log] for log in logs)

        await until(late_outcomes, "late results in the attempt log")
        more = await create_all(app, [request(f"m-{n}", note(n, 0.0)) for n in range(200)])
        await all_done(app, 210)
        await stage.assert_kept(app, [*names, *more], timeout=WINDOW)
        assert [0, 0] == await stop_all(frozen, other)


@pytest.mark.slow
async def test_late_result_is_taken_back_if_nothing_newer_began(postgres_stage: Stage) -> None:
    """An interruption that was none is corrected: one attempt, one success."""
    stage = postgres_stage
    async with stage.app() as app:
        frozen = await stage.worker(*WINDOW_OPTION)
        held = request("held", hold_first(0), timeout=LONG, queue="narrow")
        await create_all(app, [held])
        await stage.started(1)
        other = await stage.worker(*WINDOW_OPTION, "--closed-queue", "narrow")
        await _freeze_three_leases(app, frozen, other)

        async def swept() -> bool:
            return 1 == (await app.scheduler.get("held")).status.interrupted

        await until(swept, "an interrupted attempt")
        stage.let_go()
        frozen.thaw()
        await all_done(app, 1)
        status = (await app.scheduler.get("held")).status
        assert (1, 1, 0) == (status.attempts, status.succeeded, status.interrupted)
        await stage.assert_kept(app, ["held"], timeout=WINDOW)
        assert [0, 0] == await stop_all(frozen, other)


@pytest.mark.slow
async def test_blocked_event_loop_loses_its_shards(postgres_stage: Stage) -> None:
    """A function that blocks the loop stops the heart, so others take over; later it recovers."""
    stage = postgres_stage
    async with stage.app() as app:
        blocked = await stage.worker(*WINDOW_OPTION)
        names = await create_all(app, [request("block", block(0), timeout=LONG)])
        await stage.started(1)
        other = await stage.worker(*WINDOW_OPTION)
        await until(lambda: _sole_owner(app, other), "take-over", timeout_s=TAKE_OVER_S)
        assert [None] == [r.ended_at for r in stage.runs() if r.pid == blocked.process_id]
        events = [json.loads(line) for line in blocked.log.splitlines() if line.startswith("{")]
        withheld = [e["stuck_for_s"] for e in events if e["event"] == "heartbeat_withheld"]
        assert min(withheld) > LEASE_S / 3
        more = await create_all(app, [request(f"m-{n}", note(n, 0.0)) for n in range(100)])
        await all_done(app, 101)
        stage.let_go()

        async def both_work() -> bool:
            return {blocked.process_id, other.process_id} == set(await owners(app))

        await until(both_work, "the blocked one's return")
        assert State.DONE == (await app.scheduler.get("block")).status.state
        await stage.assert_kept(app, [*names, *more], timeout=WINDOW)
        assert [0, 0] == await stop_all(blocked, other)


@pytest.mark.slow
async def test_newcomer_gets_its_share(postgres_stage: Stage) -> None:
    """Workers that join hold their part of the shards soon, under load, and nothing suffers."""
    stage = postgres_stage
    async with stage.app() as app:
        workers = [await stage.worker()]
        await until(lambda: _sole_owner(app, workers[0]), "all shards")
        names = await _created(app, range(1_000))
        for count in (2, 3):
            workers.append(await stage.worker())
            names += await _created(app, range(len(names), len(names) + 1_500))
            most = -(-SHARD_COUNT // count)
            least = SHARD_COUNT - most * (count - 1)

            async def fair(most: int = most, least: int = least) -> bool:
                held = await owners(app)
                return {w.process_id for w in workers} == set(held) and all(
                    least <= number <= most for number in held.values()
                )

            taken_s = await until(fair, f"fair shares of {count}")
            print(f"\n  fair shares of {count} workers after {taken_s:.2f} s", end="")
        names += await _created(app, range(len(names), len(names) + 200))
        await all_done(app, len(names))
        history = await stage.assert_kept(app, names)
        assert len(names) == len(history.runs), "moving shards repeats nothing"
        assert {w.process_id for w in workers} == {run.pid for run in history.runs}
        assert [0, 0, 0] == await stop_all(*workers)


async def _created(app: App, numbers: range) -> list[str]:
    return await create_all(app, [request(f"a-{n}", note(n, 0.1)) for n in numbers])
