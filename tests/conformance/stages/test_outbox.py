"""What waits in the outbox: its chain, its age, and what it holds up (stages.md 5.15)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from gnomon.contracts.store.outbox import OutboxRow
from gnomon.contracts.store.queues import StageLane
from gnomon.stages import Quarantine, SavedVersion, Update
from gnomon.stages.config import StagesConfig
from gnomon.testing.stage_bench import StageBench
from tests.conformance.stages.given import It, serve_anew, settled, stage

MANY = {f"e{n:03}": {"n": n} for n in range(60)}


class Broker:
    """Takes saves, or none at all."""

    def __init__(self, *, up: bool) -> None:
        self.is_up = up
        self.taken: list[OutboxRow] = []

    async def send(self, rows: Sequence[OutboxRow]) -> Sequence[Exception | None]:
        if not self.is_up:
            return [ConnectionError("down")] * len(rows)
        self.taken.extend(rows)
        return [None] * len(rows)

    async def close(self) -> None: ...


async def behind(broker: Broker, *stages: Any) -> StageBench:
    """A base, and a broker that has been down for longer than the background lane waits."""
    bench = await settled(*stages, entities=MANY)
    serve_anew(bench, *stages, relay=broker)
    await bench.put("first", {"n": 0})
    await bench.put("second", {"n": 0})  # a save alone might be the one to blame
    await bench.advance(seconds=35)
    for each in stages:
        each.given.clear()
        each.asked.clear()
    return bench


# -- the chain ------------------------------------------------------------------------------------


async def test_every_save_of_a_chain_goes_out_with_its_root() -> None:
    """From a message one finds the chain: `explain` shows the same root."""
    told: list[SavedVersion[Any, Any]] = []
    first = stage(
        "first", watch="a", writes="b", after=told.append,
        process=lambda it: Update({"b": it.entity["a"]}),
    )  # fmt: skip
    second = stage(
        "second", watch="b", writes="c", process=lambda it: Update({"c": it.entity["b"]})
    )
    bench = await settled(first, second, entities={"e": {"a": 1}})
    await bench.patch("e", {"a": 2})
    await bench.run_due()

    explained = await bench.explain("e")

    roots = {note.version: note.root for note in explained.changes}
    assert [1, 2, 3, 4, 5, 6] == sorted(roots)
    assert roots == {row.version: row.root for row in bench.published}
    assert [2, 2] == [len({roots[1], roots[4]}), len(set(roots.values()))]
    assert [roots[2], roots[5]] == [saved.root for saved in told]
    assert f"(root {roots[6]})" in str(explained)


async def test_a_timer_begins_a_chain_of_its_own() -> None:
    """The stage that sleeps shows the root that led there; what it makes later has a new one."""

    def process(it: It) -> Update[Any]:
        if it.reasons == {"timer"}:
            return Update({"b": 1}, wake=None)
        return Update(wake=it.now + timedelta(days=1))

    one = stage("one", watch="a", writes="b", process=process)
    bench = await settled(one, entities={"e": {"a": 1}})
    [asleep] = (await bench.explain("e")).stages
    assert bench.published[0].root == asleep.root
    await bench.advance(days=2)
    notes = {note.version: note for note in (await bench.explain("e")).changes}
    assert ["user", "stage:one"] == [notes[version].author for version in (1, 2)]
    assert [notes[1].root, notes[2].root] == [row.root for row in bench.published]
    assert notes[1].root != notes[2].root


async def test_a_delete_goes_out_with_the_root_of_the_delete() -> None:
    """To the relay and to the stage that has a state there."""
    told: list[SavedVersion[Any, Any]] = []
    one = stage("one", process=lambda _: Update(state=1), after=told.append)
    bench = await settled(one, entities={"e": {}})
    await bench.delete("e")
    await bench.run_due()
    assert told[-1].deleted
    assert bench.published[-1].root == told[-1].root
    assert bench.published[0].root != told[-1].root


async def test_a_save_wakes_the_senders_of_its_own_sinks_and_no_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What leaves need not wait for a look; what changed nothing has nothing to send."""
    telling = stage("telling", watch="a", writes="b", after=lambda _: None,
                    process=lambda it: Update({"b": it.entity["a"]}))  # fmt: skip
    quiet = stage("quiet", watch="a", writes="c", process=lambda it: Update({"c": it.entity["a"]}))
    idle = stage("idle", watch="a", after=lambda _: None)
    bench = await settled(telling, quiet, idle, entities={})
    woken: list[str] = []
    monkeypatch.setattr(bench.worker.relay, "saved", woken.append)
    await bench.put("e", {"a": 1})
    await bench.run_due()
    assert ["", "", "telling"] == sorted(woken)


