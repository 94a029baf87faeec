"""What follows from an outcome: every rule once, and the invariants for all of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gnomon.model.action import State, Status
from gnomon.model.outcome import (
    Abandoned,
    Cancelled,
    Failed,
    Interrupted,
    Outcome,
    Succeeded,
    Unserved,
)
from gnomon.model.spec import CatchUp, Cron, Mock, Once, Periodic, Policy, Retry, Spec
from gnomon.model.transition import MissedOccurrences, Verdict, due_at, expiry_of, transition

START = datetime(2026, 1, 1, tzinfo=UTC)
GUID = UUID("018f0000-0000-7000-8000-000000000001")
S = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
EVERY_MINUTE = Periodic(period=MINUTE)
FAILED = Failed(error="no luck")


def spec_of(policy: Policy | None = None, **fields: Any) -> Spec:
    return Spec(action=Mock(), policy=policy or Once(), start_at=START, **fields)


def status_of(**fields: Any) -> Status:
    known = {"scheduled_at": START, "occurrence_at": START, "attempts": 1}
    return Status(**{**known, **fields})


def after(
    spec: Spec, event: Outcome | MissedOccurrences, *, late: timedelta = S, **status: Any
) -> Verdict:
    """The verdict on an event that comes `late` after the start."""
    return transition(spec, status_of(**status), event, guid=GUID, now=START + late)


def followed(
    spec: Spec, *events: Outcome | MissedOccurrences, step: timedelta = S
) -> list[Verdict]:
    """Apply events one after the other, each `step` after its attempt was due."""
    status, verdicts = status_of(), []
    for event in events:
        now = (status.scheduled_at or START) + step
        verdict = transition(spec, status, event, guid=GUID, now=now)
        verdicts.append(verdict)
        status = applied(status, verdict)
    return verdicts


def applied(status: Status, verdict: Verdict) -> Status:
    """As a store does it."""
    return msgspec.structs.replace(
        status,
        state=verdict.state,
        scheduled_at=verdict.scheduled_at,
        occurrence_no=verdict.occurrence_no,
        occurrence_at=verdict.occurrence_at,
        expires_at=verdict.expires_at,
        attempts=status.attempts + 1,
        succeeded=status.succeeded + verdict.succeeded,
        failed=status.failed + verdict.failed,
        interrupted=status.interrupted + verdict.interrupted,
        consecutive_failures=verdict.consecutive_failures,
        consecutive_interruptions=verdict.consecutive_interruptions,
        occurrence_failures=verdict.occurrence_failures,
    )


# -- once -----------------------------------------------------------------------------------------


def test_once_ends_with_its_first_success() -> None:
    """Done, and the failures before it are forgotten."""
    verdict = after(spec_of(), Succeeded(), consecutive_failures=3, occurrence_failures=2)
    assert State.DONE == verdict.state
    assert (1, 0, 0) == (verdict.succeeded, verdict.failed, verdict.interrupted)
    assert (0, 0) == (verdict.consecutive_failures, verdict.occurrence_failures)
    assert verdict.reason is None


def test_once_without_retries_dies_at_its_first_failure() -> None:
    """max = 0: one attempt."""
    verdict = after(spec_of(), FAILED)
    assert (State.DEAD, "retries used up") == (verdict.state, verdict.reason)
    assert (0, 1, 0) == (verdict.succeeded, verdict.failed, verdict.interrupted)
    assert 1 == verdict.consecutive_failures


def test_once_has_one_attempt_and_its_retries() -> None:
    """max = 3: four attempts, no more."""
    verdicts = followed(spec_of(retry=Retry(max=3)), FAILED, FAILED, FAILED, FAILED)
    states = [verdict.state for verdict in verdicts]
    assert [State.ACTIVE, State.ACTIVE, State.ACTIVE, State.DEAD] == states
    assert [1, 2, 3, 4] == [verdict.consecutive_failures for verdict in verdicts]


def test_the_delay_does_not_count_the_current_failure() -> None:
    """n is 0 at the first failure: 1 s + 1 s * 2 ** 0."""
    retry = Retry(max=10, max_period=MINUTE, scale=1, back_off=2)
    verdicts = followed(spec_of(retry=retry), FAILED, FAILED, FAILED, FAILED)
    due = [verdict.scheduled_at for verdict in verdicts]
    expected, moment = [], START
    for delay in (2, 3, 5, 9):
        moment += S + delay * S  # the attempt took a second
        expected.append(moment)
    assert expected == due


def test_an_interruption_before_counts_for_the_delay() -> None:
    """Consecutive failures are errors of any kind (M6)."""
    retry = Retry(max=10, max_period=MINUTE, scale=1, back_off=2)
    verdict = after(spec_of(retry=retry), FAILED, consecutive_failures=3)
    assert START + S + 9 * S == verdict.scheduled_at


def test_a_final_failure_is_not_tried_again() -> None:
    """`retryable=False` gives up, whatever the retries."""
    verdict = after(spec_of(retry=Retry(max=5)), Failed(error="gone", retryable=False))
    assert (State.DEAD, "failed for good") == (verdict.state, verdict.reason)


@pytest.mark.parametrize(
    ("asked", "waited"),
    [
        (10 * S, 10 * S),
        (timedelta(milliseconds=1), S),
        (-10 * S, S),
        (timedelta.max, timedelta(days=3660)),
    ],
)
def test_the_receiver_may_ask_for_more_patience(asked: timedelta, waited: timedelta) -> None:
    """Never sooner than the retry policy says, and no time overflows."""
    verdict = after(spec_of(retry=Retry(max=5)), Failed(error="busy", retry_after=asked))
    assert START + S + waited == verdict.scheduled_at


def test_a_retry_keeps_its_occurrence() -> None:
    """Number and planned time stay; the window does not apply to what has begun."""
    spec = spec_of(retry=Retry(max=1), active=5 * S, deadline=START + MINUTE)
    verdict = after(spec, FAILED, occurrence_no=7)
    assert (7, START) == (verdict.occurrence_no, verdict.occurrence_at)
    assert START + MINUTE == verdict.expires_at
    assert 1 == verdict.occurrence_failures


def test_cancel_ends_the_action() -> None:
    """The function had the last word; the attempt counts as one that worked."""
    verdict = after(spec_of(EVERY_MINUTE), Cancelled(reason="unsubscribed"))
    assert (State.CANCELLED, "unsubscribed") == (verdict.state, verdict.reason)
    assert (1, 0, 0) == (verdict.succeeded, verdict.failed, verdict.interrupted)


# -- interruptions --------------------------------------------------------------------------------


def test_what_a_dead_process_leaves_is_due_at_once_the_first_time() -> None:
    """Its reservation need not be waited for."""
    event = Interrupted(reserved_until=START + MINUTE)
    assert START + S == after(spec_of(), event).scheduled_at


def test_what_is_interrupted_again_waits_for_its_reservation() -> None:
    """It may be what ends its process; then the next one lives a while, and not a moment."""
    event = Interrupted(reserved_until=START + MINUTE)
    again = after(spec_of(), event, consecutive_interruptions=1)
    assert (START + MINUTE, 2) == (again.scheduled_at, again.consecutive_interruptions)

    late = after(spec_of(), event, consecutive_interruptions=1, late=2 * MINUTE)
    assert START + 2 * MINUTE == late.scheduled_at


def test_the_wait_for_a_reservation_does_not_miss_the_deadline() -> None:
    """Rather too often than never again."""
    event = Interrupted(reserved_until=START + MINUTE)
    spec = spec_of(deadline=START + 30 * S)
    assert START + S == after(spec, event, consecutive_interruptions=1).scheduled_at


def test_too_many_interruptions_end_it_whoever_noticed() -> None:
    """An action that ends its process each time is dead, and not tried for ever."""
    event = Interrupted(reason="gone", reserved_until=START + MINUTE)
    verdict = after(spec_of(interruptions_max=2), event, consecutive_interruptions=2)
    assert (State.DEAD, "interrupted: gone") == (verdict.state, verdict.reason)


def test_an_interruption_does_not_eat_the_retries() -> None:
    """With max = 0 a crash is followed by another attempt at once."""
    verdict = after(spec_of(), Interrupted())
    assert (State.ACTIVE, START + S) == (verdict.state, verdict.scheduled_at)
    assert (0, 0, 1) == (verdict.succeeded, verdict.failed, verdict.interrupted)
    assert (1, 1, 0) == (
        verdict.consecutive_failures,
        verdict.consecutive_interruptions,
        verdict.occurrence_failures,
    )


def test_too_many_interruptions_in_a_row_are_the_end() -> None:
    """interruptions_max = 2: the third in a row is taken for the action's own fault."""
    crash = Interrupted(reason="the worker disappeared")
    verdicts = followed(spec_of(interruptions_max=2), crash, crash, crash)
    assert [State.ACTIVE, State.ACTIVE, State.DEAD] == [verdict.state for verdict in verdicts]
    assert "interrupted: the worker disappeared" == verdicts[-1].reason


