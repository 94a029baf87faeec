"""Part of the suite: offers to the queues of stages."""

from __future__ import annotations

from datetime import timedelta

from gnomon.contracts.store import Store
from gnomon.contracts.store.queues import RowStatus, StageLane
from tests.conformance.store.suite.entities.given import STAGE, GivenEntities
from tests.conformance.store.suite.given import HOUR, SECOND, Given

MAIN, BACKGROUND = StageLane.MAIN, StageLane.BACKGROUND


class TestOffers:
    """`Offer`: put into a queue, at most once."""

    async def test_a_new_row_is_ready_now(self, given: Given, entities: GivenEntities) -> None:
        """With its reason, its chain, and no attempt."""
        before = await given.now()
        offer = entities.offer(reason="change v1 by user", depth=3)
        await entities.written("ad")
        await entities.asked("ad", offer)
        after = await given.now()

        row = await entities.row("ad")
        assert ("ad", STAGE, MAIN, RowStatus.READY) == (
            row.entity_key, row.stage, row.lane, row.status,
        )  # fmt: skip
        assert row.ready_at is not None
        assert before <= row.ready_at <= after
        assert before <= row.first_at <= after
        assert (None, 0, None) == (row.timer_at, row.attempts, row.error)
        assert (("change v1 by user",), offer.root, 3) == (row.reasons, row.root, row.depth)

    async def test_a_delay_counts_from_now(self, given: Given, entities: GivenEntities) -> None:
        """By the database's clock; until then it is not due."""
        before = await given.now()
        await entities.queued("ad", delay=HOUR)

        ready_at = (await entities.row("ad")).ready_at
        assert ready_at is not None
        assert before + HOUR <= ready_at <= await given.now() + HOUR
        assert [] == await entities.peeked()

    async def test_a_timer_alone_makes_a_row_that_sleeps(self, entities: GivenEntities) -> None:
        """It is not ready, and not offered to the stage."""
        wake = await entities.later()
        row = await entities.sleeping("ad", wake=wake)

        assert (RowStatus.SLEEPING, None, wake) == (row.status, row.ready_at, row.timer_at)
        assert () == row.reasons
        assert [] == await entities.peeked()

    async def test_nothing_wanted_makes_no_row(self, entities: GivenEntities) -> None:
        """Neither ready nor a timer."""
        await entities.written("ad")
        await entities.asked("ad", entities.offer(ready=False))

        assert {} == await entities.rows("ad")

    async def test_each_stage_has_its_own_row(self, entities: GivenEntities) -> None:
        """One entity may wait in many queues, in each at most once."""
        await entities.written("ad")
        offers = [entities.offer(stage) for stage in ("c", "a", "b", "a")]
        await entities.asked("ad", *offers)

        assert {"a", "b", "c"} == set(await entities.rows("ad"))

    async def test_an_entity_that_does_not_live_gets_no_row(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """Whoever was asked about it before it was deleted comes too late."""
        entity = await entities.written("ad")
        answer = await entities.answer_of(await entities.fed_of("ad"), entities.offer())
        await entities.deleted(entity)

        await store.queues.route([answer])

        assert {} == await entities.rows("ad")
        assert [] == list(await store.installation.doctor())


class TestMerging:
    """Offers to a row that waits already: stages.md 5.2."""

    async def test_the_row_stays_and_its_seq_moves(self, entities: GivenEntities) -> None:
        """First time, attempts and place stay; root and depth are the newest."""
        claim = await entities.queued("ad", reason="one", depth=5)
        offer = entities.offer(reason="two")

        await entities.offered("ad", offer)

        row = await entities.row("ad")
        assert claim.row.seq + 1 == row.seq
        assert (claim.row.first_at, claim.row.ready_at) == (row.first_at, row.ready_at)
        assert (("one", "two"), offer.root, 0) == (row.reasons, row.root, row.depth)

    async def test_the_eight_newest_reasons_are_kept(self, entities: GivenEntities) -> None:
        """Each once, the newest last."""
        await entities.queued("ad", reason="r0")
        for number in range(1, 10):
            await entities.offered("ad", entities.offer(reason=f"r{number}"))
        assert tuple(f"r{number}" for number in range(2, 10)) == (await entities.row("ad")).reasons

        await entities.offered("ad", entities.offer(reason="r4"))

        assert ("r2", "r3", "r5", "r6", "r7", "r8", "r9", "r4") == (
            await entities.row("ad")
        ).reasons

    async def test_it_is_ready_at_the_earlier_of_the_two(
        self, given: Given, entities: GivenEntities
    ) -> None:
        """A later offer does not delay it, an earlier one brings it forward."""
        claim = await entities.queued("ad", delay=HOUR)
        await entities.offered("ad", entities.offer(delay=2 * HOUR))
        assert claim.row.ready_at == (await entities.row("ad")).ready_at

        await entities.offered("ad", entities.offer(delay=60 * SECOND))

        ready_at = (await entities.row("ad")).ready_at
        assert ready_at is not None
        assert ready_at <= await given.now() + 60 * SECOND

    async def test_a_delay_alone_is_no_backoff(self, entities: GivenEntities) -> None:
        """What has not failed is ready as soon as it is offered so."""
        await entities.queued("ad", delay=HOUR)

        await entities.offered("ad", entities.offer())

        assert ["ad"] == await entities.peeked()

    async def test_a_row_in_backoff_is_brought_forward_to_five_seconds(
        self, given: Given, entities: GivenEntities
    ) -> None:
        """And keeps its attempts: it failed, and may do so again."""
        claim = await entities.queued("ad")
        await entities.set_back(claim, RowStatus.READY, delay=HOUR, counts=True, error="no")
        before = await given.now()

        await entities.offered("ad", entities.offer())

        row = await entities.row("ad")
        assert row.ready_at is not None
        assert before + 5 * SECOND <= row.ready_at <= await given.now() + 5 * SECOND
        assert (1, "no") == (row.attempts, row.error)

    async def test_a_backoff_that_ends_sooner_stays(self, entities: GivenEntities) -> None:
        """The five seconds never delay; nor do they hold for a row that is due."""
        claim = await entities.queued("ad")
        await entities.set_back(claim, RowStatus.READY, delay=2 * SECOND, counts=True)
        waiting = await entities.row("ad")
        await entities.offered("ad", entities.offer())
        assert waiting.ready_at == (await entities.row("ad")).ready_at

        claim = await entities.queued("due")
        await entities.set_back(claim, RowStatus.READY, counts=True)
        await entities.offered("due", entities.offer())
        assert ["due"] == await entities.peeked()

    async def test_the_better_lane_wins(self, given: Given, entities: GivenEntities) -> None:
        """A row that is lifted goes to the end of its new lane; none is ever lowered."""
        await entities.queued("swept", lane=BACKGROUND)
        await entities.queued("fresh")
        before = await given.now()

        await entities.offered("swept", entities.offer())
        await entities.offered("fresh", entities.offer(lane=BACKGROUND))

        lifted = await entities.row("swept")
        assert MAIN is lifted.lane
        assert lifted.ready_at is not None
        assert before <= lifted.ready_at
        assert ["fresh", "swept"] == await entities.peeked()
        assert [] == await entities.peeked(lane=BACKGROUND)

    async def test_a_lifted_row_is_not_delayed_beyond_its_time(
        self, entities: GivenEntities
    ) -> None:
        """The end of the lane is now, or the earlier of the two if both are later."""
        claim = await entities.queued("ad", lane=BACKGROUND, delay=60 * SECOND)

        await entities.offered("ad", entities.offer(delay=HOUR))

        row = await entities.row("ad")
        assert (MAIN, claim.row.ready_at) == (row.lane, row.ready_at)

    async def test_a_timer_stays_beside_the_queue(self, entities: GivenEntities) -> None:
        """A change that queues the entity does not eat its timer."""
        wake = await entities.later()
        asleep = await entities.sleeping("ad", wake=wake)

        await entities.offered("ad", entities.offer(reason="change", lane=BACKGROUND))

        row = await entities.row("ad")
        assert (RowStatus.READY, BACKGROUND, wake) == (row.status, row.lane, row.timer_at)
        assert (("change",), 0) == (row.reasons, row.attempts)
        assert asleep.seq != row.seq
        assert asleep.first_at <= row.first_at
        assert ["ad"] == await entities.peeked(lane=BACKGROUND)

    async def test_a_timer_is_armed_at_the_earlier_of_the_two(
        self, entities: GivenEntities
    ) -> None:
        """Whether the row sleeps or waits; with or without being ready."""
        wake = await entities.later()
        await entities.sleeping("ad", wake=wake)
        await entities.offered("ad", entities.offer(ready=False, wake=wake + HOUR))
        assert wake == (await entities.row("ad")).timer_at

        await entities.offered("ad", entities.offer(wake=wake + HOUR))
        assert wake == (await entities.row("ad")).timer_at

        sooner = wake - timedelta(minutes=5)
        await entities.offered("ad", entities.offer(wake=sooner))
        assert sooner == (await entities.row("ad")).timer_at

    async def test_a_timer_alone_changes_nothing_else(self, entities: GivenEntities) -> None:
        """The claim of a row that waits stays good."""
        claim = await entities.queued("ad", reason="one")
        wake = await entities.later()

        await entities.offered("ad", entities.offer(reason="two", ready=False, wake=wake))

        row = await entities.row("ad")
        assert wake == row.timer_at
        assert (claim.row.seq, ("one",), claim.row.root) == (row.seq, row.reasons, row.root)
        assert RowStatus.READY is row.status
