"""Part of the suite: lapsed and settle."""

from __future__ import annotations

import msgspec

from gnomon.contracts.store import Recorded, Store
from gnomon.model.action import State
from gnomon.model.outcome import Succeeded
from tests.conformance.store.suite.given import HOUR, SECOND, Given, every


class TestLapsed:
    """`lapsed`: what `begin` refuses."""

    async def test_an_attempt_past_its_reservation_lapses(self, given: Given) -> None:
        """With the attempt that ran, for the sweeper to decide."""
        begun = await given.overrun("frozen")

        lapsed = await given.lapsed("frozen")

        assert lapsed.running
        assert begun.guid == lapsed.guid
        assert begun.shard == lapsed.shard
        assert begun.spec == lapsed.spec
        assert 1 == lapsed.status.attempts
        assert lapsed.attempt is not None
        assert begun.attempt_id == lapsed.attempt.attempt_id
        assert begun.began_at == lapsed.attempt.began_at

    async def test_an_attempt_within_its_reservation_does_not(
        self, store: Store, given: Given
    ) -> None:
        """Nor does what is due and may begin, or is not due."""
        await given.begun()
        await given.moved()
        await given.moved(due_in=HOUR, expires_in=-SECOND)

        assert [] == list(await store.work.list_lapsed(await given.holdings(), limit=10))

    async def test_the_expired_lapse(self, given: Given) -> None:
        """Due, not begun, and too late for it."""
        await given.moved("late", expires_in=-SECOND)

        lapsed = await given.lapsed("late")

        assert not lapsed.running
        assert None is lapsed.attempt
        assert 0 == lapsed.status.attempts

    async def test_only_held_shards_are_looked_at(self, store: Store, given: Given) -> None:
        """What others hold is theirs."""
        await given.moved(given.name_in(0), expires_in=-SECOND)

        assert [] == list(await store.work.list_lapsed([await given.holding(1)], limit=10))

    async def test_no_more_than_the_limit(self, store: Store, given: Given) -> None:
        """The rest comes next time."""
        for _ in range(3):
            await given.moved(given.name_in(0), expires_in=-SECOND)

        assert 2 == len(await store.work.list_lapsed([await given.holding(0)], limit=2))


class TestSettle:
    """`settle`: the sweeper's and the expirer's pen."""

    async def test_an_interruption_is_counted_and_due_again(
        self, store: Store, given: Given
    ) -> None:
        """The row waits for its next attempt; the counters add up."""
        await given.swept("frozen")

        status = (await given.action("frozen")).status
        assert (1, 1) == (status.attempts, status.interrupted)
        assert None is status.current_attempt
        assert status.last_attempt is not None
        assert "interrupted" == status.last_attempt.outcome
        assert 2 == (await given.begun_once_due("frozen")).status.attempts
        assert [] == list(await store.installation.doctor())

    async def test_settling_twice_counts_once(self, store: Store, given: Given) -> None:
        """The fence is everything that was read."""
        await given.overrun("frozen")
        settlement = await given.settlement(await given.lapsed("frozen"))

        assert 1 == await store.work.settle([settlement])
        assert 0 == await store.work.settle([settlement])
        assert 1 == (await given.action("frozen")).status.interrupted

    async def test_a_result_that_came_first_wins(self, store: Store, given: Given) -> None:
        """What changed since it was read is skipped."""
        begun = await given.overrun("frozen", policy=every(HOUR))
        settlement = await given.settlement(await given.lapsed("frozen"))
        await given.recorded(begun)

        assert 0 == await store.work.settle([settlement])
        assert 0 == (await given.action("frozen")).status.interrupted

    async def test_an_extension_that_came_first_wins(self, store: Store, given: Given) -> None:
        """The attempt lives: its reservation is not the one that was read."""
        begun = await given.overrun("frozen")
        settlement = await given.settlement(await given.lapsed("frozen"))
        await store.work.extend([begun], window=HOUR, grace=SECOND)

        assert 0 == await store.work.settle([settlement])
        assert Recorded.APPLIED is await given.recorded(begun, Succeeded())

    async def test_a_newer_attempt_is_not_settled(self, store: Store, given: Given) -> None:
        """The attempt id is part of the fence."""
        await given.overrun("frozen")
        lapsed = await given.lapsed("frozen")
        settlement = await given.settlement(lapsed)
        assert lapsed.attempt is not None
        other = msgspec.structs.replace(lapsed.attempt, attempt_id=given.entropy.token())
        forged = msgspec.structs.replace(
            settlement, lapsed=msgspec.structs.replace(lapsed, attempt=other)
        )

        assert 0 == await store.work.settle([forged])
        assert 1 == await store.work.settle([settlement])

    async def test_a_row_that_runs_is_not_settled_as_waiting(
        self, store: Store, given: Given
    ) -> None:
        """Whether it ran when it was read is part of the fence."""
        await given.overrun("frozen")
        lapsed = await given.lapsed("frozen")
        waiting = msgspec.structs.replace(lapsed, running=False, attempt=None)

        assert 0 == await store.work.settle([await given.settlement(waiting)])
        assert 1 == await store.work.settle([await given.settlement(lapsed)])

    async def test_a_replaced_generation_is_skipped(self, store: Store, given: Given) -> None:
        """Its row is stale."""
        await given.overrun("frozen")
        settlement = await given.settlement(await given.lapsed("frozen"))
        await given.replaced("frozen", due_in=HOUR)

        assert 0 == await store.work.settle([settlement])

    async def test_several_are_settled_in_one_call(self, store: Store, given: Given) -> None:
        """How many were applied is the answer."""
        await given.overrun("one")
        await given.moved("two", expires_in=-SECOND)
        settlements = [await given.settlement(await given.lapsed(name)) for name in ("one", "two")]

        assert 2 == await store.work.settle(settlements)

    async def test_an_expired_one_shot_ends_as_expired(self, store: Store, given: Given) -> None:
        """Without an attempt that never was."""
        await given.moved("late", expires_in=-SECOND)

        await store.work.settle([await given.settlement(await given.lapsed("late"))])

        status = (await given.action("late")).status
        assert State.EXPIRED is status.state
        assert 0 == status.attempts
        assert [] == list(await store.actions.list_attempts("late", limit=10))
        assert 0 == await given.queue_row_count()

    async def test_an_expired_periodic_action_goes_on(self, store: Store, given: Given) -> None:
        """With its next occurrence, none counted as attempted."""
        await given.moved("beat", policy=every(HOUR), expires_in=-SECOND)
        settlement = await given.settlement(await given.lapsed("beat"))

        await store.work.settle([settlement])

        status = (await given.action("beat")).status
        assert State.ACTIVE is status.state
        assert 0 == status.attempts
        assert settlement.verdict.scheduled_at == status.scheduled_at
        assert settlement.verdict.occurrence_no == status.occurrence_no

    async def test_too_many_interruptions_are_the_end(self, store: Store, given: Given) -> None:
        """Dead, with the interruption in the log; a result after that is late."""
        begun = await given.swept("poison", interruptions_max=0)

        status = (await given.action("poison")).status
        (logged,) = await store.actions.list_attempts("poison", limit=10)
        assert State.DEAD is status.state
        assert (1, 1) == (status.attempts, status.interrupted)
        assert "interrupted" == logged.outcome
        assert Recorded.LATE is await given.recorded(begun)
