"""Part of the suite: who serves which stage, and where its owner does not."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from gnomon.contracts.store import HeldShard, Store
from gnomon.contracts.store.register import StageAttendance, UnservedShard
from gnomon.model.stage.graph import Reach
from tests.conformance.store.suite.entities.given import KIND, OTHER_STAGE, STAGE
from tests.conformance.store.suite.entities.registering import declared
from tests.conformance.store.suite.given import Given

ALIVE_FOR = timedelta(hours=1)
OWNER, GUEST = UUID(int=1), UUID(int=2)


class TestAttendance:
    """`attend`, `registered`."""

    async def test_without_stages_there_is_nothing_to_attend(
        self, store: Store, given: Given
    ) -> None:
        """A worker that serves nothing learns that there is nothing."""
        found = await attended(store, OWNER, holdings=await given.holdings())
        assert ([], {}, []) == (list(found.register), dict(found.servers), list(found.openings))

    async def test_the_register_is_told_with_what_stages_watch_and_write(
        self, store: Store
    ) -> None:
        """To whoever serves none of them, too; a lower revision does not change it."""
        reach = Reach(KIND, watch=("a.b", "c\\.d"), writes=("x",))
        await declared(store, {STAGE: 2}, reach={STAGE: reach})
        await declared(store, {STAGE: 1}, reach={STAGE: Reach(KIND, watch=("no",), writes=())})

        found = await attended(store, OWNER)

        assert [(STAGE, ("a.b", "c\\.d"), ("x",))] == [
            (each.name, each.watch, each.writes) for each in found.register
        ]
        assert list(found.register) == list(await store.register.registered())

    async def test_the_living_are_told_by_the_stages_they_serve(self, store: Store) -> None:
        """Until they serve it no more, or were not heard of for long."""
        await declared(store, {STAGE: 1, OTHER_STAGE: 1})
        await attended(store, OWNER, STAGE, OTHER_STAGE)
        found = await attended(store, GUEST, STAGE)
        assert {STAGE: {OWNER, GUEST}, OTHER_STAGE: {OWNER}} == dict(found.servers)

        await attended(store, OWNER)
        assert {STAGE: {GUEST}} == dict((await attended(store, GUEST, STAGE)).servers)

        silent = await store.register.attend(OWNER, serves=(), holdings=(), alive_for=timedelta(0))
        assert {} == dict(silent.servers)

    async def test_what_an_owner_does_not_serve_is_open_to_others(
        self, store: Store, given: Given
    ) -> None:
        """Under its lease, in all shards that it holds; what it serves is not."""
        await declared(store, {STAGE: 1, OTHER_STAGE: 1})
        held = list(await given.holdings())
        await attended(store, OWNER, STAGE, holdings=held)

        found = await attended(store, GUEST, STAGE, OTHER_STAGE)

        wanted = [UnservedShard(OTHER_STAGE, each.shard, each.lease_guid) for each in held]
        assert sorted(wanted) == sorted(found.openings)

    async def test_a_lease_that_is_another_by_now_opens_nothing(
        self, store: Store, given: Given
    ) -> None:
        """The owner that was knows nothing of it; the one that is has not spoken yet."""
        await declared(store, {STAGE: 1})
        held = list(await given.holdings())
        await attended(store, OWNER, holdings=held)
        assert len(held) == len((await attended(store, GUEST, STAGE)).openings)
        lost = held[0]
        await store.leases.release([lost])

        found = await attended(store, GUEST, STAGE)
        assert {each.shard for each in held[1:]} == {each.shard for each in found.openings}
        await attended(store, OWNER, holdings=[lost])
        assert found.openings == (await attended(store, GUEST, STAGE)).openings

    async def test_a_stage_that_is_forgotten_is_served_by_nobody(self, store: Store) -> None:
        """Nor is it in the register."""
        await declared(store, {STAGE: 1})
        await attended(store, OWNER, STAGE)
        await store.register.forget(STAGE)

        found = await attended(store, GUEST)
        assert ([], {}) == (list(found.register), dict(found.servers))


async def attended(
    store: Store, worker: UUID, *serves: str, holdings: list[HeldShard] | None = None
) -> StageAttendance:
    return await store.register.attend(
        worker, serves=serves, holdings=holdings or [], alive_for=ALIVE_FOR
    )
