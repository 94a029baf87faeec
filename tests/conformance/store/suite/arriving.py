"""Part of the suite: arrive, the short way of what is due when it comes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from uuid import UUID, uuid4

from gnomon.contracts.store import ArrivalResult, HeldShard, Lane, Recorded, Store
from gnomon.model.spec import Mock
from tests.conformance.store.suite.given import HOUR, SECOND, Given


async def arrive(
    store: Store,
    holdings: Sequence[HeldShard],
    *,
    room: Mapping[str, int] | None = None,
    limit: int = 100,
    batch: UUID | None = None,
) -> ArrivalResult:
    return await store.work.move_and_begin(
        holdings,
        limit=limit,
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