# -- a broker that is down ------------------------------------------------------------------------


async def test_while_the_broker_is_down_no_walk_goes_on_but_fresh_changes_do() -> None:
    """The background lane stops first; nothing is lost, and it goes on when the broker is back."""
    broker = Broker(up=False)
    late = stage("late", watch="n", writes="m", process=lambda it: Update({"m": it.entity["n"]}))
    bench = await behind(broker, late)
    await bench.stages.backfill("late")
    await bench.put("fresh", {"n": 7})
    await bench.advance(minutes=10)
    assert ["fresh"] == [it.id for it in late.given]
    assert {"fresh"} == {it.id for it in late.asked}
    assert 7 == bench["fresh"]["m"]
    broker.is_up = True
    await bench.advance(minutes=1)
    assert {*MANY, "first", "second", "fresh"} == {it.id for it in late.given}
    assert [1, 2] == [row.version for row in broker.taken if row.entity_key == "ad/fresh"]


async def test_background_rows_that_wait_already_are_held_too() -> None:
    """Also those that a rate has kept waiting, and those that were claimed ahead."""
    broker = Broker(up=True)
    late = stage("late", rate="1/s", parallel=1, process=lambda _: None)
    bench = await settled(late, entities={})
    serve_anew(bench, late, relay=broker)
    await bench.stages.entities.put_many("ad", MANY)
    await bench.advance(minutes=5)
    late.given.clear()
    await bench.stages.backfill("late")
    await bench.run_due()
    broker.is_up = False
    await bench.put("first", {})
    await bench.put("second", {})
    await bench.advance(seconds=33)
    held = len(late.given)
    assert 25 <= held <= 40
    await bench.advance(minutes=5)
    assert held == len(late.given)
    broker.is_up = True
    await bench.advance(minutes=5)
    assert {*MANY, "first", "second"} == {it.id for it in late.given}


async def test_what_is_being_looked_for_when_the_hold_begins_is_not_taken() -> None:
    """The store's answer comes too late; the rows are still in the queue."""
    late = stage("late")
    bench = await settled(late, entities=MANY)
    late.given.clear()
    reconciler = bench.worker.reconciler
    held: list[StageLane] = []

    class Slow:
        """Looks, and meanwhile the broker goes down."""

        async def lane_head(self, holdings: Any, name: str, lane: StageLane, **options: Any) -> Any:
            if lane is StageLane.BACKGROUND:
                held.append(lane)
                reconciler.hold_background(held=True)
            return await bench.store.queues.lane_head(holdings, name, lane, **options)

        def __getattr__(self, verb: str) -> Any:
            return getattr(bench.store.queues, verb)

    reconciler.claims._store = Slow()  # type: ignore[assignment]
    await bench.stages.backfill("late")
    await bench.run_due()
    assert [StageLane.BACKGROUND] == held
    assert [] == late.given
    reconciler.claims._store = bench.store.queues
    reconciler.hold_background(held=False)
    await bench.run_due()
    assert set(MANY) == {it.id for it in late.given}


async def test_a_save_that_is_refused_holds_up_nothing_but_its_own_entity() -> None:
    """Walks go on while one `after_save` fails for hours."""

    def after(saved: SavedVersion[Any, Any]) -> None:
        if saved.id == "bad":
            raise ValueError("never")

    one = stage("one", watch="n", writes="m", process=lambda _: Update({"m": 1}), after=after)
    bench = await settled(one, entities={**MANY, "bad": {}})
    await bench.advance(hours=3)
    one.given.clear()
    await bench.stages.backfill("one")
    await bench.run_due()
    assert {*MANY, "bad"} == {it.id for it in one.given}


