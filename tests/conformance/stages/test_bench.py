"""The bench tells the truth about limited stages and long times (S13, S14)."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from gnomon.stages import Update
from gnomon.testing.stage_bench import StageBench
from tests.conformance.stages.given import stage


@pytest.mark.parametrize("batch", [1, 64])
async def test_a_rate_counts_entities_however_they_are_called(batch: int) -> None:
    """200 entities at ten a second take twenty seconds; a second's worth may come at once."""
    times: list[datetime] = []
    slow = stage("slow", rate="10/s", batch=batch, process=lambda _: times.append(bench.now))
    bench = StageBench("ad", slow)
    for number in range(200):
        await bench.put(f"e{number}", {})
    began = bench.now
    await bench.advance(seconds=30)

    assert 200 == len(times)
    for seconds in (1, 5, 10, 18):
        early = [at for at in times if at - began < timedelta(seconds=seconds)]
        assert len(early) <= 10 * seconds + 11
    assert max(times) - began > timedelta(seconds=17)


async def test_settle_does_what_is_due_though_another_stage_is_at_its_rate() -> None:
    """What has no rate does not wait for what has one."""
    slow = stage("slow", rate="1/s", watch="a")
    quick = stage("quick", watch="a", writes="b", process=lambda _: Update({"b": 1}))
    last = stage("last", watch="b", writes="c", process=lambda _: Update({"c": 1}))
    bench = StageBench("ad", slow, quick, last)
    for number in range(300):
        await bench.put(f"e{number}", {"a": number})
    await bench.run_due()

    assert 300 == len(quick.given)
    assert 300 == len(last.given)
    assert 1 <= len(slow.given) <= 2


async def test_a_stage_of_the_bench_is_served_however_long_it_lasts() -> None:
    """Five minutes or five months: `explain` does not call it an orphan."""
    slow = stage("slow", rate="1/min")
    bench = StageBench("ad", slow)
    for number in range(20):
        await bench.put(f"e{number}", {})
    await bench.advance(minutes=10)
    waiting = {f"e{number}" for number in range(20)} - {it.id for it in slow.given}
    [row] = (await bench.explain(waiting.pop())).stages
    assert "ready" == row.status
