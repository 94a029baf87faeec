"""Part of the suite: what is due, and what there is to do next."""

from __future__ import annotations

from gnomon.contracts.store import Store
from gnomon.contracts.store.queues import StageLane
from tests.conformance.store.suite.entities.given import OTHER_STAGE, STAGE, GivenEntities
from tests.conformance.store.suite.given import HOUR, Given

MAIN, BACKGROUND = StageLane.MAIN, StageLane.BACKGROUND


class TestPeek:
    """`peek` and `claim_of`: what is due, with all that its run needs."""

    async def test_a_claim_has_all_that_a_run_needs(
        self, given: Given, entities: GivenEntities
    ) -> None:
        """Entity, row, all states, the other stages in whose queue it waits, the time."""
        claim = await entities.queued("ad")
        mine = await entities.swapped(claim.entity, b"mine")
        other = await entities.swapped(claim.entity, b"other", stage=OTHER_STAGE)
        await entities.offered(
            "ad",
            entities.offer("waits"),
            entities.offer("backs-off", delay=HOUR),
            entities.offer("sleeps", ready=False, wake=await entities.later()),
            entities.offer("loops", looping="x"),
        )
        before = await given.now()

        peeked = await entities.store.queues.lane_head(
            await given.holdings(), STAGE, MAIN, limit=9, skip=()
        )
        (found,) = peeked.claims

        assert (claim.entity, claim.row) == (found.entity, found.row)
        assert {STAGE: mine, OTHER_STAGE: other} == dict(found.states)
        assert frozenset({"waits"}) == found.waiting
        assert before <= found.now <= await given.now()
        again = await entities.claim("ad")
        assert (found.entity, found.row, found.states) == (again.entity, again.row, again.states)
        assert found.waiting == again.waiting

    async def test_nothing_is_marked_by_looking(self, entities: GivenEntities) -> None:
        """Whoever owns the shard after a crash finds the same."""
        await entities.queued("ad")

        assert ["ad"] == await entities.peeked()
        assert ["ad"] == await entities.peeked()

    async def test_the_first_that_are_due_come_in_order(self, entities: GivenEntities) -> None:
        """Of all held shards together, no more than wanted."""
        names = [f"e{number}" for number in range(6)]
        for name in names:
            await entities.queued(name)
        await entities.queued("later", delay=HOUR)

        assert names == await entities.peeked()
        assert names[:4] == await entities.peeked(limit=4)

    async def test_it_tells_when_there_is_more(self, given: Given, entities: GivenEntities) -> None:
        """At once, at a time, or not at all; without what is skipped."""
        store, holdings = entities.store.queues, await given.holdings()
        for name in ("e0", "e1", "e2"):
            await entities.queued(name)
        later = await entities.queued("later", delay=HOUR)

        full = await store.lane_head(holdings, STAGE, MAIN, limit=2, skip=())
        assert full.next_at is not None
        assert full.next_at <= await given.now()
        rest = await store.lane_head(holdings, STAGE, MAIN, limit=9, skip=())
        assert later.row.ready_at == rest.next_at
        skipped = await store.lane_head(holdings, STAGE, MAIN, limit=9, skip=["e0", "e1", "e2"])
        assert ([], later.row.ready_at) == (list(skipped.claims), skipped.next_at)
        nothing = await store.lane_head(holdings, OTHER_STAGE, MAIN, limit=9, skip=())
        assert ([], None) == (list(nothing.claims), nothing.next_at)

    async def test_what_is_skipped_leaves_room_for_others(self, entities: GivenEntities) -> None:
        """Entities that the owner is at already."""
        for number in range(4):
            await entities.queued(f"e{number}")

        assert ["e1", "e3"] == await entities.peeked(limit=2, skip=["e0", "e2"])

    async def test_stages_and_lanes_are_apart(self, entities: GivenEntities) -> None:
        """Each has its own head."""
        await entities.queued("main")
        await entities.queued("back", lane=BACKGROUND)
        await entities.queued("other", OTHER_STAGE)

        assert ["main"] == await entities.peeked()
        assert ["back"] == await entities.peeked(lane=BACKGROUND)
        assert ["other"] == await entities.peeked(OTHER_STAGE)
        assert [] == await entities.peeked("unknown")

    async def test_only_held_shards_are_seen(self, given: Given, entities: GivenEntities) -> None:
        """Under the lease that each has."""
        await entities.queued("ad")
        holding = await given.holding(given.shard_of("ad"))
        others = [each for each in await given.holdings() if each != holding]

        assert [] == await entities.peeked(holdings=[given.wrong(holding), *others])
        assert [] == await entities.peeked(holdings=[])
        assert ["ad"] == await entities.peeked(holdings=[holding])

    async def test_one_row_anew(self, store: Store, given: Given, entities: GivenEntities) -> None:
        """With the newest document; None where there is nothing to run."""
        claim = await entities.queued("ad")
        changed = await entities.changed(claim.entity)
        await entities.sleeping("asleep")
        await entities.parked("parked")

        assert changed == (await entities.claim("ad")).entity
        for name in ("asleep", "parked", "unknown"):
            holding = await given.holding(given.shard_of(name))
            assert None is await store.queues.claim(holding, name, STAGE)
        holding = await given.holding(given.shard_of("ad"))
        assert None is await store.queues.claim(holding, "ad", OTHER_STAGE)
        assert None is await store.queues.claim(given.wrong(holding), "ad", STAGE)


class TestEntitySurvey:
    """`survey`: when there is what to do next."""

    async def test_nothing_to_do(self, store: Store, given: Given) -> None:
        """An empty base, but for the time."""
        before = await given.now()

        survey = await store.queues.next_work(await given.holdings())

        assert before <= survey.now <= await given.now()
        assert ([], None, False) == (list(survey.ready), survey.timer_at, survey.has_changes)
        assert [] == list(survey.backfills)

    async def test_the_earliest_of_each_lane(
        self, store: Store, given: Given, entities: GivenEntities
    ) -> None:
        """Of all held shards together; also what is not due yet, but nothing that is parked."""
        first = await entities.queued("first")
        for number in range(5):
            await entities.queued(f"e{number}")
        back = await entities.queued("back", lane=BACKGROUND, delay=HOUR)
        other = await entities.queued("other", OTHER_STAGE)
        await entities.parked("parked")

        survey = await store.queues.next_work(await given.holdings())

        assert {
            (STAGE, MAIN, first.row.ready_at),
            (STAGE, BACKGROUND, back.row.ready_at),
            (OTHER_STAGE, MAIN, other.row.ready_at),
        } == set(survey.ready)
        assert 3 == len(survey.ready)

    async def test_timers_feed_and_walks(
        self, store: Store, given: Given, entities: GivenEntities
    ) -> None:
        """Each is told, and of held shards alone."""
        wake = await entities.later()
        await entities.sleeping("z", wake=wake + HOUR)
        await entities.sleeping("ad", wake=wake)
        changed = await entities.changed(await entities.entity("ad"))
        await store.register.begin_backfill(STAGE, reason="by hand")
        holding = await given.holding(changed.shard)
        others = [each for each in await given.holdings() if each != holding]

        survey = await store.queues.next_work([holding])
        assert (wake, True) == (survey.timer_at, survey.has_changes)
        assert [(STAGE, holding.shard)] == list(survey.backfills)

        elsewhere = await store.queues.next_work(others)
        assert not elsewhere.has_changes
        assert {(STAGE, other.shard) for other in others} == set(elsewhere.backfills)
