"""Walks over the base, lanes, revisions, limits (stages.md 5.6-5.9, 5.12, 5.13)."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from gnomon.stages import Quarantine, Update
from gnomon.testing.stage_bench import StageBench
from tests.conformance.stages.given import It, serve_anew, settled, stage

MANY = {f"e{n:03}": {"n": n} for n in range(120)}


async def served_anew(bench: StageBench, *stages: Any) -> StageBench:
    """A program with other stages has settled on the same store."""
    serve_anew(bench, *stages)
    await bench.run_due()
    return bench


async def test_a_new_stage_walks_the_whole_base_in_the_background() -> None:
    """First seen: it is shown everything there is, once."""
    bench = await settled(entities=MANY)
    late = stage("late")
    await served_anew(bench, late)
    assert sorted(MANY) == sorted(it.id for it in late.given)
    assert {frozenset({"backfill r1"})} == {it.reasons for it in late.given}


async def test_a_new_stage_may_refuse_the_walk() -> None:
    """`backfill = False`."""
    bench = await settled(entities=MANY)
    late = stage("late", backfill=False)
    await served_anew(bench, late)
    assert [] == late.given


async def test_a_raised_revision_walks_again_and_a_lower_one_does_not() -> None:
    """The highest revision seen is stored."""
    bench = await settled(stage("s"), entities=MANY)
    raised = stage("s", revision=2)
    await served_anew(bench, raised)
    assert len(MANY) == len(raised.given)
    lower = stage("s", revision=1)
    await served_anew(bench, lower)
    assert [] == lower.given


async def test_a_raised_revision_frees_what_was_quarantined() -> None:
    """The author has mended it."""

    def fail(_: It) -> None:
        raise ValueError("bug")

    bench = StageBench("ad", stage("s", process=fail))
    await bench.put("e", {})
    await bench.advance(days=2)
    assert 1 == len(await bench.parked())
    mended = stage("s", revision=2)
    await served_anew(bench, mended)
    assert [] == list(await bench.parked())
    assert {"e"} == {it.id for it in mended.given}


async def test_a_walk_frees_nothing_that_was_given_up() -> None:
    """It changed nothing; a raised revision, a change of the entity and `release` do free it."""

    def give_up(_: It) -> None:
        raise Quarantine("a person, please")

    bad = stage("bad", process=give_up)
    bench = await settled(bad, entities={"e": {}})
    await bench.stages.backfill("bad")
    await bench.run_due()
    assert (1, 1) == (len(bad.given), len(await bench.parked()))


async def test_a_walk_asks_first() -> None:
    """`should_process` decides for each entity."""
    bench = await settled(entities=MANY)
    late = stage("late", ask=lambda it: it.entity["n"] % 2 == 0)
    await served_anew(bench, late)
    assert (120, 60) == (len(late.asked), len(late.given))


async def test_rows_of_a_stage_nobody_serves_wait_and_revive() -> None:
    """A rolling deploy has both codes at once: nothing is deleted."""
    bench = await settled(
        stage("s", process=lambda it: Update(wake=it.now + timedelta(days=1))), entities={"e": {}}
    )
    await served_anew(bench, stage("other"))
    await bench.advance(days=2)
    [row] = [each for each in (await bench.explain("e")).stages if each.stage == "s"]
    assert "orphan" == row.status
    revived = stage("s")
    await served_anew(bench, revived)
    assert 1 == len(revived.given)
    assert "timer" in revived.given[0].reasons


async def test_forget_removes_a_stages_queue_timers_and_states() -> None:
    """For good: if the name returns it is new."""
    keeping = stage("s", process=lambda it: Update(state=1, wake=it.now + timedelta(days=1)))
    bench = await settled(keeping, entities={"e": {}})
    assert 0 < await bench.stages.entities.forget_stage("s")
    assert () == (await bench.explain("e")).stages
    assert (None, 0) == await bench.stages.state("s", "e").read()


async def test_a_renamed_stage_takes_its_rows_and_states_over() -> None:
    """`formerly`: no walk, nothing lost."""
    bench = await settled(
        stage("old", process=lambda it: Update(state=7, wake=it.now + timedelta(days=1))),
        entities={"e": {}},
    )
    renamed = stage("new", formerly="old")
    await served_anew(bench, renamed)
    assert [] == renamed.given
    await bench.advance(days=2)
    assert [7] == [it.state for it in renamed.given]


async def test_the_background_lane_has_a_guaranteed_share() -> None:
    """Of ten claims at least one goes to the walk, while fresh changes keep coming."""
    bench = await settled(entities=MANY)
    order: list[str] = []
    late = stage("late", watch="n", parallel=1, process=lambda it: order.append(it.id))
    serve_anew(bench, late)
    for n in range(60):
        await bench.put(f"f{n}", {"n": n})
    await bench.run_due()
    first_walked = next(place for place, name in enumerate(order) if name.startswith("e"))
    assert first_walked < 60 + 60
    assert {*MANY, *(f"f{n}" for n in range(60))} == set(order)


async def test_one_stage_at_a_time_works_on_an_entity() -> None:
    """The seed's invariant; `alongside` lifts it for one stage."""
    at_once: list[int] = []
    running = 0

    def slow(name: str, **options: Any) -> Any:
        class Slow(type(stage(name, **options))):  # type: ignore[misc]
            async def process(self, it: It) -> None:
                nonlocal running
                running += 1
                at_once.append(running)
                for _ in range(20):
                    await asyncio.sleep(0)
                running -= 1

        return Slow()

    await settled(slow("a"), slow("b"), slow("c"), entities={"e": {}})
    assert [1, 1, 1] == at_once
    at_once.clear()
    await settled(slow("a"), slow("b", alongside=True), entities={"e": {}})
    assert [1, 2] == at_once


