"""Workers that do not serve every stage: nothing that changes meanwhile is missed by any."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from gnomon.cli.doctor import relay_differs, unserved
from gnomon.contracts.env import Env
from gnomon.contracts.store import HeldShard
from gnomon.stages import Update, Wake
from gnomon.stages.bound_stage import LocalStage
from gnomon.stages.service import StageWorker
from gnomon.testing.stage_bench import StageBench
from tests.conformance.stages.given import It, stage
from tests.unit.stage.test_sink_ages import Seen


class Shards:
    """Some shards, held for as long as the test likes."""

    def __init__(self, number: int, holdings: Sequence[HeldShard] = ()) -> None:
        self.worker = UUID(int=number)
        self.holdings = {each.shard: each for each in holdings}

    def trusted(self) -> list[HeldShard]:
        return list(self.holdings.values())

    def holding(self, shard: int) -> HeldShard | None:
        return self.holdings.get(shard)


class Fleet:
    """Several workers on the store of one bench, which has no stages itself."""

    def __init__(self) -> None:
        self.seen = Seen()
        self.bench = StageBench("ad", observer=self.seen)
        self.workers: list[StageWorker] = []

    async def add(self, *stages: Any, holds: Sequence[HeldShard] = ()) -> StageWorker:
        bench = self.bench
        worker = StageWorker(
            bench.store,
            [LocalStage("ad", each) for each in stages],
            None,
            ownership=Shards(len(self.workers) + 1, holds),
            shard_count=bench.installation.shard_count,
            env=Env(clock=bench.clock, entropy=bench.env.entropy, observer=self.seen),
            config=bench.stages_config,
        )
        await worker.reconciler.declare()
        self.workers.append(worker)
        return worker

    async def settle(self) -> None:
        """So long that everybody has heard of everybody, and nothing is left to do."""
        for seconds in (2, 16, 2, 2):
            self.bench.clock.move_to(self.bench.now + timedelta(seconds=seconds))
            for worker in self.workers:
                worker.hint(())
                while await worker.reconciler.step() or worker.reconciler.claims.in_hand:
                    await worker.reconciler.claims.idle()
                while await worker.relay.step():
                    pass


def copying(name: str, source: str, target: str, **options: Any) -> Any:
    def process(it: It) -> Update[Any]:
        return Update({target: it.entity.get(source)})

    return stage(name, watch=source, writes=target, process=process, **options)


async def all_shards(bench: StageBench) -> list[HeldShard]:
    await bench.put("first", {})
    return bench.worker.reconciler.shards.trusted()


async def test_what_changed_while_a_stage_was_rolled_back_reaches_it_afterwards() -> None:
    """Its owner queues it unasked; the stage says itself, later, whether it wants it."""
    fleet = Fleet()
    held = await all_shards(fleet.bench)
    wanted = copying("z", "x", "zx", ask=lambda it: it.entity["x"] > 1)
    await fleet.add(copying("a", "x", "ax"), wanted, holds=held)
    await fleet.settle()
    fleet.workers.clear()
    await fleet.add(copying("a", "x", "ax"), holds=held)
    for number in range(4):
        await fleet.bench.put(f"ad-{number}", {"x": number, "other": 0})
    await fleet.settle()
    assert {"x": 3, "other": 0, "ax": 3} == fleet.bench["ad-3"]

    fleet.workers.clear()
    await fleet.add(copying("a", "x", "ax"), wanted, holds=held)
    await fleet.settle()

    assert [2, 3] == [fleet.bench[f"ad-{number}"].get("zx") for number in (2, 3)]
    assert [None, None] == [fleet.bench[f"ad-{number}"].get("zx") for number in (0, 1)]


async def test_a_worker_without_stages_asks_for_all_and_others_work_in_its_shards() -> None:
    """What users change, what stages change, timers, walks and `after_save`."""
    fleet = Fleet()
    held = await all_shards(fleet.bench)
    told: list[str] = []
    at = fleet.bench.now + timedelta(hours=1)
    timed = stage(
        "timed",
        watch="x",
        writes="timed",
        ask=lambda it: Wake(at),
        process=lambda it: Update({"timed": True}) if it.now >= at else Update(wake=at),
    )
    first = copying("first", "x", "y", after=lambda saved: told.append(saved.id))
    await fleet.bench.put("old", {"x": 1})
    await fleet.add(holds=held)
    await fleet.add(first, copying("second", "y", "z"), timed)
    await fleet.bench.put("new", {"x": 2})
    await fleet.settle()

    assert {"x": 2, "y": 2, "z": 2} == fleet.bench["new"]
    assert {"x": 1, "y": 1, "z": 1} == fleet.bench["old"]
    assert {"new", "old"} <= set(told)
    fleet.bench.clock.move_to(at)
    await fleet.settle()
    assert fleet.bench["new"]["timed"]


async def test_two_that_could_be_guests_share_the_shards() -> None:
    """Every call is made once."""
    fleet = Fleet()
    held = await all_shards(fleet.bench)
    one, other = copying("s", "x", "y"), copying("s", "x", "y")
    await fleet.add(holds=held)
    await fleet.add(one)
    await fleet.add(other)
    await fleet.settle()
    for number in range(20):
        await fleet.bench.put(f"e{number}", {"x": number})
    await fleet.settle()

    calls = [it.id for each in (one, other) for it in each.given if it.id != "first"]
    assert sorted(f"e{number}" for number in range(20)) == sorted(calls)
    assert one.given
    assert other.given


async def test_stages_of_two_processes_work_on_an_entity_one_after_the_other() -> None:
    """The row that became ready first comes first, wherever its stage is served."""
    fleet = Fleet()
    held = await all_shards(fleet.bench)
    owner = await fleet.add(copying("b", "x", "bx"), holds=held)
    guest = await fleet.add(copying("a", "x", "ax"))
    await fleet.settle()
    await fleet.bench.put("e", {"x": 1})
    fleet.bench.clock.move_to(fleet.bench.now + timedelta(seconds=2))
    owner.hint(())
    await owner.reconciler.step()
    await owner.reconciler.step()
    assert {"x": 1} == fleet.bench["e"]  # both are ready since the same moment: `a` comes first

    guest.hint(())
    await guest.reconciler.step()
    await guest.reconciler.step()
    await guest.reconciler.claims.idle()
    assert {"x": 1, "ax": 1} == fleet.bench["e"]
    await fleet.settle()
    assert {"x": 1, "ax": 1, "bx": 1} == fleet.bench["e"]


async def test_what_waits_for_another_process_is_looked_at_again_however_much_goes_on() -> None:
    """Nobody tells this process when the other is done; and it is woken all the time."""
    fleet = Fleet()
    held = await all_shards(fleet.bench)
    owner = await fleet.add(copying("a", "x", "ax"), holds=held)
    guest = await fleet.add(copying("b", "x", "bx"))
    await fleet.settle()
    await fleet.bench.put("e", {"x": 1})
    for worker in (owner, guest, guest, owner, owner, owner):  # it asks; too early; `a` works
        worker.reconciler.hint(())
        await worker.reconciler.step()
    await owner.reconciler.claims.idle()
    assert {"x": 1, "ax": 1} == fleet.bench["e"]

    for _ in range(8):
        fleet.bench.clock.move_to(fleet.bench.now + timedelta(milliseconds=400))
        guest.reconciler.wake()
        await guest.reconciler.step()
        await guest.reconciler.step()
        await guest.reconciler.claims.idle()
    assert {"x": 1, "ax": 1, "bx": 1} == fleet.bench["e"]


async def test_a_stage_that_nobody_serves_is_told() -> None:
    """A line in a minute, a metric, and a finding of the doctor with what waits."""
    fleet = Fleet()
    held = await all_shards(fleet.bench)
    await fleet.add(copying("gone", "x", "y"), holds=held)
    await fleet.settle()
    fleet.workers.clear()
    await fleet.add(holds=held)
    await fleet.bench.put("e", {"x": 1})
    await fleet.settle()
    assert 0.0 == fleet.seen.gauges["stages_unserved",]
    fleet.bench.clock.move_to(fleet.bench.now + timedelta(minutes=5))
    await fleet.settle()

    told = [fields for name, fields in fleet.seen.events if name == "stages_unserved"]
    assert [{"stages": "relay, gone"}] == told
    assert 2.0 == fleet.seen.gauges["stages_unserved",]
    (finding,) = unserved(await fleet.bench.store.register.stages(), now=fleet.bench.now)
    assert ("stage_unserved", "gone") == (finding.rule, finding.subject)
    assert "entities that wait: 1" in finding.detail
    (row,) = (await fleet.bench.explain("e")).stages
    assert ("orphan", "no process serves this stage") == (row.status, row.waits_for)


async def test_a_worker_without_the_relay_of_the_register_is_told_once() -> None:
    """It need not be wrong, but whoever left the setting out should know."""
    fleet = Fleet()
    await fleet.add(holds=await all_shards(fleet.bench))
    await fleet.settle()
    await fleet.settle()
    assert 1 == [name for name, _ in fleet.seen.events].count("relay_not_configured")


async def test_the_doctor_finds_a_relay_that_differs() -> None:
    """Configured and unknown to the register; or known, configured nowhere, and not served."""
    bench = StageBench("ad")
    await bench.put("first", {})
    register, now = await bench.store.register.stages(), bench.now
    later = now + timedelta(minutes=5)
    assert [] == relay_differs(register, configured="kafka", now=later)
    assert [] == relay_differs(register, configured=None, now=now)
    (unset,) = relay_differs(register, configured=None, now=later)
    assert ("relay_differs", "relay") == (unset.rule, unset.subject)
    assert "set stages.relay" in unset.detail
    (unknown,) = relay_differs([], configured="kafka", now=now)
    assert "start a worker" in unknown.detail


async def test_a_new_stage_without_backfill_hears_of_changes_once_the_owners_know_it() -> None:
    """Until an owner has read the register again, it asks the stages that it knows: what changes in
    these two seconds counts as before the stage's time, for a walk is what it did not want."""
    fleet = Fleet()
    owner = await fleet.add(copying("old", "x", "ox"), holds=await all_shards(fleet.bench))
    await fleet.settle()
    await fleet.add(copying("late", "x", "lx", backfill=False))
    await fleet.bench.put("e", {"x": 1})
    owner.hint(())
    while await owner.reconciler.step() or owner.reconciler.claims.in_hand:
        await owner.reconciler.claims.idle()
    await fleet.settle()
    assert {"x": 1, "ox": 1} == fleet.bench["e"]

    await fleet.bench.patch("e", {"x": 2})
    await fleet.settle()
    assert {"x": 2, "ox": 2, "lx": 2} == fleet.bench["e"]
