"""Part of the suite: timers."""

from __future__ import annotations

from datetime import timedelta

from gnomon.contracts.store import Store
from gnomon.contracts.store.queues import RowStatus, StageLane
from tests.conformance.store.suite.entities.given import GivenEntities
from tests.conformance.store.suite.given import HOUR, Given, polls

MAIN = StageLane.MAIN


class TestTimers:
    """`fire`: timers that are due become ready rows."""

    async def test_a_timer_never_fires_early(self, entities: GivenEntities) -> None:
        """By the database's clock; and soon after it is due."""
        wake = await entities.later(timedelta(milliseconds=150))
        await entities.sleeping("later")
        await entities.sleeping("soon", wake=wake)

        async for _ in polls():
            if await entities.fire():
                break

        row = await entities.row("soon")
        assert row.ready_at is not None
        assert wake <= row.ready_at
        assert ["soon"] == await entities.peeked()
        assert RowStatus.SLEEPING is (await entities.row("later")).status

    async def test_a_fired_timer_is_a_row_with_a_chain_of_its_own(
        self, entities: GivenEntities
    ) -> None:
        """Reason `timer`, depth 0, a new root, in the main lane; the timer is consumed."""
        asleep = [
            await entities.sleeping(name, wake=await entities.earlier()) for name in ("a", "b")
        ]

        assert 2 == await entities.fire()

        rows = [await entities.row(name) for name in ("a", "b")]
        for row in rows:
            assert (RowStatus.READY, MAIN, None) == (row.status, row.lane, row.timer_at)
            assert (("timer",), 0, 0) == (row.reasons, row.depth, row.attempts)
        assert 4 == len({row.root for row in (*asleep, *rows)})
        assert asleep[0].seq != rows[0].seq

    async def test_it_fires_once_however_late(self, entities: GivenEntities) -> None:
        """After months of downtime it is one wake-up."""
        await entities.sleeping("ad", wake=await entities.earlier(timedelta(days=180)))

        assert [1, 0] == [await entities.fire(), await entities.fire()]
        claim = await entities.claim("ad")
        await entities.committed(claim)
        assert 0 == await entities.fire()
        assert {} == await entities.rows("ad")

    async def test_a_row_that_waits_gets_the_reason(self, entities: GivenEntities) -> None:
        """Merged like an offer: what runs now must look again."""
        claim = await entities.queued("ad", wake=await entities.earlier(), depth=4)
        assert claim.row.timer_at is not None

        assert 1 == await entities.fire()

        row = await entities.row("ad")
        assert (claim.row.seq + 1, ("change", "timer")) == (row.seq, row.reasons)
        assert (0, None, claim.row.ready_at) == (row.depth, row.timer_at, row.ready_at)
        assert claim.row.root != row.root

    async def test_parked_rows_keep_their_timers(
        self, store: Store, given: Given, entities: GivenEntities
    ) -> None:
        """And fire them when they are free."""
        await entities.parked("ad")
        wake = await entities.earlier()
        await entities.offered("ad", entities.offer(ready=False, wake=wake))

        assert 0 == await entities.fire()
        assert wake == (await entities.row("ad")).timer_at
        assert None is (await store.queues.next_work(await given.holdings())).timer_at
        await store.queues.release("ad", None, shard=given.shard_of("ad"))
        assert 1 == await entities.fire()

    async def test_the_earliest_fire_first(self, given: Given, entities: GivenEntities) -> None:
        """Of a shard; and no more at once than is wanted."""
        names = {hours: given.name_in(0) for hours in (2, 4, 1, 3)}
        for hours, name in names.items():
            await entities.sleeping(name, wake=await entities.earlier(hours * HOUR))

        assert 3 == await entities.fire(limit=3)

        assert RowStatus.SLEEPING is (await entities.row(names[1])).status
        assert 1 == await entities.fire(limit=3)

    async def test_only_the_owner_fires(
        self, store: Store, given: Given, entities: GivenEntities
    ) -> None:
        """Under the lease that the shard has."""
        await entities.sleeping("ad", wake=await entities.earlier())
        holding = await given.holding(given.shard_of("ad"))

        assert 0 == await store.queues.fire_timers([given.wrong(holding)], limit=9)
        assert 0 == await store.queues.fire_timers([], limit=9)
        assert RowStatus.SLEEPING is (await entities.row("ad")).status
        assert 1 == await store.queues.fire_timers([holding], limit=9)
