"""The simulation as part of the suite: few seeds, and proof that it can see."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.__main__ import FLOORS, shortfalls
from tests.simulation.ablations import ABLATIONS
from tests.simulation.world import run_seed

SEEDS_MAX = 300

# Seeds that fail without a certain mend, and what they found.
REGRESSIONS: dict[int, str] = {
    1: "a worker without shards never slept",
    5: "a worker with lanes of a shard it had given back never slept",
    40: "a shutdown cut a begin short: what it had begun was neither performed nor handed back",
    52: "an idempotency key was forgotten with its action, and brought its guid back",
    79: "a shard was dropped after a slow heartbeat although the heartbeat had kept it",
    5274: "a result recorded during a begin was hidden by the answer: its row was seconds late",
    733: "a shutdown left the failure of an arrival unseen",
    378: "with a slow store every round looked at a locked row again, and lower priorities waited",
    953: "a lane with a locked row waited for the looks at a locked row of a higher priority",
    3140: "after the clock was set back a late commit was left to the full look",
    1414: "what was missed was followed by what was missed too, and guests came too late for each",
    3330: "a look at a locked row made the worker forget an earlier row of the lane",
    4196: "the harness: marks stood still at the world's beginning when the clock was before it",
    3242: "with a slow store a look for pauses that end was followed by ten times its rest",
    1845: "two workers came to the same settlement of a dead one's attempt: one of them settled it",
}


def test_intact_protocol_breaks_no_rule() -> None:
    """Crashes, freezes, lost answers and wrong clocks break none of the promises. A few of the
    worlds that `make test` lives through beside."""
    for seed in range(20):
        assert [] == run_seed(seed).violations, f"python -m tests.simulation --seed {seed}"


@pytest.mark.parametrize("seed", REGRESSIONS)
def test_seed_that_failed_once_stays_green(seed: int) -> None:
    """What was mended stays mended."""
    assert [] == run_seed(seed).violations


@pytest.mark.parametrize(
    ("ablation", "first"),  # where the search begins: rare ones are found soon that way
    [
        ("two-step-move", 0),
        ("blind-begin", 0),
        ("finish-by-guid", 0),
        ("short-reservation", 0),
        ("blind-settle", 520),
        ("begin-without-lease", 275),
        ("blind-confirm", 0),
        ("hasty-confirm", 97),
        ("waiting-finish", 120),
        ("forgotten-series", 0),
        ("leaving-rows", 0),
        ("blind-heartbeat", 5),
        ("blind-release", 85),
        ("eager-acquire", 0),
        ("foreign-clock", 0),
        ("late-sending", 105),
        ("starving", 135),
        ("no-look-behind", 555),
        ("unaware-of-transactions", 265),
        ("dripping", 265),
        ("wrong-proof", 25),
        ("hasty-interruption", 267),
        ("undecidable-raises", 0),
        ("settle-own", 80),
        ("trusted-clock", 20),
        ("trusted-marks", 200),
        ("one-pool", 160),
        ("no-guests", 0),
        ("unserved-fails", 0),
    ],
)
def test_missing_guard_is_noticed(ablation: str, first: int) -> None:
    """A protocol without one of its guards breaks a rule within a few hundred worlds."""
    guard = ABLATIONS[ablation]
    assert any(run_seed(seed, guard).violations for seed in range(first, first + SEEDS_MAX))


def test_every_ablation_is_tested() -> None:
    """No guard can be taken away unnoticed because nobody asks."""
    marks = [
        mark
        for mark in test_missing_guard_is_noticed.pytestmark  # type: ignore[attr-defined]
        if mark.name == "parametrize"
    ]
    assert sorted(ABLATIONS) == sorted(name for name, _ in marks[0].args[1])


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_same_seed_gives_the_same_world(seed: int) -> None:
    """A failing seed can be replayed: every event is the same, to the last digit."""
    assert run_seed(seed).history.digest() == run_seed(seed).history.digest()


def test_different_seeds_give_different_worlds() -> None:
    assert run_seed(1).history.digest() != run_seed(2).history.digest()


def test_unreached_place_is_reported() -> None:
    """A simulation that never gets to a steal is not green."""
    enough = Counter(FLOORS)
    assert [] == shortfalls(enough, 2_000)
    enough["steal"] = 0
    (line,) = shortfalls(enough, 2_000)
    assert "steal" in line
