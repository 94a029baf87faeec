"""Random ids of this machine."""

from __future__ import annotations

import time

from gnomon.clock import SystemEntropy


def test_ids_that_are_drawn_together_are_as_good_as_single_ones() -> None:
    """No two are the same, all are version 7 and of this moment."""
    before = time.time_ns() // 1_000_000
    guids = SystemEntropy().guids(1_000)
    after = time.time_ns() // 1_000_000
    assert 1_000 == len(set(guids))
    assert {7} == {guid.version for guid in guids}
    assert {"specified in RFC 4122"} == {guid.variant for guid in guids}
    assert all(before <= guid.int >> 80 <= after for guid in guids)
    random_bits = {guid.int & (1 << 62) - 1 for guid in guids}
    assert 1_000 == len(random_bits)


def test_no_ids_are_no_ids() -> None:
    assert [] == SystemEntropy().guids(0)
