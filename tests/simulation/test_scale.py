"""A fleet that is larger than a crowd: it finds its balance, and its looking has a bound."""

from __future__ import annotations

import pytest

from gnomon.worker.leases import CROWD
from tests.simulation.scale import Phase, ScaleWorld, run_scale

WORKERS = 3 * CROWD
SHARDS = 200


@pytest.fixture(scope="module")
def world() -> ScaleWorld:
    return run_scale(workers=WORKERS, shards=SHARDS, rate=20.0)


def test_every_shard_finds_an_owner_in_every_phase(world: ScaleWorld) -> None:
    """At the start, after a tenth of the machines is lost, and when others join."""
    slow = [phase.name for phase in world.phases if phase.took_s is None]
    assert not slow
    assert 6 == len(world.phases)


def test_nothing_is_lost_and_nothing_is_early(world: ScaleWorld) -> None:
    assert world.created
    assert world.created == world.performed_count
    assert 0 == world.early


def test_workers_that_ask_for_free_shards_rarely_ask_for_the_same_one(world: ScaleWorld) -> None:
    """All of them start at once; with the first free shard for everybody it took minutes."""
    start = _phase(world, "start")
    assert SHARDS <= start.asked <= 4 * SHARDS


def test_a_crowd_looks_about_as_often_as_the_least_of_crowds(world: ScaleWorld) -> None:
    """At all locks and at all workers, while nothing happens: what every worker reads would grow
    with their number, and so would the number of readers."""
    calls = _phase(world, "steady again").per_second(_phase(world, "steady again").calls)
    assert 0 < calls["list_locks"] <= 3 * CROWD
    assert 0 < calls["list_workers"] <= 6 * CROWD


def _phase(world: ScaleWorld, name: str) -> Phase:
    return next(phase for phase in world.phases if phase.name == name)
