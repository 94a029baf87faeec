"""Changes: who is asked, what a save does, what a conflict does (stages.md 2.4, 4.7, 5.2-5.5)."""

from __future__ import annotations

from typing import Any

import pytest

from gnomon.model.errors import NotFound, VersionConflict
from gnomon.stages import Update
from gnomon.testing.stage_bench import StageBench
from tests.conformance.gateway.recorder import Recorder
from tests.conformance.stages.given import It, settled, stage


async def test_a_new_entity_is_shown_to_every_stage() -> None:
    """A creation is everybody's business, whatever they watch."""
    one, two = stage("one", watch="a"), stage("two", watch="b")
    await settled(one, two, entities={"e": {"a": 1}})
    assert (1, 1) == (len(one.given), len(two.given))


async def test_only_stages_that_watch_the_change_are_asked() -> None:
    """The paths of a change are computed by the engine, and decide who is asked."""
    one, two = stage("one", watch="a"), stage("two", watch="b.c")
    bench = await settled(one, two, entities={"e": {"a": 1, "b": {"c": 1, "d": 1}}})
    await bench.patch("e", {"b": {"d": 2}})
    await bench.run_due()
    assert (1, 1) == (len(one.asked), len(two.asked))
    await bench.patch("e", {"b": {"c": 2}})
    await bench.run_due()
    assert (1, 2) == (len(one.asked), len(two.asked))


async def test_a_stage_is_not_asked_about_its_own_change() -> None:
    """Own echo is not news, even if it watches what it writes."""
    counter = stage(
        "n", watch="n", writes="n", process=lambda it: Update({"n": it.entity["n"] + 1})
    )
    bench = await settled(counter, entities={"e": {"n": 0}})
    assert 1 == bench["e"]["n"]
    assert 1 == len(counter.given)


async def test_a_stage_that_writes_what_it_watches_is_told_once_and_shown() -> None:
    """At the start, with the fields, however often it is declared; the register has it too."""
    observer = Recorder()
    echoing = stage("echoing", watch="n m", writes="m o")
    bench = await settled(echoing, stage("plain", watch="o"), entities={}, observer=observer)
    await bench.run_due()
    await bench.worker.reconciler.declare()
    told = [fields for name, fields in observer.events if name == "stage_own_echo"]
    assert [{"stage": "echoing", "fields": "m"}] == told
    assert {"echoing": True, "plain": False} == {
        each.name: each.own_echo for each in await bench.stages.stages()
    }


async def test_a_save_that_changes_nothing_is_nothing() -> None:
    """No version, no event, no ask; the state is stored all the same."""
    same = stage(
        "same", writes="a", process=lambda it: Update({"a": it.entity["a"]}, state={"s": 1})
    )
    other = stage("other", watch="a")
    bench = await settled(same, other, entities={"e": {"a": 1}})
    assert 1 == bench.version("e")
    assert 1 == len(other.asked)
    assert ({"s": 1}, 1) == await bench.stages.state("same", "e").read()


async def test_a_refusal_of_should_process_queues_nothing() -> None:
    """A clean no: not called."""
    refusing = stage("no", ask=lambda _: False)
    bench = await settled(refusing, entities={"e": {}})
    assert (1, 0) == (len(refusing.asked), len(refusing.given))
    assert () == (await bench.explain("e")).stages


async def test_a_failing_should_process_queues_it_anyway_and_is_asked_again() -> None:
    """The seed's rule; at the claim it is asked with fresh data, and a clean no drops the row."""
    answers: list[Any] = [ValueError("first"), False]

    def ask(_: It) -> bool:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return bool(answer)

    moody = stage("moody", ask=ask)
    await settled(moody, entities={"e": {}})
    assert (2, 0) == (len(moody.asked), len(moody.given))
    answers[:] = [ValueError("again"), ValueError("and again")]
    stubborn = stage("stubborn", ask=ask)
    await settled(stubborn, entities={"e": {}})
    assert 1 == len(stubborn.given)
    assert "ask failed: ValueError: again" in stubborn.given[0].reasons


async def test_changes_while_queued_collapse_into_one_look() -> None:
    """Level-triggered: the stage sees the newest document only, once, with the reasons joined."""
    late = stage("late", watch="a")
    bench = StageBench("ad", late)
    for value in range(5):
        await bench.put("e", {"a": value})
    await bench.run_due()
    assert [{"a": 4}] == [it.entity for it in late.given]


async def test_an_outside_write_that_changes_nothing_is_no_change() -> None:
    """Normalised against what is stored: no version, no ask."""
    one = stage("one")
    bench = await settled(one, entities={"e": {"a": 1}})
    await bench.put("e", {"a": 1})
    await bench.run_due()
    assert (1, 1) == (bench.version("e"), len(one.asked))


async def test_a_document_is_read_with_its_version() -> None:
    """So that it can be changed if it is still that one."""
    bench = StageBench("ad", stage("one"))
    await bench.put("e", {"a": 1})
    document, version = await bench.stages.read("e")
    assert ({"a": 1}, 1) == (document, version)
    await bench.stages.patch("e", {"a": 2}, if_version=version)
    with pytest.raises(VersionConflict):
        await bench.stages.patch("e", {"a": 3}, if_version=version)
    assert 1 == await bench.stages.put_many({"e": {"a": 2}, "f": {"a": 2}})


