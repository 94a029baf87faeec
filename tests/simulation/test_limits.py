"""Limits over several workers in virtual time: exact, used whole, fair, changed at run time."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from itertools import pairwise

import pytest

from gnomon.contracts.executor import AttemptRequest
from gnomon.contracts.store import Selection
from gnomon.model.ids import shard_of
from gnomon.model.spec import Kafka
from gnomon.testing.faulty import Misfortune
from tests.simulation.limited import SHARD_COUNT, Stage, most_at_once, play

ROUGH = Misfortune(delay_s=0.05, refused=0.05, unanswered=0.05)


@pytest.mark.parametrize("kind", ["queue", "target"])
@pytest.mark.parametrize("misfortune", [None, ROUGH], ids=["calm", "rough"])
def test_no_more_at_once_than_the_limit_over_all_workers(
    kind: str, misfortune: Misfortune | None
) -> None:
    """Never more, all of it is used, and everything gets done; also with lost calls and answers."""

    async def scene(stage: Stage) -> None:
        await stage.limit(kind, "default", parallel=5)
        await stage.settle()
        receiver = stage.receiver
        await stage.create(150, target="default")
        took_s = await stage.until(lambda: receiver.ended >= 150)
        assert 5 == receiver.most["default"]
        at_best_s = 150 * 0.3 / 5
        assert took_s < at_best_s * (1.6 if misfortune is None else 4)

    play(scene, misfortune=misfortune)


def test_all_of_it_is_used_by_whoever_has_work() -> None:
    """One worker's shards have all the actions: it may use what the others leave."""

    async def scene(stage: Stage) -> None:
        await stage.limit("queue", "default", parallel=6)
        await stage.settle()
        own = set(stage.members[0].worker.leases.shards)
        names = [f"b{number}" for number in range(600)]
        ids = [name for name in names if shard_of(name, SHARD_COUNT) in own]
        await stage.create_named(ids[:60])
        took_s = await stage.until(lambda: stage.receiver.ended >= 60)
        assert {"w0"} == {start.process for start in stage.receiver.starts}
        assert 6 == stage.receiver.most["mock"]
        assert took_s < 60 * 0.3 / 6 * 1.5

    play(scene)


def test_what_is_under_no_limit_is_not_held_back() -> None:
    """A limit of another queue and another target costs nothing."""

    async def scene(stage: Stage) -> None:
        await stage.limit("queue", "slow", parallel=1)
        await stage.limit("target", "slow", parallel=1)
        await stage.settle()
        await stage.create(30, queue="slow")
        await stage.create(60)
        await stage.until(lambda: stage.receiver.most["mock"] > 50, within_s=1.0)

    play(scene)


def test_a_full_target_does_not_block_the_others_of_its_queue() -> None:
    """Who goes elsewhere is not late, and no reservation runs out while others wait."""

    def took_s(order: AttemptRequest) -> float:
        return 0.5 if isinstance(order.effect, Kafka) else 0.05

    async def scene(stage: Stage) -> None:
        await stage.limit("target", "hook", parallel=2)
        await stage.settle()
        await stage.create(200, target="hook")
        await asyncio.sleep(1)
        for _ in range(20):
            await stage.create(5)
            await asyncio.sleep(0.5)
        receiver = stage.receiver
        mocks = [start for start in receiver.starts if start.kind == "mock"]
        assert 100 == len(mocks)
        assert 1.0 > max(start.late_s for start in mocks)
        await stage.until(lambda: receiver.ended >= 300)
        await asyncio.sleep(1)  # the last results are written
        assert 2 == receiver.most["hook"]
        counts = Counter(start.id for start in receiver.starts)
        assert 1 == max(counts.values())
        page = await stage.store.actions.list(Selection(), after=None, limit=1000)
        assert {"done"} == {str(action.status.state) for action in page.actions}
        assert 0 == max(action.status.failed for action in page.actions)

    play(scene, took_s=took_s)


