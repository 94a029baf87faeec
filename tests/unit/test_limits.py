"""Limits: their rules, how a parallelism is shared out, and the bucket of a rate."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.model.errors import InvalidSpec
from gnomon.model.limits import (
    FRESH_FOR,
    TURN,
    Claimant,
    Limit,
    LimitKind,
    Share,
    fair_part,
    limit_key,
    rate_bucket,
    resize_bucket,
    share_of,
    validate_limit,
)
from gnomon.model.token_bucket import TokenBucket

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LONG_AGO = NOW - timedelta(minutes=5)


def limit(**fields: Any) -> Limit:
    return Limit(**({"kind": LimitKind.QUEUE, "name": "mail"} | fields))


# -- rules ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields", [{"parallel": 0}, {"parallel": 10**6}, {"rate": 0.001}, {"rate": 5.0, "burst": 1}]
)
def test_good_limits_pass(fields: dict[str, Any]) -> None:
    """None at all is a limit; a rate may be slower than one a second."""
    validate_limit(limit(**fields))
    assert limit(**fields).key == limit_key("queue", "mail")


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({}, "parallel"),
        ({"parallel": -1}, "parallel"),
        ({"parallel": 10**6 + 1}, "parallel"),
        ({"rate": 0.0}, "rate"),
        ({"rate": -1.0}, "rate"),
        ({"rate": math.inf}, "rate"),
        ({"rate": math.nan}, "rate"),
        ({"parallel": 1, "burst": 1}, "burst"),
        ({"rate": 1.0, "burst": 0}, "burst"),
        ({"parallel": 1, "name": "no name"}, "name"),
        ({"parallel": 1, "name": ""}, "name"),
        ({"parallel": 1, "kind": "group"}, "kind"),
    ],
)
def test_bad_limits_are_refused(fields: dict[str, Any], path: str) -> None:
    """The error names the field."""
    with pytest.raises(InvalidSpec) as refused:
        validate_limit(limit(**fields))
    assert path == refused.value.path


# -- shares ---------------------------------------------------------------------------------------


def test_fair_parts_are_by_shards_and_at_least_one() -> None:
    """Rounded down, so that they can all be had; one in one's turn; nothing of nothing."""
    assert [5, 3, 1] == [fair_part(10, shards, 16) for shards in (8, 5, 3)]
    assert 1 == fair_part(2, 1, 16)
    assert 1 == fair_part(2, 0, 16)
    assert 1 == fair_part(5, 0, 0)
    assert 0 == fair_part(0, 8, 16)


def claimant(
    wanted: int,
    counted: int = 0,
    *,
    shards: int = 1,
    waiting: bool | None = None,
    since: datetime = LONG_AGO,
    asked_at: datetime = NOW,
    allowed: int | None = None,
) -> Claimant:
    """Somebody with a history; None: nobody knows him yet."""
    told = counted if allowed is None else allowed
    share = None if waiting is None else Share(told, counted, waiting, since)
    return Claimant(wanted, counted, shards, share, asked_at)


def ask(parallel: int, asker: Claimant, *others: Claimant) -> Share:
    shards = asker.shards + sum(other.shards for other in others)
    return share_of(parallel, asker, others, shards_all=shards, now=NOW)


def test_nobody_gets_more_than_he_wants_or_is_left() -> None:
    """Alone one may have all of it."""
    assert 3 == ask(5, claimant(3)).allowed
    assert 5 == ask(5, claimant(9)).allowed
    assert 2 == ask(5, claimant(9), claimant(3, 3, waiting=False)).allowed
    assert 0 == ask(5, claimant(9), claimant(7, 7, waiting=False)).allowed


def test_what_is_under_way_is_counted_though_it_is_not_allowed() -> None:
    """A lowered limit."""
    share = ask(2, claimant(8, 8, waiting=False))
    assert (2, 8) == (share.allowed, share.counted)


