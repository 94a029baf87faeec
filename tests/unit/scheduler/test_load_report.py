"""The load ahead: buckets, firings that will come, herds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gnomon.contracts.store import DueBucket, DueLoad, RecurringAction
from gnomon.model.errors import InvalidRequest
from gnomon.model.load import BUCKETS_MAX, LoadUnit, bucket_times, firings_between
from gnomon.model.spec import Cron, Mock, Once, Periodic, Policy, Spec
from gnomon.scheduler.load_report import (
    FIRINGS_MAX,
    HERD_MIN,
    HERDS_MAX,
    IDS_MAX,
    RECURRING_MAX,
    Firings,
    Unrolled,
    herds_of,
    unroll,
)

NOW = datetime(2030, 1, 1, 12, 34, 56, tzinfo=UTC)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)


def spec(policy: Policy) -> Spec:
    return Spec(action=Mock(), policy=policy, start_at=NOW)


def recurring(policy: Policy, name: str = "a") -> RecurringAction:
    return RecurringAction(id=name, spec=spec(policy), occurrence_at=NOW)


@given(st.integers(0, 4_000_000_000), st.sampled_from(LoadUnit))
def test_buckets_are_whole_units_and_the_first_holds_the_beginning(
    second: int, unit: LoadUnit
) -> None:
    """One after the other."""
    since = datetime.fromtimestamp(second, UTC)
    times = bucket_times(since, unit, 5)
    assert times[0] <= since < times[1]
    assert {unit.length} == {after - before for before, after in pairwise(times)}


@pytest.mark.parametrize(
    ("since", "count"),
    [(NOW, 0), (NOW, BUCKETS_MAX + 1), (datetime(9999, 12, 31, tzinfo=UTC), 1)],
)
def test_what_makes_no_sense_is_refused(since: datetime, count: int) -> None:
    """Before anybody is asked."""
    with pytest.raises(InvalidRequest):
        bucket_times(since, LoadUnit.DAY, count)


def test_firings_are_those_of_the_policy() -> None:
    """Strictly after the occurrence that stands in a queue, and before the end."""
    until = NOW + 3 * HOUR
    times = list(firings_between(spec(Periodic(period=HOUR)), NOW, NOW, until, most=10))
    assert [NOW + HOUR, NOW + 2 * HOUR] == times
    cron = spec(Cron(expression="0 * * * *", timezone="UTC"))
    times = list(firings_between(cron, NOW, NOW + 2 * HOUR, NOW + 4 * HOUR, most=10))
    assert [15, 16] == [at.hour for at in times]
    assert [] == list(firings_between(spec(Once()), NOW, NOW, until, most=10))
    assert 4 == len(list(firings_between(spec(Periodic(period=MINUTE)), NOW, NOW, until, most=4)))


def test_firings_are_added_up_in_their_buckets() -> None:
    """And by second, with their ids."""
    times = bucket_times(NOW, LoadUnit.HOUR, 3)
    unrolled = unroll(
        [recurring(Periodic(period=30 * MINUTE)), recurring(Periodic(period=HOUR), "b")],
        times,
        LoadUnit.HOUR,
        now=NOW,
    )
    assert [0, 3, 3] == unrolled.counts
    second = unrolled.seconds[NOW + HOUR]
    assert (2, ["a", "b"]) == (second.count, second.ids())
    assert not unrolled.is_cut


def test_no_more_is_unrolled_than_may_be() -> None:
    """What fires every second is not followed for a year; it is told that it was cut."""
    times = bucket_times(NOW, LoadUnit.DAY, 365)
    busy = recurring(Periodic(period=timedelta(seconds=1)))
    rules = [
        replace(busy, spec=replace(busy.spec, policy=Periodic(period=n * SECOND))) for n in (1, 2)
    ]
    unrolled = unroll(rules, times, LoadUnit.DAY, now=NOW)
    assert FIRINGS_MAX == sum(unrolled.counts)
    assert unrolled.is_cut
    many = [recurring(Periodic(period=timedelta(days=9)))] * RECURRING_MAX
    assert unroll(many, bucket_times(NOW, LoadUnit.HOUR, 1), LoadUnit.HOUR, now=NOW).is_cut


def test_actions_of_one_rule_are_unrolled_together() -> None:
    """Each from behind its own occurrence; the same as one by one."""
    times = bucket_times(NOW, LoadUnit.HOUR, 9)
    hourly = recurring(Periodic(period=HOUR))
    group = [replace(hourly, id=f"a{n}", occurrence_at=NOW + n * HOUR) for n in range(5)]
    alone = [unroll([one], times, LoadUnit.HOUR, now=NOW).counts for one in group]
    together = unroll(group, times, LoadUnit.HOUR, now=NOW)
    assert [sum(column) for column in zip(*alone, strict=True)] == together.counts
    second = together.seconds[NOW + 2 * HOUR]
    assert (2, ["a0", "a1"]) == (second.count, second.ids())
    shifted = replace(hourly, spec=replace(hourly.spec, start_at=NOW + MINUTE))
    both = unroll([hourly, shifted], times, LoadUnit.HOUR, now=NOW)
    assert 1 == both.seconds[NOW + 2 * HOUR].count


def test_many_of_one_rule_cost_no_more_than_one() -> None:
    """All of them are counted."""
    times = bucket_times(NOW, LoadUnit.HOUR, 24)
    many = [recurring(Periodic(period=MINUTE), f"a{n}") for n in range(RECURRING_MAX - 1)]
    unrolled = unroll(many, times, LoadUnit.HOUR, now=NOW)
    assert 60 * (RECURRING_MAX - 1) == unrolled.counts[1]
    assert IDS_MAX == len(unrolled.seconds[NOW + HOUR].ids())
    assert not unrolled.is_cut


def test_a_zone_that_is_not_known_here_spoils_nothing() -> None:
    """The others are unrolled."""
    times = bucket_times(NOW, LoadUnit.HOUR, 3)
    strange = recurring(Cron(expression="0 * * * *", timezone="Mars/Olympus"))
    known = recurring(Cron(expression="0 * * * *", timezone="UTC"))
    assert 2 == sum(unroll([strange, known], times, LoadUnit.HOUR, now=NOW).counts)


def test_herds_are_put_together_from_queues_and_firings() -> None:
    """The largest first, and no more than are shown."""
    half = HERD_MIN // 2
    load = DueLoad(
        at=NOW, buckets=[DueBucket(count=half, herd_at=NOW, herd_count=half), DueBucket()]
    )
    few = {NOW + number * MINUTE: Firings(HERD_MIN) for number in range(1, HERDS_MAX + 5)}
    unrolled = Unrolled([0], {NOW: Firings(HERD_MIN - half + 1), NOW - HOUR: Firings(1), **few})
    herds = herds_of(load, unrolled)
    assert (NOW, HERD_MIN + 1) == herds[0]
    assert HERDS_MAX == len(herds)
    assert NOW - HOUR not in dict(herds)
