"""Leases: taken fairly, trusted with a margin, stolen only when both clocks agree."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from gnomon.contracts.store import HeartbeatResult, HeldShard, LeaseRequest, ShardLock, WorkerRow
from gnomon.model.offer import ALL_QUEUES, Offer
from gnomon.testing.virtual import SeededEntropy
from gnomon.worker.config import WorkerConfig
from gnomon.worker.leases import CROWD, NEWCOMER_S, YOUNG_S, WorkerLeases
from tests.unit.worker.surroundings import EPOCH, Audience, HandClock, surroundings

STRANGER = UUID(int=99)
ME = UUID(int=7)


class Locks:
    """A lease store in a dict: what it says is set by the test."""

    def __init__(self, locks: Sequence[ShardLock]) -> None:
        self.rows = {lock.shard: lock for lock in locks}
        self.held: frozenset[int] = frozenset()
        self.alive = 1
        self.asked: list[timedelta | None] = []
        self.released: list[int] = []
        self.requests: list[LeaseRequest] = []

    async def list_locks(self, *, silent: timedelta | None = None) -> Sequence[ShardLock]:
        self.asked.append(silent)
        return list(self.rows.values())

    async def acquire(
        self, requests: Sequence[LeaseRequest], *, owner: str, lease_for: timedelta
    ) -> Sequence[HeldShard]:
        assert lease_for > timedelta(0)
        self.requests += requests
        taken = []
        for seen, lease_guid in ((one.seen, one.lease_guid) for one in requests):
            if self.rows[seen.shard] in (seen, lock(seen.shard, lease_guid=lease_guid)):
                self.rows[seen.shard] = lock(
                    seen.shard, lease_guid=lease_guid, owner=owner, silent_s=0
                )
                taken.append(HeldShard(shard=seen.shard, lease_guid=lease_guid))
        return taken

    async def heartbeat(
        self,
        worker: UUID,
        *,
        owner: str,
        holdings: Sequence[HeldShard],
        alive_for: timedelta,
        silent: timedelta | None = None,
        process: str | None = None,
        offer: Offer = ALL_QUEUES,
    ) -> HeartbeatResult:
        assert (worker, owner, process, offer) == (ME, "me", None, ALL_QUEUES)
        assert alive_for > timedelta(0)
        assert all(held.shard in self.rows for held in holdings)
        return HeartbeatResult(held=self.held, workers_alive=self.alive, now=EPOCH)

    async def release(self, holdings: Sequence[HeldShard]) -> None:
        self.released += [held.shard for held in holdings]

    async def end_frozen_sessions(self, *, after: timedelta) -> int:
        raise NotImplementedError

    async def remove_worker(self, worker: UUID) -> None:
        assert worker == ME

    async def list_workers(self) -> Sequence[WorkerRow]:
        return []


def lock(
    shard: int,
    *,
    lease_guid: UUID | None = None,
    owner: str | None = None,
    beat: int = 0,
    silent_s: float | None = None,
) -> ShardLock:
    silent = None if silent_s is None else timedelta(seconds=silent_s)
    return ShardLock(
        shard=shard,
        lease_guid=lease_guid,
        owner=owner,
        beat=beat,
        silent_for=silent,
        started_at=None,
    )


def pulse(*, alive: int, fresh: int = 0) -> HeartbeatResult:
    return HeartbeatResult(held=frozenset(), workers_alive=alive, now=EPOCH, shards_fresh=fresh)


def leases_on(store: Locks, seed: int = 0) -> tuple[WorkerLeases, HandClock, Audience]:
    env, clock, audience = surroundings()
    env = replace(env, entropy=SeededEntropy(random.Random(seed)))
    leases = WorkerLeases(
        store, worker=ME, owner="me", shard_count=len(store.rows), config=WorkerConfig(), env=env
    )
    leases.note(pulse(alive=1))
    return leases, clock, audience


async def test_before_its_first_heartbeat_a_worker_takes_nothing() -> None:
    """Two that start together would not know of each other, and the first would take all."""
    env, _, _ = surroundings()
    store = Locks([lock(shard) for shard in range(4)])
    leases = WorkerLeases(
        store, worker=ME, owner="me", shard_count=4, config=WorkerConfig(), env=env
    )
    leases.lose(1)
    assert [] == await leases.take()
    wanting = [leases.is_wanting]
    leases.note(pulse(alive=2))
    assert [False, True] == [*wanting, leases.is_wanting]
    assert 2 == len(await leases.take())


async def test_a_worker_takes_its_share_in_one_call() -> None:
    """Each call waits for the disk: one for each shard would be a tenth of a second or more."""
    store = Locks([lock(shard) for shard in range(64)])
    calls: list[int] = []
    take = store.acquire

    async def counted(
        requests: Sequence[LeaseRequest], *, owner: str, lease_for: timedelta
    ) -> Sequence[HeldShard]:
        calls.append(len(requests))
        return await take(requests, owner=owner, lease_for=lease_for)

    store.acquire = counted  # type: ignore[method-assign]
    leases, _, _ = leases_on(store)
    assert 64 == len(await leases.take())
    assert [] == await leases.take()
    assert [64] == calls


async def test_of_a_call_with_half_an_answer_the_rest_is_asked_for_with_the_same_lease() -> None:
    """A node of a cluster took them and was gone before it said so: they are ours, at once."""
    store = Locks([lock(0), lock(1)])
    take = store.acquire

    async def halved(
        requests: Sequence[LeaseRequest], *, owner: str, lease_for: timedelta
    ) -> Sequence[HeldShard]:
        return (await take(requests, owner=owner, lease_for=lease_for))[:1]

    store.acquire = halved  # type: ignore[method-assign]
    leases, _, audience = leases_on(store)
    assert [0] == [held.shard for held in await leases.take()]
    store.rows[1] = lock(1, lease_guid=store.rows[1].lease_guid)
    store.acquire = take  # type: ignore[method-assign]
    assert [1] == [held.shard for held in await leases.take()]
    assert store.requests[1].lease_guid == store.requests[2].lease_guid
    assert 0 == audience.counts["leases_stolen"]


async def test_a_lonely_worker_takes_every_free_shard() -> None:
    """Alone, its fair share is everything."""
    leases, _, _ = leases_on(Locks([lock(shard) for shard in range(4)]))
    taken = await leases.take()
    assert [0, 1, 2, 3] == [held.shard for held in taken]
    assert 4 == len(leases.trusted())


async def test_a_stale_lock_is_stolen_only_after_it_was_watched_for_a_lease() -> None:
    """The database's clock alone is not believed: it may have jumped."""
    store = Locks([lock(0, lease_guid=STRANGER, owner="other", silent_s=60)])
    leases, clock, audience = leases_on(store)
    assert [] == await leases.take()
    clock.seconds += 9.9
    assert [] == await leases.take()
    clock.seconds += 0.2
    assert [0] == [held.shard for held in await leases.take()]
    assert 1 == audience.counts["leases_stolen"]


