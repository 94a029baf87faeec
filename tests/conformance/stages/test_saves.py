"""After the save: the outbox, `after_save`, what is published (stages.md 5.15)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from gnomon.stages import SavedVersion, Update
from gnomon.testing.stage_bench import StageBench
from tests.conformance.stages.given import settled, stage


async def test_every_version_is_published_in_order() -> None:
    """Key = entity id, versions without gaps, with the document as saved."""
    one = stage("one", watch="a", writes="b", process=lambda it: Update({"b": it.entity["a"]}))
    bench = await settled(one, entities={"e": {"a": 1}})
    await bench.patch("e", {"a": 2})
    await bench.run_due()
    await bench.delete("e")
    await bench.run_due()
    assert [1, 2, 3, 4, 5] == [row.version for row in bench.published]
    assert ["user", "stage:one", "user", "stage:one", "user"] == [
        row.author for row in bench.published
    ]
    assert bench.published[-1].doc is None
    assert 5 == len({row.key for row in bench.published})


async def test_after_save_gets_what_was_saved() -> None:
    """Entity and state of the very version."""
    told: list[SavedVersion[Any, Any]] = []
    one = stage("one", writes="b", process=lambda _: Update({"b": 1}, state=[7]), after=told.append)
    await settled(one, entities={"e": {"a": 1}})
    [saved] = told
    assert ("e", 2, {"a": 1, "b": 1}, [7]) == (saved.id, saved.version, saved.entity, saved.state)
    assert ("stage:one", ("b",), False) == (saved.author, saved.changed, saved.deleted)


async def test_a_state_alone_is_published_too_and_asks_nobody() -> None:
    """A stage may act on its own decision; private state is no business of the others."""
    told: list[SavedVersion[Any, Any]] = []
    one = stage("one", process=lambda _: Update(state=[7]), after=told.append)
    other = stage("other")
    bench = await settled(one, other, entities={"e": {}})
    assert [[7]] == [saved.state for saved in told]
    assert (1, 1) == (bench.version("e"), len(other.asked))


async def test_a_state_as_it_was_is_no_save() -> None:
    """What a walk finds in order it leaves alone: no version, no push."""
    told: list[SavedVersion[Any, Any]] = []
    one = stage("one", process=lambda _: Update(state=[7]), after=told.append)
    bench = await settled(one, entities={"e": {}})
    await bench.stages.backfill("one")
    await bench.run_due()
    assert (2, 1) == (len(one.given), len(told))
    assert ([7], 1) == await bench.stages.state("one", "e").read()


async def test_a_run_that_saves_nothing_tells_nothing() -> None:
    """No change, no push."""
    told: list[SavedVersion[Any, Any]] = []
    await settled(stage("one", after=told.append), entities={"e": {}})
    assert [] == told


async def test_a_failing_after_save_comes_again_with_the_same_key_and_holds_back_its_own() -> None:
    """At least once; only this entity of this stage waits."""
    keys: list[tuple[str, str]] = []

    def after(saved: SavedVersion[Any, Any]) -> None:
        keys.append((saved.id, saved.key))
        if saved.id == "bad" and len([1 for name, _ in keys if name == "bad"]) < 3:
            raise ValueError("not now")

    one = stage("one", writes="b", process=lambda _: Update({"b": 1}), after=after)
    bench = StageBench("ad", one)
    await bench.put("bad", {})
    await bench.put("good", {})
    await bench.advance(minutes=5)
    assert ["bad", "bad", "bad"] == [name for name, _ in keys if name == "bad"]
    assert 1 == len({key for name, key in keys if name == "bad"})
    assert 1 == len([name for name, _ in keys if name == "good"])


async def test_latest_tells_only_the_newest_of_several_saves() -> None:
    """For receivers that want the state of things, not their history."""
    told: list[int] = []
    refusing = True

    def after(saved: SavedVersion[Any, Any]) -> None:
        if refusing:
            raise ValueError("away")
        told.append(saved.version)

    one = stage(
        "one",
        watch="a",
        writes="b",
        process=lambda it: Update({"b": it.entity["a"]}),
        after=after,
        latest=True,
    )
    bench = await settled(one, entities={"e": {"a": 0}})
    for value in range(1, 4):
        await bench.patch("e", {"a": value})
        await bench.run_due()
    refusing = False
    await bench.advance(hours=2)
    assert 8 == told[-1]
    assert len(told) <= 2


async def test_after_save_hears_of_a_delete() -> None:
    """A stage with a state there is told, with no entity."""
    told: list[SavedVersion[Any, Any]] = []
    one = stage("one", process=lambda _: Update(state={"photo": 1}), after=told.append)
    bench = await settled(one, entities={"e": {}})
    await bench.delete("e")
    await bench.advance(seconds=timedelta(minutes=1).total_seconds())
    assert [False, True] == [saved.deleted for saved in told]
    assert {"photo": 1} == told[1].state
