"""What a stage is given is its own: whatever it does with it, nobody else sees it."""

from __future__ import annotations

from typing import Any

from gnomon.stages import EntityView, Stage, Update
from gnomon.testing.stage_bench import StageBench
from tests.conformance.stages.given import It, settled, stage

GIVEN = {"x": 1, "list": [1], "map": {"k": 1}}


def spoil(it: It) -> None:
    it.entity["list"].append("spoilt")
    it.entity["map"]["k"] = "spoilt"
    it.entity["x"] = "spoilt"


def unspoilt(it: It) -> bool:
    return GIVEN == {key: it.entity[key] for key in GIVEN}


async def test_what_a_stage_does_to_its_entity_reaches_nobody() -> None:
    """Not the stages that are asked or called beside and after it, and not what is saved."""
    seen: list[bool] = []

    def asked(it: It) -> bool:
        seen.append(unspoilt(it))
        spoil(it)
        return True

    def spoiler(name: str) -> Any:
        def process(it: It) -> Update[Any]:
            if it.entity["x"] != "spoilt":  # by its own ask
                spoil(it)
            return Update({name: 1})

        return stage(name, watch="x", writes=name, ask=asked, process=process)

    def reader(name: str) -> Any:
        def process(it: It) -> Update[Any]:
            seen.append(unspoilt(it))
            return Update({name: 1})

        return stage(name, watch="x a b", writes=name, process=process)

    bench = await settled(spoiler("a"), spoiler("b"), reader("c"), entities={"e": GIVEN})
    assert {**GIVEN, "a": 1, "b": 1, "c": 1} == bench["e"]
    assert seen
    assert all(seen)


async def test_a_stage_that_is_called_again_gets_what_is_stored() -> None:
    """A failing batch is halved: what its first call spoilt is not given to the second one."""
    seen: list[bool] = []

    class Spoiler(Stage[dict[str, Any], Any]):
        name, watch, writes, batch = "a", ("x",), ("a",), 8

        async def process_many(self, its: Any) -> list[Update[Any]]:
            seen.extend(unspoilt(it) for it in its)
            for it in its:
                spoil(it)
            if len(its) > 1:
                raise ValueError("too many")
            return [Update({"a": 1})]

    bench = StageBench("ad", Spoiler())
    for number in range(4):
        await bench.put(f"e{number}", GIVEN)
    await bench.run_due()
    assert [{**GIVEN, "a": 1}] * 4 == [bench[f"e{number}"] for number in range(4)]
    assert len(seen) > 4
    assert all(seen)


async def test_equal_entities_are_not_the_same_one() -> None:
    """Two with the same text, shown to one stage."""
    seen: list[bool] = []

    def asked(it: It) -> bool:
        seen.append(unspoilt(it))
        spoil(it)
        return True

    made = stage("a", watch="x", writes="a", ask=asked, process=lambda _: Update({"a": 1}))
    await settled(made, entities={"e": GIVEN, "f": GIVEN})
    assert [True, True] == seen
    first, second = made.given
    assert first.entity is not second.entity


async def test_a_stage_may_go_on_to_change_what_it_answered() -> None:
    """Those after it see the patch as it was answered, and so it is saved."""
    kept: list[Any] = []
    seen: list[Any] = []

    class Hoarder(Stage[dict[str, Any], Any]):
        name, watch, writes = "a", ("x",), ("a",)

        async def process(self, it: EntityView[dict[str, Any], Any]) -> Update[Any]:
            for value in kept:
                value.append("later")
            kept.append([it.entity["x"]])
            return Update({"a": kept[-1]})

    def process(it: It) -> Update[Any]:
        for value in kept:
            value.append("later")
        seen.append(it.entity["a"])
        return Update({"b": len(it.entity["a"])})

    follower = stage("b", watch="a", writes="b", ask=lambda it: "a" in it.entity, process=process)
    bench = await settled(Hoarder(), follower, entities={"e": {"x": 1}})
    await bench.put("e", {**bench["e"], "x": 2})
    await bench.run_due()
    assert [[1], [2]] == seen
    assert {"x": 2, "a": [2], "b": 1} == bench["e"]


async def test_what_is_answered_is_what_is_read() -> None:
    """Tuples, structs and numbers as keys are JSON for the stage that follows, as for a reader."""
    seen: list[Any] = []

    def process(it: It) -> Update[Any]:
        seen.append(it.entity["a"])
        return Update({"b": 1})

    answers = iter([(1, {2: 3}), ([1], {"2": 3}), (1, {2: 3})])
    bench = await settled(
        stage("a", watch="x", writes="a", process=lambda _: Update({"a": next(answers)})),
        stage("b", watch="a", writes="b", ask=lambda it: "a" in it.entity, process=process),
        entities={"e": {"x": 1}},
    )
    assert [[1, {"2": 3}]] == seen
    assert [1, {"2": 3}] == bench["e"]["a"]
    version = bench.version("e")
    await bench.patch("e", {"a": (1, {2: 3})})
    assert version == bench.version("e")