def test_a_failure_between_interruptions_starts_the_count_again() -> None:
    """In a row means in a row."""
    spec = spec_of(interruptions_max=1, retry=Retry(max=9))
    verdicts = followed(spec, Interrupted(), FAILED, Interrupted(), FAILED)
    assert [1, 0, 1, 0] == [verdict.consecutive_interruptions for verdict in verdicts]
    assert {State.ACTIVE} == {verdict.state for verdict in verdicts}


def test_interruptions_max_zero_allows_none() -> None:
    """For those who would rather look than repeat."""
    assert State.DEAD == after(spec_of(interruptions_max=0), Interrupted()).state


def test_an_abandoned_attempt_is_repeated_at_once_and_held_against_nobody() -> None:
    """Nothing was sent: counted as interrupted, but neither a failure nor a suspicion."""
    verdict = after(spec_of(interruptions_max=0), Abandoned(), consecutive_failures=2)
    assert (State.ACTIVE, START + S) == (verdict.state, verdict.scheduled_at)
    assert 1 == verdict.interrupted
    assert (2, 0) == (verdict.consecutive_failures, verdict.consecutive_interruptions)


def test_an_abandoned_attempt_may_be_put_off() -> None:
    """Its target is at its limit; but not beyond the deadline, after which it could never begin."""
    event = Abandoned(reason="the target is at its limit", retry_after=30 * S)
    assert START + 31 * S == after(spec_of(), event).scheduled_at
    assert START + 31 * S == after(spec_of(deadline=START + 32 * S), event).scheduled_at
    assert START + S == after(spec_of(deadline=START + 31 * S), event).scheduled_at


