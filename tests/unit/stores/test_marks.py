"""How far marks lag behind what was moved."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from gnomon.contracts.store import HeldShard
from gnomon.stores.postgres.connection import MARK_SLACK, MARK_SLACK_BLIND
from gnomon.stores.postgres.lanes import MoveTally
from gnomon.worker.config import WorkerConfig

NOW = datetime(2026, 11, 19, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def mark_after(taken: int, last_at: datetime | None, old: datetime | None = None) -> datetime:
    held = HeldShard(shard=1, lease_guid=UUID(int=1), incoming_mark=old)
    tally = MoveTally([held], 10, MARK_SLACK)
    tally.add_shard(1, taken, last_at, NOW)
    return tally.marks[1]


def test_a_mark_lags_by_the_slack() -> None:
    """Behind the present, or behind the last row if there may be more."""
    assert NOW - MARK_SLACK == mark_after(3, NOW - SECOND)
    assert NOW - 5 * SECOND - MARK_SLACK == mark_after(10, NOW - 5 * SECOND)
    assert NOW - 2 * SECOND == mark_after(10, NOW - 5 * SECOND, NOW - 2 * SECOND)


def test_a_clock_that_is_set_back_between_two_polls_is_within_the_slack() -> None:
    """By less than their interval no poll sees it."""
    assert WorkerConfig().poll * 2 < MARK_SLACK


def test_the_slack_is_short() -> None:
    """While somebody holds a snapshot each look goes over all dead rows of it: with two seconds it
    was 15,000 blocks of a begin, at 22,000 actions a second."""
    assert MARK_SLACK <= SECOND / 2 < MARK_SLACK_BLIND
