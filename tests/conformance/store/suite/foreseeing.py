"""Part of the suite: what will be due."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from gnomon.contracts.store import DueLoad, Store
from gnomon.model.spec import Cron, Mock, Periodic
from gnomon.stores import _load
from gnomon.stores._load import LOOK_ROWS
from tests.conformance.store.suite.given import HOUR, SECOND, Given

LANES = 100


async def times(given: Given, *, count: int = 3, step: timedelta = HOUR) -> list[datetime]:
    """Buckets from the next hour on."""
    first = (await given.now()).replace(minute=0, second=0, microsecond=0) + HOUR
    return [first + number * step for number in range(count + 1)]


async def due_at(given: Given, at: datetime, name: str | None = None, **fields: Any) -> str:
    """An action that is due exactly then."""
    action = await given.created(name, due_in=at - await given.now(), **fields)
    due = action.status.scheduled_at
    assert due is not None
    return action.meta.id


async def load(store: Store, buckets: list[datetime], *, lanes: int = LANES) -> DueLoad:
    return await store.reports.load(buckets, lanes=lanes)


def counts(found: DueLoad) -> list[int]:
    return [bucket.count for bucket in found.buckets]


class TestLoad:
    """`load`, `herd`, `list_recurring`."""

    async def test_of_nothing_every_bucket_is_empty(self, store: Store, given: Given) -> None:
        """There is one for each, though."""
        found = await load(store, await times(given))
        assert ([0, 0, 0], False) == (counts(found), found.is_estimated)
        assert found.buckets[0].herd_at is None

    async def test_arrivals_and_what_was_moved_count_alike(
        self, store: Store, given: Given
    ) -> None:
        """In their buckets; what is before the first or after the last in none."""
        buckets = await times(given)
        for minutes in (-1, 1, 61, 62, 181):
            await due_at(given, buckets[0] + timedelta(minutes=minutes), queue="mail")
        assert [1, 2, 0] == counts(await load(store, buckets))
        await given.move()
        assert [1, 2, 0] == counts(await load(store, buckets))
        await due_at(given, buckets[2] + SECOND, priority=9)
        assert [1, 2, 1] == counts(await load(store, buckets))

    async def test_what_runs_is_not_due(self, store: Store, given: Given) -> None:
        """Its row has a time, but that is of its reservation."""
        await given.begun()
        now = (await given.now()).replace(microsecond=0)
        found = await load(store, [now, now + HOUR])
        assert [0] == counts(found)

    async def test_the_fullest_second_of_a_bucket_is_told(self, store: Store, given: Given) -> None:
        """Whatever its queue and shard; and some of its ids."""
        buckets = await times(given)
        at = buckets[1] + timedelta(minutes=7)
        herd = {
            await due_at(given, at + timedelta(milliseconds=200 + number), queue=f"q{number % 2}")
            for number in range(5)
        }
        await due_at(given, at + SECOND)
        await given.move()
        bucket = (await load(store, buckets)).buckets[1]
        assert bucket.herd_at == at
        assert 6 == bucket.count
        assert 2 <= bucket.herd_count <= 5  # of one lane at least
        ids = await store.reports.herd(at, at + SECOND, lanes=LANES, limit=20)
        assert herd == set(ids)
        assert 3 == len(await store.reports.herd(at, at + SECOND, lanes=LANES, limit=3))

    async def test_what_is_much_is_estimated(self, store: Store, given: Given) -> None:
        """From what is due first in each bucket, and told to be so."""
        buckets = await times(given)
        step = HOUR / (5 * LOOK_ROWS)
        for number in range(5 * LOOK_ROWS):
            await due_at(given, buckets[1] + number * step, name=given.name_in(0))
        await given.move()
        found = await load(store, buckets)
        assert found.is_estimated
        before, count, after = counts(found)
        assert (0, 0) == (before, after)
        assert 4 * LOOK_ROWS <= count <= 6 * LOOK_ROWS

    async def test_a_lane_that_is_taken_for_full_is_counted_as_it_is(
        self, store: Store, given: Given, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One of its queue is full and was looked into: the others, which were not, are not."""
        monkeypatch.setattr(_load, "LANES_FIRST", 1)
        buckets = await times(given)
        for number in range(LOOK_ROWS):
            await due_at(given, buckets[1] + number * SECOND, name=given.name_in(0))
        for shard in (1, 2):
            await due_at(given, buckets[0] + shard * SECOND, name=given.name_in(shard))
            await due_at(given, buckets[2], name=given.name_in(shard), queue="other")
        await given.move()
        first, _, last = counts(await load(store, buckets))
        assert (2, 2) == (first, last)

    async def test_lanes_have_an_end(self, store: Store, given: Given) -> None:
        """And it is told that there are more."""
        buckets = await times(given)
        for number in range(4):
            await due_at(given, buckets[0], queue=f"q{number}")
        await given.move()
        assert (await load(store, buckets, lanes=1)).is_estimated
        assert not (await load(store, buckets)).is_estimated

    async def test_what_comes_again_is_listed(self, store: Store, given: Given) -> None:
        """Active ones; an argument that looks like a policy makes none."""
        periodic = await given.created(policy=Periodic(period=HOUR))
        cron = await given.created(policy=Cron(expression="0 9 * * *", timezone="UTC"))
        await given.created()
        await given.created(action=Mock(answer='"policy":{"type":"cron"'))
        await given.paused(policy=Periodic(period=HOUR))
        found = {one.id: one for one in await store.reports.list_recurring(limit=100)}
        assert {periodic.meta.id, cron.meta.id} == set(found)
        one = found[periodic.meta.id]
        assert (periodic.spec, periodic.status.occurrence_at) == (one.spec, one.occurrence_at)
        assert 1 == len(await store.reports.list_recurring(limit=1))
