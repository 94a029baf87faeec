"""What the figures of an installation ask PostgreSQL for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from gnomon.contracts.store import Store
from gnomon.stores.postgres import figures
from gnomon.stores.postgres.connection import PoolSession, Row
from tests.integration.postgres.conftest import Drafter, held_shard

ALIVE_FOR = timedelta(seconds=30)


async def test_nothing_is_counted_further_than_it_is_told(
    store: Store, draft: Drafter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many queues share what is counted, dead and running actions too: with 100,000 dead ones half
    of the time was for what nobody was told."""
    monkeypatch.setattr(figures, "COUNTED_MAX", 20)
    monkeypatch.setattr(figures, "COUNT_LEAST", 5)
    asked: dict[str, Sequence[object]] = {}
    fetch = PoolSession.fetch

    async def noted(session: PoolSession, name: str, *args: object) -> Sequence[Row]:
        asked[name] = args
        return await fetch(session, name, *args)

    await store.actions.create([draft("a")])
    await store.work.move([await held_shard(store, draft("a").shard)], limit=10)
    monkeypatch.setattr(PoolSession, "fetch", noted)
    told = await store.installation.figures(limit=1_000, alive_for=ALIVE_FOR)
    assert 10 == told.limit
    assert (10, 10) == (asked["figures_dead"][0], asked["figures_running"][1])
