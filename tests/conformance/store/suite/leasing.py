"""Part of the suite: leases and the living."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

import msgspec

from gnomon.contracts.store import HeldShard, LeaseRequest, ShardLock, Store
from tests.conformance.store.suite.given import HOUR, NOTHING, SECOND, Given, polls

INSTANT = timedelta(milliseconds=1)


class TestLocks:
    """`locks`: all of them, in order."""

    async def test_every_shard_has_a_lock_and_is_free_at_first(
        self, store: Store, given: Given
    ) -> None:
        """All rows exist from the installation on."""
        locks = await store.leases.list_locks()

        assert set(range(given.installation.shard_count)) == {lock.shard for lock in locks}
        assert {None} == {lock.lease_guid for lock in locks}
        assert {None} == {lock.silent_for for lock in locks}

    async def test_the_longest_untouched_comes_first(self, store: Store, given: Given) -> None:
        """In order of last_processing_start_at; never started ones before all."""
        for shard in (2, 0, 1):
            await given.holding(shard)

        order = [lock.shard for lock in await store.leases.list_locks()]

        assert [2, 0, 1] == order[-3:]

    async def test_a_held_lock_tells_its_owner_and_its_silence(
        self, store: Store, given: Given
    ) -> None:
        """By the database's clock."""
        held = await given.holding(0)

        lock = await lock_of(store, 0)

        assert held.lease_guid == lock.lease_guid
        assert "suite" == lock.owner
        assert lock.silent_for is not None
        assert NOTHING <= lock.silent_for < HOUR
        assert lock.started_at is not None

    async def test_locks_of_the_silent_and_free_ones_can_be_had_alone(
        self, store: Store, given: Given
    ) -> None:
        """Of many shards few are, and they are what somebody else may do something about."""
        worker, count = given.entropy.token(), given.installation.shard_count
        lively, quiet = await given.holding(0), await given.holding(1)
        silent_for = time_since_now()
        free = set(range(2, count))
        assert free == {lock.shard for lock in await store.leases.list_locks(silent=HOUR)}
        shards: set[int] = set()
        async for _ in polls():
            await beat(store, worker, [lively])
            locks = await store.leases.list_locks(silent=silent_for() / 2)
            shards = {lock.shard for lock in locks}
            if lively.shard not in shards:  # a beat and a look may take as long as all before
                break

        assert free | {quiet.shard} == shards