async def test_a_lock_that_beats_while_watched_is_not_stolen() -> None:
    """A database clock that jumped forward does not make living owners lose their shards."""
    store = Locks([lock(0, lease_guid=STRANGER, owner="other", silent_s=3600)])
    leases, clock, _ = leases_on(store)
    for beat in range(1, 30):
        store.rows[0] = lock(0, lease_guid=STRANGER, owner="other", beat=beat, silent_s=3600)
        assert [] == await leases.take()
        clock.seconds += 1


async def test_trust_ends_before_the_lease_does() -> None:
    """Beginning stops three seconds before somebody else may steal the shard."""
    leases, clock, _ = leases_on(Locks([lock(0)]))
    await leases.take()
    clock.seconds += 6.9
    assert leases.holding(0) is not None
    clock.seconds += 0.2
    assert leases.holding(0) is None
    assert [] == leases.trusted()


async def test_trust_is_counted_from_the_start_of_the_heartbeat() -> None:
    """A slow answer does not stretch the lease."""
    store = Locks([lock(0)])
    store.held = frozenset({0})
    leases, clock, _ = leases_on(store)
    await leases.take()
    leases.ticked_at = clock.seconds

    async def slow(*_: object, **__: object) -> HeartbeatResult:
        clock.seconds += 5
        return HeartbeatResult(held=frozenset({0}), workers_alive=1, now=EPOCH)

    store.heartbeat = slow  # type: ignore[method-assign]
    await leases.beat(store)
    clock.seconds += 1.9
    assert leases.holding(0) is not None
    clock.seconds += 0.2
    assert leases.holding(0) is None


