"""What several parts answered, put together."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from gnomon.contracts.store import BeginResult, Lane, MoveResult
from gnomon.stores.postgres.at_home import joined_begins, joined_moves

NOW = datetime(2026, 11, 19, tzinfo=UTC)
LATER = NOW + timedelta(milliseconds=3)
ONE, OTHER = Lane(1, "default", 0), Lane(2, "default", 0)


def test_moves_of_parts_add_up_and_the_earliest_time_counts() -> None:
    """Clocks of nodes differ, and what one of them looked at last was looked at then."""
    first = MoveResult(count=2, lanes={ONE: NOW}, marks={1: NOW}, more=False, now=LATER)
    second = MoveResult(count=3, lanes={OTHER: LATER}, marks={2: LATER}, more=True, now=NOW)

    moved = joined_moves([first, second])
    assert (5, True, NOW) == (moved.count, moved.more, moved.now)
    assert {ONE: NOW, OTHER: LATER} == moved.lanes
    assert {1: NOW, 2: LATER} == moved.marks


def test_begins_of_parts_keep_what_each_lane_has_left() -> None:
    """No lane is in two parts."""
    first = BeginResult(begun=[], next_due={ONE: None}, now=LATER, refused={ONE: NOW})
    second = BeginResult(begun=[], next_due={OTHER: LATER}, now=NOW, reached={OTHER: NOW})

    begun = joined_begins([first, second])
    assert {ONE: None, OTHER: LATER} == begun.next_due
    assert {ONE: NOW} == begun.refused
    assert {OTHER: NOW} == begun.reached
    assert begun.now == NOW
