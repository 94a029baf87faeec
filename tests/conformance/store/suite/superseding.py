"""Part of the suite: what a change leaves in the queues, and what stands at the head of a lane."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from gnomon.contracts.store import Recorded, Store
from gnomon.model.action import State
from gnomon.model.outcome import Failed
from tests.conformance.store.suite.given import HOUR, OWNER, SECOND, Given, every, retrying

IN_VAIN = 450  # more rows than are looked at in one go


class TestSuperseded:
    """A change takes the row of its old generation with it, long before its time."""

    async def test_a_deleted_action_leaves_no_row(self, store: Store, given: Given) -> None:
        """A cancelled campaign is not in the way when its moment comes."""
        await given.moved("campaign", due_in=HOUR)

        await store.actions.delete("campaign", if_match=None)

        assert 0 == await given.queue_row_count()

    async def test_a_replacement_leaves_its_own_row_only(self, given: Given) -> None:
        """What is replaced every day does not pile up."""
        await given.moved("plan", due_in=HOUR)
        for _ in range(3):
            await given.replaced("plan", due_in=HOUR)
            await given.move()

        assert 1 == await given.queue_row_count()

    async def test_a_paused_action_leaves_no_row(self, store: Store, given: Given) -> None:
        """It has no time while it rests; resumed it has one row again."""
        await given.moved("plan", due_in=HOUR)

        changed = await store.actions.pause("plan", given.entropy.guid(), if_match=None)

        assert State.PAUSED is changed.action.status.state
        assert 0 == await given.queue_row_count()

    async def test_run_now_leaves_the_new_row_only(self, store: Store, given: Given) -> None:
        """The row of the time that was planned goes."""
        await given.moved("plan", due_in=HOUR)
        await store.actions.run_now("plan", given.entropy.guid(), if_match=None)

        assert 1 == await given.queue_row_count()
        await given.move()
        assert ["plan"] == [begun.id for begun in (await given.begin()).begun]

    async def test_a_row_that_waits_for_its_retry_goes_too(
        self, store: Store, given: Given
    ) -> None:
        """It is idle between two attempts."""
        begun = await given.begun("plan", retry=retrying(3))
        finish = await given.finish_of(begun, Failed(error="no"))
        await store.work.finish([finish], owner="w")

        await store.actions.delete("plan", if_match=None)

        assert 0 == await given.queue_row_count()
        assert [Recorded.REPEATED] == list(await store.work.finish([finish], owner="w"))

    async def test_an_attempt_in_flight_keeps_its_row_until_it_ends(
        self, store: Store, given: Given
    ) -> None:
        """Its result is late, and takes the row with it."""
        begun = await given.begun("plan", policy=every(HOUR))
        await store.actions.delete("plan", if_match=None)
        assert 1 == await given.queue_row_count()

        assert Recorded.LATE is await given.recorded(begun)

        assert 0 == await given.queue_row_count()

    async def test_an_attempt_that_never_ends_loses_its_row(
        self, store: Store, given: Given
    ) -> None:
        """Once its reservation is over; it lapses for nobody."""
        begun = await given.overrun("plan")
        await given.lapsed("plan")
        await store.actions.delete(begun.id, if_match=None)

        assert [] == list(await store.work.list_lapsed(await given.holdings(), limit=10))
        assert 1 == await store.work.delete_stale(await given.holdings(), limit=10)
        assert 0 == await given.queue_row_count()

    async def test_what_was_left_behind_is_dropped_when_it_is_due(
        self, store: Store, given: Given
    ) -> None:
        """A row that was being moved while its generation ended. The living stay."""
        await given.moved("there")
        await given.moved("later", due_in=HOUR)
        await _leave_behind(given)
        assert 4 == await given.queue_row_count()

        dropped = await store.work.delete_stale(await given.holdings(), limit=10)

        assert 1 == dropped
        assert 3 == await given.queue_row_count()
        assert 0 == await store.work.delete_stale(await given.holdings(), limit=10)


class TestSeries:
    """Delivery keys are made of the series, which outlives pause, resume and run now."""

    async def test_an_occurrence_keeps_its_series_over_pause_and_resume(
        self, store: Store, given: Given
    ) -> None:
        """Also if an attempt was under way, and more than once."""
        first = await given.begun("plan", policy=every(HOUR))
        assert None is first.series
        for _ in range(2):
            await store.actions.pause("plan", given.entropy.guid(), if_match=None)
            await _resume(store, given, "plan")
            await given.move()

        again = await given.begun_once_due("plan")

        assert first.guid != again.guid
        assert first.guid == again.series
        assert first.status.occurrence_no == again.status.occurrence_no

    async def test_run_now_keeps_the_series(self, store: Store, given: Given) -> None:
        """It is the same action, at another time."""
        action = await given.moved("plan", due_in=HOUR)
        await store.actions.run_now("plan", given.entropy.guid(), if_match=None)
        await given.move()

        assert action.meta.guid == (await given.begun_once_due("plan")).series

    async def test_a_replacement_begins_a_series(self, store: Store, given: Given) -> None:
        """New spec, new keys: whatever was paused before."""
        await given.moved("plan", due_in=HOUR)
        await store.actions.pause("plan", given.entropy.guid(), if_match=None)
        await given.replaced("plan")
        await given.move()

        assert None is (await given.begun_once_due("plan")).series

    async def test_the_short_way_and_a_recall_tell_the_series(
        self, store: Store, given: Given
    ) -> None:
        """However an attempt begins, its key is the same."""
        action = await given.created("plan")
        await store.actions.pause("plan", given.entropy.guid(), if_match=None)
        await _resume(store, given, "plan")
        batch = given.entropy.token()
        arrived = await store.work.move_and_begin(
            await given.holdings(), limit=10, room={"default": 10}, batch=batch, owner=OWNER,
            grace=HOUR, window=HOUR,
        )  # fmt: skip

        (begun,) = arrived.begun
        (recalled,) = await store.work.find_begun(given.shards, batch=batch)

        assert action.meta.guid == begun.series
        assert action.meta.guid == recalled.series


class TestBlockedHead:
    """Rows that cannot be begun, by the hundred: what comes due behind them does not wait."""

    async def test_expired_rows_do_not_hold_up_what_is_due(
        self, store: Store, given: Given
    ) -> None:
        """After an outage the head of a lane is full of them."""
        expired = [
            await given.draft(given.name_in(0), due_in=-HOUR, expires_in=-SECOND)
            for _ in range(IN_VAIN)
        ]
        await store.actions.create([*expired, await given.draft(given.name_in(0, "fresh"))])
        await given.move()

        result = await given.begin()

        (begun,) = result.begun
        assert begun.id.startswith("fresh")
        assert 1 == len(result.refused)

    async def test_what_stands_between_them_is_found_by_going_on(
        self, store: Store, given: Given
    ) -> None:
        """Neither the oldest nor the newest: the next look begins where the last one ended."""
        await self._expect_the_middle(store, given, step=timedelta(milliseconds=1))

    async def test_what_stands_between_many_of_one_moment_is_found(
        self, store: Store, given: Given
    ) -> None:
        """A look that saw rows of one moment only goes on behind that moment."""
        await self._expect_the_middle(store, given, step=timedelta(0))

    async def _expect_the_middle(self, store: Store, given: Given, *, step: timedelta) -> None:
        drafts = [
            await given.draft(given.name_in(0), due_in=due_in + n * step, expires_in=-SECOND)
            for due_in in (-HOUR, -9 * SECOND)
            for n in range(IN_VAIN)
        ]
        fresh = await given.draft(given.name_in(0, "fresh"), due_in=-60 * SECOND)
        await store.actions.create([*drafts, fresh])
        await given.move()

        (demand,) = await given.demands(limit=5)
        looks, names = 0, list[str]()
        while not names:
            looks += 1
            result = await given.begin([demand])
            names = [begun.id for begun in result.begun]
            if not names:
                demand = replace(demand, since=result.reached[demand.lane])

        assert [fresh.id] == names
        assert looks in {2, 3}

    async def test_what_is_begun_behind_them_is_not_begun_twice(
        self, store: Store, given: Given
    ) -> None:
        """The newest rows are begun until there are none."""
        expired = [
            await given.draft(given.name_in(0), due_in=-HOUR, expires_in=-SECOND)
            for _ in range(IN_VAIN)
        ]
        fresh = [await given.draft(given.name_in(0, "fresh")) for _ in range(3)]
        await store.actions.create([*expired, *fresh])
        await given.move()

        names: list[str] = []
        for _ in range(4):
            names += [begun.id for begun in (await given.begin(limit=1)).begun]

        assert {draft.id for draft in fresh} == set(names)
        assert 3 == len(names)

    async def test_expired_rows_are_settled_in_the_end(self, store: Store, given: Given) -> None:
        """All of them, a batch at a time, and then the lane is as new."""
        expired = [
            await given.draft(given.name_in(0), due_in=-HOUR, expires_in=-SECOND)
            for _ in range(IN_VAIN)
        ]
        await store.actions.create(expired)
        await given.move()

        rounds = 0
        while found := await store.work.list_lapsed(await given.holdings(), limit=200):
            settlements = [await given.settlement(lapsed) for lapsed in found]
            assert len(found) == await store.work.settle(settlements)
            rounds += 1

        assert 3 == rounds
        assert 0 == await given.queue_row_count()


async def _resume(store: Store, given: Given, name: str) -> None:
    await store.actions.resume(
        name, given.entropy.guid(), decide=lambda _, now: (now, now, None), if_match=None
    )


async def _leave_behind(given: Given) -> None:
    """What a move leaves that saw a generation just before it ended."""
    await given.moved("gone")
    await given.moved("gone-later", due_in=timedelta(hours=2))
    for name in ("gone", "gone-later"):
        await given.execute_raw(f"DELETE FROM scheduled_action WHERE id = '{name}'")