async def test_a_stuck_loop_gets_no_heartbeat() -> None:
    """A zombie whose loop does not tick must lose its shards."""
    leases, clock, audience = leases_on(Locks([lock(0)]))
    await leases.take()
    clock.seconds += 4
    assert await leases.beat(leases._store) is None
    assert ["heartbeat_withheld"] == audience.events


async def test_what_the_heartbeat_does_not_confirm_is_lost() -> None:
    """Zero rows updated means that somebody else has it."""
    store = Locks([lock(0), lock(1)])
    leases, clock, audience = leases_on(store)
    await leases.take()
    store.held = frozenset({1})
    clock.seconds += 6.5
    leases.ticked_at = clock.seconds
    answer = await leases.beat(store)
    assert answer is not None
    clock.seconds += 1
    assert [0] == leases.note(answer)
    assert [1] == [held.shard for held in leases.trusted()]
    assert 1 == audience.counts["leases_lost"]


async def test_surplus_is_given_back_when_others_appear() -> None:
    """Two workers hold half each."""
    store = Locks([lock(shard) for shard in range(5)])
    leases, _, _ = leases_on(store)
    await leases.take()
    leases.note(HeartbeatResult(held=frozenset(range(5)), workers_alive=2, now=EPOCH))
    surplus = leases.surplus()
    assert 2 == len(surplus)
    await leases.give_back(surplus)
    assert sorted(surplus) == sorted(store.released)
    assert 3 == len(leases.trusted())
    assert [] == leases.surplus()


async def test_silent_owners_are_those_who_missed_heartbeats() -> None:
    """Helpers look at shards of the silent, and at those that stay free: when one is given from
    hand to hand, its next owner is about to take it. Never at their own."""
    store = Locks(
        [
            lock(0),
            lock(1, lease_guid=STRANGER, owner="quick", silent_s=0.4),
            lock(2, lease_guid=STRANGER, owner="slow", silent_s=1.6),
        ]
    )
    leases, _, _ = leases_on(store)
    assert [2] == [row.shard for row in leases.silent(await leases.locks(0.5))]
    assert [0, 2] == [row.shard for row in leases.silent(await leases.locks(0.5))]
    await leases.take()
    assert [2] == [row.shard for row in leases.silent(await leases.locks(0.5))]


async def test_each_of_many_workers_asks_for_other_shards() -> None:
    """Or all would ask for the same few, and all but one in vain."""
    asked = []
    for seed in range(20):
        leases, _, _ = leases_on(Locks([lock(shard) for shard in range(40)]), seed=seed)
        leases.note(pulse(alive=10))
        asked.append(frozenset(held.shard for held in await leases.take()))
    assert {4} == {len(shards) for shards in asked}
    assert 20 < len(frozenset[int]().union(*asked))  # 4, if all asked for the first ones


async def test_with_few_free_shards_the_longest_waiting_are_asked_for() -> None:
    """Among as many as all workers together may take, it is by chance; the rest waits."""
    leases, _, _ = leases_on(Locks([lock(shard) for shard in range(40)]))
    leases.note(pulse(alive=40))
    assert {held.shard for held in await leases.take()} <= set(range(40))
    leases.lose(39)
    taken = await leases.take()
    assert 40 == len(leases.trusted())
    assert sorted(held.shard for held in taken) == [held.shard for held in taken]


async def test_a_crowd_looks_seldom_while_every_shard_is_held() -> None:
    """A look costs as much as there are shards, and every worker looks."""
    store = Locks([lock(shard) for shard in range(4)])
    leases, clock, _ = leases_on(store)
    leases.note(pulse(alive=CROWD * 10, fresh=4))
    clock.seconds += YOUNG_S
    for _ in range(100):
        await leases.locks(0.5)
        clock.seconds += 0.1
    assert [timedelta(seconds=1.5)] * 2 == store.asked


