"""How much of its time a process gives to upkeep: little, but never less than what keeps up."""

from __future__ import annotations

SHARE_FIRST = 0.1  # of the time, when there is more to remove than one round removes
SHARE_MOST = 0.5
ROUNDS_A_STEP = 10  # as many rounds that left something double the share
STEPS_MAX = 3
REST_LEAST_S = 0.01


def rest_after(took_s: float, *, full_rounds: int, every_s: float) -> float:
    """How long to rest after a round of upkeep that took so long.

    A round is full if it removed as much as it may: then more is left, and the next one comes
    after a multiple of the time that this one took. While full rounds follow one another, upkeep
    falls behind, and its share of the time grows.
    """
    if full_rounds == 0:
        return every_s
    steps = min(full_rounds // ROUNDS_A_STEP, STEPS_MAX)
    share = min(SHARE_FIRST * 2.0**steps, SHARE_MOST)
    return min(every_s, max(took_s * (1 / share - 1), REST_LEAST_S))
