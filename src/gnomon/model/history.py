"""What is counted of attempts in a minute, and what can be said from it. Pure.

The counts of a minute are a plain list of numbers: adding to it is all that an attempt pays for,
and lists of many workers and minutes are put together by adding place by place. Who reads a list of
another version takes what he knows: a missing place counts as nothing, a further one is left.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

BEGUN, SUCCEEDED, FAILED, INTERRUPTED, DEAD = range(5)
OUTCOMES = {"succeeded": SUCCEEDED, "failed": FAILED, "interrupted": INTERRUPTED}
BOUNDS_S = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 60.0, 600.0, 3_600.0)
BUCKETS = len(BOUNDS_S) + 1  # the last one: beyond all bounds
LATENESS = DEAD + 1  # the place of its first bucket
DURATION = LATENESS + BUCKETS
PLACES = DURATION + BUCKETS


def new_counts() -> list[int]:
    """Nothing yet."""
    return [0] * PLACES


def bucket_of(value_s: float) -> int:
    """Which bucket a time belongs to."""
    return bisect_left(BOUNDS_S, value_s)


def add_counts(counts: list[int], others: Sequence[int]) -> None:
    """Add place by place."""
    for place, count in enumerate(others[:PLACES]):
        counts[place] += count


def percentile_s(buckets: Sequence[int], part: float) -> float | None:
    """The time that this part of them did not exceed, by straight lines within buckets; beyond
    all bounds the last bound. None if there is nothing."""
    wanted = part * sum(buckets)
    if not wanted:
        return None
    below = 0
    for place, count in enumerate(buckets):
        if count and below + count >= wanted:
            if place == len(BOUNDS_S):
                break
            low = BOUNDS_S[place - 1] if place else 0.0
            return low + (BOUNDS_S[place] - low) * (wanted - below) / count
        below += count
    return BOUNDS_S[-1]
