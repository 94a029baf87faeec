"""Stages over entities in virtual time: whatever breaks, every entity ends where a model says."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import pytest

from gnomon.stages.attendance import StageShards
from gnomon.stages.change_router import ChangeRouter
from gnomon.stages.held import HeldPauses
from tests.simulation.staged import live_through

# 160 of 2,000: a world of stages takes longer than one of actions. Twenty meet every fault.
SEEDS = max(20, int(os.environ.get("SEEDS", "500")) * 160 // 2_000)
PARTS = SEEDS // 20
SEEDS_MAX = 2_000


@pytest.mark.parametrize("part", range(PARTS))
def test_every_entity_ends_where_a_sequential_model_says(part: int) -> None:
    """Workers end and freeze anywhere, calls and answers get lost, stages and receivers fail, users
    write meanwhile: no wake-up is lost, every push and every version arrives, in order."""
    coverage: Counter[str] = Counter()
    for seed in range(part, SEEDS, PARTS):
        world = live_through(seed)
        assert [] == world.violations, f"seed {seed}"
        coverage += world.coverage
    assert coverage["crash"], "nothing was broken: the test shows nothing"
    assert coverage["freeze"]
    assert coverage["delete"]
    assert coverage["serves some stages"]
    assert coverage["serves no stage"]
    assert coverage["has no relay"]
    for verb in ("commit", "route"):  # others are in test_held_entities.py: here they are rare
        assert coverage[f"held at {verb}"], f"{verb} found nothing held"


@pytest.mark.parametrize(
    ("guard", "without", "first"),  # where the search begins: rare ones are found soon that way
    [
        ((ChangeRouter, "know"), lambda *_: None, 50),
        ((StageShards, "guests"), lambda _: {}, 0),
        ((HeldPauses, "waiting"), [], 0),
    ],
    ids=["owner-asks-for-all", "guests-work-elsewhere", "held-is-left-alone"],
)
def test_a_missing_guard_is_noticed(
    guard: tuple[type, str], without: Any, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a fleet where not everybody serves everything; and of what is held."""
    monkeypatch.setattr(*guard, without)
    assert any(live_through(seed).violations for seed in range(first, first + SEEDS_MAX))


@pytest.mark.parametrize("seed", [316])
def test_a_seed_that_failed_once_stays_green(seed: int) -> None:
    """316: a guest walked by an entity whose owner did not know the stage yet."""
    assert [] == live_through(seed).violations


def test_the_same_seed_is_the_same_world() -> None:
    """A failure can be looked at again."""
    one, other = live_through(5), live_through(5)
    assert (one.coverage, one.loop.time()) == (other.coverage, other.loop.time())
