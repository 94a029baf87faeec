"""Attempts are counted by minute and queue, and stored when the minute is over."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import UUID

import pytest

from gnomon.contracts.store import FinishRequest, HistoryRow, ReportStore
from gnomon.model.action import State
from gnomon.model.errors import StoreUnavailable
from gnomon.model.history import BEGUN, DEAD, DURATION, FAILED, LATENESS, SUCCEEDED, bucket_of
from gnomon.model.outcome import Abandoned, Failed, Outcome, Succeeded
from gnomon.worker.attempt import finish_of
from gnomon.worker.attempt_tally import (
    ALL_QUEUES,
    MINUTE,
    MINUTES_MAX,
    QUEUES_MAX,
    AttemptTally,
    TallyKeeper,
)
from tests.unit.worker.surroundings import Audience
from tests.unit.worker.test_slots import begun

NOW = datetime(2030, 1, 1, 12, 0, 30, tzinfo=UTC)
WORKER = UUID(int=7)


def ended(tally: AttemptTally, outcome: Outcome) -> None:
    attempt = begun(1)
    finish = finish_of(attempt, outcome, ended_after=timedelta(seconds=30))
    tally.ended(attempt.spec.queue, finish, 28.0, 2.0)


def test_an_ended_attempt_counts_in_its_queue_and_among_all() -> None:
    """Its outcome, and how late and how long it was."""
    tally = AttemptTally()
    ended(tally, Succeeded())
    counts = tally.take()
    assert {ALL_QUEUES, begun(1).spec.queue} == set(counts)
    for numbers in counts.values():
        assert (1, 1) == (numbers[SUCCEEDED], numbers[DURATION + bucket_of(2)])
        assert 3 == sum(numbers)
    assert 1 == counts[ALL_QUEUES][LATENESS + bucket_of(28)]
    assert {} == tally.take()


def test_what_was_handed_back_is_not_counted_as_ended() -> None:
    """It is begun elsewhere, or later."""
    tally = AttemptTally()
    ended(tally, Abandoned())
    assert {} == tally.take()


def test_the_dead_are_counted_besides() -> None:
    """The last attempt failed, and nothing follows."""
    tally = AttemptTally()
    attempt = begun(1)
    finish: FinishRequest = finish_of(
        attempt, Failed(error="no", retryable=False), ended_after=MINUTE
    )
    assert State.DEAD is finish.verdict.state
    tally.ended(attempt.spec.queue, finish, 0.0, 60.0)
    numbers = tally.take()[ALL_QUEUES]
    assert (1, 1) == (numbers[FAILED], numbers[DEAD])


def test_very_many_queues_count_among_all_only() -> None:
    """Users name them, and there is a row for each."""
    tally = AttemptTally()
    tally.begun({f"q{number}": 2 for number in range(QUEUES_MAX + 10)})
    counts = tally.take()
    assert QUEUES_MAX + 1 == len(counts)
    assert 2 * (QUEUES_MAX + 10) == counts[ALL_QUEUES][BEGUN]


class Time:
    """The database's clock, which goes on when it is told to."""

    def __init__(self) -> None:
        self.at = NOW

    def now(self) -> datetime:
        return self.at


class Shelf:
    """A store that may be away."""

    def __init__(self) -> None:
        self.is_away = False
        self.rows: dict[tuple[datetime, str], int] = {}

    async def record_minute(self, worker: UUID, rows: Sequence[HistoryRow]) -> None:
        assert worker == WORKER
        if self.is_away:
            raise StoreUnavailable("down")
        self.rows |= {(row.at, row.queue): row.counts[BEGUN] for row in rows}


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def time() -> Time:
    return Time()


def keeper_of(shelf: Shelf, tally: AttemptTally, time: Time) -> TallyKeeper:
    return TallyKeeper(
        cast("ReportStore", cast("Any", shelf)),
        tally,
        worker=WORKER,
        time=cast("Any", time),
        observer=Audience(),
    )


async def test_a_minute_is_stored_when_it_is_over(shelf: Shelf, time: Time) -> None:
    """Not before, and once; a minute without anything leaves no row."""
    tally = AttemptTally()
    keeper = keeper_of(shelf, tally, time)
    await keeper.look()
    tally.begun({"mail": 3})
    await keeper.look()
    assert {} == shelf.rows
    time.at += MINUTE
    await keeper.look()
    minute = NOW.replace(second=0)
    assert {(minute, ALL_QUEUES): 3, (minute, "mail"): 3} == shelf.rows
    time.at += MINUTE
    await keeper.look()
    assert 2 == len(shelf.rows)


async def test_the_last_minute_of_a_worker_is_stored_when_it_leaves(
    shelf: Shelf, time: Time
) -> None:
    """Though it is not over."""
    tally = AttemptTally()
    keeper = keeper_of(shelf, tally, time)
    tally.begun({"mail": 3})
    await keeper.look(is_last=True)
    assert {3} == set(shelf.rows.values())


async def test_while_the_store_is_away_minutes_are_kept_up_to_a_number(
    shelf: Shelf, time: Time
) -> None:
    """The newest of them; then all are written."""
    tally = AttemptTally()
    keeper = keeper_of(shelf, tally, time)
    shelf.is_away = True
    await keeper.look()
    for number in range(MINUTES_MAX + 5):
        tally.begun({"mail": number + 1})
        time.at += MINUTE
        with pytest.raises(StoreUnavailable):
            await keeper.look()
        await check_bound(keeper)
    shelf.is_away = False
    await keeper.look()
    assert set(range(6, MINUTES_MAX + 6)) == set(shelf.rows.values())


async def check_bound(keeper: TallyKeeper) -> None:
    """What is kept is bounded at every moment."""
    assert len(keeper._unwritten) <= MINUTES_MAX
