"""Shards of one part go together."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import msgspec

from gnomon.contracts.store import ShardLock
from gnomon.testing.virtual import SeededEntropy
from gnomon.worker.part_order import PartOrder

SHARDS = 64
PARTS = 4


def free_locks(*, parts: int | None = PARTS) -> list[ShardLock]:
    return [
        ShardLock(
            shard=shard, lease_guid=None, owner=None, beat=0, silent_for=None, started_at=None,
            part=None if parts is None else shard % parts,
        )
        for shard in range(SHARDS)
    ]  # fmt: skip


def order_of(seed: int, locks: Sequence[ShardLock]) -> PartOrder:
    order = PartOrder(SeededEntropy(random.Random(seed)))
    order.learn(locks)
    return order


def parts_of(shards: Sequence[int]) -> Counter[int]:
    return Counter(shard % PARTS for shard in shards)


def test_half_of_the_shards_are_half_of_the_parts() -> None:
    """Whatever the worker's own order of them is."""
    locks = free_locks()
    for seed in range(20):
        taken = order_of(seed, locks).first(locks, SHARDS // 2, held=())
        assert taken is not None
        assert [16, 16] == list(parts_of([lock.shard for lock in taken]).values())


def test_two_workers_seldom_begin_with_the_same() -> None:
    """Or they would ask for the same locks, each time."""
    locks = free_locks()
    firsts = set()
    for seed in range(20):
        taken = order_of(seed, locks).first(locks, 1, held=())
        assert taken is not None
        firsts.add(taken[0].shard % PARTS)
    assert set(range(PARTS)) == firsts


def test_what_is_missing_of_a_part_comes_first() -> None:
    """It is at that part already."""
    locks = free_locks()
    held = [2, 6, 10, 1]
    for seed in range(20):
        free = [lock for lock in locks if lock.shard not in held]
        taken = order_of(seed, locks).first(free, 13, held=held)
        assert taken is not None
        assert {2} == set(parts_of([lock.shard for lock in taken]))


def test_whole_parts_are_given_back() -> None:
    """Of those that it has the fewest of; of a part those that were taken last."""
    locks = free_locks()
    for seed in range(20):
        order = order_of(seed, locks)
        given = order.last(range(SHARDS), SHARDS // 2)
        assert [16, 16] == list(parts_of(given).values())
        assert [9, 1] == list(order.last([0, 4, 8, 12, 1, 9], 2))[::-1]
        assert [] == list(order.last(range(SHARDS), 0))


def test_where_there_are_no_parts_it_has_no_opinion() -> None:
    """Who gives back gives back what it took last."""
    locks = free_locks(parts=None)
    order = order_of(1, locks)

    assert order.first(locks, 3, held=()) is None
    assert [7, 3] == list(order.last([5, 9, 7, 3], 2))


def test_parts_that_are_no_more_are_forgotten() -> None:
    """The store may learn that it was wrong about them."""
    order = order_of(1, free_locks())
    order.learn(free_locks(parts=None))

    assert order.first(free_locks(parts=None), 3, held=()) is None


def test_no_more_parts_are_remembered_than_there_are_shards() -> None:
    """However often they are cut anew."""
    order = PartOrder(SeededEntropy(random.Random(1)))
    for cut in range(50):
        order.learn([msgspec.structs.replace(lock, part=1000 * cut) for lock in free_locks()])
        order.learn([msgspec.structs.replace(lock, part=lock.shard) for lock in free_locks()])
    known = {name: len(value) for name, value in vars(order).items() if isinstance(value, dict)}
    assert known
    assert max(known.values()) <= SHARDS