def test_who_waits_is_known_since_when() -> None:
    """The time counts from the first refusal, and begins anew when it is over."""
    taken = claimant(5, 5, waiting=False, since=NOW)
    first = ask(5, claimant(9), taken)
    assert (0, True, NOW) == (first.allowed, first.is_waiting, first.since)
    assert LONG_AGO == ask(5, claimant(9, waiting=True), taken).since
    free = ask(5, claimant(9, waiting=True))
    assert (5, False, NOW) == (free.allowed, free.is_waiting, free.since)


def test_who_has_more_than_his_part_gives_it_up_for_those_who_lack() -> None:
    """Down to his part, but not below."""
    lacking = claimant(9, 0, waiting=True)
    assert 5 == ask(10, claimant(20, 10, waiting=False), lacking).allowed
    assert 9 == ask(10, claimant(20, 10, waiting=False), claimant(1, 0, waiting=True)).allowed


def test_nothing_is_kept_for_who_does_not_ask_any_more() -> None:
    """His want is old: he may have got stuck."""
    stuck = claimant(9, 0, waiting=True, asked_at=NOW - FRESH_FOR - timedelta(seconds=1))
    assert 10 == ask(10, claimant(20, 10, waiting=False), stuck).allowed


def test_a_turn_lasts_a_while() -> None:
    """One slot does not change hands for every attempt."""
    lacking = claimant(1, 0, waiting=True)
    held = claimant(1, 1, waiting=False, since=NOW - TURN / 2)
    assert 1 == ask(1, held, lacking).allowed
    over = ask(1, claimant(1, 1, waiting=False, since=NOW - TURN), lacking)
    assert (0, 1, True, NOW) == (over.allowed, over.counted, over.is_waiting, over.since)


def test_for_one_who_lacks_only_one_gives_way() -> None:
    """The one whose turn is the oldest; the others rely on him, but not for ever."""
    lacking = claimant(1, 0, waiting=True)
    older = claimant(1, 1, waiting=False, since=NOW - 3 * TURN)
    newer = claimant(1, 1, waiting=False, since=NOW - 2 * TURN)
    assert 0 == ask(2, older, newer, lacking).allowed
    assert 1 == ask(2, newer, older, lacking).allowed
    told = claimant(1, 1, waiting=True, allowed=0, since=NOW - TURN / 2)
    assert 1 == ask(2, newer, told, lacking).allowed
    slow = claimant(1, 1, waiting=True, allowed=0, since=NOW - 2 * TURN)
    assert 0 == ask(2, newer, slow, lacking).allowed


def test_a_free_slot_is_for_whoever_has_waited_longest() -> None:
    """Though another one asks first."""
    longer = claimant(1, 0, waiting=True, since=LONG_AGO - TURN)
    assert 0 == ask(1, claimant(1, 0, waiting=True), longer).allowed
    assert 1 == ask(1, longer, claimant(1, 0, waiting=True)).allowed


@dataclass
class Process:
    """Uses what it is told, and what it does takes its time."""

    shards: int
    allowed: int = 0
    using: int = 0
    wanted: int = 0
    row: Claimant | None = None


@given(
    parallel=st.integers(0, 12),
    shards=st.lists(st.integers(0, 8), min_size=1, max_size=5),
    seed=st.integers(0, 2**32),
)
def test_the_sum_never_exceeds_the_limit(parallel: int, shards: list[int], seed: int) -> None:
    """Whoever asks when, wants what, and ends when: what runs stays within the limit."""
    dice, now = random.Random(seed), NOW
    processes = [Process(count) for count in shards]
    for _ in range(150):
        now += timedelta(seconds=dice.choice((0.0, 0.05, 0.4)))
        process = dice.choice(processes)
        process.wanted = dice.randint(0, 10) if dice.random() < 0.2 else process.wanted
        _exchange(parallel, process, processes, now)
        for each in processes:
            if each.using and dice.random() < 0.3:
                each.using -= 1
            while each.using < min(each.allowed, each.wanted) and dice.random() < 0.7:
                each.using += 1
        assert sum(each.using for each in processes) <= parallel
        assert sum(each.row.counted for each in processes if each.row) <= parallel


