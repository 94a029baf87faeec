"""Part of the suite: arrive, the short way of what is due when it comes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from uuid import UUID, uuid4

from gnomon.contracts.store import ArrivalResult, HeldShard, Lane, Recorded, Store
from gnomon.model.errors import StoreUnavailable
from gnomon.model.outcome import Failed, Succeeded
from gnomon.model.spec import Mock
from tests.conformance.store.suite.given import HOUR, SECOND, Given, retrying


async def arrive(
    store: Store,
    holdings: Sequence[HeldShard],
    *,
    room: Mapping[str, int] | None = None,
    limit: int = 100,
    batch: UUID | None = None,
    newest: bool = False,
) -> ArrivalResult:
    return await store.work.move_and_begin(
        holdings,
        limit=limit,
        newest=newest,
        room={"default": 100} if room is None else room,
        batch=batch or uuid4(),
        owner="arriver",
        grace=timedelta(seconds=5),
        window=timedelta(minutes=1),
    )


class TestArrive:
    """`arrive`: move and begin in one step, by the rules of both."""

    async def test_what_is_due_is_begun_and_can_be_finished(
        self, store: Store, given: Given
    ) -> None:
        """The right to execute is the same as from `begin`."""
        action = await given.created()

        arrived = await arrive(store, await given.holdings())

        (begun,) = arrived.begun
        assert (action.meta.id, action.meta.guid) == (begun.id, begun.guid)
        assert 1 == begun.status.attempts
        assert begun.scheduled_at <= begun.began_at
        assert Mock() == begun.spec.action
        current = (await given.action(action.meta.id)).status.current_attempt
        assert current is not None
        assert begun.attempt_id == current.attempt_id
        assert Recorded.APPLIED is await given.recorded(begun)
        assert [] == list(await store.installation.doctor())

    async def test_it_is_begun_once(self, store: Store, given: Given) -> None:
        """Neither another arrival nor a begin finds it again."""
        await given.created()
        holdings = await given.holdings()

        assert 1 == len((await arrive(store, holdings)).begun)
        assert 0 == len((await arrive(store, holdings)).begun)
        assert [] == list((await given.begin()).begun)
        assert 1 == await given.queue_row_count()

    async def test_what_is_not_due_is_only_moved(self, store: Store, given: Given) -> None:
        """Its lane and time are told, as by `move`."""
        later = await given.created(given.name_in(0), due_in=HOUR)
        await given.created(given.name_in(1))

        arrived = await arrive(store, await given.holdings())

        assert 1 == len(arrived.begun)
        assert 2 == arrived.moved.count
        assert later.status.scheduled_at == arrived.moved.lanes[Lane(0, "default", 5)]

    async def test_only_what_is_due_begins_and_only_of_queues_with_room(
        self, store: Store, given: Given
    ) -> None:
        """Whatever arrived beside it in the same shard and lane; a retry waits in its own lane."""
        for number in range(12):
            await given.created(f"now{number}", priority=number % 2, retry=retrying(1))
            await given.created(f"later{number}", due_in=HOUR)
            await given.created(f"other{number}", queue="other")

        holdings = await given.holdings()
        arrived = await arrive(store, holdings, room={"default": 100})

        assert {f"now{number}" for number in range(12)} == {one.id for one in arrived.begun}
        assert 12 == len(arrived.begun)
        assert all(one.scheduled_at <= one.began_at for one in arrived.begun)
        for one in arrived.begun:
            assert Recorded.APPLIED is await given.recorded(one, Failed(error="no"))
        lanes = await store.work.list_lanes(holdings)
        own = {(one.shard, "default", one.spec.priority, "") for one in arrived.begun}
        assert own <= set(map(tuple, lanes))
        assert [] == list(await store.installation.doctor())

    async def test_no_more_is_begun_than_there_is_room(self, store: Store, given: Given) -> None:
        """The rest is moved and due; a queue without room is not begun at all."""
        for _ in range(5):
            await given.created(given.name_in(0))
        await given.created(given.name_in(1), queue="full")

        arrived = await arrive(store, await given.holdings(), room={"default": 2})

        assert ["default"] * 2 == [begun.spec.queue for begun in arrived.begun]
        assert {Lane(0, "default", 5), Lane(1, "full", 5)} == set(arrived.moved.lanes)
        assert 4 == len((await given.begin()).begun)

    async def test_the_limit_counts_for_each_shard(self, store: Store, given: Given) -> None:
        """What is behind it stays in the incoming queue, and `more` says so."""
        for _ in range(3):
            await given.created(given.name_in(0))
        holdings = await given.holdings()

        first = await arrive(store, holdings, limit=2)

        assert 2 == len(first.begun)
        assert first.moved.more
        assert 1 == len((await arrive(store, holdings, limit=2)).begun)

    async def test_each_shard_of_a_call_is_looked_at_by_itself(
        self, store: Store, given: Given
    ) -> None:
        """One gives all it has, one has something for later, one is somebody else's."""
        whole = [await given.created(given.name_in(0)) for _ in range(3)]
        mixed = [await given.created(given.name_in(1), priority=9) for _ in range(2)]
        later = await given.created(given.name_in(1), due_in=HOUR)
        await given.created(given.name_in(2))
        first, second, third, *others = await given.holdings()

        arrived = await arrive(store, [first, second, given.wrong(third), *others], limit=3)

        assert {each.meta.id for each in (*whole, *mixed)} == {one.id for one in arrived.begun}
        assert {0: 3, 1: 2} == Counter(one.shard for one in arrived.begun)
        assert 6 == arrived.moved.count
        assert {1} == {lane.shard for lane in arrived.moved.lanes}
        assert later.status.scheduled_at == arrived.moved.lanes[Lane(1, "default", 5)]
        assert arrived.moved.more  # of the first two, for all that is known
        assert 1 == await given.move()  # that of the third
        for one in arrived.begun:
            assert Recorded.APPLIED is await given.recorded(one)
        assert [] == list(await store.installation.doctor())

    async def test_without_the_lease_nothing_arrives(self, store: Store, given: Given) -> None:
        """A lease that is not the shard's neither moves nor begins."""
        await given.created(given.name_in(0))

        arrived = await arrive(store, [given.wrong(await given.holding(0))])

        assert (0, []) == (arrived.moved.count, list(arrived.begun))
        assert 1 == await given.move()

    async def test_an_old_generation_is_dropped_and_the_new_one_begun(
        self, store: Store, given: Given
    ) -> None:
        """After a replace is acknowledged its forerunner never begins."""
        old = await given.created()
        new = (await given.replaced(old.meta.id)).action

        arrived = await arrive(store, await given.holdings())

        assert [new.meta.guid] == [begun.guid for begun in arrived.begun]
        assert 1 == await given.queue_row_count()

    async def test_a_paused_action_does_not_begin(self, store: Store, given: Given) -> None:
        """Its row is of an old generation."""
        await given.paused()

        assert [] == list((await arrive(store, await given.holdings())).begun)

    async def test_what_expired_does_not_begin(self, store: Store, given: Given) -> None:
        """It is moved, and found by `lapsed`."""
        action = await given.created(due_in=-2 * SECOND, expires_in=-SECOND)
        holdings = await given.holdings()

        assert [] == list((await arrive(store, holdings)).begun)
        lapsed = await store.work.list_lapsed(holdings, limit=10)
        assert [action.meta.id] == [each.id for each in lapsed]

    async def test_a_lost_answer_is_recalled(self, store: Store, given: Given) -> None:
        """What the batch began is found again by its name."""
        batch = uuid4()
        await given.created()

        arrived = await arrive(store, await given.holdings(), batch=batch)

        recalled = await store.work.find_begun(given.shards, batch=batch)
        assert [arrived.begun[0].attempt_id] == [begun.attempt_id for begun in recalled]