class TestAcquire:
    """`acquire`: one owner for a shard."""

    async def test_a_free_shard_is_taken(self, store: Store, given: Given) -> None:
        """And is then held under that lease."""
        lease_guid = given.entropy.token()

        held = await take(store, await lock_of(store, 0), lease_guid)

        assert HeldShard(shard=0, lease_guid=lease_guid) == held
        assert lease_guid == (await lock_of(store, 0)).lease_guid

    async def test_repeating_it_with_the_same_lease_succeeds_again(
        self, store: Store, given: Given
    ) -> None:
        """After a lost answer."""
        seen = await lock_of(store, 0)
        lease_guid = given.entropy.token()

        first = await take(store, seen, lease_guid)
        second = await take(store, seen, lease_guid)

        assert first == second
        assert first is not None

    async def test_of_several_those_are_taken_that_are_free(
        self, store: Store, given: Given
    ) -> None:
        """One that somebody else has costs itself alone."""
        others = await given.holding(1)
        locks = [await lock_of(store, shard) for shard in (2, 1, 0)]
        requests = [LeaseRequest(seen=lock, lease_guid=given.entropy.token()) for lock in locks]

        taken = await store.leases.acquire(requests, owner="taker", lease_for=HOUR)

        wanted = {one.seen.shard: one.lease_guid for one in requests if one.seen.shard != 1}
        assert wanted == {held.shard: held.lease_guid for held in taken}
        present = {lock.shard: lock.lease_guid for lock in await store.leases.list_locks()}
        assert wanted | {1: others.lease_guid} == {shard: present[shard] for shard in (0, 1, 2)}
        assert "taker" == (await lock_of(store, 0)).owner

    async def test_of_nothing_nothing_is_taken(self, store: Store) -> None:
        assert [] == list(await store.leases.acquire([], owner="taker", lease_for=HOUR))

    async def test_a_young_lease_is_not_stolen(self, store: Store, given: Given) -> None:
        """Its heartbeat is not older than `lease_for`."""
        held = await given.holding(0)

        stolen = await take(store, await lock_of(store, 0), given.entropy.token())

        assert None is stolen
        assert held.lease_guid == (await lock_of(store, 0)).lease_guid

    async def test_a_stale_lease_is_stolen(self, store: Store, given: Given) -> None:
        """Silent for longer than `lease_for`, and as it was seen."""
        await given.holding(0)
        thief = given.entropy.token()

        stolen = await self.steal(store, await lock_of(store, 0), thief)

        assert stolen is not None
        assert thief == (await lock_of(store, 0)).lease_guid

    async def test_a_lease_that_beat_since_it_was_seen_is_not_stolen(
        self, store: Store, given: Given
    ) -> None:
        """The caller must have seen this very beat."""
        held = await given.holding(0)
        seen = await lock_of(store, 0)
        await beat(store, given.entropy.token(), [held])
        await self.silence(store)

        stolen = await take(store, seen, given.entropy.token(), lease_for=INSTANT)

        assert None is stolen

    async def test_a_lock_that_looked_free_may_be_taken_by_then(
        self, store: Store, given: Given
    ) -> None:
        """Seen free, but held now: refused, however old its heartbeat."""
        seen = await lock_of(store, 0)
        await given.holding(0)
        await self.silence(store)

        assert None is await take(store, seen, given.entropy.token(), lease_for=INSTANT)

    async def test_a_stolen_shard_is_lost_to_its_owner(self, store: Store, given: Given) -> None:
        """He can neither beat nor move nor begin there."""
        held = await given.holding(0)
        await given.created(given.name_in(0))
        await self.steal(store, await lock_of(store, 0), given.entropy.token())

        pulse = await beat(store, given.entropy.token(), [held])
        moved = await store.work.move([held], limit=10)

        assert frozenset() == pulse
        assert 0 == moved.count

    async def steal(self, store: Store, seen: ShardLock, thief: UUID) -> HeldShard | None:
        async for _ in polls():
            stolen = await take(store, seen, thief, lease_for=INSTANT)
            if stolen is not None:
                return stolen
        return None

    async def silence(self, store: Store) -> None:
        """Until shard 0's heartbeat is older than an instant."""
        async for _ in polls():
            silent_for = (await lock_of(store, 0)).silent_for
            if silent_for is not None and silent_for > 5 * INSTANT:
                return