@pytest.mark.parametrize("policy", [Once(), EVERY_MINUTE])
@pytest.mark.parametrize("late", [S, 10 * MINUTE])
def test_an_unserved_attempt_leaves_everything_as_it_was(policy: Policy, late: timedelta) -> None:
    """However late it is: the same time and occurrence, and nothing is counted. What has expired by
    then is found by those who look for it, as if it had not been begun."""
    kept = {
        "expires_at": START + MINUTE, "consecutive_failures": 2, "consecutive_interruptions": 1,
        "occurrence_failures": 2,
    }  # fmt: skip
    spec = spec_of(policy, interruptions_max=0, deadline=START + MINUTE)
    verdict = after(spec, Unserved("function f"), late=late, **kept)
    assert (State.ACTIVE, START, 1) == (
        verdict.state, verdict.scheduled_at, verdict.occurrence_no,
    )  # fmt: skip
    assert (0, 0, 0) == (verdict.succeeded, verdict.failed, verdict.interrupted)
    assert kept == {name: getattr(verdict, name) for name in kept}


# -- deadline and window --------------------------------------------------------------------------


@pytest.mark.parametrize("event", [Interrupted(), Abandoned(), MissedOccurrences()])
@pytest.mark.parametrize("policy", [Once(), EVERY_MINUTE])
def test_after_the_deadline_nothing_is_tried(
    event: Outcome | MissedOccurrences, policy: Policy
) -> None:
    """The action is expired, and what happened is still counted."""
    verdict = after(spec_of(policy, deadline=START + S), event, late=S)
    assert (State.EXPIRED, "deadline") == (verdict.state, verdict.reason)
    assert (0 if isinstance(event, MissedOccurrences) else 1) == verdict.interrupted


