"""`debounce`: a stage waits until an entity has been quiet for a while (stages.md 4.7)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gnomon.model.errors import ConfigurationError
from gnomon.stages import Quarantine, Update
from gnomon.testing.stage_bench import StageBench
from gnomon.testing.stage_laws import check_stage
from tests.conformance.stages.given import It, settled, stage, times_of

START = datetime(2026, 1, 1, tzinfo=UTC)
DEBOUNCE = timedelta(seconds=5)


def seconds_of(made: Any) -> list[float]:
    """When a stage was called, from the start on."""
    return [(at - START).total_seconds() for at in times_of(made.given)]


async def test_a_stage_waits_until_the_entity_is_quiet() -> None:
    """Each change that it watches begins the wait anew; it sees the newest document, once."""
    slow = stage("slow", watch="n", debounce=DEBOUNCE)
    bench = StageBench("ad", slow)
    for n in range(3):
        await bench.put("e", {"n": n})
        await bench.advance(seconds=4)
    await bench.patch("e", {"other": 1})
    await bench.advance(seconds=60)
    assert [13.0] == seconds_of(slow)
    assert [2] == [it.entity["n"] for it in slow.given]
    await bench.patch("e", {"n": 9})
    await bench.advance(seconds=60)
    assert [13.0, 77.0] == seconds_of(slow)


async def test_whoever_is_never_quiet_is_looked_at_after_ten_times_that() -> None:
    """From the first change on; and then it begins anew."""
    slow = stage("slow", watch="n", debounce=DEBOUNCE)
    bench = StageBench("ad", slow)
    for n in range(40):
        await bench.put("e", {"n": n})
        await bench.advance(seconds=4)
    assert [50.0, 102.0, 154.0] == seconds_of(slow)


async def test_it_waits_after_the_work_of_other_stages_too() -> None:
    """Theirs are changes as well; stages that do not debounce wait for nobody."""
    count = stage("count", watch="n", writes="m", process=lambda it: Update({"m": it.entity["n"]}))
    slow = stage("slow", watch="m", debounce=DEBOUNCE)
    bench = StageBench("ad", count, slow)
    for n in (1, 2):
        await bench.put("e", {"n": n})
        await bench.advance(seconds=3)
    await bench.advance(seconds=60)
    assert [0.0, 3.0] == seconds_of(count)
    assert [8.0] == seconds_of(slow)


async def test_a_timer_is_not_delayed() -> None:
    """Not even while the entity is being changed: it brings the stage forward."""
    due = START + timedelta(seconds=20)

    def process(it: It) -> Update[Any]:
        return Update(wake=due if it.now < due else None)

    timed = stage("timed", watch="n", debounce=DEBOUNCE, process=process)
    bench = StageBench("ad", timed)
    await bench.put("e", {"n": 1})
    await bench.advance(seconds=18)
    await bench.patch("e", {"n": 2})
    await bench.advance(seconds=30)
    assert [5.0, 20.0] == seconds_of(timed)
    assert {"timer"} < timed.given[1].reasons


async def test_neither_a_state_from_outside_nor_a_walk_nor_a_release_is_delayed() -> None:
    """Only changes of the entity are waited for."""
    slow = stage("slow", debounce=DEBOUNCE)
    bench = await settled(slow, entities={"e": {}})
    await bench.advance(seconds=10)
    await bench.stages.state("slow", "e").swap(1, version=0)
    await bench.run_due()
    await bench.stages.backfill("slow")
    await bench.run_due()
    assert [5.0, 10.0, 10.0] == seconds_of(slow)

    def give_up(_: It) -> None:
        raise Quarantine("a person, please")

    bad = stage("bad", debounce=DEBOUNCE, process=give_up)
    bench = await settled(bad, entities={"e": {}})
    await bench.advance(seconds=10)
    assert 1 == await bench.stages.entities.release("ad", "e")
    await bench.run_due()
    assert [5.0, 10.0] == seconds_of(bad)


def overtaken(bench: StageBench, *, times: int) -> Any:
    """A stage whose entity is changed during its first runs, a second after each began."""

    class Overtaken(type(stage("s", watch="n", writes="m", debounce=DEBOUNCE))):  # type: ignore[misc]
        async def process(self, it: It) -> Update[Any]:
            self.given.append(it)
            if len(self.given) <= times:
                bench.clock.move_to(bench.now + timedelta(seconds=1))
                await bench.patch("e", {"n": len(self.given)})
            return Update({"m": it.entity["n"]})

    return Overtaken()


async def test_a_run_that_a_change_overtook_waits_for_quiet() -> None:
    """It does not run again at once, into the next change; in the end it is saved."""
    bench = StageBench("ad")
    slow = overtaken(bench, times=2)
    bench.stages.add(slow)
    await bench.put("e", {"n": 0})
    await bench.advance(seconds=60)
    assert [5.0, 11.0, 17.0] == seconds_of(slow)
    assert {"n": 2, "m": 2} == bench["e"]
    assert 1 == slow.given[-1].attempt


async def test_a_run_that_is_overtaken_again_and_again_waits_ten_times_that_at_most() -> None:
    """Then it is as for any stage: again at once."""
    bench = StageBench("ad")
    slow = overtaken(bench, times=11)
    bench.stages.add(slow)
    await bench.put("e", {"n": 0})
    await bench.advance(seconds=100)
    waited = [5.0, 11.0, 17.0, 23.0, 29.0, 35.0, 41.0, 47.0, 50.0]
    assert [*waited, 51.0, 52.0, 53.0] == seconds_of(slow)[:12]
    assert {"n": 11, "m": 11} == bench["e"]


async def test_explain_says_until_when_it_settles() -> None:
    """And not what else it may wait for."""
    bench = await settled(stage("slow", debounce=DEBOUNCE), entities={"e": {}})
    [row] = (await bench.explain("e")).stages
    assert ("ready", "debouncing until 2026-01-01 00:00:05") == (row.status, row.waits_for)
    assert [("slow", DEBOUNCE)] == [
        (each.name, each.debounce) for each in await bench.stages.stages()
    ]

    def fail(_: It) -> None:
        raise ValueError("no")

    bench = await settled(stage("slow", debounce=DEBOUNCE, process=fail), entities={"e": {}})
    await bench.advance(seconds=5)
    [row] = (await bench.explain("e")).stages
    assert row.waits_for.startswith("its next try in ")


@pytest.mark.parametrize("debounce", [timedelta(seconds=-1), timedelta(days=1, seconds=1), 5, None])
def test_a_wait_that_cannot_be_is_refused(debounce: Any) -> None:
    """A timedelta from nothing to a day."""
    with pytest.raises(
        ConfigurationError, match=r"stage s\.debounce: must be a timedelta of 0 to 1"
    ):
        check_stage(stage("s", debounce=debounce), examples=[{}])
    check_stage(stage("s", debounce=timedelta(days=1)), examples=[{}])
