"""A worker's upkeep: it says when it cannot, and it goes on while there is more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from gnomon.app import App
from gnomon.config import Settings
from gnomon.contracts.observer import SilentObserver
from gnomon.model.errors import StoreUnavailable
from gnomon.worker.worker import PURGE_LIMIT

PATIENCE_S = 60.0
ROUNDS = 5


class Watching(SilentObserver):
    """Says when it has heard of an event, and counts."""

    def __init__(self) -> None:
        self.failed: set[tuple[object, object]] = set()
        self.counted: set[tuple[str, str]] = set()
        self.news = asyncio.Event()

    def event(self, name: str, /, **fields: object) -> None:
        if name == "round_failed":
            self.failed.add((fields["loop"], fields["error"]))
            self.news.set()

    def count(self, name: str, value: int = 1, /, **labels: str) -> None:
        self.counted.update((name, label) for label in labels.values())


class Failing:
    """An installation of which one verb is replaced."""

    def __init__(self, real: Any, **verbs: Callable[..., Any]) -> None:
        self._real = real
        self._verbs = verbs

    def __getattr__(self, name: str) -> Any:
        return self._verbs.get(name) or getattr(self._real, name)


async def work_until(
    done: Callable[[], bool], watching: Watching, **verbs: Callable[..., Any]
) -> None:
    settings = Settings()
    worker = replace(settings.worker, doctor=timedelta(milliseconds=10))
    database = replace(settings.database, url="sqlite:///:memory:", shard_count=1)
    settings = replace(settings, worker=worker, database=database)
    stop = asyncio.Event()
    async with App(settings=settings, observer=watching, migrate=True) as app:
        installation: Any = Failing(app.store.installation, **verbs)
        app._store = msgspec.structs.replace(app.store, installation=installation)
        working = asyncio.create_task(app.work(stop))
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not done():
                    watching.news.clear()
                    await watching.news.wait()
        finally:
            stop.set()
            await working


@pytest.mark.parametrize("verb", ["doctor", "purge"])
async def test_upkeep_that_fails_says_so(verb: str) -> None:
    """A doctor that the database has no time for must not look like one who finds nothing."""
    watching = Watching()

    async def fail(*_args: object, **_terms: object) -> None:
        raise StoreUnavailable("statement timeout")

    await work_until(
        lambda: (verb, "statement timeout") in watching.failed, watching, **{verb: fail}
    )

    assert ("store_errors", verb) in watching.counted


async def test_a_full_purge_is_followed_by_the_next_at_once() -> None:
    """Not after five minutes, in which more is written than one purge removes."""
    watching, rounds = Watching(), 0

    async def purge(*, limit: int) -> int:
        nonlocal rounds
        rounds += 1
        watching.news.set()
        return limit

    await work_until(lambda: rounds >= ROUNDS, watching, purge=purge)

    assert ROUNDS <= rounds
    assert 0 < PURGE_LIMIT


async def test_a_worker_waits_for_a_database_that_is_away_when_it_starts() -> None:
    """A connection that is cut in that moment must not end it: nobody may be there to start it
    again."""
    watching = Watching()
    tries = 0

    async def verify() -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise StoreUnavailable("connection was closed")

    async def fail(*_args: object, **_terms: object) -> None:
        raise StoreUnavailable("at work")

    await work_until(
        lambda: "doctor" in {loop for loop, _ in watching.failed},
        watching,
        verify_identity=verify,
        doctor=fail,
    )
    assert 3 == tries
    assert "start" in {loop for loop, _ in watching.failed}
