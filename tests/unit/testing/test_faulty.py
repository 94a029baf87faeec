"""The faulty store does what it is told to do wrong, and nothing else."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import pytest

from gnomon.clock import SystemClock, SystemEntropy
from gnomon.model.errors import SchemaMismatch, StoreUnavailable
from gnomon.stores.sqlite import InlineRunner, open_sqlite
from gnomon.testing.faulty import Arguments, FaultyStore, Misfortune, Watcher


class Log(Watcher):
    """Remembers what was performed."""

    def __init__(self) -> None:
        self.performed_verbs: list[str] = []

    def performed(self, store: FaultyStore, verb: str, arguments: Arguments, result: Any) -> None:
        self.performed_verbs.append(verb)


@pytest.fixture
def runner() -> Iterator[InlineRunner]:
    opened = InlineRunner()
    yield opened
    opened.connection.close()


def faulty(runner: InlineRunner, misfortune: Misfortune) -> tuple[FaultyStore, Log]:
    inner = open_sqlite(":memory:", clock=SystemClock(), entropy=SystemEntropy(), runner=runner)
    log = Log()
    return FaultyStore(inner, source=random.Random(1), misfortune=misfortune, watcher=log), log


async def test_perfect_connection_changes_nothing(runner: InlineRunner) -> None:
    made, log = faulty(runner, Misfortune())
    await made.store.installation.migrate(shard_count=2)
    assert 2 == (await made.store.installation.open()).shard_count
    assert ["migrate", "open"] == log.performed_verbs


async def test_refused_call_is_not_performed(runner: InlineRunner) -> None:
    made, log = faulty(runner, Misfortune(refused=1.0))
    with pytest.raises(StoreUnavailable):
        await made.store.installation.migrate(shard_count=2)
    assert [] == log.performed_verbs


async def test_unanswered_call_is_performed(runner: InlineRunner) -> None:
    """The caller cannot tell it from a refused one: this is what makes repeats necessary."""
    made, log = faulty(runner, Misfortune(unanswered=1.0))
    with pytest.raises(StoreUnavailable):
        await made.store.installation.migrate(shard_count=2)
    assert ["migrate"] == log.performed_verbs
    made.misfortune = Misfortune()
    assert 2 == (await made.store.installation.open()).shard_count


async def test_error_of_the_store_comes_through(runner: InlineRunner) -> None:
    made, _ = faulty(runner, Misfortune())
    with pytest.raises(SchemaMismatch):
        await made.store.installation.open()


async def test_call_of_the_dead_never_returns(runner: InlineRunner) -> None:
    made, log = faulty(runner, Misfortune())
    made.is_dead = True
    call = asyncio.ensure_future(made.store.installation.now())
    done, _ = await asyncio.wait([call], timeout=0.01)
    assert set() == done
    assert [] == log.performed_verbs
    call.cancel()
