"""Part of the suite: who changed entities and stages is in the audit."""

from __future__ import annotations

from collections.abc import Sequence

from gnomon.contracts.store import AuditEntry, AuditSelection, Store
from gnomon.contracts.store.entities import StateWrite
from tests.conformance.store.suite.entities.given import STAGE, GivenEntities
from tests.conformance.store.suite.entities.registering import declared


async def entries(store: Store, name: str) -> Sequence[AuditEntry]:
    """What was done to it, oldest first."""
    found = await store.tokens.list_audit(AuditSelection(id=name), limit=100)
    return list(reversed(found))


async def told(store: Store, name: str) -> list[tuple[str, str, int]]:
    return [(entry.actor, entry.verb, entry.count) for entry in await entries(store, name)]


class TestEntityAudit:
    """Every change from outside writes an entry; what stages do is in the change notes."""

    async def test_writes_are_in_the_audit(self, store: Store, entities: GivenEntities) -> None:
        """With their author; what moved meanwhile was not changed, and has none."""
        entity = await entities.written("ad", author="shop")
        changed = await entities.changed(entity, author="desk")
        assert [None] == list(await store.entities.write([entities.write_of("ad", author="late")]))
        await entities.deleted(changed, author="shop")

        wanted = [("shop", "put_entity", 1), ("desk", "put_entity", 1)]
        assert [*wanted, ("shop", "delete_entity", 1)] == await told(store, "ad")

    async def test_many_writes_of_one_author_are_one_entry(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """One a shard, where a transaction may touch one shard only; none is left out."""
        writes = [entities.write_of(f"ad-{number}", author="shop") for number in range(20)]
        await store.entities.write([*writes, entities.write_of("other", author="desk")])

        found = await store.tokens.list_audit(AuditSelection(actor="shop"), limit=100)
        assert 20 == sum(entry.count for entry in found)
        assert len(found) <= len({write.shard for write in writes})
        if store.capabilities.many_shards:
            assert 1 == len(found)

    async def test_a_state_that_was_set_is_in_the_audit(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """One that was not is not."""
        entity = await entities.written("ad")
        assert await entities.swapped(entity, actor="pica")
        assert await entities.swapped(entity, actor="late") is None

        assert ("pica", "swap_state", 1) == (await told(store, "ad"))[-1]
        assert 2 == len(await entries(store, "ad"))

    async def test_a_release_is_in_the_audit(self, store: Store, entities: GivenEntities) -> None:
        """If there was something to release."""
        await entities.parked("ad")
        shard = entities.given.shard_of("ad")
        await store.queues.release("ad", None, shard=shard, actor="ann")
        await store.queues.release("ad", None, shard=shard, actor="bob")

        assert ("ann", "release_entity", 1) == (await told(store, "ad"))[-1]

    async def test_what_is_done_to_a_stage_is_in_the_audit(self, store: Store) -> None:
        """A walk that nobody asked for has no entry."""
        await declared(store, {STAGE: 1})
        await store.register.begin_backfill(STAGE, reason="in turn")
        await store.register.begin_backfill(STAGE, reason="by hand", actor="ann")
        await store.register.forget(STAGE, actor="bob")

        assert [("ann", "backfill_stage", 1), ("bob", "forget_stage", 1)] == await told(
            store, STAGE
        )

    async def test_what_a_stage_does_is_not(self, store: Store, entities: GivenEntities) -> None:
        """It has its change notes, and there are many."""
        await entities.queued("ad")
        before = len(await entries(store, "ad"))
        claim = await entities.claim("ad")
        write = StateWrite(body=b"1", revision=1)
        await entities.committed(claim, doc='{"price": 5}', state=write)

        assert before == len(await entries(store, "ad"))
