"""Part of the suite: move, survey, waiting."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from gnomon.contracts.store import HeldShard, Lane, OpenTransactions, Store
from tests.conformance.store.suite.arriving import arrive
from tests.conformance.store.suite.given import HOUR, NOTHING, SECOND, Given, polls


def _open(found: OpenTransactions) -> set[int]:
    return {*found.ids, *range(found.start, found.stop)}


class TestMove:
    """`move`: from the incoming to the processing queue."""

    async def test_a_row_is_moved_once(self, store: Store, given: Given) -> None:
        """Moving again finds nothing, and the row is in one queue only."""
        await given.created()
        holdings = await given.holdings()

        first = await store.work.move(holdings, limit=10)
        second = await store.work.move(holdings, limit=10)

        assert 1 == first.count
        assert 0 == second.count
        assert 1 == await given.queue_row_count()

    async def test_nothing_is_held_nothing_is_moved(self, store: Store, given: Given) -> None:
        """No holdings, no rows."""
        await given.created()

        moved = await store.work.move([], limit=10)

        assert 0 == moved.count
        assert not moved.more
        assert {} == dict(moved.lanes)

    async def test_without_the_lease_rows_stay(self, store: Store, given: Given) -> None:
        """A lease that is not the shard's moves nothing, next to one that does."""
        theirs = await given.created(given.name_in(0))
        ours = await given.created(given.name_in(1))
        holdings = [given.wrong(await given.holding(0)), await given.holding(1)]

        moved = await store.work.move(holdings, limit=10)

        assert 1 == moved.count
        assert [ours.meta.id] == [begun.id for begun in (await given.begin()).begun]
        assert 1 == await given.move()
        assert [theirs.meta.id] == [begun.id for begun in (await given.begin()).begun]

    async def test_the_lanes_that_got_rows_are_told_with_their_earliest_time(
        self, store: Store, given: Given
    ) -> None:
        """One entry for each shard, queue and priority."""
        soon = await given.created(given.name_in(0), queue="mail", due_in=SECOND)
        await given.created(given.name_in(0), queue="mail", due_in=HOUR)
        urgent = await given.created(given.name_in(0), queue="mail", priority=0, due_in=HOUR)
        other = await given.created(given.name_in(1), due_in=2 * HOUR)

        moved = await store.work.move(await given.holdings(), limit=10)

        assert 4 == moved.count
        assert {
            Lane(0, "mail", 5): soon.status.scheduled_at,
            Lane(0, "mail", 0): urgent.status.scheduled_at,
            Lane(1, "default", 5): other.status.scheduled_at,
        } == dict(moved.lanes)

    async def test_the_oldest_are_moved_first_and_no_more_than_the_limit(
        self, store: Store, given: Given
    ) -> None:
        """The limit counts for each shard; `more` says that it was reached."""
        names = [(await given.created(given.name_in(0))).meta.id for _ in range(5)]
        await given.created(given.name_in(1))
        holdings = await given.holdings()

        moved = await store.work.move(holdings, limit=2)

        assert 3 == moved.count
        assert moved.more
        begun = {each.id for each in (await given.begin()).begun if each.shard == 0}
        assert set(names[:2]) == begun
        assert 2 == (await store.work.move(holdings, limit=2)).count
        last = await store.work.move(holdings, limit=2)
        assert 1 == last.count
        assert not last.more

    async def test_the_limit_holds_within_one_bulk(self, store: Store, given: Given) -> None:
        """Rows that were created at the same moment are no exception."""
        await store.actions.create([await given.draft(given.name_in(0)) for _ in range(7)])

        moved = await store.work.move([await given.holding(0)], limit=3)

        assert 3 == moved.count
        assert 4 == await given.move()

    async def test_old_generations_are_dropped(self, store: Store, given: Given) -> None:
        """Rows of replaced, paused and deleted actions leave the queue without being moved."""
        for name in ("replaced", "paused", "deleted"):
            await given.created(name)
        await given.replaced("replaced")
        await store.actions.pause("paused", given.entropy.guid(), if_match=None)
        await store.actions.delete("deleted", if_match=None)

        assert 1 == await given.move()
        assert 1 == await given.queue_row_count()

    async def test_without_a_mark_all_rows_are_looked_at(self, store: Store, given: Given) -> None:
        """Rows of transactions that committed late are found, however old."""
        await given.created(given.name_in(0))
        holding = msgspec.structs.replace(await given.holding(0), incoming_mark=None)

        moved = await store.work.move([holding], limit=10)

        assert 1 == moved.count

    async def test_with_its_new_marks_later_rows_are_found(
        self, store: Store, given: Given
    ) -> None:
        """A mark never hides what is created after the move that gave it."""
        holding = await given.holding(0)
        for _ in range(3):
            await given.created(given.name_in(0))
            moved = await store.work.move([holding], limit=10)
            mark = moved.marks.get(0, holding.incoming_mark)
            holding = msgspec.structs.replace(holding, incoming_mark=mark)
            assert 1 == moved.count