async def test_a_crowd_looks_at_once_when_an_owner_is_silent() -> None:
    """The heartbeat tells: of fewer shards than there are somebody said that he keeps them."""
    store = Locks([lock(shard) for shard in range(4)])
    leases, clock, _ = leases_on(store)
    leases.note(pulse(alive=CROWD * 10, fresh=4))
    clock.seconds += YOUNG_S
    await leases.locks(0.5)
    wanting = [leases.is_wanting]
    leases.note(pulse(alive=CROWD * 10, fresh=3))
    assert [False, True] == [*wanting, leases.is_wanting]
    await leases.locks(0.5)
    await leases.locks(0.5)
    assert 3 == len(store.asked)


async def test_who_joins_a_crowd_looks_for_its_share_at_once() -> None:
    """What others give back to a newcomer is free for no longer than in a small fleet."""
    store = Locks([lock(shard) for shard in range(4)])
    leases, _, _ = leases_on(store)
    leases.note(pulse(alive=CROWD * 10, fresh=4))
    await leases.locks(0.5)
    await leases.locks(0.5)
    assert 2 == len(store.asked)


async def test_few_workers_look_at_all_locks_as_often_as_they_like() -> None:
    """Then a lock is watched from the moment when its owner fell silent."""
    store = Locks([lock(shard) for shard in range(4)])
    leases, _, _ = leases_on(store)
    leases.note(pulse(alive=CROWD, fresh=4))
    await leases.locks(0.5)
    await leases.locks(0.5)
    assert [None, None] == store.asked


async def test_a_crowd_shares_the_help() -> None:
    """About CROWD workers help with each shard whose owner is silent, not all of them."""
    leases, _, _ = leases_on(Locks([lock(0)]))
    shards = list(range(100))
    leases.note(pulse(alive=CROWD))
    assert shards == leases.part(shards)
    leases.note(pulse(alive=CROWD * 10))
    assert 10 == len(set(leases.part(shards)))
    assert 1 == len(leases.part([5]))


async def test_nobody_beats_after_goodbye() -> None:
    """A draining worker is none of the living: the others take its share at once."""
    store = Locks([lock(0)])
    leases, _, _ = leases_on(store)
    await leases.take()
    await leases.leave()
    assert [0] == store.released
    assert await leases.beat(store) is None


async def test_a_beat_that_crosses_the_goodbye_is_taken_back() -> None:
    """The heart's thread may have a beat under way: it must not revive the worker."""
    store = Locks([lock(0)])
    leases, _, _ = leases_on(store)
    goodbyes: list[UUID] = []

    async def crossing(*_args: object, **_fields: object) -> HeartbeatResult:
        await leases.leave()
        return HeartbeatResult(held=frozenset(), workers_alive=1, now=EPOCH)

    async def remove_worker(worker: UUID) -> None:
        goodbyes.append(worker)

    store.heartbeat = crossing  # type: ignore[method-assign]
    store.remove_worker = remove_worker  # type: ignore[method-assign]
    assert await leases.beat(store) is None
    assert [ME, ME] == goodbyes


async def test_a_newcomer_that_lacks_shards_looks_often_for_a_while() -> None:
    """Those who have too many give them back within a heartbeat, and say so to nobody."""
    usual_s = WorkerConfig().heartbeat.total_seconds()
    leases, clock, _ = leases_on(Locks([lock(shard) for shard in range(4)]))
    assert NEWCOMER_S == leases.rest_s(usual_s)
    leases.note(pulse(alive=CROWD * 1000))
    assert usual_s == leases.rest_s(usual_s)  # a crowd that starts at once must not drown the store
    leases.note(pulse(alive=1))
    await leases.take()
    assert usual_s == leases.rest_s(usual_s)
    await leases.give_back([0, 1, 2, 3])
    assert NEWCOMER_S == leases.rest_s(usual_s)
    clock.seconds += YOUNG_S
    assert usual_s == leases.rest_s(usual_s)