def _exchange(parallel: int, process: Process, all_of_them: list[Process], now: datetime) -> None:
    held = max(process.using, process.allowed)
    before = process.row.share if process.row else None
    asker = Claimant(max(process.wanted, process.using), held, process.shards, before, now)
    others = [each.row for each in all_of_them if each is not process and each.row]
    shards_all = sum(each.shards for each in all_of_them)
    share = share_of(parallel, asker, others, shards_all=shards_all, now=now)
    process.allowed = share.allowed
    process.row = asker._replace(counted=share.counted, share=share)


@given(
    parallel=st.integers(1, 6),
    count=st.integers(2, 6),
    seed=st.integers(0, 2**32),
)
def test_everybody_gets_a_turn(parallel: int, count: int, seed: int) -> None:
    """All want all the time: nobody waits for many rounds of turns, and most of it is used."""
    dice, now, used = random.Random(seed), NOW, 0
    processes = [Process(shards=dice.randint(1, 3), wanted=10) for _ in range(count)]
    served = dict.fromkeys(range(count), now)
    for _ in range(600):
        now += timedelta(seconds=0.05)
        number = dice.randrange(count)
        process = processes[number]
        process.using = min(process.using, process.allowed)  # attempts are short
        _exchange(parallel, process, processes, now)
        process.using = process.allowed
        if process.allowed:
            served[number] = now
        used += sum(each.allowed for each in processes)
        assert max(now - at for at in served.values()) < 5 * count * TURN
    assert used > 600 * parallel * 0.5


# -- buckets --------------------------------------------------------------------------------------


def bucket(part: float = 1.0, **fields: Any) -> TokenBucket:
    return rate_bucket(limit(**fields), part, 100.0)


def test_a_bucket_fills_with_time_up_to_its_burst() -> None:
    """And is emptied by what begins."""
    found = bucket(rate=10.0, burst=5)
    assert 1 == found.count(100.0)
    assert 3 == found.count(100.2)
    assert 5 == found.count(200.0)
    found.spend(5, 200.0)
    assert 0 == found.count(200.0)
    assert pytest.approx(0.1) == found.wait_s(200.0)
    assert pytest.approx(0.5) == found.wait_s(200.0, 99)


def test_what_was_overdrawn_is_owed() -> None:
    """More began than there was: the mean holds."""
    found = bucket(rate=10.0, burst=5)
    found.spend(11, 100.0)
    assert 0 == found.count(100.9)
    assert 1 == found.count(101.1)


def test_the_parts_add_up_to_the_rate() -> None:
    """Over a long time, whatever the shards."""
    parts = [bucket(part, rate=7.0, burst=14) for part in (0.5, 0.3, 0.2)]
    spent = 0
    for step in range(1, 10_001):
        for each in parts:
            count = each.count(100.0 + step * 0.01)
            each.spend(count, 100.0 + step * 0.01)
            spent += count
    assert 697 <= spent <= 703


def test_all_buckets_together_begin_with_one() -> None:
    """Starting many processes is no burst."""
    levels = [bucket(0.25, rate=0.01).tokens for _ in range(4)]
    assert 1 == sum(levels)


def test_without_shards_nothing_begins() -> None:
    """No part, no rate; and with a part it goes on."""
    found = bucket(0.0, rate=10.0)
    assert 0 == found.count(500.0)
    assert math.inf == found.wait_s(500.0)
    resize_bucket(found, limit(rate=10.0), 1.0, 500.0)
    assert 1 == found.count(500.0)


def test_a_clock_that_stands_still_gives_nothing() -> None:
    """And the wait that was told is enough, in spite of rounding."""
    found = bucket(1 / 3, rate=3.7)
    now = 100.0
    for _ in range(1000):
        found.spend(found.count(now), now)
        assert 0 == found.count(now)
        now += found.wait_s(now)
        assert 1 <= found.count(now)