@pytest.mark.parametrize("kind", ["queue", "target"])
def test_a_rate_holds_over_any_window_and_is_reached(kind: str) -> None:
    """The processes' parts add up to the rate."""

    async def scene(stage: Stage) -> None:
        await stage.limit(kind, "default", rate=20.0)
        await stage.settle()
        await stage.create(400, target="default")
        receiver = stage.receiver
        took_s = await stage.until(lambda: len(receiver.starts) >= 300)
        assert 300 / 20 * 0.95 < took_s < 300 / 20 * 1.25
        burst = 20 * 0.2 + 3  # of each process at least one
        assert receiver.most_within(1.0, "default") <= 20 + burst
        assert receiver.most_within(5.0, "default") <= 100 + burst

    play(scene, took_s=0.01)


def test_a_burst_may_come_at_once() -> None:
    """After a quiet time as many as the limit says."""

    async def scene(stage: Stage) -> None:
        await stage.limit("queue", "default", rate=2.0, burst=24)
        await stage.settle()
        await asyncio.sleep(30)
        await stage.create(60)
        await asyncio.sleep(1)
        assert 18 <= len(stage.receiver.starts) <= 24 + 2

    play(scene, took_s=0.01)


def test_a_slow_rate_lets_the_first_one_go() -> None:
    """One an hour: what is due alone does not wait for an hour."""

    async def scene(stage: Stage) -> None:
        await stage.limit("queue", "default", rate=1 / 60)
        await stage.settle()
        await asyncio.sleep(300)
        await stage.create(1)
        await stage.until(lambda: bool(stage.receiver.starts), within_s=1.0)

    play(scene)


@pytest.mark.parametrize("kind", ["queue", "target"])
def test_a_limit_takes_effect_and_is_lifted_at_run_time(kind: str) -> None:
    """New, lower, higher, none: about a second later everywhere, without a restart."""

    async def scene(stage: Stage) -> None:
        receiver = stage.receiver
        await stage.settle()
        await stage.create(3000, target="default")
        await stage.until(lambda: receiver.present["default"] >= 55)
        for parallel in (6, 2, 9, 0):
            await stage.limit(kind, "default", parallel=parallel)
            await asyncio.sleep(1.5)  # a second, and what was under way has ended
            receiver.reset_most()
            await asyncio.sleep(4)
            assert parallel == receiver.most["default"]
        await stage.drop(kind, "default")
        await stage.until(lambda: receiver.present["default"] >= 30, within_s=2.5)

    play(scene, took_s=0.3)


@pytest.mark.parametrize("kind", ["queue", "target"])
def test_what_is_under_way_when_a_limit_is_set_counts(kind: str) -> None:
    """Nothing is cut off, and nothing more begins until enough has ended."""

    def took_s(order: AttemptRequest) -> float:
        return 8.0 if int(order.id[1:]) < 12 else 1.0

    async def scene(stage: Stage) -> None:
        receiver = stage.receiver
        await stage.settle()
        await stage.create(12, target="default")
        await stage.until(lambda: receiver.present["default"] == 12)
        await stage.limit(kind, "default", parallel=4)
        await asyncio.sleep(1)
        await stage.create(50, target="default")
        await asyncio.sleep(6)
        assert 12 == len(receiver.starts)
        await stage.until(lambda: receiver.ended >= 62)
        assert 4 == most_at_once(receiver.starts[12:])

    play(scene, took_s=took_s)


def test_a_killed_process_gives_its_part_back_after_the_lease() -> None:
    """Until then its part is used by nobody; then all of it is used again."""

    async def scene(stage: Stage) -> None:
        receiver = stage.receiver
        await stage.limit("queue", "default", parallel=6)
        await stage.settle()
        await stage.create(2000)
        await stage.until(lambda: receiver.present["mock"] == 6)
        await asyncio.sleep(5)
        stage.members[0].kill()
        await asyncio.sleep(0.01)
        receiver.reset_most()
        await asyncio.sleep(5)
        assert receiver.most["mock"] < 6
        await stage.until(lambda: receiver.present["mock"] == 6, within_s=12)
        await asyncio.sleep(10)
        assert 6 == receiver.most["mock"]

    play(scene)