async def test_parallelism_holds() -> None:
    """Never more calls at once than the stage allows."""
    running, most = 0, 0

    class Slow(type(stage("slow", parallel=3))):  # type: ignore[misc]
        async def process(self, it: It) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            for _ in range(10):
                await asyncio.sleep(0)
            running -= 1

    await settled(Slow(), entities=MANY)
    assert 3 == most


async def test_a_rate_holds_back_claims() -> None:
    """Ten a second: a hundred and twenty take about twelve seconds, and nothing is lost."""
    limited = stage("limited", rate="10/s")
    bench = StageBench("ad", limited)
    for entity_id, document in MANY.items():
        await bench.put(entity_id, document)
    await bench.advance(seconds=6)
    assert 55 <= len(limited.given) <= 65
    await bench.advance(seconds=10)
    assert 120 == len(limited.given)


async def test_what_waits_for_a_rate_is_not_claimed_and_waits_no_longer() -> None:
    """Other stages may have it meanwhile; the loop does not rest until the next survey."""
    bench = await settled(stage("limited", rate="10/s"), entities=MANY)
    assert not bench.worker.reconciler.pipelines["limited"].has_claims
    assert 0.1 >= bench.worker.reconciler._rest_s()


async def test_stages_run_in_the_order_of_their_data() -> None:
    """Twenty stages on a sparse graph: the counts of stages.md 2.3, masks and order."""
    asks = runs = 0
    stages = []
    for n in range(20):
        inputs = [f"f{m}" for m in ((n - 1), (n // 2)) if 0 <= m < n] or ["start"]

        def process(it: It, n: int = n, inputs: list[str] = inputs) -> Update[Any]:
            nonlocal runs
            runs += 1
            return Update({f"f{n}": sum(it.entity.get(name, 0) for name in inputs) + 1})

        def ask(_: It) -> bool:
            nonlocal asks
            asks += 1
            return True

        watch = " ".join(inputs)
        stages.append(stage(f"s{19 - n:02}", watch=watch, writes=f"f{n}", ask=ask, process=process))
    bench = await settled(*stages, entities={"e": {"start": 0}})
    asks = runs = 0
    before = bench.version("e")
    await bench.patch("e", {"start": 1})
    await bench.run_due()
    saves = bench.version("e") - before
    assert asks <= 57
    assert runs <= 20
    assert saves <= 21
