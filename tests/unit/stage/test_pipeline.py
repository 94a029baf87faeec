"""One stage's work in one process: the background lane while it is held."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from gnomon.contracts.store.batches import BATCH_BYTES_MAX
from gnomon.contracts.store.entities import Entity
from gnomon.contracts.store.queues import ClaimedEntity, QueueRow, RowStatus, StageLane
from gnomon.stages import EntityView, Stage
from gnomon.stages.bound_stage import LocalStage
from gnomon.stages.pipeline import BackgroundShare, StagePipeline

NOW = datetime(2026, 1, 1, tzinfo=UTC)
AHEAD = 512
MAIN, BACKGROUND = StageLane.MAIN, StageLane.BACKGROUND


class Idle(Stage[Any, Any]):
    """Does nothing."""

    name = "idle"

    async def process(self, it: EntityView[Any, Any]) -> None: ...


def claim(name: str, lane: StageLane, doc: str = "{}") -> ClaimedEntity:
    row = QueueRow(
        entity_key=name, stage="idle", lane=lane, status=RowStatus.READY, ready_at=NOW,
        timer_at=None, first_at=NOW, seq=1, attempts=0, reasons=(), root=UUID(int=1), depth=0,
    )  # fmt: skip
    entity = Entity(key=name, shard=0, epoch=1, version=1, doc=doc, changed_at=NOW)
    return ClaimedEntity(entity=entity, row=row, states={}, waiting=frozenset(), now=NOW)


def test_a_held_background_lane_has_nothing_to_do() -> None:
    """Neither what is known of it nor what is told meanwhile; else it would be looked for in vain
    again and again."""
    line = StagePipeline(LocalStage("ad", Idle()))
    line.note(BACKGROUND, NOW)
    line.hold_background(held=True)
    line.note(BACKGROUND, NOW)
    assert ({}, False) == (line.next_at, line.is_waiting)
    line.note(MAIN, NOW)
    assert {MAIN: NOW} == line.next_at
    line.hold_background(held=False)
    line.note(BACKGROUND, NOW)
    assert {MAIN: NOW, BACKGROUND: NOW} == line.next_at


def test_a_lane_that_has_half_a_batch_in_bytes_has_no_room() -> None:
    """However few they are; the other lane does not wait for that, and what is taken or let go
    makes room."""
    line = StagePipeline(LocalStage("ad", Idle()))
    large = "x" * (BATCH_BYTES_MAX // 2)
    assert line.room(BACKGROUND, 0.0, AHEAD) > 0
    line.take_in(BACKGROUND, [claim("old", BACKGROUND, large)], 0.0)
    assert line.room(BACKGROUND, 0.0, AHEAD) == 0
    assert line.room(MAIN, 0.0, AHEAD) > 0
    line.take_in(MAIN, [claim("fresh", MAIN, large)], 0.0)
    assert line.room(MAIN, 0.0, AHEAD) == 0
    assert ["fresh"] == [each.entity.key for each in line.next_batch(0.0, NOW)]
    assert line.room(MAIN, 0.0, AHEAD) > 0
    assert ["old"] == [each.entity.key for each in line.let_go()]
    assert line.room(BACKGROUND, 0.0, AHEAD) > 0


def test_what_was_claimed_ahead_of_a_held_lane_is_let_go() -> None:
    """And nothing of the main lane."""
    line = StagePipeline(LocalStage("ad", Idle()))
    line.take_in(MAIN, [claim("fresh", MAIN)], 0.0)
    line.take_in(BACKGROUND, [claim("old", BACKGROUND)], 0.0)
    assert ["old"] == [each.entity.key for each in line.hold_background(held=True)]
    assert ["fresh"] == [each.entity.key for each in line.next_batch(0.0, NOW)]
    assert [] == line.next_batch(0.0, NOW)


class Batched(Idle):
    """Sixteen at a time."""

    batch = 16


def ids_of(batch: list[ClaimedEntity]) -> list[str]:
    return [each.entity.key for each in batch]


def test_what_is_fresh_does_not_wait_for_others_in_its_call() -> None:
    """A call for the main lane is not filled up from the background lane."""
    line = StagePipeline(LocalStage("ad", Batched()))
    line.take_in(MAIN, [claim("fresh", MAIN)], 0.0)
    line.take_in(BACKGROUND, [claim(f"old{n}", BACKGROUND) for n in range(20)], 0.0)
    assert ["fresh"] == ids_of(line.next_batch(0.0, NOW))


def test_beside_what_is_fresh_a_background_call_is_small_and_alone() -> None:
    """In the whole process, and then it rests twice as long, until nothing fresh came for a second:
    then there is room for many."""
    background = BackgroundShare()
    one, other = (StagePipeline(LocalStage("ad", Batched()), background) for _ in range(2))
    for line in (one, other):
        line.capacity.share = 1.0
        line.take_in(BACKGROUND, [claim(f"old{n}", BACKGROUND) for n in range(40)], 0.0)
    other.take_in(MAIN, [claim("fresh", MAIN)], 5.0)
    assert ["fresh"] == ids_of(other.next_batch(5.0, NOW))

    assert one.may_begin(5.5)
    small = one.next_batch(5.5, NOW)
    assert ["old0", "old1"] == ids_of(small)
    one.began(small, 5.5)
    assert not one.may_begin(5.5)
    assert not other.may_begin(5.5)
    one.ended(small, 5.6)
    assert (False, True) == (other.may_begin(5.7), other.may_begin(5.8))

    one.began(small, 5.8)
    assert other.may_begin(6.1)
    assert 16 == len(other.next_batch(6.1, NOW))


def test_the_background_lane_has_its_share_of_a_full_main_lane() -> None:
    """One in ten at least, however much is fresh."""
    line = StagePipeline(LocalStage("ad", Batched()))
    line.take_in(MAIN, [claim(f"new{n}", MAIN) for n in range(40)], 0.0)
    line.take_in(BACKGROUND, [claim(f"old{n}", BACKGROUND) for n in range(4)], 0.0)
    batches = [ids_of(line.next_batch(0.0, NOW)) for _ in range(2)]
    assert [[], ["old0"]] == [[n for n in batch if n.startswith("old")] for batch in batches]
