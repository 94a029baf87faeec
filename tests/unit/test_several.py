"""Several transactions of one verb: what fails in one is no matter of the others."""

from __future__ import annotations

import asyncio

import pytest

from gnomon.model.errors import BugError, StoreUnavailable
from gnomon.stores.postgres.several import AT_ONCE, at_once, every, those_at_hand


class Parts:
    """Performs numbers; some fail. Knows how many were under way, and which have ended."""

    def __init__(self, failing: dict[int, Exception] | None = None) -> None:
        self._failing = failing or {}
        self._under_way = 0
        self.most = 0
        self.ended: list[int] = []

    async def perform(self, part: int) -> int:
        self._under_way += 1
        self.most = max(self.most, self._under_way)
        await asyncio.sleep(0)
        self._under_way -= 1
        self.ended.append(part)
        if part in self._failing:
            raise self._failing[part]
        return part * 10


async def test_answers_come_in_order_and_few_are_at_it_at_once() -> None:
    """However many there are: the connections are everybody's."""
    parts = Parts()
    assert [n * 10 for n in range(20)] == await every(range(20), parts.perform)
    assert AT_ONCE == parts.most
    assert [] == await every([], parts.perform)


async def test_a_part_that_is_away_fails_alone() -> None:
    """Where it is needed it fails all; where it is not, the others count."""
    away = StoreUnavailable("gone")
    assert [0, away, 20] == await at_once(range(3), Parts({1: away}).perform)
    assert [0, 20] == await those_at_hand(range(3), Parts({1: away}).perform)
    with pytest.raises(StoreUnavailable, match="gone"):
        await every(range(3), Parts({1: away}).perform)


async def test_another_error_is_raised_when_all_have_ended() -> None:
    """Nothing goes on unseen."""
    parts = Parts({0: BugError("ours")})
    with pytest.raises(BugError, match="ours"):
        await at_once(range(6), parts.perform)
    assert list(range(6)) == sorted(parts.ended)


async def test_a_single_part_fails_as_it_does_alone() -> None:
    """There are no others."""
    with pytest.raises(StoreUnavailable):
        await those_at_hand([1], Parts({1: StoreUnavailable("gone")}).perform)
