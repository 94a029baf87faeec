"""Part of the suite: many at once, one winner."""

from __future__ import annotations

import asyncio
from collections import Counter

from gnomon.contracts.store import LeaseRequest, Recorded, Store
from gnomon.model.action import State
from gnomon.model.errors import Conflict
from tests.conformance.store.suite.given import (
    HOUR,
    OWNER,
    SECOND,
    Given,
    every,
    polls,
    refusal,
)

RIVALS = 4


async def rivals(store: Store, given: Given) -> list[Store]:
    """Stores as several processes have them, where the engine can be shared."""
    return [store] + [await given.open_another() for _ in range(RIVALS - 1)]


class TestRaces:
    """Several stores on one database, the same thing at the same time."""

    async def test_each_row_is_begun_by_one_caller(self, store: Store, given: Given) -> None:
        """Many callers begin the same lanes; together they get every row once."""
        await store.actions.create([await given.draft() for _ in range(60)])
        await given.move()
        demands = await given.demands(limit=10)

        async def drain(rival: Store) -> list[str]:
            names: list[str] = []
            while True:
                result = await rival.work.begin(
                    demands, batch=given.entropy.token(), owner=OWNER,
                    grace=HOUR, window=HOUR, silent=HOUR,
                )  # fmt: skip
                if not result.begun:
                    return names
                names += [begun.id for begun in result.begun]

        drained = await asyncio.gather(*(drain(rival) for rival in await rivals(store, given)))

        counted = Counter(name for names in drained for name in names)
        assert {1} <= set(counted.values())
        assert 1 == max(counted.values())
        assert 60 == len(counted) + len((await given.begin()).begun)

    async def test_each_row_is_moved_by_one_mover(self, store: Store, given: Given) -> None:
        """Two movers with the same lease do not double a row."""
        await store.actions.create([await given.draft() for _ in range(40)])
        holdings = await given.holdings()

        moved = await asyncio.gather(
            *(rival.work.move(holdings, limit=1_000) for rival in await rivals(store, given))
        )

        assert 40 == sum(each.count for each in moved) + await given.move()
        assert 40 == await given.queue_row_count()
        assert [] == list(await store.installation.doctor())

    async def test_a_shard_is_acquired_by_one(self, store: Store, given: Given) -> None:
        """All saw it free; one has it."""
        seen = next(lock for lock in await store.leases.list_locks() if lock.shard == 0)

        held = await asyncio.gather(
            *(
                rival.leases.acquire(
                    [LeaseRequest(seen=seen, lease_guid=given.entropy.token())],
                    owner="r",
                    lease_for=10 * SECOND,
                )
                for rival in await rivals(store, given)
            )
        )

        assert 1 == sum(map(len, held))

    async def test_an_id_is_created_by_one(self, store: Store, given: Given) -> None:
        """The others are told that it exists."""
        drafts = [await given.draft("wanted") for _ in range(RIVALS)]
        stores = await rivals(store, given)

        answers = await asyncio.gather(
            *(rival.actions.create([draft]) for rival, draft in zip(stores, drafts, strict=True))
        )

        assert 1 == sum(answer[0] is not None for answer in answers)
        assert 1 == await given.move()

    async def test_a_keyed_create_is_applied_once(self, store: Store, given: Given) -> None:
        """Everybody gets the action, one of them new."""
        draft = await given.draft("keyed", keyed=True)

        answers = await asyncio.gather(
            *(rival.actions.create([draft]) for rival in await rivals(store, given))
        )

        found = [answer[0] for answer in answers]
        assert {draft.guid} == {each.action.meta.guid for each in found if each is not None}
        assert RIVALS - 1 == sum(each.repeated for each in found if each is not None)
        assert 1 == await given.move()

    async def test_a_generation_is_replaced_by_one(self, store: Store, given: Given) -> None:
        """All match the same guid; one wins, the others are in conflict."""
        action = await given.created("plan")
        drafts = [await given.draft("plan") for _ in range(RIVALS)]
        stores = await rivals(store, given)

        errors = await asyncio.gather(
            *(
                refusal(rival.actions.replace(draft, if_match=action.meta.guid))
                for rival, draft in zip(stores, drafts, strict=True)
            )
        )

        assert RIVALS - 1 == sum(isinstance(error, Conflict) for error in errors)
        assert 1 == sum(error is None for error in errors)

    async def test_replace_and_begin_are_in_some_order(self, given: Given) -> None:
        """Either the attempt is named as in flight, or it never began."""
        other = await given.open_another()
        for number in range(10):
            name = f"contended-{number}"
            await given.moved(name)
            draft = await given.draft(name, due_in=HOUR)
            demands = await given.demands()
            began, changed = await asyncio.gather(
                given.begin(demands),
                other.actions.replace(draft, if_match=None),
            )
            begun = {each.id: each.attempt_id for each in began.begun}
            in_flight = changed.in_flight
            assert begun.get(name) == (None if in_flight is None else in_flight.attempt_id)

    async def test_a_result_is_applied_once(self, store: Store, given: Given) -> None:
        """The same result from many: one applies it, the others repeat it, or find it held."""
        finish = await given.finish_of(await given.begun("beat", policy=every(HOUR)))

        recorded = await asyncio.gather(
            *(rival.work.finish([finish], owner=OWNER) for rival in await rivals(store, given))
        )

        counted = Counter(answer[0] for answer in recorded)
        assert (1, 0) == (counted[Recorded.APPLIED], counted[Recorded.LATE])
        assert Recorded.REPEATED is await given.recorded_at_last(finish)
        assert 1 == (await given.action("beat")).status.succeeded

    async def test_finish_and_settle_count_the_attempt_once(
        self, store: Store, given: Given
    ) -> None:
        """Whoever comes first, one attempt is one attempt."""
        other = await given.open_another()
        for number in range(5):
            name = f"slow-{number}"
            begun = await given.overrun(name, policy=every(HOUR))
            settlement = await given.settlement(await given.lapsed(name))
            finish = await given.finish_of(begun)
            await asyncio.gather(given.recorded_at_last(finish), other.work.settle([settlement]))
            status = (await given.action(name)).status
            assert (1, 1, 0) == (status.attempts, status.succeeded, status.interrupted)
        assert [] == list(await store.installation.doctor())

    async def test_delete_and_finish_leave_one_end(self, store: Store, given: Given) -> None:
        """Done or cancelled, but not both, and nothing in the queues for long."""
        other = await given.open_another()
        begun = await given.begun("end")
        finish = await given.finish_of(begun)

        error, recorded = await asyncio.gather(
            refusal(other.actions.delete("end", if_match=None)),
            store.work.finish([finish], owner=OWNER),
        )

        state = (await given.action("end")).status.state
        assert (State.DONE if recorded[0] is Recorded.APPLIED else State.CANCELLED) is state
        assert (error is None) == (state is State.CANCELLED)