def test_a_shutdown_counts_until_the_last_attempt_has_ended() -> None:
    """The others get what it had one by one, as it ends."""

    async def scene(stage: Stage) -> None:
        receiver = stage.receiver
        await stage.limit("queue", "default", parallel=6)
        await stage.settle()
        await stage.create(300)
        await stage.until(lambda: receiver.present["mock"] == 6)
        await asyncio.sleep(15)  # the second ones have just begun
        member = stage.members[0]
        member.stop.set()
        await asyncio.wait([member.task])
        rows = stage.runner.connection.execute("SELECT count(*) FROM limit_grant").fetchone()
        assert 2 == rows[0]  # nothing is left of it
        await stage.until(lambda: receiver.present["mock"] == 6, within_s=3)
        await asyncio.sleep(20)
        assert 6 == receiver.most["mock"]

    play(scene, took_s=14.0)  # longer than a lease


def test_a_frozen_process_begins_nothing_when_it_wakes_up() -> None:
    """What it was told before is not trusted any more: the others may have it."""

    async def scene(stage: Stage) -> None:
        receiver = stage.receiver
        await stage.limit("queue", "default", parallel=6)
        await stage.settle()
        await stage.create(3000)
        await stage.until(lambda: receiver.present["mock"] == 6)
        await asyncio.sleep(3)
        stage.members[0].process.freeze(25)
        await asyncio.sleep(24)
        before = len(receiver.starts)
        assert receiver.present["mock"] > 6  # what it was at; the others have its part by now
        await asyncio.sleep(10)
        late = [start for start in receiver.starts[before - 6 :] if start.process == "w0"]
        assert late
        assert 6 == most_at_once(receiver.starts[before:])

    play(scene, took_s=0.3)


@pytest.mark.parametrize("kind", ["queue", "target"])
def test_one_for_three_starves_nobody(kind: str) -> None:
    """A limit of one and three processes with work: each gets its turn, and little time is lost."""

    async def scene(stage: Stage) -> None:
        receiver = stage.receiver
        await stage.limit(kind, "default", parallel=1)
        await stage.settle()
        await stage.create(2000, target="default")
        await asyncio.sleep(60)
        counts = Counter(start.process for start in receiver.starts)
        assert 1 == receiver.most["default"]
        assert 3 == len(counts)
        assert min(counts.values()) > sum(counts.values()) / 3 * 0.5
        assert sum(counts.values()) > 60 / 0.1 * 0.6
        for name in counts:
            times = [start.at for start in receiver.starts if start.process == name]
            assert 8 > max(after - before for before, after in pairwise(times))

    play(scene, took_s=0.1)


def test_two_for_three_are_not_given_up_at_once() -> None:
    """For one who waits one gives way, not all of them."""

    async def scene(stage: Stage) -> None:
        receiver = stage.receiver
        await stage.limit("queue", "default", parallel=2)
        await stage.settle()
        await stage.create(2000)
        await asyncio.sleep(60)
        counts = Counter(start.process for start in receiver.starts)
        assert 2 == receiver.most["mock"]
        assert min(counts.values()) > sum(counts.values()) / 3 * 0.5
        assert sum(counts.values()) > 2 * 60 / 0.1 * 0.75

    play(scene, took_s=0.1)


def test_limits_that_exist_count_from_the_first_attempt_of_a_new_process() -> None:
    """A process that starts begins nothing before it knows the limits."""

    async def scene(stage: Stage) -> None:
        receiver = stage.receiver
        await stage.limit("queue", "default", parallel=2)
        await stage.create(300)
        await stage.until(lambda: receiver.ended >= 50)
        assert 2 == receiver.most["mock"]

    play(scene, heartbeat_s=1.0)


def test_a_limited_queue_is_in_time_when_there_is_room() -> None:
    """What comes due later finds its way as soon as it is due, though nothing was held ready."""

    async def scene(stage: Stage) -> None:
        await stage.limit("queue", "default", parallel=10)
        await stage.settle()
        now = await stage.store.installation.now()
        for second in range(1, 21):
            await stage.create(1, start_at=now + timedelta(seconds=second * 3.3))
        await stage.until(lambda: stage.receiver.ended >= 20)
        assert 0.2 > max(start.late_s for start in stage.receiver.starts)

    play(scene)
