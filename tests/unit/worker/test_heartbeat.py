"""The heart in its own thread: it waits for the database, and never dies unnoticed."""

from __future__ import annotations

import asyncio
import itertools
import threading
from typing import Any, cast

import pytest

from gnomon.contracts.store import HeartbeatResult, LeaseStore, Store
from gnomon.model.errors import BugError, StoreUnavailable
from gnomon.testing.virtual import VirtualLoop
from gnomon.worker.heartbeat import Heartbeat
from gnomon.worker.leases import WorkerLeases
from tests.unit.worker.surroundings import EPOCH, Audience

PULSE = HeartbeatResult(held=frozenset(), workers_alive=1, now=EPOCH)


class Doors:
    """A store that opens as the test says, and leases that beat as it says."""

    def __init__(self, *, refusals: int = 0, error: Exception | None = None) -> None:
        self.refusals = refusals
        self.error = error
        self.hangs = False
        self.is_beating = threading.Event()
        self.is_closed = False
        self.leases = self

    async def open(self) -> Store:
        if self.refusals:
            self.refusals -= 1
            raise StoreUnavailable("away")
        return cast("Store", self)

    async def beat(self, _store: LeaseStore) -> HeartbeatResult:
        self.is_beating.set()
        if self.error is not None:
            raise self.error
        if self.hangs:
            await asyncio.Event().wait()
        return PULSE

    async def close(self) -> None:
        self.is_closed = True


def heart_with(doors: Doors) -> tuple[Heartbeat, Audience, asyncio.Event]:
    audience, felt = Audience(), asyncio.Event()
    heart = Heartbeat(
        cast("WorkerLeases", doors),
        interval_s=0.01,
        observer=audience,
        felt=lambda _pulse: felt.set(),
    )
    return heart, audience, felt


async def _end(beating: asyncio.Task[None]) -> None:
    beating.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(beating, 5.0)


async def test_a_database_that_is_away_at_first_is_waited_for() -> None:
    """A worker whose heart found no database once would lose every shard for ever."""
    doors = Doors(refusals=3)
    heart, audience, felt = heart_with(doors)
    beating = asyncio.create_task(heart.beat_in_thread(doors.open))
    await asyncio.wait_for(felt.wait(), 5.0)
    assert [*["heartbeat_failed"] * 3, "heartbeat_resumed"] == audience.events
    await _end(beating)
    assert doors.is_closed


async def test_a_heart_that_stops_is_told() -> None:
    """A bug in the heart ends the worker instead of leaving it without one."""
    doors = Doors(error=BugError("broken"))
    heart, _, _ = heart_with(doors)
    with pytest.raises(BugError):
        await asyncio.wait_for(heart.beat_in_thread(doors.open), 5.0)


async def test_a_beat_that_gets_no_answer_does_not_hold_up_the_end() -> None:
    """A shutdown while the database is silent is no reason to wait for it."""
    doors = Doors()
    doors.hangs = True
    heart, _, _ = heart_with(doors)
    beating: asyncio.Task[Any] = asyncio.create_task(heart.beat_in_thread(doors.open))
    assert await asyncio.to_thread(doors.is_beating.wait, 5.0)
    await _end(beating)
    assert doors.is_closed


def test_a_young_heart_beats_more_often() -> None:
    """Workers that start together each see all of them within a moment, not after a heartbeat."""
    beats: list[float] = []
    loop = VirtualLoop()
    heart = Heartbeat(
        cast("WorkerLeases", Doors()),
        interval_s=2.0,
        observer=Audience(),
        felt=lambda _pulse: beats.append(loop.time()),
    )
    loop.run_until_complete(heart.beat_once(cast("Store", Doors())))
    beating = loop.create_task(heart.beat_in_loop(cast("Store", Doors())))
    loop.run_until_complete(asyncio.wait([beating], timeout=6.0))
    beating.cancel()
    loop.run_until_complete(asyncio.wait([beating]))
    loop.close()
    assert [0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 2.0] == [
        after - before for before, after in itertools.pairwise(beats)
    ]


async def test_who_begins_beats_by_the_store_that_is_open() -> None:
    """The thread opens a store of its own first, which takes longer than all that a worker does
    before its first attempt."""
    doors = Doors()
    heart, _, felt = heart_with(doors)
    await heart.beat_once(cast("Store", doors))
    assert felt.is_set()


async def test_a_first_beat_that_fails_is_told_and_the_thread_goes_on() -> None:
    doors = Doors(error=StoreUnavailable("away"))
    heart, audience, felt = heart_with(doors)
    await heart.beat_once(cast("Store", doors))
    assert ["heartbeat_failed"] == audience.events
    doors.error = None
    beating = asyncio.create_task(heart.beat_in_thread(doors.open))
    await asyncio.wait_for(felt.wait(), 5.0)
    assert ["heartbeat_failed", "heartbeat_resumed"] == audience.events
    await _end(beating)
