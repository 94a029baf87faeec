"""The loop over entities rests when there is nothing that it can do."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, cast

from gnomon.stages import Update
from gnomon.testing.stage_bench import StageBench
from tests.conformance.stages.given import It, stage

ROUNDS = 300


class Counted:
    """A role of the store that counts its calls."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.calls: Counter[str] = Counter()

    def __getattr__(self, verb: str) -> Any:
        async def call(*args: Any, **named: Any) -> Any:
            self.calls[verb] += 1
            return await getattr(self._inner, verb)(*args, **named)

        return call


async def looked(bench: StageBench) -> Counter[str]:
    """Let the loop go round for a while; what it asked the store."""
    worker = cast("Any", bench)._worker
    counted = worker.reconciler._queues = Counted(worker.reconciler._queues)
    worker.hint(())
    working = asyncio.create_task(worker.reconciler.keep_reconciling())
    for _ in range(ROUNDS):
        await asyncio.sleep(0)
    working.cancel()
    await asyncio.wait([working])
    calls: Counter[str] = counted.calls
    return calls


async def test_an_entity_that_a_stage_works_on_is_not_looked_for_all_the_time() -> None:
    """Another stage's row of it is due and cannot be claimed: that is known, not asked again."""
    gate = asyncio.Event()

    async def slow(self: Any, it: It) -> Update[Any]:
        self.given.append(it)
        await gate.wait()
        return Update({self.name: 1})

    one = stage("one", watch="a", writes="one", backfill=False)
    other = stage("other", watch="a", writes="other", backfill=False)
    type(one).process = type(other).process = slow
    async with StageBench("ad", one, other) as bench:
        await bench.put("e", {"a": 1})
        calls = await looked(bench)
        assert 1 == len(one.given) + len(other.given)
        assert calls["lane_head"] <= 6
        assert calls["next_work"] <= 6
        gate.set()
        await bench.run_due()
        assert (1, 1) == (len(one.given), len(other.given))


async def test_a_worker_without_shards_rests() -> None:
    """It looks again after the poll, not at once."""
    async with StageBench("ad", stage("one")) as bench:
        bench.restart()
        held = cast("Any", bench)._ownership
        await bench.put("e", {})
        held.holdings, kept = {}, held.holdings
        worker = cast("Any", bench)._worker
        await worker.reconciler.step()
        assert worker.reconciler._rest_s() > 0.5
        held.holdings = kept
