"""Part of the suite: offers that wait until an entity has been quiet for a while."""

from __future__ import annotations

from datetime import datetime, timedelta

from gnomon.contracts.store.queues import CommitKind, RowStatus, StageLane
from tests.conformance.store.suite.entities.given import (
    DOC,
    OTHER_STAGE,
    STAGE,
    GivenEntities,
)
from tests.conformance.store.suite.given import HOUR, SECOND, Given

MINUTE = timedelta(minutes=1)


class TestDebouncing:
    """`Offer.debounce`: later with each offer, up to ten times that; what is due stays due."""

    async def test_a_new_row_is_ready_when_it_has_settled(
        self, given: Given, entities: GivenEntities
    ) -> None:
        """So long after the offer, or after its delay if that is longer."""
        before = await given.now()
        claim = await entities.queued("ad", debounce=HOUR, delay=MINUTE)
        slow = await entities.queued("slow", debounce=MINUTE, delay=HOUR)
        after = await given.now()

        for row in (claim.row, slow.row):
            assert row.ready_at is not None
            assert before + HOUR <= row.ready_at <= after + HOUR
        assert [] == await entities.peeked()

    async def test_another_offer_moves_it_on(self, given: Given, entities: GivenEntities) -> None:
        """It is ready so long after the last one; since when it waits is as it was."""
        claim = await entities.queued("ad", debounce=HOUR, reason="one")
        before = await given.now()

        await entities.offered("ad", entities.offer(debounce=HOUR, reason="two"))

        row = await entities.row("ad")
        assert row.ready_at is not None
        assert before + HOUR <= row.ready_at <= await given.now() + HOUR
        assert (claim.row.first_at, claim.row.seq + 1) == (row.first_at, row.seq)
        assert ("one", "two") == row.reasons

    async def test_it_is_moved_on_to_ten_times_that_at_most(self, entities: GivenEntities) -> None:
        """From when it was first woken: whoever is never quiet is looked at all the same."""
        await self._waiting(entities, first_woken_ago=570 * MINUTE)

        await entities.offered("ad", entities.offer(debounce=HOUR))

        row = await entities.row("ad")
        assert row.first_at + 10 * HOUR == row.ready_at

    async def test_after_that_it_is_not_moved_at_all(self, entities: GivenEntities) -> None:
        """Neither on nor back."""
        ready_at = await self._waiting(entities, first_woken_ago=11 * HOUR)

        await entities.offered("ad", entities.offer(debounce=HOUR))

        assert ready_at == (await entities.row("ad")).ready_at

    async def _waiting(
        self, entities: GivenEntities, *, first_woken_ago: timedelta
    ) -> datetime | None:
        """`ad` waits for ten minutes more."""
        claim = await entities.queued("ad", debounce=HOUR)
        await entities.age("stage_queue", "first_at", first_woken_ago)
        await entities.set_back(claim, RowStatus.READY, delay=10 * MINUTE)
        return (await entities.row("ad")).ready_at

    async def test_what_is_due_is_not_taken_back(self, entities: GivenEntities) -> None:
        """It only waits for its turn: a timer's row, say."""
        claim = await entities.queued("ad")

        await entities.offered("ad", entities.offer(debounce=HOUR))

        assert claim.row.ready_at == (await entities.row("ad")).ready_at
        assert ["ad"] == await entities.peeked()

    async def test_what_does_not_settle_does_not_wait(self, entities: GivenEntities) -> None:
        """An offer without it, or a timer, brings the row forward."""
        await entities.queued("told", debounce=HOUR)
        await entities.queued("timed", debounce=HOUR, wake=await entities.earlier())

        await entities.offered("told", entities.offer())
        assert 1 == await entities.fire()

        assert {"told", "timed"} == set(await entities.peeked())

    async def test_a_delay_does_not_move_it_on(self, given: Given, entities: GivenEntities) -> None:
        """A wake-up that comes later itself is no reason to let others wait as long."""
        await entities.queued("ad", debounce=MINUTE)

        await entities.offered("ad", entities.offer(debounce=MINUTE, delay=HOUR))

        ready_at = (await entities.row("ad")).ready_at
        assert ready_at is not None
        assert ready_at <= await given.now() + MINUTE

    async def test_a_backoff_is_brought_forward_no_further(
        self, given: Given, entities: GivenEntities
    ) -> None:
        """A row that failed comes once it has settled, and no sooner than in five seconds."""
        for name, debounce, soonest in (("ad", MINUTE, MINUTE), ("hasty", SECOND, 5 * SECOND)):
            claim = await entities.queued(name)
            await entities.set_back(claim, RowStatus.READY, delay=HOUR, counts=True)
            before = await given.now()

            await entities.offered(name, entities.offer(debounce=debounce))

            row = await entities.row(name)
            assert row.ready_at is not None
            assert before + soonest <= row.ready_at <= await given.now() + soonest
            assert 1 == row.attempts

    async def test_a_backoff_that_ends_sooner_is_moved_on(
        self, given: Given, entities: GivenEntities
    ) -> None:
        """To fail again while the entity is being changed helps nobody."""
        claim = await entities.queued("ad")
        await entities.set_back(claim, RowStatus.READY, delay=MINUTE, counts=True)
        before = await given.now()

        await entities.offered("ad", entities.offer(debounce=HOUR))

        ready_at = (await entities.row("ad")).ready_at
        assert ready_at is not None
        assert before + HOUR <= ready_at

    async def test_a_row_of_a_walk_is_lifted_and_not_delayed(self, entities: GivenEntities) -> None:
        """It is due: it goes to the end of its new lane, as it would without."""
        await entities.queued("swept", lane=StageLane.BACKGROUND)
        await entities.queued("fresh")

        await entities.offered("swept", entities.offer(debounce=HOUR))

        assert ["fresh", "swept"] == await entities.peeked()

    async def test_a_freed_or_woken_row_settles_as_if_new(
        self, given: Given, entities: GivenEntities
    ) -> None:
        """What slept keeps its timer."""
        wake = await entities.later(2 * HOUR)
        await entities.sleeping("asleep", wake=wake)
        await entities.parked("parked")
        before = await given.now()

        for name in ("asleep", "parked"):
            await entities.offered(name, entities.offer(debounce=HOUR, frees=True))

        for name, timer_at in (("asleep", wake), ("parked", None)):
            row = await entities.row(name)
            assert (RowStatus.READY, timer_at, 0) == (row.status, row.timer_at, row.attempts)
            assert row.ready_at is not None
            assert before + HOUR <= row.ready_at
            assert before <= row.first_at

    async def test_each_stage_settles_for_itself(
        self, given: Given, entities: GivenEntities
    ) -> None:
        """Offers of one answer may differ."""
        await entities.written("ad")
        before = await given.now()
        await entities.asked(
            "ad",
            entities.offer(STAGE, debounce=HOUR),
            entities.offer(OTHER_STAGE, debounce=MINUTE),
            entities.offer("hasty"),
        )
        after = await given.now()

        rows = await entities.rows("ad")
        for stage, debounce in ((STAGE, HOUR), (OTHER_STAGE, MINUTE), ("hasty", 0 * SECOND)):
            ready_at = rows[stage].ready_at
            assert ready_at is not None
            assert before + debounce <= ready_at <= after + debounce

    async def test_offers_of_a_commit_settle_likewise(
        self, given: Given, entities: GivenEntities
    ) -> None:
        """Beside one that does not."""
        claim = await entities.queued("ad")
        before = await given.now()
        offers = (entities.offer(OTHER_STAGE, debounce=HOUR), entities.offer("hasty"))
        assert CommitKind.SAVED is (await entities.committed(claim, doc=DOC, enqueues=offers)).kind
        settling = await entities.row("ad", OTHER_STAGE)
        await entities.offered("ad", entities.offer(OTHER_STAGE, debounce=HOUR))

        assert ["ad"] == await entities.peeked("hasty")
        assert [] == await entities.peeked(OTHER_STAGE)
        moved = await entities.row("ad", OTHER_STAGE)
        assert settling.ready_at is not None
        assert moved.ready_at is not None
        assert before + HOUR <= settling.ready_at < moved.ready_at
