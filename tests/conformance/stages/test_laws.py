"""`check_stage`: every law can be broken, and says which one it was."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import strategies as st

from gnomon.model.errors import ConfigurationError
from gnomon.stages import Stage, Update, Wake
from gnomon.testing.stage_laws import Example, LawBrokenError, check_stage
from tests.conformance.stages.given import It, stage


def test_a_lawful_stage_passes() -> None:
    """On examples and on what a strategy draws."""
    good = stage(
        "good", watch="a", writes="b", process=lambda it: Update({"b": it.entity.get("a", 0) + 1})
    )
    check_stage(good, [{"a": 1}, {"a": 5, "z": 1}, Example({"a": 2}, state={"x": 1})])
    check_stage(good, st.fixed_dictionaries({"a": st.integers(-5, 5)}))


def counter() -> Any:
    calls = iter(range(100))
    return lambda _: Update({"b": next(calls)})


@pytest.mark.parametrize(
    ("law", "options"),
    [
        ("called twice, it answers differently", {"process": counter()}),
        (
            "applied and called again, it changes b",
            {"watch": "b", "process": lambda it: Update({"b": it.entity.get("b", 0) + 1})},
        ),
        (
            "should_process says no, but process changes the entity",
            {"ask": lambda _: False, "process": lambda _: Update({"b": 1})},
        ),
        ("it writes c outside `writes`", {"process": lambda _: Update({"c": 1})}),
        ("it reads z outside `watch`", {"process": lambda it: Update({"b": it.entity["z"]})}),
        ("it reads z outside `watch`", {"ask": lambda it: bool(it.entity.get("z"))}),
        (
            "an hour later it writes something else",
            {"process": lambda it: Update({"b": it.now.isoformat()})},
        ),
    ],
)
def test_a_broken_law_is_named(law: str, options: dict[str, Any]) -> None:
    """Which law, on which entity."""
    bad = stage("bad", **{"watch": "a", "writes": "b", **options})
    with pytest.raises(LawBrokenError, match=law):
        check_stage(bad, [{"a": 1, "z": 2}])


def test_a_timer_within_the_hour_excuses_the_clock() -> None:
    """A stage that asked to look again by then may answer differently then."""

    def process(it: It) -> Update[Any]:
        soon = it.now.replace(hour=0) + timedelta(minutes=30)
        return Update({"b": it.now >= soon}, wake=soon)

    timed = stage("timed", watch="a", writes="b", ask=lambda it: Wake(it.now), process=process)
    check_stage(timed, [{"a": 1}])


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"name": "no spaces"}, "must be 1 to 64 characters"),
        ({"revision": 0}, "revision: must be at least 1"),
        ({"parallel": 0}, "parallel: must be at least 1"),
        ({"batch": 100_000}, "batch: must be 1 to"),
        ({"rate": "often"}, "must be like 50/s"),
        ({"rate": "0/s"}, "must be like 50/s"),
        ({"watch": "status"}, "watch: must be a tuple"),
    ],
)
def test_a_wrong_declaration_is_refused(options: dict[str, Any], problem: str) -> None:
    """At start, with the stage and the option named."""
    bad = stage("bad")
    for option, value in options.items():
        setattr(type(bad), option, value)
    with pytest.raises(ConfigurationError, match=problem):
        check_stage(bad, [])


def test_a_stage_must_process_something() -> None:
    """Neither process nor process_many: refused."""

    class Idle(Stage[Any, Any]):
        name = "idle"

    with pytest.raises(ConfigurationError, match="has neither process nor process_many"):
        check_stage(Idle(), [])
