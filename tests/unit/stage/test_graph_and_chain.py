"""The graph of stages, the proof of a loop, the bucket."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from gnomon.model.stage.chain import BURST_BESIDE_STAGES, RING_MAX, Buckets, Chains, digest_of
from gnomon.model.stage.graph import Reach, build_graph

ROOT = UUID(int=1)


def reach(watch: str = "", writes: str = "") -> Reach:
    return Reach("ad", tuple(watch.split()), tuple(writes.split()))


def test_stages_of_two_kinds_have_nothing_to_do_with_each_other() -> None:
    """They neither wake each other nor share fields, though these have the same names."""
    ads, orders = Reach("ad", ("a",), ("b",)), Reach("order", ("b",), ("a", "b"))
    graph = build_graph({"ads": ads, "orders": orders})
    assert ((), (), frozenset()) == (graph.circles, graph.shared, graph.before["orders"])
    same = build_graph({"ads": ads, "orders": Reach("ad", orders.watch, orders.writes)})
    assert ((("ads", "orders"),), (("ads", "orders"),)) == (same.circles, same.shared)


def test_a_stage_comes_after_those_that_can_wake_it() -> None:
    """The order follows the data, whatever the names are."""
    graph = build_graph(
        {
            "a": reach("third", "fourth"),
            "b": reach("second", "third"),
            "c": reach("first", "second"),
        }
    )
    assert ["c", "b", "a"] == sorted(graph.rank, key=graph.rank.__getitem__)
    assert () == graph.circles
    assert {"a": {"b", "c"}, "b": {"c"}, "c": set()} == graph.before


def test_circles_and_shared_fields_are_named() -> None:
    """Two stages that wake each other, and two that write one field, are reported."""
    graph = build_graph(
        {
            "ping": reach("b", "a"),
            "pong": reach("a", "b"),
            "late": reach("b", "z"),
            "other": reach("q", "z.y"),
        }
    )
    assert (("ping", "pong"),) == graph.circles
    assert (("late", "other"),) == graph.shared
    assert graph.rank["ping"] == graph.rank["pong"] < graph.rank["late"]


def test_a_stage_that_watches_everything_is_woken_by_every_writer() -> None:
    """An empty watch is everything, a stage without writes wakes nobody."""
    graph = build_graph({"all": reach("", "x"), "one": reach("q", "y"), "mute": reach("q", "")})
    assert graph.rank["one"] < graph.rank["all"]
    assert () == graph.circles


def test_a_stage_that_writes_what_it_watches_has_an_own_echo() -> None:
    """The paths that it writes and watches, above or below what it said; and it is no circle."""
    assert ("a.b", "c") == reach("a c.d", "a.b c e").own_echo
    assert ("x", "y") == reach("", "x y").own_echo
    assert () == reach("a", "b").own_echo
    assert () == reach("", "").own_echo
    assert () == build_graph({"self": reach("a", "a")}).circles


def test_a_repeated_whole_is_a_proved_circle() -> None:
    """The third step closes the circle of two fighting stages, and names both."""
    chains = Chains()
    one, two = digest_of("{1}", {}), digest_of("{2}", {})
    chains.note("e", ROOT, one, "")
    assert () == chains.closes("e", ROOT, two, "ping")
    chains.note("e", ROOT, two, "ping")
    assert ("ping", "pong") == chains.closes("e", ROOT, one, "pong")


def test_another_state_or_another_root_is_no_circle() -> None:
    """Only the whole of entity and states, within one chain, proves anything."""
    chains = Chains()
    chains.note("e", ROOT, digest_of("{}", {"s": b"1"}), "")
    assert () == chains.closes("e", ROOT, digest_of("{}", {"s": b"2"}), "s")
    assert () == chains.closes("e", UUID(int=2), digest_of("{}", {"s": b"1"}), "s")
    assert () == chains.closes("f", ROOT, digest_of("{}", {"s": b"1"}), "s")


def test_a_chain_remembers_a_bounded_number_of_steps() -> None:
    """What lies further back than the ring is left to the depth limit."""
    chains = Chains()
    chains.note("e", ROOT, b"start", "")
    for step in range(RING_MAX):
        chains.note("e", ROOT, b"%d" % step, "s")
    assert () == chains.closes("e", ROOT, b"start", "s")
    assert ("s",) * RING_MAX == chains.closes("e", ROOT, b"0", "s")
    chains.forget("e", ROOT)
    assert () == chains.closes("e", ROOT, b"1", "s")


def test_an_empty_bucket_delays_and_refills() -> None:
    """After the burst each wake-up is a minute later than the one before; time forgives."""
    buckets = Buckets(stage_count=2)
    for _ in range(1 + BURST_BESIDE_STAGES + 2):
        assert timedelta(0) == buckets.take("e", "s", ROOT, 0.0)
    assert timedelta(minutes=1) == buckets.take("e", "s", ROOT, 0.0)
    assert timedelta(minutes=2) == buckets.take("e", "s", ROOT, 0.0)
    assert timedelta(0) == buckets.take("e", "s", ROOT, 180.0)
    assert timedelta(0) == buckets.take("other", "s", ROOT, 0.0)


def test_the_first_wake_up_of_a_chain_costs_nothing() -> None:
    """A user may change an entity a hundred times a minute: each leads to the stages behind it."""
    buckets = Buckets(stage_count=2)
    for number in range(100):
        assert timedelta(0) == buckets.take("e", "s", UUID(int=number), 0.0)