class TestWakeups:
    """`hint` and `listen`."""

    async def test_a_hint_reaches_a_listener(self, store: Store) -> None:
        """Soon, with its shards or with an empty set for anything. Without hints between
        processes (behind a pooler) listening is quiet, and ends when it is told to."""
        heard: list[frozenset[int]] = []
        listener = asyncio.create_task(store.wakeups.listen(heard.append))
        try:
            async for _ in polls():
                store.wakeups.hint({1, 2})
                if not store.capabilities.wakeups:
                    break
                if any(shards in (frozenset(), frozenset({1, 2})) for shards in heard):
                    break
        finally:
            listener.cancel()
            await asyncio.wait([listener])

        assert store.capabilities.wakeups == bool(heard)
        assert listener.cancelled()

    async def test_a_hint_crosses_from_another_process(self, store: Store, given: Given) -> None:
        """Where the engine says so: what another store creates is heard of here."""
        other = await given.open_another()
        if not store.capabilities.wakeups:
            return
        heard: list[frozenset[int]] = []
        listener = asyncio.create_task(store.wakeups.listen(heard.append))
        try:
            async for _ in polls():
                draft = await given.draft()
                await other.actions.create([draft])
                other.wakeups.hint({draft.shard})
                if heard:
                    break
        finally:
            listener.cancel()
            await asyncio.wait([listener])

        assert heard
