"""Part of the suite: what can be read from outside, and private states."""

from __future__ import annotations

from gnomon.contracts.store import Store
from gnomon.contracts.store.entities import Entity, StateWrite
from gnomon.contracts.store.queues import CommitKind
from tests.conformance.store.suite.entities.given import (
    DOC,
    OTHER_DOC,
    OTHER_STAGE,
    STAGE,
    GivenEntities,
)
from tests.conformance.store.suite.given import Given


class TestList:
    """`list`: living entities by id."""

    async def test_many_are_read_at_once(
        self, store: Store, given: Given, entities: GivenEntities
    ) -> None:
        """Living ones and tombstones; those that never were are missing."""
        living, gone = await entities.written("living"), await entities.written("gone")
        gone = await entities.changed(gone, doc=None)
        wanted = {name: given.shard_of(name) for name in ("gone", "never", "living")}

        assert {"living": living, "gone": gone} == dict(
            (await store.entities.get_many(wanted)).entities
        )
        assert ({}, {}) == await store.entities.get_many({})

    async def test_they_come_in_order_page_by_page(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """By the bytes of the id, whatever the shard."""
        names = ["b", "a-2", "B", "a-1", "_", "a.1"]
        for name in names:
            await entities.written(name)

        pages: list[list[str]] = []
        after: str | None = None
        while page := await store.entities.list(after=after, prefix="", limit=4):
            pages.append([entity.key for entity in page])
            after = page[-1].key

        assert [["B", "_", "a-1", "a-2"], ["a.1", "b"]] == pages

    async def test_a_prefix_bounds_them(self, store: Store, entities: GivenEntities) -> None:
        """Literally: no character in it means another."""
        for name in ("ad_1", "ad_2", "adx1", "ae", "ad"):
            await entities.written(name)

        assert ["ad_1", "ad_2"] == await listed(store, prefix="ad_")
        assert ["ad_2"] == await listed(store, prefix="ad_", after="ad_1")
        assert ["ad_1", "ad_2"] == await listed(store, prefix="ad_", after="a")
        assert [] == await listed(store, prefix="b")

    async def test_tombstones_are_left_out(self, store: Store, entities: GivenEntities) -> None:
        """Only what lives is listed, with its document."""
        await entities.deleted(await entities.written("gone"))
        living = await entities.written("living")

        assert [living] == list(await store.entities.list(after=None, prefix="", limit=9))


class TestStates:
    """`state` and `swap_state`: a stage's private state, from outside."""

    async def test_a_first_state_has_version_one(self, entities: GivenEntities) -> None:
        """Stored as it is given, bytes and type, under the stage's revision."""
        entity = await entities.written()

        stored = await entities.store.entities.swap_state(
            entity.key, STAGE, shard=entity.shard, epoch=1, version=0, enqueue=None,
            state=StateWrite(body=b"\x00\xff", revision=7, type="ads.v1.Photos"),
        )  # fmt: skip

        assert stored is not None
        assert (1, 7, b"\x00\xff") == (stored.version, stored.revision, stored.body)
        assert "ads.v1.Photos" == stored.type
        assert stored == await entities.state(entity.key)
        assert None is await entities.state(entity.key, OTHER_STAGE)

    async def test_a_swap_on_its_version_makes_the_next(self, entities: GivenEntities) -> None:
        """The entity's own version is untouched, and nobody else is asked."""
        entity = await entities.written()
        await entities.asked(entity.key)
        await entities.swapped(entity, b"1")

        stored = await entities.swapped(entity, b"2", version=1)

        assert stored is not None
        assert (2, b"2") == (stored.version, stored.body)
        assert entity == await entities.entity(entity.key)
        assert [] == list(await entities.fed())
        assert [] == list(await entities.outgoing())
        assert {} == await entities.rows(entity.key)

    async def test_a_swap_on_another_version_or_epoch_stores_nothing(
        self, entities: GivenEntities
    ) -> None:
        """None for it, and its offer is not made."""
        entity = await entities.written()
        stored = await entities.swapped(entity, b"1")
        offer = entities.offer()

        for version in (0, 2):
            assert None is await entities.swapped(entity, b"2", version=version, enqueue=offer)
        assert None is await entities.swapped(entity, b"2", version=1, epoch=2, enqueue=offer)
        assert None is await entities.swapped(
            entity, b"2", version=1, stage=OTHER_STAGE, enqueue=offer
        )

        assert stored == await entities.state(entity.key)
        assert {} == await entities.rows(entity.key)

    async def test_an_entity_that_is_not_there_has_no_state(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """Neither before it is made nor after it was deleted."""
        entity = await entities.written("ad")
        never = Entity(
            key="never", shard=entities.given.shard_of("never"), epoch=1, version=1, doc=DOC,
            changed_at=entity.changed_at,
        )  # fmt: skip
        gone = await entities.deleted(entity)

        assert None is await entities.swapped(never)
        assert None is await entities.swapped(gone)
        assert (None, None) == await store.entities.state("never", STAGE, shard=never.shard)
        assert (gone, None) == await store.entities.state("ad", STAGE, shard=gone.shard)

    async def test_an_offer_wakes_that_stage(self, entities: GivenEntities) -> None:
        """In the same transaction, and merged like any other."""
        claim = await entities.queued("ad", reason="change")

        await entities.swapped(claim.entity, enqueue=entities.offer(reason="state-cas"))

        row = await entities.row("ad")
        assert (claim.row.seq + 1, ("change", "state-cas")) == (row.seq, row.reasons)

    async def test_the_claim_has_the_new_state(self, entities: GivenEntities) -> None:
        """And a commit that had loaded the old one is fenced off."""
        claim = await entities.queued("ad")
        await entities.swapped(claim.entity, b"new")

        committed = await entities.committed(claim, doc=OTHER_DOC)

        assert CommitKind.STATE_MOVED is committed.kind
        assert b"new" == (await entities.claim("ad")).states[STAGE].body
        assert claim.entity == await entities.entity("ad")


async def listed(store: Store, *, prefix: str, after: str | None = None) -> list[str]:
    found = await store.entities.list(after=after, prefix=prefix, limit=100)
    return [entity.key for entity in found]
