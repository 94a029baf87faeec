"""Upkeep rests in proportion to its work, and less the longer it falls behind."""

from __future__ import annotations

import pytest

from gnomon.model.upkeep import ROUNDS_A_STEP, rest_after


def test_with_nothing_left_the_next_round_comes_at_its_time() -> None:
    """However long the last one took."""
    assert 300.0 == rest_after(7.0, full_rounds=0, every_s=300.0)


@pytest.mark.parametrize(
    ("full_rounds", "share"),
    [(1, 0.1), (ROUNDS_A_STEP, 0.2), (2 * ROUNDS_A_STEP, 0.4), (10**9, 0.5)],
)
def test_while_rounds_are_full_its_share_of_the_time_grows(full_rounds: int, share: float) -> None:
    """From a tenth up to half: what removes must not be slower than what writes."""
    rest_s = rest_after(2.0, full_rounds=full_rounds, every_s=300.0)

    assert share == pytest.approx(2.0 / (2.0 + rest_s))


def test_a_full_round_never_rests_for_longer_than_one_that_was_not() -> None:
    """Nor not at all, should it take no time."""
    assert 5.0 == rest_after(60.0, full_rounds=1, every_s=5.0)
    assert 0.0 < rest_after(0.0, full_rounds=1, every_s=5.0)
