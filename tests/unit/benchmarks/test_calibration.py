"""When a round counts as disturbed."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.calibration import (
    CPU_THRESHOLD,
    FIRST,
    SYNC_THRESHOLD,
    Calibration,
    Gauge,
    best_of,
    is_disturbed,
    strain,
)

BEST = Calibration(cpu_s=0.2, sync_s=0.01)


def test_the_best_is_the_least_of_each_kind() -> None:
    """They need not be of the same moment."""
    taken = [Calibration(0.3, 0.01), Calibration(0.2, 0.05)]
    assert Calibration(0.2, 0.01) == best_of(taken)


@pytest.mark.parametrize(
    ("cpu", "sync", "disturbed"),
    [
        (1.0, 1.0, False),
        (CPU_THRESHOLD * 0.99, SYNC_THRESHOLD * 0.99, False),
        (CPU_THRESHOLD * 1.01, 1.0, True),
        (1.0, SYNC_THRESHOLD * 1.01, True),
    ],
)
def test_a_round_is_disturbed_beyond_a_threshold(cpu: float, sync: float, disturbed: bool) -> None:
    """Of either kind of work, before or after the round."""
    taken = Calibration(BEST.cpu_s * cpu, BEST.sync_s * sync)
    assert disturbed is is_disturbed([taken, BEST], BEST)
    assert disturbed is is_disturbed([BEST, taken], BEST)


def test_strain_tells_which_round_is_the_least_disturbed() -> None:
    """1 is what is just allowed."""
    assert 1.0 == pytest.approx(strain(Calibration(BEST.cpu_s * CPU_THRESHOLD, 0.0), BEST))
    worse = Calibration(BEST.cpu_s * 2, BEST.sync_s)
    worst = Calibration(BEST.cpu_s, BEST.sync_s * 10)
    assert strain(worse, BEST) < strain(worst, BEST)


def test_the_first_calibration_is_taken_some_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that one bad moment at the start does not excuse all others."""
    times = iter([0.9, 0.2, 0.3, 0.25])
    monkeypatch.setattr("benchmarks.calibration.hash_on_all_processors", lambda: next(times))
    monkeypatch.setattr("benchmarks.calibration.sync_writes", lambda _folder: 0.01)
    gauge = Gauge()
    gauge.take(tmp_path)
    assert FIRST == len(gauge.taken)
    gauge.take(tmp_path)
    assert FIRST + 1 == len(gauge.taken)
    assert Calibration(0.2, 0.01) == gauge.best