class TestWaiting:
    """`waiting`: a cheap poll."""

    async def test_shards_with_incoming_rows_are_told(self, store: Store, given: Given) -> None:
        """Only the held ones, and only until they are moved."""
        await given.created(given.name_in(0))
        await given.created(given.name_in(1))
        holdings = [await given.holding(shard) for shard in (0, 2)]

        before = set((await store.work.poll(holdings)).shards)
        await given.move()
        after = set((await store.work.poll(holdings)).shards)

        assert {0} == before
        assert set() == after

    async def test_a_transaction_is_named_until_its_rows_can_be_seen(
        self, store: Store, given: Given
    ) -> None:
        """Or the engine finds them whatever the mark, or says that it cannot tell."""
        if given.caller_transaction is None:
            return
        holding = await given.holding(0)
        async with given.caller_transaction() as transaction:
            draft = await given.draft(given.name_in(0))
            await store.joining(transaction.connection).create([draft])
            before = await store.work.poll([holding])
            await transaction.commit()
        after = await store.work.poll([holding])

        assert ([], [0]) == (list(before.shards), list(after.shards))
        assert before.now <= after.now
        if before.open is None or after.open is None:
            assert not store.capabilities.many_shards
        elif store.capabilities.parallel_writers:
            assert _open(before.open) - _open(after.open)


class TestMoveSilent:
    """`move_silent`: what a helper may move."""

    async def moved(self, store: Store, *, silent: timedelta) -> int:
        """How many rows of shard 0 a helper moves, as soon as they are old enough for it."""
        async for _ in polls():
            moved = await store.work.move_silent([0], limit=10, silent=silent)
            assert {} == dict(moved.marks)
            if moved.count:
                return moved.count
        return 0

    async def test_rows_of_a_free_shard_are_moved(self, store: Store, given: Given) -> None:
        """And lie in the processing queue for whoever begins them; the owner finds no second."""
        action = await given.created(given.name_in(0))

        assert 1 == await self.moved(store, silent=HOUR)
        assert action.meta.created_at + SECOND <= await given.now()
        assert 0 == await given.move()
        assert [action.meta.id] == [begun.id for begun in (await given.begin()).begun]

    async def test_rows_of_a_silent_owner_are_moved(self, store: Store, given: Given) -> None:
        """The lease is still there, the heartbeat is not."""
        await given.holding(0)
        await given.created(given.name_in(0))

        assert 1 == await self.moved(store, silent=NOTHING)
        assert 0 == await given.move()
        assert [] == list(await store.installation.doctor())

    async def test_rows_of_an_owner_that_lives_are_not(self, store: Store, given: Given) -> None:
        """However old they are."""
        await given.created(given.name_in(0))
        free = await given.created(given.name_in(1))
        await given.holding(0)
        moved = await store.work.move_silent([0, 1], limit=10, silent=HOUR)
        async for _ in polls():  # the free one tells that both are old enough
            if moved.count:
                break
            moved = await store.work.move_silent([0, 1], limit=10, silent=HOUR)

        assert [free.meta.shard] == [lane.shard for lane in moved.lanes]
        assert 1 == await given.move()

    async def test_old_generations_are_dropped_here_too(self, store: Store, given: Given) -> None:
        """As by any move."""
        name = given.name_in(0)
        await given.created(name)
        await given.replaced(name)

        assert 1 == await self.moved(store, silent=HOUR)
        assert 1 == await given.queue_row_count()


class TestClockSetBack:
    """Marks that the database's clock has not come to."""

    async def ahead(self, given: Given) -> HeldShard:
        mark = await given.now() + HOUR
        return msgspec.structs.replace(await given.holding(0), incoming_mark=mark)

    async def test_a_mark_ahead_of_the_clock_hides_nothing_from_a_poll(
        self, store: Store, given: Given
    ) -> None:
        """What is created from now on is found."""
        await given.created(given.name_in(0))

        assert [0] == list((await store.work.poll([await self.ahead(given)])).shards)

    async def test_a_move_mends_a_mark_ahead_of_the_clock(self, store: Store, given: Given) -> None:
        """It finds what is there, and its new mark is of the present."""
        await given.created(given.name_in(0))

        moved = await store.work.move([await self.ahead(given)], limit=10)

        assert 1 == moved.count
        assert moved.marks[0] <= moved.now

    async def test_an_arrival_mends_it_too(self, store: Store, given: Given) -> None:
        """The short way goes by the same rule."""
        await given.created(given.name_in(0))

        arrived = await arrive(store, [await self.ahead(given)])

        assert 1 == len(arrived.begun)
        assert arrived.moved.marks[0] <= arrived.moved.now


class TestSurvey:
    """`survey`: every lane."""

    async def test_every_lane_is_told_with_its_earliest_time(
        self, store: Store, given: Given
    ) -> None:
        """Due or not; shards that are not asked for are left out."""
        first = await given.created(given.name_in(0), queue="b", priority=9)
        await given.created(given.name_in(0), queue="b", priority=9, due_in=HOUR)
        second = await given.created(given.name_in(0), queue="a", due_in=HOUR)
        await given.created(given.name_in(1))
        await given.move()

        lanes = await store.work.list_lanes([await given.holding(0), await given.holding(3)])

        assert {
            Lane(0, "b", 9): first.status.scheduled_at,
            Lane(0, "a", 5): second.status.scheduled_at,
        } == dict(lanes)
