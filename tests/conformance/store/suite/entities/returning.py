"""Part of the suite: claims that did not come to a commit."""

from __future__ import annotations

import msgspec

from gnomon.contracts.store import Store
from gnomon.contracts.store.queues import ReturnedKind, RowStatus, StageLane
from tests.conformance.store.suite.entities.given import GivenEntities
from tests.conformance.store.suite.given import HOUR, Given


class TestSetBack:
    """`set_back`: a claim that did not come to a commit."""

    async def test_ready_after_a_delay(self, given: Given, entities: GivenEntities) -> None:
        """In its lane, with its reasons; a failure is counted, with its error."""
        claim = await entities.queued("ad", lane=StageLane.BACKGROUND)
        before = await given.now()

        assert await entities.set_back(
            claim, RowStatus.READY, delay=HOUR, counts=True, error="timeout"
        )

        row = await entities.row("ad")
        assert (RowStatus.READY, StageLane.BACKGROUND) == (row.status, row.lane)
        assert row.ready_at is not None
        assert before + HOUR <= row.ready_at <= await given.now() + HOUR
        assert (1, "timeout", ("change",)) == (row.attempts, row.error, row.reasons)
        assert claim.row.first_at == row.first_at

    async def test_what_is_not_its_fault_does_not_count(self, entities: GivenEntities) -> None:
        """An outage of the stage burns no attempts."""
        claim = await entities.queued("ad")
        await entities.set_back(claim, RowStatus.READY, error="unavailable")

        row = await entities.row("ad")
        assert (0, "unavailable") == (row.attempts, row.error)
        assert ["ad"] == await entities.peeked()

    async def test_attempts_add_up(self, entities: GivenEntities) -> None:
        """Until a success."""
        claim = await entities.queued("ad")
        for _ in range(3):
            await entities.set_back(claim, RowStatus.READY, counts=True, error="no")
            claim = await entities.claim("ad")

        assert 3 == claim.row.attempts

    async def test_parked(self, entities: GivenEntities) -> None:
        """Quarantined or looping, with the reason why; its timer stays."""
        wake = await entities.later()
        for status in (RowStatus.QUARANTINED, RowStatus.LOOPING):
            claim = await entities.queued(str(status), wake=wake)
            assert await entities.set_back(claim, status, counts=True, error="poison")

            row = await entities.row(str(status))
            assert (status, "poison", 1, wake) == (
                row.status, row.error, row.attempts, row.timer_at,
            )  # fmt: skip
        assert [] == await entities.peeked()

    async def test_not_wanted_drops_the_row(self, entities: GivenEntities) -> None:
        """But keeps its timer: then it sleeps."""
        wake = await entities.later()
        claim = await entities.queued("ad")
        timed = await entities.queued("timed", wake=wake)

        assert await entities.set_back(claim, None)
        assert await entities.set_back(timed, None)

        assert {} == await entities.rows("ad")
        row = await entities.row("timed")
        assert (RowStatus.SLEEPING, wake, ()) == (row.status, row.timer_at, row.reasons)

    async def test_a_timer_is_armed_at_the_earlier_of_the_two(
        self, entities: GivenEntities
    ) -> None:
        """`should_process` asked for it when it was asked again."""
        wake = await entities.later()
        claim = await entities.queued("new")
        await entities.set_back(claim, None, wake=wake)
        assert wake == (await entities.row("new")).timer_at
        for name, moment in (("later", wake + HOUR), ("earlier", wake - HOUR)):
            claim = await entities.queued(name, wake=wake)
            await entities.set_back(claim, None, wake=moment)
            assert min(wake, moment) == (await entities.row(name)).timer_at

    async def test_a_row_whose_seq_moved_stays_ready(self, entities: GivenEntities) -> None:
        """Whatever it should have become; only the attempt and its error are written."""
        for status in (None, RowStatus.READY, RowStatus.QUARANTINED, RowStatus.LOOPING):
            name = str(status)
            claim = await entities.queued(name)
            await entities.offered(name, entities.offer(reason="meanwhile"))
            waiting = await entities.row(name)

            assert not await entities.set_back(
                claim, status, delay=HOUR, counts=True, error="no", wake=await entities.later()
            )

            row = await entities.row(name)
            assert msgspec.structs.replace(waiting, attempts=1, error="no") == row

    async def test_a_lost_lease_writes_nothing(self, given: Given, entities: GivenEntities) -> None:
        """The row is another owner's."""
        claim = await entities.queued("ad")

        assert not await entities.set_back(
            claim, None, lease_guid=given.entropy.token(), counts=True, error="no"
        )

        assert claim.row == await entities.row("ad")

    async def test_a_row_that_is_gone_stays_gone(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """And holds up no other."""
        gone = await entities.queued("gone")
        await entities.deleted(gone.entity)
        claim = await entities.queued("ad")
        rows = [
            await entities.set_back_of(gone, RowStatus.READY, counts=True),
            await entities.set_back_of(claim, None),
        ]

        told = await store.queues.give_back(rows)
        assert [ReturnedKind.STALE, ReturnedKind.WRITTEN] == list(told)

        assert {} == await entities.rows("gone")
        assert {} == await entities.rows("ad")
