"""What will be due, added up from looks: exact where it is little, estimated where it is much."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from gnomon.contracts.store import Lane
from gnomon.stores._load import (
    HERD_SEEN_MIN,
    LANES_FIRST,
    LOOK_ROWS,
    LOOKS_MAX,
    LanesAhead,
    LoadTally,
    Look,
)

NOW = datetime(2030, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
TIMES = [NOW + number * HOUR for number in range(4)]


def look(seen: int, part: float, herd: int = 1) -> Look:
    """So many rows in this part of the second hour."""
    last_at = TIMES[1] + part * HOUR
    return Look(seen=seen, last_at=last_at, herd_at=TIMES[1], herd=herd)


def test_seconds_are_counted_as_they_are() -> None:
    """In their buckets, and nowhere before or behind them."""
    tally = LoadTally(TIMES)
    for minutes, count in ((-1, 9), (0, 1), (61, 2), (61, 3), (180, 9)):
        tally.add_second(NOW + timedelta(minutes=minutes), count)
    load = tally.total(NOW)
    assert ([1, 5, 0], False) == ([bucket.count for bucket in load.buckets], load.is_estimated)
    assert 5 == load.buckets[1].herd_count


def test_a_full_look_goes_on_as_it_began() -> None:
    """To the end of the bucket; one that is not full is all that there is."""
    tally = LoadTally(TIMES)
    tally.add_look(1, look(LOOK_ROWS - 1, 0.9), 1.0)
    assert (LOOK_ROWS - 1, False) == (tally.total(NOW).buckets[1].count, tally.is_estimated)
    tally.add_look(1, look(LOOK_ROWS, 0.1), 1.0)
    load = tally.total(NOW)
    assert LOOK_ROWS - 1 + 10 * (LOOK_ROWS - 1) == load.buckets[1].count
    assert load.is_estimated


def test_a_herd_at_the_very_beginning_stands_for_no_endless_number() -> None:
    """All rows at the first moment tell nothing of the rest."""
    tally = LoadTally(TIMES)
    tally.add_look(1, look(LOOK_ROWS, 0.0, LOOK_ROWS), 1.0)
    bucket = tally.total(NOW).buckets[1]
    assert bucket.count < 1_000 * LOOK_ROWS
    assert LOOK_ROWS == bucket.herd_count


def test_a_few_in_one_second_stand_for_no_herd() -> None:
    """Two that meet by chance in a sample are two."""
    tally = LoadTally(TIMES)
    tally.add_look(1, look(5, 0.5, herd=2), 40.0)
    bucket = tally.total(NOW).buckets[1]
    assert (200, 2) == (bucket.count, bucket.herd_count)
    tally.add_look(1, look(LOOK_ROWS - 1, 0.5, herd=HERD_SEEN_MIN), 40.0)
    assert 40 * (HERD_SEEN_MIN + 2) == tally.total(NOW).buckets[1].herd_count


def test_a_sample_is_bounded_and_told() -> None:
    """However many lanes there are; few are all looked into."""
    tally = LoadTally(TIMES)
    few = list(range(LOOKS_MAX // 3))
    assert (few, 1.0) == tally.sample(few)
    before = tally.is_estimated
    chosen, scale = tally.sample(list(range(10_000)))
    assert (len(chosen) - 1) * 3 < LOOKS_MAX
    assert 10_000 == round(len(chosen) * scale)
    assert (False, True) == (before, tally.is_estimated)
    assert ([], 1.0) == tally.sample([])


def lanes_of(queue: str, count: int) -> list[Lane]:
    return [Lane(shard, queue, 5) for shard in range(count)]


def looked_into(lanes: list[Lane], full: set[str]) -> tuple[int, LanesAhead]:
    """All that is to be looked into, where these queues are full; how many lanes that were."""
    ahead = LanesAhead(lanes)
    for lane in ahead.first:
        ahead.add(lane, is_full=lane.queue in full)
    others = ahead.others()
    for lane in others:
        ahead.add(lane, is_full=lane.queue in full)
    return len(ahead.first) + len(others), ahead


def test_a_full_queue_is_not_looked_into_lane_by_lane() -> None:
    """Some of its lanes stand for the others; of the queues beside it each lane is looked into."""
    much, little = lanes_of("much", 3 * LANES_FIRST), lanes_of("little", 30)
    count, ahead = looked_into(little + much, {"much"})
    assert count < LANES_FIRST + len(little) + 1
    assert much == ahead.full()


def test_a_queue_that_is_not_full_everywhere_is_looked_into_whole() -> None:
    """Few lanes are all looked into at once; of many the rest, if one of the first is not full."""
    few = lanes_of("q", LANES_FIRST)
    assert few == LanesAhead(few).first
    many = lanes_of("q", 3 * LANES_FIRST)
    ahead = LanesAhead(many)
    for lane in ahead.first:
        ahead.add(lane, is_full=lane.shard > 0)
    assert sorted([*ahead.first, *ahead.others()]) == many
    assert len(ahead.first) - 1 == len(ahead.full())


def test_a_queue_that_is_not_among_the_first_is_looked_into() -> None:
    """Nobody knows anything of it."""
    lanes = lanes_of("a", 3 * LANES_FIRST - 1) + lanes_of("b", 1)
    ahead = LanesAhead(lanes)
    for lane in ahead.first:
        ahead.add(lane, is_full=True)
    assert lanes_of("b", 1) == ahead.others()