class TestArrived:
    """Attempts begun on arrival, wherever the engine keeps their rows."""

    async def test_a_running_attempt_is_not_moved(self, store: Store, given: Given) -> None:
        """A move takes what is idle, whatever the mark."""
        await given.created()
        (begun,) = (await arrive(store, await given.holdings())).begun

        assert 0 == await given.move()
        assert Recorded.APPLIED is await given.recorded(begun)
        assert 0 == await given.queue_row_count()

    async def test_each_arrival_is_begun_by_one_caller(self, store: Store, given: Given) -> None:
        """Arrivals and moves of several stores at once: no row is begun twice, none is lost. (Red,
        if they look at rows that were begun before. What a row becomes between the look and the
        write is in tests/integration/postgres/test_in_place.py.) That several hold the same lease
        never is: they may well deadlock, which is safe to repeat."""
        await store.actions.create([await given.draft() for _ in range(60)])
        holdings = await given.holdings()

        async def drain(rival: Store) -> list[UUID]:
            found: list[UUID] = []
            while True:
                with suppress(StoreUnavailable):
                    arrived = await arrive(rival, holdings, limit=3)
                    found += [begun.guid for begun in arrived.begun]
                    moved = await rival.work.move(holdings, limit=1)
                    if not arrived.moved.count and not moved.count:
                        return found

        others = [await given.open_another() for _ in range(2)]
        drained = await asyncio.gather(*(drain(each) for each in (store, *others)))

        begun = [guid for found in drained for guid in found]
        begun += [each.guid for each in (await given.begin()).begun]
        assert 60 == len(begun) == len(set(begun))
        assert [] == list(await store.installation.doctor())

    async def test_a_failure_is_retried_from_the_processing_queue(
        self, store: Store, given: Given
    ) -> None:
        """What goes on is begun by `begin` from then on."""
        action = await given.created(retry=retrying(1))
        (begun,) = (await arrive(store, await given.holdings())).begun

        assert Recorded.APPLIED is await given.recorded(begun, Failed(error="no"))
        again = await given.begun_once_due(action.meta.id)
        assert 2 == again.status.attempts
        assert Recorded.APPLIED is await given.recorded(again)
        assert [] == list(await store.installation.doctor())

    async def test_what_was_attempted_before_begins_with_its_next_attempt(
        self, store: Store, given: Given
    ) -> None:
        """It arrives again: somebody wants it now."""
        action = await given.created(retry=retrying(3))
        holdings = await given.holdings()
        (begun,) = (await arrive(store, holdings)).begun
        assert Recorded.APPLIED is await given.recorded(begun, Failed(error="no"))
        await store.actions.run_now(action.meta.id, given.entropy.guid(), if_match=None)

        arrived = (await arrive(store, holdings)).begun  # or it is only moved
        (again,) = [*arrived, *(await given.begin()).begun]

        assert (2, 1) == (again.status.attempts, again.status.failed)
        assert Recorded.APPLIED is await given.recorded(again)
        assert 2 == (await given.action(action.meta.id)).status.attempts
        assert [] == list(await store.installation.doctor())

    async def test_a_late_result_takes_the_old_row_along(self, store: Store, given: Given) -> None:
        """Replaced while it ran: the new generation's row is all that is left."""
        old = await given.created()
        (begun,) = (await arrive(store, await given.holdings())).begun
        assert begun.attempt_id == (await given.replaced(old.meta.id)).in_flight.attempt_id  # type: ignore[union-attr]

        assert 2 == await given.queue_row_count()
        assert Recorded.LATE is await given.recorded(begun)
        assert 1 == await given.queue_row_count()

    async def test_an_answer_is_kept(self, store: Store, given: Given) -> None:
        """As of any other success."""
        action = await given.created()
        (begun,) = (await arrive(store, await given.holdings())).begun

        assert Recorded.APPLIED is await given.recorded(begun, Succeeded(answer="42"))
        last = (await given.action(action.meta.id)).status.last_attempt
        assert last is not None
        assert ("42", begun.attempt_id) == (last.answer, last.attempt_id)
        assert Recorded.REPEATED is await given.recorded(begun, Succeeded(answer="42"))

    async def test_what_waits_is_mixed_or_not(self, store: Store, given: Given) -> None:
        """Of several queues or priorities; what runs already does not count."""
        await given.created(queue="other")
        await arrive(store, await given.holdings(), room={"other": 1})
        for _ in range(3):
            await given.created()
        holdings = await given.holdings()

        assert not await store.work.is_mixed(holdings, limit=10)
        await given.created(priority=1)
        assert await store.work.is_mixed(holdings, limit=10)