def test_a_retry_after_the_deadline_is_not_made() -> None:
    """It would come too late: expired now, not then."""
    spec = spec_of(
        retry=Retry(max=5, min_period=10 * S, max_period=10 * S), deadline=START + 11 * S
    )
    verdict = after(spec, FAILED, late=S)
    assert (State.EXPIRED, "deadline", 1) == (verdict.state, verdict.reason, verdict.failed)
    assert State.ACTIVE == after(spec, FAILED, late=S - timedelta(microseconds=1)).state


def test_the_last_occurrence_before_the_deadline_is_the_last() -> None:
    """An occurrence at the deadline is not one any more."""
    spec = spec_of(EVERY_MINUTE, deadline=START + MINUTE)
    verdict = after(spec, Succeeded())
    assert (State.EXPIRED, "deadline", 1) == (verdict.state, verdict.reason, verdict.succeeded)
    longer = spec_of(EVERY_MINUTE, deadline=START + MINUTE + timedelta(microseconds=1))
    assert START + MINUTE == after(longer, Succeeded()).scheduled_at


def test_missed_occurrences_do_not_outlive_the_deadline() -> None:
    """Once it has passed, even what was planned before it is not caught up with."""
    spec = spec_of(EVERY_MINUTE, deadline=START + 5 * MINUTE, catch_up=CatchUp(mode="all"))
    verdict = after(spec, Succeeded(), late=10 * MINUTE)
    assert (State.EXPIRED, "deadline", 1) == (verdict.state, verdict.reason, verdict.succeeded)


def test_a_one_shot_outside_its_window_expires() -> None:
    """Not begun in time: expired, and no attempt is counted."""
    verdict = after(spec_of(active=MINUTE), MissedOccurrences(), late=2 * MINUTE)
    assert (State.EXPIRED, "not begun within its window") == (verdict.state, verdict.reason)
    assert (0, 0, 0) == (verdict.succeeded, verdict.failed, verdict.interrupted)


def test_a_periodic_action_outside_its_window_goes_on() -> None:
    """The occurrence is lost, the next one comes."""
    verdict = after(spec_of(EVERY_MINUTE, active=5 * S), MissedOccurrences(), late=90 * S)
    assert (State.ACTIVE, START + 2 * MINUTE) == (verdict.state, verdict.scheduled_at)
    assert 2 == verdict.occurrence_no
    assert START + 2 * MINUTE + 5 * S == verdict.expires_at


def test_catching_up_with_all_keeps_what_is_within_its_window() -> None:
    """Three hours were missed and the window is ten minutes: the last ten are still to come."""
    spec = spec_of(EVERY_MINUTE, active=10 * MINUTE, catch_up=CatchUp(mode="all"))
    verdict = after(spec, MissedOccurrences(), late=180 * MINUTE)
    assert START + 171 * MINUTE == verdict.scheduled_at
    assert 2 == verdict.occurrence_no


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"deadline": START + MINUTE}, MINUTE),
        ({"active": 5 * S}, 5 * S),
        ({"active": 5 * S, "deadline": START + 3 * S}, 3 * S),
        ({"catch_up": CatchUp(mode="none")}, None),
        ({"policy": EVERY_MINUTE}, None),
        ({"policy": EVERY_MINUTE, "catch_up": CatchUp(mode="none")}, MINUTE),
        ({"policy": Periodic(period=S), "catch_up": CatchUp(mode="none"), "active": S}, S),
        ({"policy": Cron(expression="0 * * * *"), "catch_up": CatchUp(mode="none")}, 60 * MINUTE),
    ],
)
def test_an_occurrence_expires_with_the_first_of_its_limits(
    fields: dict[str, Any], expected: timedelta | None
) -> None:
    """Deadline, window, and with catch_up none the next occurrence."""
    found = expiry_of(spec_of(**fields), START, START)
    assert (None if expected is None else START + expected) == found


