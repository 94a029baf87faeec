"""Several kinds of entities in one program, and in one worker."""

from __future__ import annotations

from typing import Any

import pytest

from gnomon.model.errors import ConfigurationError, InvalidSpec, NotFound
from gnomon.stages import SavedVersion, Stages, Update
from gnomon.testing.stage_bench import StageBench
from tests.conformance.stages.given import It, stage


def counted(it: It) -> Update[Any]:
    return Update({"n": it.entity.get("n", 0) + 1}, state=it.id)


async def test_each_stage_sees_its_own_kind() -> None:
    """Though ids and fields are the same: asked, called, told, and walked over all there is."""
    told: list[SavedVersion[Any, Any]] = []
    ad = stage("ad-count", watch="a", writes="n", process=counted, after=told.append)
    order = stage("order-count", watch="a", writes="n", process=counted, after=told.append)
    async with StageBench("ad", ad) as bench:
        orders: Stages[Any] = Stages(bench, "order")
        orders.add(order)
        bench.restart()
        await bench.put("1", {"a": 1})
        await orders.put("1", {"a": 1})
        await orders.put("2", {"a": 1})
        await bench.run_due()

        assert [("ad", "1")] == [(it.kind, it.id) for it in ad.given]
        assert [("order", "1"), ("order", "2")] == sorted((it.kind, it.id) for it in order.given)
        assert {("ad", "1")} == {(it.kind, it.id) for it in ad.asked}
        assert {("ad", "1"), ("order", "1"), ("order", "2")} == {
            (saved.kind, saved.id) for saved in told
        }
        for each in (ad, order):
            each.given.clear()
            await bench.stages.backfill(each.name)
        await bench.run_due()
        assert ["1"] == [it.id for it in ad.given]
        assert ["1", "2"] == sorted(it.id for it in order.given)
        assert {"ad/1", "order/1", "order/2"} == {row.entity_key for row in bench.published}

        await bench.delete("1")
        with pytest.raises(NotFound, match=r"entity .ad/1."):
            await bench.stages.get("1")
        assert (2, "1") == ((await orders.get("1"))["n"], (await orders.explain("1")).id)
        assert ["ad-count"] == [record.name for record in await bench.stages.stages()]


async def test_a_stage_of_another_kind_is_not_woken_by_a_state() -> None:
    """Compare-and-set names the kind that the stage is of."""
    async with StageBench("ad", stage("photos", process=counted)) as bench:
        orders: Stages[Any] = Stages(bench, "order")
        await orders.put("1", {})
        with pytest.raises(InvalidSpec, match="is one of the kind 'ad', not 'order'"):
            await orders.state("photos", "1").swap(1, version=0)


async def test_what_does_not_go_together_is_told_at_once() -> None:
    """A kind that cannot be, one that is there, a name that is there, a second relay."""
    bench = StageBench("ad", stage("s"))
    with pytest.raises(InvalidSpec, match="kind: must be 1 to 64 characters"):
        Stages(bench, "Ad")
    with pytest.raises(ConfigurationError, match="of the kind 'ad' are there twice"):
        Stages(bench, "ad")
    with pytest.raises(ConfigurationError, match="have two relays"):
        Stages(bench, "order", relay=bench.stages.relay)
    orders: Stages[Any] = Stages(bench, "order")
    with pytest.raises(ConfigurationError, match="stage s: is there twice"):
        orders.add(stage("s"))


async def test_a_stage_that_changes_its_kind_does_not_begin() -> None:
    """A release that means another kind by the name is told what to do; the other one goes on."""
    async with StageBench("ad", stage("s", process=counted)) as bench:
        await bench.put("1", {"n": 0})
        await bench.run_due()
        bench.attached.clear()
        Stages[Any](bench, "order").add(stage("s"))
        bench.restart()
        with pytest.raises(ConfigurationError, match="run `gnomon stage forget s` first"):
            await bench.run_due()
        records = await bench.store.register.registered()
        assert {"": "", "s": "ad"} == {record.name: record.kind for record in records}