class TestNewest:
    """`move_and_begin` of the newest rows: what is due behind a backlog that is not."""

    async def test_what_is_due_is_begun_and_the_backlog_stays(
        self, store: Store, given: Given
    ) -> None:
        """Where its live rows begin is not told: they were passed by."""
        for _ in range(3):
            await given.created(given.name_in(0), due_in=HOUR)
        due = await given.created(given.name_in(0))
        holdings = await given.holdings()

        arrived = await arrive(store, holdings, limit=2, newest=True)

        assert [due.meta.id] == [begun.id for begun in arrived.begun]
        assert 1 == arrived.moved.count
        assert ({}, False) == (dict(arrived.moved.marks), arrived.moved.more)
        assert Recorded.APPLIED is await given.recorded(arrived.begun[0])
        assert 3 == await given.move()
        assert [] == list(await store.installation.doctor())

    async def test_no_more_rows_are_looked_at_than_asked_for(
        self, store: Store, given: Given
    ) -> None:
        """What is due before them is found by the looks at the oldest."""
        due = await given.created(given.name_in(0))
        for _ in range(3):
            await given.created(given.name_in(0), due_in=HOUR)
        holdings = await given.holdings()

        assert [] == list((await arrive(store, holdings, limit=3, newest=True)).begun)
        found = (await arrive(store, holdings, limit=1)).begun
        assert [due.meta.id] == [begun.id for begun in found]

    async def test_no_more_is_taken_than_there_is_room(self, store: Store, given: Given) -> None:
        """A flood of due rows is not moved for it; nor is what belongs to another queue."""
        await given.created(given.name_in(0), queue="mail")
        await store.actions.create([await given.draft(given.name_in(0)) for _ in range(9)])
        await given.created(given.name_in(0), queue="mail")
        holdings = await given.holdings()

        arrived = await arrive(store, holdings, room={"default": 2}, newest=True)

        assert (2, 2) == (arrived.moved.count, len(arrived.begun))
        assert 9 == await given.move()

    async def test_without_the_lease_it_stays(self, store: Store, given: Given) -> None:
        """As by any arrival."""
        await given.created(given.name_in(0))
        holding = await given.holding(0)

        arrived = await arrive(store, [given.wrong(holding)], newest=True)

        assert (0, []) == (arrived.moved.count, list(arrived.begun))
        assert 1 == len((await arrive(store, [holding], newest=True)).begun)
