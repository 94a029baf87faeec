"""One stage's work in one process: the background lane while it is held."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from gnomon.contracts.store.entities import Claim, Entity, QueueRow, RowStatus, StageLane
from gnomon.stages import Item, Stage
from gnomon.stages.line import Line
from gnomon.stages.served import LocalStage

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MAIN, BACKGROUND = StageLane.MAIN, StageLane.BACKGROUND


class Idle(Stage[Any, Any]):
    """Does nothing."""

    name = "idle"

    async def process(self, it: Item[Any, Any]) -> None: ...


def claim(name: str, lane: StageLane) -> Claim:
    row = QueueRow(
        entity_id=name, stage="idle", lane=lane, status=RowStatus.READY, ready_at=NOW,
        timer_at=None, first_at=NOW, seq=1, attempts=0, reasons=(), root=UUID(int=1), depth=0,
    )  # fmt: skip
    entity = Entity(id=name, shard=0, epoch=1, version=1, doc="{}", changed_at=NOW)
    return Claim(entity=entity, row=row, states={}, waiting=frozenset(), now=NOW)


def test_a_held_background_lane_has_nothing_to_do() -> None:
    """Neither what is known of it nor what is told meanwhile; else it would be looked for in vain
    again and again."""
    line = Line(LocalStage(Idle()))
    line.note(BACKGROUND, NOW)
    line.hold_background(held=True)
    line.note(BACKGROUND, NOW)
    assert ({}, False) == (line.next_at, line.is_waiting)
    line.note(MAIN, NOW)
    assert {MAIN: NOW} == line.next_at
    line.hold_background(held=False)
    line.note(BACKGROUND, NOW)
    assert {MAIN: NOW, BACKGROUND: NOW} == line.next_at


def test_what_was_claimed_ahead_of_a_held_lane_is_let_go() -> None:
    """And nothing of the main lane."""
    line = Line(LocalStage(Idle()))
    line.take_in(MAIN, [claim("fresh", MAIN)], 0.0)
    line.take_in(BACKGROUND, [claim("old", BACKGROUND)], 0.0)
    assert ["old"] == [each.entity.id for each in line.hold_background(held=True)]
    assert ["fresh"] == [each.entity.id for each in line.next_batch(NOW)]
    assert [] == line.next_batch(NOW)
