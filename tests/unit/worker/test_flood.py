"""When arrivals are moved, and when they had better wait where they are."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from gnomon.contracts.store import Lane, MoveResult
from gnomon.worker.flood import (
    PATIENCE_ROUNDS,
    PATIENCE_S,
    PATIENCE_SWIFT_S,
    ROUND_MAX_S,
    SWIFT_ROWS,
    Flood,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Surroundings:
    """A clock that is set, and a store that says whether what waits is mixed."""

    def __init__(self) -> None:
        self.seconds = 100.0
        self.mixed = False
        self.asked = 0

    def monotonic(self) -> float:
        return self.seconds

    async def is_mixed(self, holdings: object, *, limit: int) -> bool:
        self.asked += 1
        return self.mixed


def flood_of(around: Any) -> Flood:
    return Flood(around, around)


def moved(count: int, *, lanes: int = 0) -> MoveResult:
    found = {Lane(number, "default", 5): NOW for number in range(lanes)}
    return MoveResult(count=count, lanes=found, marks={}, more=False, now=NOW)


async def test_a_moment_is_waited_for_a_slot() -> None:
    """Then all of it is moved; nothing is asked, for slots are not turning over."""
    around = Surroundings()
    flood = flood_of(around)
    flood.rise()

    assert not await flood.is_to_be_moved([])
    around.seconds += PATIENCE_S + 0.01
    assert await flood.is_to_be_moved([])
    assert 0 == around.asked


async def test_where_rounds_are_long_some_of_them_are_waited_for() -> None:
    """What arrives during a round waits for the next one: that is no flood."""
    around = Surroundings()
    flood = flood_of(around)
    flood.note_round(0.2)
    flood.rise()
    around.seconds += 0.3

    lasts = [flood.is_lasting, await flood.is_to_be_moved([])]
    around.seconds += 0.6
    lasts += [flood.is_lasting, await flood.is_to_be_moved([])]

    assert [False, False, True, True] == lasts


async def test_a_round_that_stood_still_is_no_reason_to_be_patient() -> None:
    """The store was away for a minute: what waits since is moved as soon as it is back."""
    around = Surroundings()
    flood = flood_of(around)
    flood.rise()
    flood.note_round(60.0)
    around.seconds += PATIENCE_ROUNDS * ROUND_MAX_S + 0.01

    assert flood.is_lasting
    assert await flood.is_to_be_moved([])


async def test_what_is_of_one_kind_stays_while_whole_batches_are_begun() -> None:
    """It would be begun in the same order, and written once more."""
    around = Surroundings()
    flood = flood_of(around)
    flood.note(moved(SWIFT_ROWS), is_more=True)
    around.seconds += PATIENCE_SWIFT_S + 0.01
    flood.note_begun(SWIFT_ROWS)

    assert not await flood.is_to_be_moved([])
    assert not await flood.is_to_be_moved([])
    assert 1 == around.asked, "once a second is often enough"


async def test_what_is_mixed_is_moved_after_all() -> None:
    """So that the first priority comes first."""
    around = Surroundings()
    around.mixed = True
    flood = flood_of(around)
    flood.note(moved(SWIFT_ROWS), is_more=True)
    around.seconds += PATIENCE_SWIFT_S + 0.01
    flood.note_begun(SWIFT_ROWS)

    assert await flood.is_to_be_moved([])


async def test_swiftness_is_forgotten() -> None:
    """Slots that stand still for a second are not quick any more."""
    around = Surroundings()
    flood = flood_of(around)
    flood.note(moved(SWIFT_ROWS), is_more=True)
    around.seconds += PATIENCE_SWIFT_S + 0.01

    assert await flood.is_to_be_moved([])


async def test_rows_for_lanes_are_no_sign_of_swiftness() -> None:
    """Some of them could not be begun."""
    around = Surroundings()
    flood = flood_of(around)
    flood.note(moved(SWIFT_ROWS, lanes=1), is_more=True)
    around.seconds += PATIENCE_S + 0.01

    assert await flood.is_to_be_moved([])