class TestHeartbeat:
    """`heartbeat` and `leave`: who lives."""

    async def test_what_is_mine_is_kept(self, store: Store, given: Given) -> None:
        """The beat grows, so that others see life."""
        held = await given.holding(0)
        before = await lock_of(store, 0)

        kept = await beat(store, given.entropy.token(), [held])

        assert frozenset({0}) == kept
        assert before.beat < (await lock_of(store, 0)).beat

    async def test_what_is_not_mine_is_not_prolonged(self, store: Store, given: Given) -> None:
        """A wrong lease changes nothing on the lock."""
        held = await given.holding(0)
        before = await lock_of(store, 0)

        kept = await beat(store, given.entropy.token(), [given.wrong(held)])

        after = await lock_of(store, 0)
        assert frozenset() == kept
        assert before.beat == after.beat
        assert before.lease_guid == after.lease_guid

    async def test_the_incoming_mark_is_saved_for_the_next_owner(
        self, store: Store, given: Given
    ) -> None:
        """So that it starts behind the dead rows."""
        mark = await given.now()
        held = msgspec.structs.replace(await given.holding(0), incoming_mark=mark)
        await beat(store, given.entropy.token(), [held])
        await given.released()

        assert mark == (await given.holding(0)).incoming_mark

    async def test_the_living_are_counted(self, store: Store, given: Given) -> None:
        """Each worker once, as long as its last heartbeat is young enough."""
        first, second = given.entropy.token(), given.entropy.token()
        alive = []
        for worker in (first, second, first):
            pulse = await store.leases.heartbeat(worker, owner="w", holdings=[], alive_for=HOUR)
            alive.append(pulse.workers_alive)

        assert [1, 2, 2] == alive

    async def test_the_silent_are_not_counted(self, store: Store, given: Given) -> None:
        """After `alive_for` without a heartbeat a worker is as good as gone. However long the other
        one's takes: half of what has passed since the first is more in the end."""
        await beat(store, given.entropy.token(), [])
        silent_for = time_since_now()
        worker = given.entropy.token()
        alive = 0
        async for _ in polls():
            pulse = await store.leases.heartbeat(
                worker, owner="w", holdings=[], alive_for=silent_for() / 2
            )
            alive = pulse.workers_alive
            if alive == 1:
                break

        assert 1 == alive

    async def test_shards_of_the_silent_are_told_apart(self, store: Store, given: Given) -> None:
        """Whoever is alive may have missed a beat or two: others look after its shards."""
        held, other = await given.holding(0), await given.holding(1)
        await beat(store, given.entropy.token(), [held])
        silent_for = time_since_now()
        worker, told = given.entropy.token(), (0, 0)
        async for _ in polls():
            pulse = await store.leases.heartbeat(
                worker, owner="w", holdings=[other], alive_for=HOUR, silent=silent_for() / 2
            )
            told = (pulse.shards_held, pulse.shards_fresh)
            if told == (2, 1):
                break

        assert (2, 1) == told
        pulse = await store.leases.heartbeat(worker, owner="w", holdings=[other], alive_for=HOUR)
        assert (2, 2) == (pulse.shards_held, pulse.shards_fresh)

    async def test_who_leaves_is_not_counted(self, store: Store, given: Given) -> None:
        """The others need not wait for its silence; leaving twice is no error."""
        gone = given.entropy.token()
        await beat(store, gone, [])
        await store.leases.remove_worker(gone)
        await store.leases.remove_worker(gone)

        pulse = await store.leases.heartbeat(
            given.entropy.token(), owner="w", holdings=[], alive_for=HOUR
        )

        assert 1 == pulse.workers_alive

    async def test_whoever_works_is_not_frozen(self, store: Store, given: Given) -> None:
        """Sessions that do their work, or wait for some, are not ended; the store goes on."""
        held = await given.holding(0)

        assert 0 == await store.leases.end_frozen_sessions(after=HOUR)

        assert held.lease_guid == (await lock_of(store, 0)).lease_guid


class TestRelease:
    """`release`: giving back what is one's own."""

    async def test_a_released_shard_is_free(self, store: Store, given: Given) -> None:
        """Anybody may take it at once."""
        held = await given.holding(0)

        await store.leases.release([held])

        assert None is (await lock_of(store, 0)).lease_guid
        taken = await take(store, await lock_of(store, 0), given.entropy.token())
        assert taken is not None

    async def test_what_is_not_mine_stays_held(self, store: Store, given: Given) -> None:
        """A late release does not free the thief's lock."""
        held = await given.holding(0)

        await store.leases.release([given.wrong(held)])

        assert held.lease_guid == (await lock_of(store, 0)).lease_guid


async def lock_of(store: Store, shard: int) -> ShardLock:
    return next(lock for lock in await store.leases.list_locks() if lock.shard == shard)


async def take(
    store: Store, seen: ShardLock, lease_guid: UUID, *, lease_for: timedelta = 10 * SECOND
) -> HeldShard | None:
    request = LeaseRequest(seen=seen, lease_guid=lease_guid)
    taken = await store.leases.acquire([request], owner="taker", lease_for=lease_for)
    return taken[0] if taken else None


async def beat(store: Store, worker: UUID, holdings: list[HeldShard]) -> frozenset[int]:
    pulse = await store.leases.heartbeat(worker, owner="w", holdings=holdings, alive_for=HOUR)
    return pulse.held


def time_since_now() -> Callable[[], timedelta]:
    """How long ago this was called. Half of it is more than one round of a poll takes, sooner or
    later: so whoever is silent is told from whoever was just heard, however slow the machine."""
    clock = asyncio.get_running_loop().time
    began = clock()
    return lambda: timedelta(seconds=clock() - began)
