"""Part of the suite: entities of several kinds, with the same ids and kinds that begin alike."""

from __future__ import annotations

import pytest

from gnomon.contracts.store import Store
from gnomon.contracts.store.queues import RowStatus
from gnomon.contracts.store.register import StageDeclaration
from gnomon.model.errors import ConfigurationError
from gnomon.model.stage.graph import Reach
from tests.conformance.store.suite.entities.given import (
    DOC,
    OTHER_DOC,
    OTHER_STAGE,
    STAGE,
    GivenEntities,
)
from tests.conformance.store.suite.given import HOUR, Given

AD, ORDER = "ad/1", "order/1"
# Each begins as another one does, or comes directly before or after it in the order of texts.
KINDS = ("a", "a-b", "ad", "ad-", "ad0", "ad_", "ads")


def declaration(name: str, kind: str, **fields: object) -> StageDeclaration:
    return StageDeclaration(name=name, revision=1, reach=Reach(kind, (), ()), **fields)  # type: ignore[arg-type]


class TestKinds:
    """Entities of two kinds never meet, though their ids are the same."""

    async def test_each_has_its_own_document_versions_and_lives(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """What is written or deleted of one is not of the other."""
        ad, order = await entities.written(AD), await entities.written(ORDER, doc=OTHER_DOC)
        await entities.changed(ad)
        assert [2, 1] == [(await entities.entity(key)).version for key in (AD, ORDER)]
        assert ([2, 1], [1]) == (await entities.versions_of(ad), await entities.versions_of(order))

        await entities.deleted(await entities.entity(AD))
        assert order == await entities.entity(ORDER)
        await entities.written(AD)

        both = {key: entities.given.shard_of(key) for key in (AD, ORDER)}
        stored = (await store.entities.get_many(both)).entities
        assert {AD: (2, DOC), ORDER: (1, OTHER_DOC)} == {
            key: (entity.epoch, entity.doc) for key, entity in stored.items()
        }
        assert [("ad", "1"), ("order", "1")] == [
            (stored[key].kind, stored[key].id) for key in (AD, ORDER)
        ]

    async def test_each_has_its_own_states_rows_and_timers(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """A state, a queue row and a timer of one are no other's; a delete takes its own."""
        ad, order = await entities.queued(AD), await entities.queued(ORDER, OTHER_STAGE)
        await entities.swapped(ad.entity, b"1")
        await entities.offered(ORDER, entities.offer(ready=False, wake=await entities.earlier()))
        assert (None, {STAGE}) == (await entities.state(ORDER), set(await entities.rows(AD)))

        assert 1 == await entities.fire()
        assert [AD, ORDER] == await entities.peeked()
        assert [ORDER] == await entities.peeked(OTHER_STAGE)

        await entities.deleted(ad.entity)
        assert [ORDER] == await entities.peeked()
        assert order.row.seq == (await entities.row(ORDER, OTHER_STAGE)).seq

    async def test_saves_of_one_do_not_wait_for_those_of_the_other(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """Each has its numbers and its order; what is put off or quarantined is one's alone."""
        for key in (AD, ORDER):
            await entities.changed(await entities.written(key, relay=True))
        saves = await entities.outgoing("")
        assert {AD: [(1, 1), (2, 2)], ORDER: [(1, 1), (2, 2)]} == {
            key: [(row.n, row.version) for row in saves if row.entity_key == key]
            for key in (AD, ORDER)
        }
        assert 4 == len({row.key for row in saves})

        first = next(row for row in saves if row.entity_key == AD)
        await store.outbox.quarantine(first, error="no")
        assert [ORDER, ORDER] == [row.entity_key for row in await entities.outgoing("")]
        assert {"": RowStatus.UNDELIVERED} == {
            stage: row.status for stage, row in (await entities.rows(AD)).items()
        }
        assert {} == await entities.rows(ORDER)

    async def test_a_list_has_one_kind(self, store: Store, entities: GivenEntities) -> None:
        """Page by page, also if another kind begins like it."""
        for kind in KINDS:
            for number in (1, 2, 3):
                await entities.written(f"{kind}/{number}")
        for kind in KINDS:
            pages, after = [], None
            while page := await store.entities.list(after=after, prefix=f"{kind}/", limit=2):
                pages.append([entity.key for entity in page])
                after = page[-1].key
            assert [[f"{kind}/1", f"{kind}/2"], [f"{kind}/3"]] == pages
        narrow = await store.entities.list(after=None, prefix="ad/2", limit=9)
        assert ["ad/2"] == [entity.key for entity in narrow]

    async def test_what_is_parked_is_told_by_kind(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """Rows and undelivered saves; a page of one kind that is said to begin in another, too."""
        for kind in KINDS:
            await entities.parked(f"{kind}/row")
            await entities.undelivered(f"{kind}/save", OTHER_STAGE)
        for kind in KINDS:
            for after in (None, ("", ""), ("A/x", STAGE)):
                rows = await store.queues.parked(
                    prefix=f"{kind}/", stage=None, after=after, limit=9
                )
                assert [f"{kind}/row", f"{kind}/save"] == [row.entity_key for row in rows]
        rows = await store.queues.parked(prefix="ad/", stage=None, after=("ad/row", STAGE), limit=9)
        assert ["ad/save"] == [row.entity_key for row in rows]
        everything = await store.queues.parked(prefix="", stage=None, after=None, limit=99)
        assert 2 * len(KINDS) == len(everything)

    async def test_a_backfill_visits_one_kind(
        self, store: Store, given: Given, entities: GivenEntities
    ) -> None:
        """In each shard, and ends where its kind does: no row of another kind is made."""
        for kind in KINDS:
            for number in range(4):
                await entities.written(f"{kind}/{number}")
        for kind in KINDS:
            await store.register.declare([declaration(f"of-{kind}", kind, backfill=True)])
            visited = []
            for shard in range(given.installation.shard_count):
                visited += await _walked(entities, f"of-{kind}", shard)
            assert [f"{kind}/{number}" for number in range(4)] == sorted(visited)
            assert visited == await entities.peeked(f"of-{kind}")
        assert [] == list((await store.queues.next_work(await given.holdings())).backfills)

    async def test_the_register_knows_the_kind_of_a_stage_and_lets_no_other_be(
        self, store: Store
    ) -> None:
        """Told with what to do; nothing of such a declaration is stored, also under a new name."""
        await store.register.declare([declaration(STAGE, "ad", debounce=HOUR)])
        for refused in (
            [declaration(STAGE, "order")],
            [declaration("new", "order", formerly=STAGE)],
            [declaration(OTHER_STAGE, "ad"), declaration(STAGE, "order")],
        ):
            with pytest.raises(ConfigurationError, match="gnomon stage forget") as told:
                await store.register.declare(refused)
            assert "of the kind 'order' here, and of 'ad'" in str(told.value)
        (record,) = await store.register.registered()
        assert (STAGE, "ad", HOUR) == (record.name, record.kind, record.debounce)
        assert ["ad"] == [each.kind for each in await store.register.stages()]

        await store.register.forget(STAGE)
        await store.register.declare([declaration(STAGE, "order")])
        assert ["order"] == [each.kind for each in await store.register.registered()]


async def _walked(entities: GivenEntities, stage: str, shard: int) -> list[str]:
    """All pages of a walk through a shard; each entity is offered to the stage."""
    queues, holding = entities.store.queues, await entities.given.holding(shard)
    visited: list[str] = []
    while page := await queues.backfill_page(holding, stage, limit=2, backlog_max=99):
        routings = [await entities.answer_of(fed, entities.offer(stage)) for fed in page.entities]
        visited += [fed.entity.key for fed in page.entities]
        assert await queues.advance_backfill(
            holding, stage, started_at=page.started_at, cursor=page.cursor, routings=routings
        )
    return visited