async def test_an_old_outbox_is_told_of_and_so_is_its_recovery() -> None:
    """The alarm, the hold, and both their ends, in order."""
    told: list[str] = []

    class Log:
        def event(self, name: str, /, **fields: object) -> None:
            if name in {"outbox_late", "outbox_recovered", "background_held", "background_resumed"}:
                told.append(name)

        def count(self, name: str, value: int = 1, /, **labels: str) -> None: ...

        def observe(self, name: str, value: float, /, **labels: str) -> None: ...

        def gauge(self, name: str, value: float, /, **labels: str) -> None: ...

    broker = Broker(up=False)
    bench = StageBench("ad", observer=Log())
    serve_anew(bench, relay=broker)
    await bench.put("e", {})
    await bench.put("f", {})
    await bench.advance(seconds=45)
    assert ["background_held"] == told
    await bench.advance(minutes=5)
    assert ["background_held", "outbox_late"] == told
    broker.is_up = True
    await bench.advance(minutes=1)
    assert {"outbox_recovered", "background_resumed"} == set(told[2:])
    assert ["ad/e", "ad/f"] == sorted(row.entity_key for row in broker.taken)


# -- a save that a stage does not take ------------------------------------------------------------


class Picky:
    """An `after_save` that does not take some entities, with the error it is given."""

    def __init__(self, error: Exception, *refused: str) -> None:
        self.error = error
        self.refused = refused
        self.tried: list[tuple[str, int]] = []

    def __call__(self, saved: SavedVersion[Any, Any]) -> None:
        self.tried.append((saved.id, saved.version))
        if saved.id in self.refused:
            raise self.error

    def stage(self, **options: Any) -> Any:
        return stage(
            "one", watch="n", writes="m", after=self,
            process=lambda it: Update({"m": it.entity["n"]}), **options,
        )  # fmt: skip


async def test_a_save_that_fails_too_often_is_quarantined_with_what_is_behind_it() -> None:
    """It is listed and explained, and not tried again; other entities go on."""
    picky = Picky(ValueError("never"), "bad")
    config = StagesConfig(failures_max=5)
    bench = await settled(picky.stage(), entities={"bad": {"n": 1}}, config=config)
    await bench.advance(hours=3)
    assert 5 * [("bad", 2)] == picky.tried
    for name in ("bad", "good"):
        await bench.put(name, {"n": 2})
    await bench.advance(hours=30)
    assert [("good", 2)] == picky.tried[5:]
    [row] = await bench.parked()
    assert ("bad", "one", "undelivered", 5, "ValueError: never") == (
        row.entity_id, row.stage, row.status, row.attempts, row.error,
    )  # fmt: skip
    bench.restart()  # it says again that it serves the stage
    told = str(await bench.explain("bad"))
    assert "one: undelivered, waits for a new revision, or `gnomon entity release`" in told
    assert "5 failures: save v2 [user → one, depth 0]; last error: ValueError: never" in told


async def test_undelivered_saves_are_released_by_hand_in_their_order() -> None:
    """And have all their attempts again."""
    picky = Picky(Quarantine("a person, please"), "bad")
    bench = await settled(picky.stage(), entities={"bad": {"n": 1}})
    await bench.patch("bad", {"n": 2})
    await bench.advance(hours=1)
    assert [("bad", 2)] == picky.tried
    picky.error = ValueError("not yet")
    assert 1 == await bench.stages.entities.release("ad", "bad", "one")
    await bench.advance(seconds=5)
    assert [] == list(await bench.parked())
    picky.refused = ()
    await bench.advance(minutes=1)
    assert [("bad", 2), ("bad", 4)] == picky.tried[-2:]
    assert 0 == await bench.stages.entities.release("ad", "bad")


async def test_undelivered_saves_are_freed_by_a_new_revision_and_by_no_change() -> None:
    """The code that failed is not the code that is; the document that failed still is."""
    picky = Picky(Quarantine("a person, please"), "bad")
    bench = await settled(picky.stage(), entities={"bad": {"n": 1}})
    picky.refused = ()
    for revision, tried in ((1, 1), (2, 3)):
        serve_anew(bench, picky.stage(revision=revision))
        await bench.patch("bad", {"n": revision + 1})
        await bench.run_due()
        assert tried <= len(picky.tried)
        assert (revision == 1) == bool(await bench.parked())
    assert [("bad", 2), ("bad", 2), ("bad", 4)] == picky.tried[:3]


async def test_an_undelivered_save_holds_no_walk_though_its_stage_goes_away() -> None:
    """It has no age: a person's business is no reason to hold the background lane."""
    picky = Picky(Quarantine("a person, please"), "bad")
    one = picky.stage()
    bench = await settled(one, entities={**MANY, "bad": {"n": 1}})
    await bench.advance(hours=1)
    sender = bench.worker.relay._senders["one"]
    await sender._wait_out([], "away")
    await bench.worker.relay.step()
    assert sender.is_away
    assert not bench.worker.relay.is_behind