def test_a_drifting_occurrence_expires_a_period_after_itself() -> None:
    """It has left the grid: the grid's next time says nothing about it."""
    spec = spec_of(EVERY_MINUTE, drift=True, catch_up=CatchUp(mode="none"))
    occurrence_at = START + 59 * S
    assert occurrence_at + MINUTE == expiry_of(spec, occurrence_at, occurrence_at)


# -- periodic -------------------------------------------------------------------------------------


def test_a_success_leads_to_the_next_period() -> None:
    """On the grid, with a new number and a clean slate."""
    verdict = after(spec_of(EVERY_MINUTE), Succeeded(), occurrence_failures=2)
    assert (State.ACTIVE, START + MINUTE) == (verdict.state, verdict.scheduled_at)
    assert (2, START + MINUTE, 0) == (
        verdict.occurrence_no,
        verdict.occurrence_at,
        verdict.occurrence_failures,
    )


def test_a_failed_period_without_retries_leads_to_the_next_one() -> None:
    """A periodic action does not die of one failure; the row of failures is remembered."""
    verdict = after(spec_of(EVERY_MINUTE), FAILED, consecutive_failures=4)
    assert (State.ACTIVE, START + MINUTE, 2) == (
        verdict.state,
        verdict.scheduled_at,
        verdict.occurrence_no,
    )
    assert (5, 0, 1) == (
        verdict.consecutive_failures,
        verdict.occurrence_failures,
        verdict.failed,
    )


def test_each_occurrence_has_its_own_retries() -> None:
    """The delay counts the failures of this occurrence, not of those before it."""
    retry = Retry(max=2, max_period=MINUTE, scale=1, back_off=2)
    verdict = after(spec_of(EVERY_MINUTE, retry=retry), FAILED, consecutive_failures=30)
    assert (START + S + 2 * S, 1) == (verdict.scheduled_at, verdict.occurrence_no)
    used_up = after(spec_of(EVERY_MINUTE, retry=retry), FAILED, occurrence_failures=2)
    assert (START + MINUTE, 2) == (used_up.scheduled_at, used_up.occurrence_no)


def test_retries_end_when_the_next_occurrence_is_due() -> None:
    """A retry at or after the next planned time is left to the next occurrence."""
    retry = Retry(max=5, min_period=10 * S, max_period=10 * S)
    spec = spec_of(EVERY_MINUTE, retry=retry)
    verdict = after(spec, FAILED, late=50 * S)
    assert (START + MINUTE, 2, 1) == (
        verdict.scheduled_at,
        verdict.occurrence_no,
        verdict.failed,
    )
    sooner = after(spec, FAILED, late=49 * S)
    assert (START + 59 * S, 1) == (sooner.scheduled_at, sooner.occurrence_no)


def test_a_drifting_action_finishes_its_retries_first() -> None:
    """Its next occurrence begins to count when this one is over."""
    retry = Retry(max=5, min_period=10 * S, max_period=10 * S)
    verdict = after(spec_of(EVERY_MINUTE, retry=retry, drift=True), FAILED, late=55 * S)
    assert (START + 65 * S, 1) == (verdict.scheduled_at, verdict.occurrence_no)


def test_drift_counts_from_the_end_of_the_attempt() -> None:
    """A minute after the result, not after the plan."""
    verdict = after(spec_of(EVERY_MINUTE, drift=True), Succeeded(), late=95 * S)
    assert START + 155 * S == verdict.scheduled_at == verdict.occurrence_at


@pytest.mark.parametrize(("mode", "expected"), [("none", 11), ("one", 11), ("all", 1)])
@pytest.mark.parametrize("event", [Succeeded(), FAILED])
def test_missed_periods_follow_the_catch_up_rule(mode: Any, expected: int, event: Outcome) -> None:
    """Ten periods late: go on in the future, or one after the other."""
    spec = spec_of(EVERY_MINUTE, catch_up=CatchUp(mode=mode))
    verdict = after(spec, event, late=10 * MINUTE)
    assert START + expected * MINUTE == verdict.scheduled_at
    assert 2 == verdict.occurrence_no