async def test_a_write_beside_what_the_stage_watches_is_merged() -> None:
    """What changed meanwhile is none of its business: its patch goes on top, unrepeated."""
    bench: StageBench
    calls = 0

    class Slow(type(stage("slow", watch="a", writes="b"))):  # type: ignore[misc]
        async def process(self, it: It) -> Update[Any]:
            nonlocal calls
            calls += 1
            if calls == 1:
                await bench.patch("e", {"z": 1})
            return Update({"b": it.entity["a"]})

    bench = StageBench("ad", Slow())
    await bench.put("e", {"a": 1, "z": 0})
    await bench.run_due()
    assert {"a": 1, "b": 1, "z": 1} == bench["e"]
    assert 1 == calls


async def test_a_write_into_what_the_stage_watches_makes_it_run_again() -> None:
    """A value computed from what has just changed would be wrong, though the fields differ."""
    bench: StageBench
    calls = 0

    class Slow(type(stage("slow", watch="a", writes="b"))):  # type: ignore[misc]
        async def process(self, it: It) -> Update[Any]:
            nonlocal calls
            calls += 1
            if calls == 1:
                await bench.patch("e", {"a": 2})
            return Update({"b": it.entity["a"]})

    bench = StageBench("ad", Slow())
    await bench.put("e", {"a": 1})
    await bench.run_due()
    assert {"a": 2, "b": 2} == bench["e"]
    row = (await bench.explain("e")).stages
    assert () == row


async def test_a_state_changed_by_others_meanwhile_makes_it_run_again() -> None:
    """The state has a version of its own."""
    bench: StageBench
    seen: list[Any] = []

    class Slow(type(stage("slow", writes="b"))):  # type: ignore[misc]
        async def process(self, it: It) -> Update[Any]:
            seen.append(it.state)
            if len(seen) == 1:
                assert await bench.stages.state("slow", "e").swap({"by": "other"}, version=0)
            return Update({"b": 1}, state={"by": "me", "after": it.state})

    bench = StageBench("ad", Slow())
    await bench.put("e", {})
    await bench.run_due()
    state, _ = await bench.stages.state("slow", "e").read()
    assert [None, {"by": "other"}] == seen[:2]
    assert {"by": "other"} == seen[1]
    assert "me" == state["by"]


async def test_writes_outside_the_declaration_are_quarantined_as_a_bug() -> None:
    """A soft rule would make the graph a lie."""
    liar = stage("liar", writes="a", process=lambda _: Update({"a": 1, "b": 2}))
    bench = await settled(liar, entities={"e": {}})
    [row] = await bench.parked()
    assert {} == bench["e"]
    assert "a bug of the stage: wrote outside its `writes`: b" == row.error


async def test_a_state_changed_from_outside_wakes_its_stage_alone() -> None:
    """Compare-and-set: the entity's version is untouched, nobody else is asked."""
    one, two = stage("one"), stage("two")
    bench = await settled(one, two, entities={"e": {}})
    assert await bench.stages.state("one", "e").swap([1], version=0)
    assert not await bench.stages.state("one", "e").swap([2], version=0)
    await bench.run_due()
    assert (2, 1) == (len(one.given), len(two.given))
    assert [1] == one.given[1].state
    assert 1 == bench.version("e")


async def test_delete_takes_rows_and_timers_with_it() -> None:
    """Nothing of it is called again; a new one with the same id is another epoch."""
    clock = stage("clock", process=lambda it: Update(wake=it.now.replace(day=20)))
    bench = await settled(clock, entities={"e": {"life": 1}})
    await bench.delete("e")
    await bench.advance(days=30)
    assert 1 == len(clock.given)
    with pytest.raises(KeyError):
        bench["e"]
    with pytest.raises(NotFound):
        await bench.delete("e")
    await bench.put("e", {"life": 2})
    assert 2 == (await bench.stages.entities.get("ad", "e")).epoch


async def test_a_change_can_demand_the_version_it_was_made_from() -> None:
    """Who read another version is told so, and nothing is stored."""
    bench = await settled(entities={"e": {"a": 1}})
    await bench.stages.patch("e", {"a": 2}, if_version=1)
    with pytest.raises(VersionConflict, match="is at version 2, not 1"):
        await bench.stages.patch("e", {"a": 3}, if_version=1)
    with pytest.raises(VersionConflict):
        await bench.stages.put("e", {}, if_version=0)
    assert {"a": 2} == bench["e"]


@pytest.mark.parametrize("watch", ["a", ""])
async def test_a_field_that_never_rests_does_not_keep_a_stage_from_saving(watch: str) -> None:
    """After four calls its patch goes on top, and it is asked about the newest change again."""
    bench: StageBench
    calls = 0

    class Slow(type(stage("slow", watch=watch, writes="b"))):  # type: ignore[misc]
        async def process(self, it: It) -> Update[Any]:
            nonlocal calls
            calls += 1
            if calls <= 20:
                await bench.patch("e", {"a": calls})
            return Update({"b": it.entity["a"]})

    bench = StageBench("ad", Slow())
    await bench.put("e", {"a": 0})
    await bench.run_due()

    assert {"a": 20, "b": 20} == bench["e"]
    assert 26 >= calls


async def test_a_field_that_others_write_all_the_time_is_not_overwritten_blindly() -> None:
    """Who writes the same field wins; the stage sees that, and has its say when it is quiet."""
    bench: StageBench
    calls = 0
    seen = []

    class Slow(type(stage("slow", watch="a", writes="b"))):  # type: ignore[misc]
        async def process(self, it: It) -> Update[Any]:
            nonlocal calls
            calls += 1
            if calls <= 6:
                await bench.patch("e", {"a": calls, "b": -calls})
            seen.append(it.entity.get("b"))
            return Update({"b": it.entity["a"]})

    bench = StageBench("ad", Slow())
    await bench.put("e", {"a": 0})
    await bench.run_due()
    assert {"a": 6, "b": 6} == bench["e"]
    assert [None, -1, -2, -3, -4, -5, -6] == seen[:7]
