"""What somebody holds is left alone, for longer each time, and what is kept of it is bounded."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from gnomon.contracts.store.batches import BATCH_BYTES_MAX
from gnomon.contracts.store.entities import Entity, StageState
from gnomon.contracts.store.queues import ClaimedEntity, QueueRow, RowStatus, StageLane
from gnomon.stages.held import (
    ANSWERS_MAX,
    PAUSE_FIRST_S,
    PAUSE_MAX_S,
    PAUSES_MAX,
    HeldPauses,
    KeptAnswers,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ANSWER = ValueError("any answer would do")


def claim(name: str = "e", stage: str = "photos") -> ClaimedEntity:
    row = QueueRow(
        entity_key=name, stage=stage, lane=StageLane.MAIN, status=RowStatus.READY, ready_at=NOW,
        timer_at=None, first_at=NOW, seq=1, attempts=0, reasons=(), root=UUID(int=1), depth=0,
    )  # fmt: skip
    entity = Entity(key=name, shard=0, epoch=1, version=1, doc="{}", changed_at=NOW)
    return ClaimedEntity(entity=entity, row=row, states={}, waiting=frozenset(), now=NOW)


def test_pauses_grow_up_to_a_bound() -> None:
    """Each time it is found held again."""
    pauses: HeldPauses[str] = HeldPauses()
    now, lengths = 0.0, []
    for _ in range(12):
        pauses.put_off("e", now)
        assert (["e"], True) == (pauses.waiting, "e" in pauses)
        at = pauses.next_at
        assert at is not None
        lengths.append(at - now)
        now = at
        assert pauses.end(now)
        assert ([], False, None) == (pauses.waiting, "e" in pauses, pauses.next_at)

    assert pytest.approx([PAUSE_FIRST_S * 2.0**n for n in range(7)]) == lengths[:7]
    assert pytest.approx(PAUSE_MAX_S) == lengths[-1]


def test_only_the_first_time_is_news() -> None:
    """And again after it was free for a while."""
    pauses: HeldPauses[str] = HeldPauses()

    assert pauses.put_off("e", 0.0)
    assert not pauses.put_off("e", 1.0)
    pauses.end(5.0)
    pauses.end(5.0)
    assert pauses.put_off("e", 5.0)


def test_pauses_end_once_each() -> None:
    """Nobody looks again for what was let go."""
    pauses: HeldPauses[str] = HeldPauses()
    pauses.put_off("e", 0.0)

    assert not pauses.end(PAUSE_FIRST_S / 2)
    assert pauses.end(PAUSE_FIRST_S)
    assert not pauses.end(PAUSE_FIRST_S)


def test_pauses_are_bounded() -> None:
    """The oldest is forgotten: it is tried too early, which does no harm."""
    pauses: HeldPauses[int] = HeldPauses()
    for number in range(PAUSES_MAX + 1):
        pauses.put_off(number, 0.0)

    assert PAUSES_MAX == len(pauses.waiting)
    assert 0 not in pauses


@pytest.mark.parametrize(
    "other",
    [
        replace(claim(), row=replace(claim().row, seq=2)),
        replace(claim(), entity=replace(claim().entity, version=2)),
        replace(claim(), entity=replace(claim().entity, epoch=2)),
        replace(claim(), states={"photos": StageState(version=1, revision=1, body=b"")}),
        claim(stage="price"),
    ],
)
def test_an_answer_is_to_one_claim(other: ClaimedEntity) -> None:
    """Whatever the stage would be told otherwise, it is called again."""
    kept = KeptAnswers()
    kept.keep(claim(), ANSWER, 1)

    assert kept.take(other) is None


def test_an_answer_is_given_once() -> None:
    """Also where somebody else's state has changed."""
    kept = KeptAnswers()
    kept.keep(claim(), ANSWER, 1)
    states: dict[str, Any] = {"price": StageState(version=9, revision=1, body=b"")}

    assert ANSWER is kept.take(replace(claim(), states=states))
    assert kept.take(claim()) is None
    assert 0 == len(kept)


@pytest.mark.parametrize(("size", "most"), [(1, ANSWERS_MAX), (BATCH_BYTES_MAX // 4, 4)])
def test_answers_are_bounded(size: int, most: int) -> None:
    """In number and in bytes: the oldest goes."""
    kept = KeptAnswers()
    for number in range(ANSWERS_MAX + 1):
        kept.keep(claim(f"e{number}"), ANSWER, size)

    assert most == len(kept)
    assert kept.take(claim("e0")) is None
    assert ANSWER is kept.take(claim(f"e{ANSWERS_MAX}"))