def test_catching_up_drops_the_oldest() -> None:
    """all(max 3): the newest three of ten."""
    spec = spec_of(EVERY_MINUTE, catch_up=CatchUp(mode="all", max=3))
    assert START + 8 * MINUTE == after(spec, Succeeded(), late=10 * MINUTE).scheduled_at


@pytest.mark.parametrize("event", [Succeeded(), FAILED, MissedOccurrences()])
def test_the_last_of_a_number_of_occurrences_is_the_end(event: Outcome | MissedOccurrences) -> None:
    """occurrences_max counts all of them, however they went."""
    spec = spec_of(EVERY_MINUTE, occurrences_max=3)
    last = after(spec, event, occurrence_no=3)
    assert (State.DONE, "occurrences_max reached") == (last.state, last.reason)
    assert State.ACTIVE == after(spec, event, occurrence_no=2).state


def test_the_last_occurrence_still_has_its_retries() -> None:
    """The number limits occurrences, not attempts."""
    spec = spec_of(EVERY_MINUTE, occurrences_max=1, retry=Retry(max=1))
    assert State.ACTIVE == after(spec, FAILED).state
    assert State.DONE == after(spec, FAILED, occurrence_failures=1).state


def test_enough_successes_are_the_end() -> None:
    """successes_max counts the present one."""
    spec = spec_of(EVERY_MINUTE, successes_max=3)
    verdict = after(spec, Succeeded(), succeeded=2)
    assert (State.DONE, "successes_max reached", 1) == (
        verdict.state,
        verdict.reason,
        verdict.succeeded,
    )
    assert State.ACTIVE == after(spec, Succeeded(), succeeded=1).state


@pytest.mark.parametrize("policy", [Once(), EVERY_MINUTE])
def test_too_many_failures_in_a_row_are_the_end(policy: Policy) -> None:
    """consecutive_failures_max counts the present one, and overrules the retries."""
    spec = spec_of(policy, consecutive_failures_max=3, retry=Retry(max=100))
    verdict = after(spec, FAILED, consecutive_failures=2)
    assert (State.DEAD, "consecutive_failures_max reached") == (verdict.state, verdict.reason)
    assert 1 == verdict.failed
    assert State.ACTIVE == after(spec, FAILED, consecutive_failures=1).state


def test_a_cron_without_a_further_time_is_done() -> None:
    """No next occurrence is no error."""
    never = Cron(expression="0 0 */31 2 MON#5")
    verdict = after(spec_of(never), Succeeded())
    assert (State.DONE, "no further occurrence", 1) == (
        verdict.state,
        verdict.reason,
        verdict.succeeded,
    )


def test_a_cron_goes_to_its_next_time() -> None:
    """The calendar's, in its zone."""
    daily = Cron(expression="0 3 * * *", timezone="Europe/Berlin")
    verdict = after(spec_of(daily), Succeeded())
    assert datetime(2026, 1, 1, 2, 0, tzinfo=UTC) == verdict.scheduled_at


# -- jitter ---------------------------------------------------------------------------------------


@given(st.uuids(), st.integers(1, 2**40), st.timedeltas(timedelta(0), timedelta(days=1)))
def test_jitter_delays_by_a_fixed_part_of_itself(
    guid: UUID, occurrence_no: int, jitter: timedelta
) -> None:
    """Never early, never by the whole of it, always the same for one occurrence."""
    spec = spec_of(jitter=jitter)
    due = due_at(spec, guid, occurrence_no, START)
    assert START <= due
    assert due < START + jitter or jitter == timedelta(0)
    assert due == due_at(spec, guid, occurrence_no, START)


def test_jitter_moves_the_attempt_and_not_the_plan() -> None:
    """The grid stays where it is."""
    verdict = after(spec_of(EVERY_MINUTE, jitter=30 * S), Succeeded())
    assert START + MINUTE == verdict.occurrence_at
    assert verdict.scheduled_at is not None
    assert START + MINUTE < verdict.scheduled_at < START + 90 * S
    assert due_at(spec_of(jitter=30 * S), GUID, 2, START + MINUTE) == verdict.scheduled_at


