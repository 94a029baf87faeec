"""When a task comes again, against a model that counts step by step."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.model.errors import InvalidSpec
from gnomon.model.task import Outcome
from gnomon.model.task.interval import Interval, read_interval
from gnomon.model.task.repeat import (
    Ending,
    Repetition,
    next_cron,
    next_on_grid,
    next_plan,
    paused_plan,
    read_cron,
    retry_delay,
    settle,
)

PLAN = datetime(2026, 11, 15, 12, 0, 0, 250_000, tzinfo=UTC)
DONE = Outcome(output="1")
EMPTY = Outcome(output=None)
BROKEN = Outcome(output="", error="ERROR:  division by zero")
SECOND = timedelta(seconds=1)

moments = st.integers(946_684_800 * 10**6, 4_102_444_800 * 10**6).map(
    lambda us: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)
)
even_steps = st.builds(Interval, days=st.integers(0, 3), micros=st.integers(1, 10**11))
month_steps = st.builds(
    Interval, months=st.integers(1, 14), days=st.integers(0, 40), micros=st.integers(0, 10**11)
)


def by_steps(plan: datetime, step: Interval, now: datetime) -> datetime:
    """The document's words: plus one, plus one more, until it lies ahead."""
    moment = step.after(plan)
    while moment <= now:
        moment = step.after(moment)
    return moment


@given(moments, even_steps, st.floats(-5, 2_000))
def test_repeats_stay_on_the_grid_of_their_plan(
    plan: datetime, step: Interval, late: float
) -> None:
    """The first slot after the end, and never the same one again."""
    now = plan + step.length * late
    assert by_steps(plan, step, now) == next_on_grid(plan, step, now=now)


@given(moments, month_steps, st.timedeltas(timedelta(days=-400), timedelta(days=4000)))
def test_months_are_added_one_by_one(plan: datetime, step: Interval, late: timedelta) -> None:
    """Missed slots are skipped, by the same steps as those that are not."""
    assert by_steps(plan, step, plan + late) == next_on_grid(plan, step, now=plan + late)


def test_a_shortened_day_of_the_month_stays_shortened() -> None:
    """31 August leads to 30 September, and from there to 30 October and 30 November."""
    plan = datetime(2026, 8, 31, tzinfo=UTC)
    found = []
    for _ in range(3):
        plan = next_on_grid(plan, Interval(months=1), now=plan)
        found.append((plan.month, plan.day))
    assert [(9, 30), (10, 30), (11, 30)] == found


def test_an_interval_that_leads_backwards_repeats_nothing() -> None:
    """Two months less sixty days has no length; less 59 days it may stand still in February."""
    now = PLAN + timedelta(days=4000)
    for text in ("2 mon -60 days", "2 mon -59 days"):
        assert next_plan(Repetition(plan=PLAN, repeat=read_interval(text)), now=now) is None


def test_a_repeat_beyond_the_calendar_is_none() -> None:
    """The chain ends, and the end of the task is recorded all the same."""
    row = Repetition(plan=PLAN, repeat=read_interval("9000 years"))
    assert Ending(state="DONE") == settle(row, DONE, now=PLAN)


def test_with_drift_the_repeat_counts_from_the_end() -> None:
    """The plan does not matter then."""
    row = Repetition(plan=PLAN, repeat=Interval(micros=1_000_000), drift=True)
    now = PLAN + timedelta(seconds=2.5)
    assert now + SECOND == next_plan(row, now=now)


@given(
    moments,
    st.integers(1, 10_000),
    st.timedeltas(timedelta(0), timedelta(seconds=1_000)),
    st.booleans(),
)
def test_a_pause_ends_at_the_first_multiple_after_now(
    plan: datetime, pause_ms: int, late: timedelta, drift: bool
) -> None:
    """On the grid of the row's own plan; with drift, a whole pause from now."""
    now, pause = plan + late, timedelta(milliseconds=pause_ms)
    found = paused_plan(plan, pause, drift=drift, now=now)
    assert now < found <= now + pause
    if drift:
        assert now + pause == found
    else:
        assert timedelta(0) == (found - plan) % pause


def test_retries_wait_a_second_doubled_to_an_hour() -> None:
    """Any number of retries has a wait."""
    assert [1, 2, 4, 8] == [retry_delay(number).total_seconds() for number in range(4)]
    assert [2048, 3600, 3600, 3600] == [
        retry_delay(number).total_seconds() for number in (11, 12, 13, 2**31)
    ]


def test_a_retry_comes_before_the_repeat() -> None:
    """The row itself goes back; only when it has failed for good the next one is planned."""
    row = Repetition(plan=PLAN, repeat=Interval(micros=10_000_000), retry=2, retried=1)
    assert Ending(state="PLAN", retry_at=PLAN + 2 * SECOND) == settle(row, BROKEN, now=PLAN)
    last = Repetition(plan=PLAN, repeat=Interval(micros=10_000_000), retry=2, retried=2)
    assert Ending(state="FAIL", repeat_at=PLAN + 10 * SECOND) == settle(last, BROKEN, now=PLAN)


@pytest.mark.parametrize(
    ("delete", "outcome", "removed"),
    [
        (True, EMPTY, True),
        (False, EMPTY, False),
        (True, DONE, False),
        (True, Outcome(output=""), False),
        (True, BROKEN, False),
    ],
)
def test_only_an_empty_result_is_removed(delete: bool, outcome: Outcome, removed: bool) -> None:
    """No output at all and no error; an empty text is a result."""
    row = Repetition(plan=PLAN, delete=delete)
    assert removed is settle(row, outcome, now=PLAN).is_removed


def test_a_removed_row_is_repeated_all_the_same() -> None:
    """The chain goes on without its rows."""
    row = Repetition(plan=PLAN, repeat=Interval(micros=1_000_000))
    expected = Ending(state="DONE", repeat_at=PLAN + SECOND, is_removed=True)
    assert expected == settle(row, EMPTY, now=PLAN)


def test_cron_is_utc_unless_a_zone_follows() -> None:
    """Five fields, and perhaps a zone after them."""
    assert datetime(2026, 11, 16, 3, tzinfo=UTC) == next_cron("0 3 * * *", after=PLAN)
    assert datetime(2026, 11, 16, 2, tzinfo=UTC) == next_cron("0 3 * * * Europe/Berlin", after=PLAN)


def test_cron_wins_over_repeat_and_skips_what_was_missed() -> None:
    """The next time is after now, and after its own plan if that is later still."""
    row = Repetition(plan=PLAN, repeat=Interval(micros=1_000_000), cron="*/5 * * * *")
    late = PLAN + timedelta(minutes=23)
    assert datetime(2026, 11, 15, 12, 25, tzinfo=UTC) == next_plan(row, now=late)
    early = PLAN - timedelta(minutes=23)
    assert datetime(2026, 11, 15, 12, 5, tzinfo=UTC) == next_plan(row, now=early)


@pytest.mark.parametrize("text", [None, "", "  "])
def test_an_empty_cron_is_none(text: str | None) -> None:
    """An empty text does not make a task repeat."""
    assert read_cron(text) is None


@pytest.mark.parametrize(
    "text",
    ["x", "* * * *", "61 * * * *", "0 3 * * * Europe/Nowhere", "0 3 * * * a b", "0 0 30 2 *"],
)
def test_a_cron_that_cannot_be_is_refused(text: str) -> None:
    """Wrong fields, wrong zones, and days that never come."""
    with pytest.raises(InvalidSpec):
        read_cron(text)
    assert next_cron(text, after=PLAN) is None
