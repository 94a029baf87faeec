"""A batch about entities costs so many statements, however many rows it has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from gnomon.clock import SystemEntropy
from gnomon.contracts.store import HeldShard, Store
from gnomon.contracts.store.entities import EntityWrite, StateWrite
from gnomon.contracts.store.outbox import RELAY_SINK
from gnomon.contracts.store.queues import Commit, Enqueue, Routing, StageLane
from gnomon.model.ids import shard_of
from gnomon.stages.entities import declare_relay
from gnomon.stores.postgres.connection import PoolSession, Row
from tests.fixtures.postgres import PostgresSchema
from tests.integration.postgres.conftest import SHARD_COUNT

pytestmark = pytest.mark.plain  # statements are counted as one machine takes them

FEW, MANY = 3, 60
ROOT = UUID(int=7)
DOC = '{"price": 1}'
# The statements of each verb, without BEGIN and COMMIT.
# The last statement of a write is the audit.
ALLOWED = {
    "write": 7, "changed_entities": 2, "route": 4, "lane_head": 2, "commit": 3, "due_saves": 1,
    "waiting_sinks": 1, "remove": 1,
}  # fmt: skip


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts what is performed, by name."""
    counted: Counter[str] = Counter()
    fetch = PoolSession.fetch

    async def counting(self: PoolSession, name: str, *args: object) -> Sequence[Row]:
        counted[name] += 1
        return await fetch(self, name, *args)

    monkeypatch.setattr(PoolSession, "fetch", counting)
    return counted


class Owner:
    """Holds all shards, and takes so many entities through a stage."""

    def __init__(self, store: Store, lease: UUID, count: int, prefix: str) -> None:
        self.entities = store.entities
        self.queues = store.queues
        self.register = store.register
        self.outbox = store.outbox
        self.lease = lease
        self.holdings = [HeldShard(shard=shard, lease_guid=lease) for shard in range(SHARD_COUNT)]
        self.names = [f"{prefix}-{number}" for number in range(count)]

    async def verbs(self, counted: Counter[str]) -> dict[str, int]:
        """How many statements each verb took."""
        found: dict[str, int] = {}

        async def call(verb: str, made: Callable[[], Awaitable[Any]]) -> Any:
            counted.clear()
            answer = await made()
            found[verb] = counted.total()
            return answer

        entities, queues, limit = self.entities, self.queues, len(self.names)
        await declare_relay(self.register)
        await call("write", lambda: entities.write([self.write(name) for name in self.names]))
        fed = await call(
            "changed_entities", lambda: queues.changed_entities(self.holdings, limit=limit, skip=())
        )
        answers = [
            Routing(
                entity_key=each.entity.key, shard=each.entity.shard, lease_guid=self.lease,
                seq=each.seq, epoch=1, version=1, enqueues=(self.offer("first"),),
            )
            for each in fed
        ]  # fmt: skip
        await call("route", lambda: queues.route(answers))
        peeked = await call(
            "lane_head",
            lambda: queues.lane_head(self.holdings, "first", StageLane.MAIN, limit=limit, skip=()),
        )
        commits = [
            Commit(
                shard=claim.entity.shard, lease_guid=self.lease, entity_key=claim.entity.key,
                stage="first", seq=claim.row.seq, epoch=1, version=1, doc=DOC, paths=("price",),
                state_version=0, root=ROOT, depth=1, state=StateWrite(body=b"1", revision=1),
                enqueues=(self.offer("second"),), unrouted=True, after_save=True,
            )
            for claim in peeked.claims
        ]  # fmt: skip
        saved = await call("commit", lambda: queues.commit(commits))
        assert limit == sum(each.kind == "saved" for each in saved)
        rows = await call(
            "due_saves", lambda: self.outbox.due_saves(self.holdings, RELAY_SINK, limit=2 * limit)
        )
        assert 2 * limit == len(rows)
        rows += await self.outbox.due_saves(self.holdings, "first", limit=limit)
        await call("waiting_sinks", lambda: self.outbox.waiting_sinks(self.holdings))
        await call("remove", lambda: self.outbox.remove(rows))
        fed = await queues.changed_entities(self.holdings, limit=limit, skip=())
        await queues.route([self.nothing(each) for each in fed])
        return found

    def write(self, name: str) -> EntityWrite:
        shard = shard_of(name, SHARD_COUNT)
        return EntityWrite(
            key=name, shard=shard, doc=DOC, base=None, paths=("price",), author="user", root=ROOT,
        )  # fmt: skip

    def offer(self, stage: str) -> Enqueue:
        return Enqueue(stage=stage, reason="change", root=ROOT)

    def nothing(self, fed: Any) -> Routing:
        return Routing(
            entity_key=fed.entity.key, shard=fed.entity.shard, lease_guid=self.lease, seq=fed.seq,
            epoch=1, version=fed.entity.version, enqueues=(),
        )  # fmt: skip


async def test_the_number_of_statements_does_not_grow_with_the_batch(
    store: Store, installed_schema: PostgresSchema, statements: Counter[str]
) -> None:
    """For few entities and for many, in all shards: each verb takes what it is allowed."""
    lease = SystemEntropy().token()
    connection = await asyncpg.connect(installed_schema.dsn)
    await connection.execute(
        f'UPDATE "{installed_schema.schema}".shard_lock SET lease_guid = $1', lease
    )
    await connection.close()

    for count in (FEW, MANY):
        found = await Owner(store, lease, count, f"of-{count}").verbs(statements)
        assert ALLOWED == found, count
