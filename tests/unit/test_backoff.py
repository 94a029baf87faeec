"""Retry delays: the seeds' formula, and its bounds for any number of failures."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.model.backoff import retry_delay
from gnomon.model.spec import Retry

S = timedelta(seconds=1)
FAILURES_MAX = 10**7

retries = st.builds(
    lambda low, high, scale, back_off: Retry(
        min_period=min(low, high), max_period=max(low, high), scale=scale, back_off=back_off
    ),
    st.timedeltas(S, timedelta(days=3660)),
    st.timedeltas(S, timedelta(days=3660)),
    st.floats(0, 1e308),
    st.floats(0, 1e308),
)
failures = st.integers(0, FAILURES_MAX)


@given(retries, failures)
def test_a_delay_is_never_outside_its_bounds(retry: Retry, n: int) -> None:
    """Not below min_period, not above max_period, and nothing overflows."""
    assert retry.min_period <= retry_delay(retry, n) <= retry.max_period


@given(retries, failures, failures)
def test_delays_do_not_shrink_when_back_off_grows(retry: Retry, n: int, m: int) -> None:
    """With back_off >= 1 more failures never mean a shorter wait."""
    if retry.back_off < 1:
        retry = Retry(
            min_period=retry.min_period,
            max_period=retry.max_period,
            scale=retry.scale,
            back_off=1 + retry.back_off,
        )
    few, many = sorted((n, m))
    assert retry_delay(retry, few) <= retry_delay(retry, many)


@given(
    st.integers(0, 1000),
    st.sampled_from([0.0, 0.5, 1.0, 1.01, 1.5, 2.0, 10.0]),
    st.sampled_from([0.0, 0.25, 1.0, 60.0]),
)
def test_the_formula_is_the_seeds(n: int, back_off: float, scale: float) -> None:
    """min(max, min + scale * back_off ** n), to the microsecond, also for slow growth."""
    retry = Retry(min_period=2 * S, max_period=timedelta(hours=1), scale=scale, back_off=back_off)
    try:
        grown = scale * back_off**n
    except OverflowError:
        grown = float("inf") if scale else 0.0
    expected = min(timedelta(hours=1), 2 * S + timedelta(seconds=min(grown, 1e6)))
    assert expected == retry_delay(retry, n)


@pytest.mark.parametrize(
    ("retry", "delays"),
    [
        (Retry(), [1, 1, 1, 1]),
        (Retry(max_period=10 * S, scale=1, back_off=2), [2, 3, 5, 9, 10, 10]),
        (Retry(min_period=5 * S, max_period=60 * S, scale=10, back_off=1), [15, 15, 15]),
        (Retry(max_period=10 * S, scale=4, back_off=0.5), [5, 3, 2, 1.5]),
        (Retry(max_period=10 * S, scale=4), [5, 1, 1]),  # 0 ** 0 is 1
        (Retry(max_period=10 * S, scale=0, back_off=1e308), [1, 1, 1, 1]),
        (Retry(max_period=10 * S, scale=1e308, back_off=1e308), [10, 10, 10]),
    ],
)
def test_small_examples(retry: Retry, delays: list[float]) -> None:
    """Read with a pencil."""
    found = [retry_delay(retry, n).total_seconds() for n in range(len(delays))]
    assert delays == found


def test_slow_growth_reaches_the_cap() -> None:
    """1.01 ** n needs 823 failures to an hour; it gets there."""
    retry = Retry(max_period=timedelta(hours=1), scale=1, back_off=1.01)
    assert retry_delay(retry, 800) < timedelta(hours=1)
    assert timedelta(hours=1) == retry_delay(retry, 900)


@given(retries, failures, st.floats(0, 1), st.floats(0, 1))
def test_chance_shortens_what_was_added_and_never_the_least(
    retry: Retry, n: int, jitter: float, chance: float
) -> None:
    """A recorded gap is never below `min_period`, and never above the delay without chance."""
    jittered = msgspec.structs.replace(retry, jitter=jitter)
    delay = retry_delay(jittered, n, chance=chance)
    assert retry.min_period <= delay <= retry_delay(retry, n)


def test_the_part_that_chance_takes() -> None:
    retry = Retry(max_period=100 * S, scale=10.0, back_off=1.0, jitter=0.5)
    assert [11 * S, 8.5 * S, 6 * S] == [retry_delay(retry, 0, chance=c) for c in (0, 0.5, 1)]