# -- for all of them ------------------------------------------------------------------------------

seconds = st.integers(1, 10_000).map(lambda n: n * S)
limits = st.none() | st.integers(1, 5)
policies: st.SearchStrategy[Policy] = st.one_of(
    st.just(Once()),
    st.builds(Periodic, period=seconds),
    st.builds(
        Cron,
        expression=st.sampled_from(["* * * * *", "*/5 * * * *", "30 2 * * *"]),
        timezone=st.sampled_from(["UTC", "Europe/Berlin"]),
    ),
)
specs = st.builds(
    Spec,
    action=st.just(Mock()),
    policy=policies,
    start_at=st.just(START),
    deadline=st.none() | seconds.map(lambda delay: START + delay),
    retry=st.builds(
        Retry,
        max=st.integers(0, 5),
        min_period=st.just(S),
        max_period=seconds,
        scale=st.floats(0, 1e308),
        back_off=st.floats(0, 1e308),
    ),
    active=st.none() | seconds,
    drift=st.booleans(),
    catch_up=st.builds(CatchUp, mode=st.sampled_from(["none", "one", "all"]), max=limits.map(
        lambda limit: limit or 100
    )),
    jitter=st.just(timedelta(0)) | seconds,
    occurrences_max=limits,
    successes_max=limits,
    consecutive_failures_max=limits,
    interruptions_max=st.integers(0, 3),
)  # fmt: skip
events: st.SearchStrategy[Outcome | MissedOccurrences] = st.one_of(
    st.just(Succeeded()),
    st.builds(
        Failed,
        error=st.just("no luck"),
        retryable=st.booleans(),
        retry_after=st.none() | st.timedeltas(),
    ),
    st.just(Cancelled(reason="enough")),
    st.just(Interrupted()),
    st.just(Abandoned()),
    st.just(MissedOccurrences()),
)


@given(specs, st.lists(st.tuples(events, seconds), min_size=1, max_size=12), st.uuids())
def test_every_life_obeys_the_invariants(
    spec: Spec, story: list[tuple[Outcome | MissedOccurrences, timedelta]], guid: UUID
) -> None:
    """Terminal or due; one count per attempt; occurrences in order; nothing after the deadline."""
    assume(spec.retry.min_period <= spec.retry.max_period)
    status = status_of()
    for event, step in story:
        assert status.scheduled_at is not None
        now = status.scheduled_at + step
        verdict = transition(spec, status, event, guid=guid, now=now)
        check_invariants(spec, status, event, verdict, now)
        status = applied(status, verdict)
        if verdict.state.is_terminal:
            return


def check_invariants(
    spec: Spec, before: Status, event: Outcome | MissedOccurrences, verdict: Verdict, now: datetime
) -> None:
    assert verdict.state.is_terminal == (verdict.scheduled_at is None)
    assert State.PAUSED != verdict.state
    counted = verdict.succeeded + verdict.failed + verdict.interrupted
    assert (0 if isinstance(event, MissedOccurrences) else 1) == counted
    assert verdict.occurrence_no - before.occurrence_no in (0, 1)
    assert before.occurrence_at is not None
    assert verdict.occurrence_at is not None
    assert verdict.occurrence_at >= before.occurrence_at
    assert (verdict.occurrence_no > before.occurrence_no) == (
        verdict.occurrence_at > before.occurrence_at
    )
    if verdict.scheduled_at is None:
        return
    assert not isinstance(event, Cancelled)
    if spec.deadline is not None:
        assert verdict.scheduled_at < spec.deadline
        assert now < spec.deadline
        assert verdict.expires_at is not None
        assert verdict.expires_at <= spec.deadline
    if verdict.occurrence_no == before.occurrence_no:
        assert verdict.scheduled_at >= now
    else:
        assert not isinstance(spec.policy, Once)
        assert 0 == verdict.occurrence_failures
        assert verdict.scheduled_at >= verdict.occurrence_at
        if spec.catch_up.mode != "all":
            assert verdict.occurrence_at > now
    if isinstance(event, Succeeded):
        assert 0 == verdict.consecutive_failures == verdict.consecutive_interruptions
