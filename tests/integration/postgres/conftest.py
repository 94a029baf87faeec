"""A store in an installed schema, and drafts for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from gnomon.clock import SystemClock, SystemEntropy
from gnomon.contracts.store import ActionDraft, HeldShard, LeaseRequest, Store
from gnomon.model.ids import shard_of
from gnomon.model.spec import Mock, Spec
from gnomon.stores.postgres import open_postgres
from tests.fixtures.installed import INSTALLED_SHARD_COUNT
from tests.fixtures.postgres import PostgresSchema

SHARD_COUNT = INSTALLED_SHARD_COUNT

Drafter = Callable[..., ActionDraft]


@pytest.fixture
async def store(installed_schema: PostgresSchema) -> AsyncIterator[Store]:
    dsn, schema = installed_schema
    opened = await open_postgres(dsn, schema=schema, clock=SystemClock(), entropy=SystemEntropy())
    await opened.installation.migrate(shard_count=SHARD_COUNT)
    yield opened
    await opened.close()


@pytest.fixture
def draft() -> Drafter:
    """Makes drafts that are due now."""

    def make(name: str, *, keyed: bool = False) -> ActionDraft:
        now = datetime.now(UTC)
        return ActionDraft(
            id=name,
            guid=SystemEntropy().guid(),
            shard=shard_of(name, SHARD_COUNT),
            spec=Spec(action=Mock(), start_at=now),
            scheduled_at=now,
            occurrence_at=now,
            expires_at=None,
            retention=timedelta(days=1),
            keyed=keyed,
        )

    return make


async def held_shard(store: Store, shard: int) -> HeldShard:
    """The shard, taken."""
    seen = next(lock for lock in await store.leases.list_locks() if lock.shard == shard)
    request = LeaseRequest(seen=seen, lease_guid=uuid4())
    (held,) = await store.leases.acquire([request], owner="me", lease_for=timedelta(hours=1))
    return held
