"""What is told about the stages of a program when it starts."""

from __future__ import annotations

from gnomon.model.stage.graph import Reach, build_graph
from gnomon.stages.announcement import announce
from gnomon.stages.stage_info import StageInfo
from tests.conformance.gateway.recorder import Recorder


def told(known: dict[str, int | None] | None = None, **stages: tuple[str, str]) -> list[object]:
    """The events about stages, each given by what it watches and what it writes."""
    infos = [
        StageInfo(
            name=name, reach=Reach("ad", tuple(watch.split()), tuple(writes.split())), revision=2
        )
        for name, (watch, writes) in stages.items()
    ]
    observer = Recorder()
    graph = build_graph({info.name: info.reach for info in infos})
    announce(observer, graph, infos, known or {})
    return list(observer.events)


def test_nothing_is_told_of_stages_that_are_as_they_should_be() -> None:
    """A chain, each of a field of its own, all of the revision that is known or a higher one."""
    assert [] == told({"a": 2, "b": 1, "c": None}, a=("x", "y"), b=("y", "z"), c=("y", "q"))


def test_circles_and_shared_fields_are_told() -> None:
    """Both stages by name."""
    assert [("stages_may_loop", {"stages": "ping, pong"})] == told(ping=("b", "a"), pong=("a", "b"))
    assert [("stages_share_fields", {"stages": "a, b"})] == told(a=("x", "z"), b=("y", "z.k"))


def test_a_stage_that_writes_what_it_watches_is_told_with_the_fields() -> None:
    """It may do so: its own changes do not wake it. One without `watch` watches all it writes."""
    assert [
        ("stage_own_echo", {"stage": "a", "fields": "y.k, q"}),
        ("stage_own_echo", {"stage": "b", "fields": "m"}),
    ] == told(a=("x y q", "y.k z q"), b=("", "m"))[-2:]
    whole = Reach("ad", (), ("",))
    observer = Recorder()
    info = StageInfo(name="all", reach=whole)
    announce(observer, build_graph({"all": whole}), [info], {})
    assert [("stage_own_echo", {"stage": "all", "fields": "everything"})] == observer.events


def test_a_stage_out_of_date_is_told() -> None:
    """The register knows a higher revision."""
    assert [("stage_outdated", {"stage": "a", "revision": 2, "known": 3})] == told(
        {"a": 3}, a=("x", "y")
    )
