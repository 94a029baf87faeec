"""Part of the suite: rows that are parked, and how they come free."""

from __future__ import annotations

from gnomon.contracts.store import Store
from gnomon.contracts.store.queues import RowStatus, StageLane
from tests.conformance.store.suite.entities.given import OTHER_STAGE, STAGE, GivenEntities
from tests.conformance.store.suite.given import Given

MAIN, BACKGROUND = StageLane.MAIN, StageLane.BACKGROUND


class TestParked:
    """Rows that are quarantined or looping."""

    async def test_it_is_not_offered_to_the_stage(self, entities: GivenEntities) -> None:
        """Other stages and other entities go on."""
        for status in (RowStatus.QUARANTINED, RowStatus.LOOPING):
            await entities.parked(str(status), status)
        await entities.offered("looping", entities.offer(OTHER_STAGE))
        await entities.queued("well")

        assert ["well"] == await entities.peeked()
        assert ["looping"] == await entities.peeked(OTHER_STAGE)

    async def test_an_offer_does_not_free_it(self, entities: GivenEntities) -> None:
        """Unless it says so; its timer is armed all the same."""
        parked = await entities.parked("ad")
        wake = await entities.later()

        await entities.offered("ad", entities.offer(reason="another", wake=wake))

        row = await entities.row("ad")
        assert (RowStatus.QUARANTINED, "no", wake) == (row.status, row.error, row.timer_at)
        assert (parked.reasons, parked.attempts) == (row.reasons, row.attempts)

    async def test_a_change_of_what_it_watches_frees_it(self, entities: GivenEntities) -> None:
        """As if new, but with all its reasons."""
        for status in (RowStatus.QUARANTINED, RowStatus.LOOPING):
            name = str(status)
            parked = await entities.parked(name, status)
            offer = entities.offer(reason="edit", frees=True)
            await entities.offered(name, offer)

            row = await entities.row(name)
            assert (RowStatus.READY, 0, ("change", "edit")) == (
                row.status, row.attempts, row.reasons,
            )  # fmt: skip
            assert (offer.root, 0, parked.seq + 1) == (row.root, row.depth, row.seq)
            assert name in await entities.peeked()

    async def test_what_stages_cause_frees_no_loop(self, entities: GivenEntities) -> None:
        """It may be the loop itself; what failed is freed by it."""
        for status in (RowStatus.QUARANTINED, RowStatus.LOOPING):
            await entities.parked(str(status), status)
            await entities.offered(str(status), entities.offer(frees=True, depth=1))

        assert ["quarantined"] == await entities.peeked()
        assert RowStatus.LOOPING is (await entities.row("looping")).status

    async def test_a_proof_of_a_loop_parks_it(self, entities: GivenEntities) -> None:
        """A new row, one that sleeps, and one that is parked already; the timer stays."""
        wake = await entities.later()
        await entities.written("new")
        await entities.asked("new", entities.offer(looping="a > b > a", depth=7))
        await entities.sleeping("asleep", wake=wake)
        await entities.offered("asleep", entities.offer(looping="a > b > a"))
        await entities.parked("parked")
        await entities.offered("parked", entities.offer(looping="a > b > a"))

        for name in ("new", "asleep", "parked"):
            row = await entities.row(name)
            assert (RowStatus.LOOPING, "a > b > a") == (row.status, row.error)
        assert [] == await entities.peeked()
        assert wake == (await entities.row("asleep")).timer_at
        assert 7 == (await entities.row("new")).depth

    async def test_a_proof_of_a_loop_does_not_park_what_is_ready(
        self, entities: GivenEntities
    ) -> None:
        """Something else readied it: that wake-up must not get lost."""
        claim = await entities.queued("ad")

        await entities.offered("ad", entities.offer(looping="a > b > a"))

        row = await entities.row("ad")
        assert (RowStatus.READY, claim.row.seq) == (row.status, row.seq)

    async def test_parked_rows_are_listed(self, store: Store, entities: GivenEntities) -> None:
        """In order of entity and stage, page by page, for one stage or all."""
        for name in ("b", "a"):
            await entities.parked(name)
            await entities.offered(name, entities.offer(OTHER_STAGE))
            claim = await entities.claim(name, OTHER_STAGE)
            await entities.set_back(claim, RowStatus.LOOPING)
        await entities.queued("well")

        rows = await store.queues.parked(prefix="", stage=None, after=None, limit=3)
        assert [("a", STAGE), ("a", OTHER_STAGE), ("b", STAGE)] == [
            (row.entity_key, row.stage) for row in rows
        ]
        rest = await store.queues.parked(prefix="", stage=None, after=("b", STAGE), limit=3)
        assert [("b", OTHER_STAGE)] == [(row.entity_key, row.stage) for row in rest]
        of_one = await store.queues.parked(prefix="", stage=OTHER_STAGE, after=None, limit=3)
        assert ["a", "b"] == [row.entity_key for row in of_one]

    async def test_release_frees_by_hand(
        self, store: Store, given: Given, entities: GivenEntities
    ) -> None:
        """Ready now, attempts and depth 0, in a chain of its own."""
        parked = await entities.parked("ad")

        assert 1 == await store.queues.release("ad", None, shard=given.shard_of("ad"))

        row = await entities.row("ad")
        assert (RowStatus.READY, MAIN, 0, 0) == (row.status, row.lane, row.attempts, row.depth)
        assert ("change", "by hand") == row.reasons
        assert parked.root != row.root
        assert parked.seq != row.seq
        assert ["ad"] == await entities.peeked()

    async def test_release_frees_what_is_named_and_parked(
        self, store: Store, given: Given, entities: GivenEntities
    ) -> None:
        """One stage of one entity, or all of them; what is ready stays as it is."""
        shard = given.shard_of("ad")
        await entities.parked("ad")
        await entities.offered("ad", entities.offer("ready"), entities.offer("other"))
        await entities.set_back(await entities.claim("ad", "other"), RowStatus.LOOPING)
        ready = await entities.row("ad", "ready")

        assert 0 == await store.queues.release("ad", "ready", shard=shard)
        assert 0 == await store.queues.release("no", None, shard=given.shard_of("no"))
        assert 1 == await store.queues.release("ad", STAGE, shard=shard)
        assert RowStatus.LOOPING is (await entities.row("ad", "other")).status
        assert 1 == await store.queues.release("ad", None, shard=shard)

        assert ready == await entities.row("ad", "ready")
        assert [] == list(await store.queues.parked(prefix="", stage=None, after=None, limit=9))
