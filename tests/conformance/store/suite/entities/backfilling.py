"""Part of the suite: walks over the whole base."""

from __future__ import annotations

from datetime import timedelta

from gnomon.contracts.store import Store
from gnomon.contracts.store.queues import StageLane
from tests.conformance.store.suite.entities.given import KIND, OTHER_STAGE, STAGE, GivenEntities
from tests.conformance.store.suite.given import HOUR, Given

BACKGROUND = StageLane.BACKGROUND


class TestBackfills:
    """`begin_backfill`, `backfill_page`, `swept`: walks over the base."""

    async def test_a_walk_visits_every_living_entity_once(self, entities: GivenEntities) -> None:
        """In all shards, page by page in order of the id, with what is needed to ask."""
        names = [f"{KIND}/e{number}" for number in range(12)]
        for name in names:
            await entities.written(name)
        await entities.deleted(await entities.written(f"{KIND}/gone"))
        await entities.backfill_begun(reason="backfill r2")

        visited = [
            name
            for shard in range(entities.given.installation.shard_count)
            for name in await walked(entities, shard)
        ]

        assert sorted(names) == sorted(visited)

    async def test_a_page_has_what_is_needed_to_ask(self, entities: GivenEntities) -> None:
        """Document, states and rows, but no changes."""
        claim = await entities.queued(f"{KIND}/one")
        state = await entities.swapped(claim.entity)
        await entities.backfill_begun(reason="backfill r2")

        holding = await entities.given.holding(claim.entity.shard)
        page = await entities.store.queues.backfill_page(holding, STAGE, limit=9, backlog_max=9)

        assert page is not None
        (fed,) = page.entities
        assert (claim.entity, ()) == (fed.entity, fed.changes)
        assert {STAGE: state} == dict(fed.states)
        assert {STAGE: claim.row} == dict(fed.waiting)
        assert ("backfill r2", None) == (page.reason, page.cursor)

    async def test_its_offers_are_stored_with_its_place(self, entities: GivenEntities) -> None:
        """What it has visited, it does not visit again; changes nobody was asked about stay."""
        shard = 1
        names = sorted(entities.key_in(shard) for _ in range(3))
        for name in names:
            await entities.written(name)
        await entities.backfill_begun(reason="backfill r2")

        assert names[:2] == await step(entities, shard, limit=2)

        assert names[:2] == await entities.peeked(lane=BACKGROUND)
        assert names[2:] == await step(entities, shard, limit=2)
        assert [] == await step(entities, shard, limit=2)
        assert 3 == len(await entities.peeked(lane=BACKGROUND))
        assert 3 == len(await entities.fed())

    async def test_a_walk_ends(self, store: Store, given: Given, entities: GivenEntities) -> None:
        """Then there is no page, and nothing to do; a shard without entities ends at once."""
        await entities.backfill_begun(reason="backfill r2")
        holding = await given.holding(0)
        page = await store.queues.backfill_page(holding, STAGE, limit=9, backlog_max=9)
        assert page is not None
        assert ([], None) == (list(page.entities), page.cursor)

        assert [] == await step(entities, 0, limit=9)

        assert None is await store.queues.backfill_page(holding, STAGE, limit=9, backlog_max=9)
        assert (STAGE, 0) not in (await store.queues.next_work([holding])).backfills
        assert None is await store.queues.backfill_page(
            holding, OTHER_STAGE, limit=9, backlog_max=9
        )

    async def test_a_full_background_lane_stops_it(
        self, store: Store, given: Given, entities: GivenEntities
    ) -> None:
        """Ready rows of this stage, in this shard and this lane, are counted."""
        shard = 2
        for _ in range(3):
            await entities.queued(entities.key_in(shard), lane=BACKGROUND)
        await entities.queued(entities.key_in(shard))
        await entities.queued(entities.key_in(shard), OTHER_STAGE, lane=BACKGROUND)
        await entities.queued(entities.key_in(1), lane=BACKGROUND)
        await entities.backfill_begun(reason="backfill r2")
        holding = await given.holding(shard)

        assert None is await store.queues.backfill_page(holding, STAGE, limit=9, backlog_max=2)
        page = await store.queues.backfill_page(holding, STAGE, limit=9, backlog_max=3)
        assert page is not None
        assert 5 == len(page.entities)

    async def test_a_walk_that_is_begun_again_begins_at_the_start(
        self, store: Store, given: Given, entities: GivenEntities
    ) -> None:
        """And a page of the former walk does not move it."""
        shard = 1
        for _ in range(3):
            await entities.written(entities.key_in(shard))
        await entities.backfill_begun(reason="one")
        await step(entities, shard, limit=1)
        holding = await given.holding(shard)
        former = await store.queues.backfill_page(holding, STAGE, limit=9, backlog_max=9)
        assert former is not None
        await entities.backfill_begun(reason="two")

        assert not await store.queues.advance_backfill(
            holding, STAGE, started_at=former.started_at, cursor=former.cursor,
            routings=[await entities.answer_of(fed, entities.offer()) for fed in former.entities],
        )  # fmt: skip

        page = await store.queues.backfill_page(holding, STAGE, limit=9, backlog_max=9)
        assert page is not None
        assert ("two", 3) == (page.reason, len(page.entities))
        assert former.started_at != page.started_at
        assert [] == await entities.peeked()

    async def test_a_walk_is_not_begun_too_often(
        self, store: Store, given: Given, entities: GivenEntities
    ) -> None:
        """Of several processes that want one now and then, one begins it; an ended one counts."""
        assert await entities.backfill_begun(reason="one", unless_within=HOUR)
        for shard in range(given.installation.shard_count):
            await step(entities, shard, limit=9)

        assert not await entities.backfill_begun(reason="two", unless_within=HOUR)
        assert [] == list((await store.queues.next_work(await given.holdings())).backfills)

        assert await entities.backfill_begun(OTHER_STAGE, reason="two", unless_within=HOUR)
        assert await entities.backfill_begun(reason="two", unless_within=timedelta(0))
        assert await entities.backfill_begun(reason="three")

    async def test_only_the_owner_walks(
        self, store: Store, given: Given, entities: GivenEntities
    ) -> None:
        """Under the lease that the shard has."""
        entity = await entities.written("ad")
        await entities.backfill_begun(reason="one")
        holding = await given.holding(entity.shard)
        wrong = given.wrong(holding)
        page = await store.queues.backfill_page(holding, STAGE, limit=9, backlog_max=9)
        assert page is not None
        answers = [await entities.answer_of(fed, entities.offer()) for fed in page.entities]

        assert None is await store.queues.backfill_page(wrong, STAGE, limit=9, backlog_max=9)
        assert not await store.queues.advance_backfill(
            wrong, STAGE, started_at=page.started_at, cursor=None, routings=answers
        )

        assert {} == await entities.rows("ad")
        assert page == await store.queues.backfill_page(holding, STAGE, limit=9, backlog_max=9)

    async def test_an_entity_deleted_meanwhile_gets_no_row(
        self, store: Store, given: Given, entities: GivenEntities
    ) -> None:
        """The others of the page do."""
        shard = 1
        names = sorted(entities.key_in(shard) for _ in range(2))
        made = [await entities.written(name) for name in names]
        await entities.backfill_begun(reason="one")
        holding = await given.holding(shard)
        page = await store.queues.backfill_page(holding, STAGE, limit=9, backlog_max=9)
        assert page is not None
        await entities.deleted(made[0])

        assert await store.queues.advance_backfill(
            holding, STAGE, started_at=page.started_at, cursor=page.cursor,
            routings=[await entities.answer_of(fed, entities.offer()) for fed in page.entities],
        )  # fmt: skip

        assert names[1:] == await entities.peeked()
        assert [] == list(await store.installation.doctor())


async def step(entities: GivenEntities, shard: int, *, limit: int) -> list[str]:
    """One page of the stage's walk, all of it wanted; the ids."""
    holding = await entities.given.holding(shard)
    page = await entities.store.queues.backfill_page(holding, STAGE, limit=limit, backlog_max=99)
    if page is None:
        return []
    offer = entities.offer(reason=page.reason, lane=BACKGROUND)
    answers = [await entities.answer_of(fed, offer) for fed in page.entities]
    assert await entities.store.queues.advance_backfill(
        holding, STAGE, started_at=page.started_at, cursor=page.cursor, routings=answers
    )
    return [fed.entity.key for fed in page.entities]


async def walked(entities: GivenEntities, shard: int) -> list[str]:
    """The whole walk in one shard."""
    names: list[str] = []
    holding = await entities.given.holding(shard)
    while True:
        if (STAGE, shard) not in (await entities.store.queues.next_work([holding])).backfills:
            return names
        page = await step(entities, shard, limit=2)
        assert page == sorted(page)
        names += page
