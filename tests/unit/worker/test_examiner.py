"""How many shards the doctor looks at in one go."""

from __future__ import annotations

from gnomon.worker.examiner import LATE_S, SOON_S, shards_at_a_time


def test_a_small_store_is_soon_looked_at_as_a_whole() -> None:
    """Twice as many each time, and never more than there are."""
    counts = [1]
    for _ in range(8):
        counts.append(shards_at_a_time(counts[-1], SOON_S / 2, 64))
    assert [1, 2, 4, 8, 16, 32, 64, 64, 64] == counts


def test_a_large_one_is_looked_at_shard_by_shard() -> None:
    """Fewer when it took long, and one at least; as many when it took neither."""
    assert 4 == shards_at_a_time(8, 2 * LATE_S, 64)
    assert 1 == shards_at_a_time(1, 2 * LATE_S, 64)
    assert 8 == shards_at_a_time(8, (SOON_S + LATE_S) / 2, 64)
