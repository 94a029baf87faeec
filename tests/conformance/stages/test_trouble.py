"""Loops, failures, quarantine, outages (stages.md 2.4, 5.10, 5.11)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from gnomon.stages import EntityView, Quarantine, RetryLater, Update
from gnomon.stages.bound_stage import OutageError
from gnomon.stages.config import StagesConfig
from gnomon.testing.stage_bench import StageBench
from tests.conformance.stages.given import It, settled, stage


def fighters() -> tuple[Any, Any]:
    ping = stage("ping", watch="a", writes="a", process=lambda it: Update({"a": "ping"}))
    pong = stage("pong", watch="a", writes="a", process=lambda it: Update({"a": "pong"}))
    return ping, pong


async def test_two_fighting_stages_are_parked_with_their_proof() -> None:
    """The whole repeats within one chain: proved, parked, named; other entities go on."""
    ping, pong = fighters()
    quiet = stage("quiet", watch="b", writes="c", process=lambda it: Update({"c": it.entity["b"]}))
    bench = await settled(ping, pong, quiet, entities={"e": {"a": "", "b": 1}, "f": {"b": 2}})
    parked = await bench.parked()
    assert {"looping"} == {row.status for row in parked}
    assert {"e", "f"} == {row.entity_id for row in parked}
    assert all("loop: " in (row.error or "") for row in parked)
    assert len(ping.given) + len(pong.given) <= 2 * 16
    assert (1, 2) == (bench["e"]["c"], bench["f"]["c"])


async def test_a_growing_chain_is_stopped_by_its_depth() -> None:
    """It never repeats, so nothing is proved; but it is bounded, and the trail is kept."""
    up = stage("up", watch="n", writes="m", process=lambda it: Update({"m": it.entity["n"] + 1}))
    down = stage(
        "down", watch="m", writes="n", process=lambda it: Update({"n": it.entity.get("m", 0) + 1})
    )
    bench = await settled(up, down, entities={"e": {"n": 0}})
    await bench.advance(minutes=10)  # the bucket may be empty: later, not never
    [row] = await bench.parked()
    assert "depth limit 16: " in (row.error or "")
    assert "up → down" in (row.error or "")
    assert bench.version("e") <= 1 + 17


async def test_a_loop_is_freed_by_a_change_from_outside() -> None:
    """A user's change of what it watches starts a new chain."""
    ping, pong = fighters()
    bench = await settled(ping, pong, entities={"e": {"a": ""}})
    calls = len(ping.given) + len(pong.given)
    await bench.run_due()
    assert calls == len(ping.given) + len(pong.given)
    await bench.patch("e", {"a": "user"})
    await bench.run_due()
    assert calls < len(ping.given) + len(pong.given)
    assert "looping" in {row.status for row in await bench.parked()}


async def test_a_loop_is_freed_by_hand() -> None:
    """The operator's button."""
    ping, pong = fighters()
    bench = await settled(ping, pong, entities={"e": {"a": ""}})
    calls = len(ping.given) + len(pong.given)
    assert 1 == await bench.stages.entities.release("ad", "e")
    await bench.run_due()
    assert calls < len(ping.given) + len(pong.given)


async def test_a_failure_is_tried_again_with_growing_patience_then_quarantined() -> None:
    """One second doubling, with jitter; after the limit a person is needed."""

    def fail(_: It) -> None:
        raise ValueError("never")

    bad = stage("bad", watch="a", process=fail)
    other = stage("other")
    bench = StageBench("ad", bad, other, config=StagesConfig(failures_max=5))
    await bench.put("e", {"a": 1})
    await bench.advance(hours=1)
    gaps = [(b.now - a.now).total_seconds() for a, b in zip(bad.given, bad.given[1:], strict=False)]
    assert 5 == len(bad.given)
    assert all(0.8 * 2**n <= gap <= 1.2 * 2**n + 0.2 for n, gap in enumerate(gaps)), gaps
    [row] = await bench.parked()
    assert ("quarantined", "ValueError: never", 5) == (row.status, row.error, row.attempts)
    assert 1 == len(other.given)
    await bench.patch("e", {"a": 2})
    await bench.run_due()
    assert 6 == len(bad.given)


async def test_retry_says_when_and_quarantine_says_at_once() -> None:
    """Raising `RetryLater` or `Quarantine` says more than an exception."""
    plan: list[Any] = [
        RetryLater("slow", after=timedelta(minutes=5)),
        Quarantine("a person, please"),
    ]

    def process(_: It) -> None:
        raise plan.pop(0)

    bad = stage("bad", process=process)
    bench = await settled(bad, entities={"e": {}})
    await bench.advance(minutes=4)
    assert 1 == len(bad.given)
    await bench.advance(minutes=2)
    [row] = await bench.parked()
    assert "Quarantine: a person, please" == row.error


async def test_an_outage_of_the_stage_burns_no_attempts() -> None:
    """It is not the entity's fault: nothing is counted, the stage is left alone for a while."""
    away = True

    def process(_: It) -> None:
        if away:
            raise OutageError("gone")

    class Remote(type(stage("remote"))):  # type: ignore[misc]
        async def process_many(self, its: Sequence[EntityView[Any, Any]]) -> Sequence[Any]:
            for it in its:
                self.given.append(it)
                process(it)
            return [None] * len(its)

    remote = Remote()
    bench = await settled(remote, entities={f"e{n}": {} for n in range(50)})
    await bench.advance(hours=1)
    assert {1} == {it.attempt for it in remote.given}
    assert () == tuple(await bench.parked())
    away = False
    before = len(remote.given)
    await bench.advance(minutes=2)
    assert before + 50 == len(remote.given)
    assert () == (await bench.explain("e1")).stages


async def test_a_poison_entity_ends_alone() -> None:
    """A failing batch is halved until the culprit is by itself; the others pass."""

    class Batch(type(stage("batch", writes="ok", batch=64))):  # type: ignore[misc]
        async def process_many(self, its: Sequence[EntityView[Any, Any]]) -> Sequence[Any]:
            self.given.extend(its)
            if any(it.id == "e13" for it in its):
                raise RuntimeError("poison")
            return [Update({"ok": True}) for _ in its]

    batch = Batch()
    bench = await settled(batch, entities={f"e{n}": {} for n in range(40)})
    assert [f"e{n}" for n in range(40) if n != 13] == [
        f"e{n}" for n in range(40) if bench[f"e{n}"].get("ok")
    ]
    [told] = (await bench.explain("e13")).stages
    assert "RuntimeError: poison" == told.last_error


async def test_explain_says_why_by_what_chain_and_until_when() -> None:
    """Reasons are data."""
    first = stage("first", watch="a", writes="b", process=lambda it: Update({"b": it.entity["a"]}))
    second = stage(
        "second", watch="b", process=lambda it: Update(wake=it.now + timedelta(days=3), note="seen")
    )
    bench = await settled(first, second, entities={"e": {"a": 1}})
    told = await bench.explain("e")
    [row] = told.stages
    assert ("second", "sleeping", "its timer in 3 days") == (row.stage, row.status, row.waits_for)
    assert "seen" == row.last_note
    assert ["stage:first", "user"] == [note.author for note in told.changes]
    assert "second: sleeping, waits for its timer in 3 days" in str(told)
