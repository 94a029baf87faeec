"""Statistics of rounds, and the file of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.calibration import Calibration
from benchmarks.metering import Reading, cost_between
from benchmarks.report import (
    Compared,
    Cost,
    Result,
    Run,
    Sample,
    load,
    median_cost,
    peer_of,
    percentiles,
    plain,
    quantile,
    save,
    windows,
)

QUIET, LOUD = Calibration(0.2, 0.01), Calibration(0.4, 0.01)


def result() -> Result:
    return Result(
        scenario="drain",
        measure="drain, 10",
        engine="postgres",
        unit="actions/s",
        value=1234.5678,
        rounds=[1200.0, 1300.0],
        cost=Cost(python_us=20.0, server_us=30.0, wal_bytes=2400.0),
        compared=[Compared(name="PgQueuer 1.6.0", kind="peer", value=600.0, ratio=2.06)],
        goal=">= 2 x",
        met=True,
        around=[(QUIET, QUIET), (QUIET, LOUD)],
    )


def test_percentiles_are_of_the_values_in_milliseconds() -> None:
    assert {"p50_ms": 2.0, "p99_ms": 3.0, "max_ms": 3.0} == percentiles([0.001, 0.003, 0.002])
    assert 99 == quantile(range(100), 0.99)
    assert 7.0 == quantile([7.0], 0.99)


def test_a_cost_is_the_median_of_each_field() -> None:
    """What one engine does not have stays unknown."""
    costs = [
        Cost(python_us=1.0, wal_bytes=30.0),
        None,
        Cost(python_us=3.0, wal_bytes=10.0),
        Cost(python_us=2.0, wal_bytes=20.0),
    ]
    assert Cost(python_us=2.0, server_us=None, wal_bytes=20.0) == median_cost(costs)
    assert median_cost([None]) is None


def test_a_cost_is_what_was_used_between_two_readings() -> None:
    """For each action, in microseconds and bytes."""
    began, ended = Reading(1.0, 5.0, 1_000), Reading(1.5, 6.0, 3_000)
    assert Cost(python_us=5_000.0, server_us=10_000.0, wal_bytes=20.0) == cost_between(
        began, ended, 100
    )
    nobody = cost_between(began._replace(server_s=None), ended._replace(server_s=None), 100)
    assert nobody.server_us is None


@pytest.mark.parametrize(("more_is_better", "ratio"), [(True, 2.0), (False, 0.5)])
def test_a_ratio_says_how_many_times_better(more_is_better: bool, ratio: float) -> None:
    samples = [Sample(10.0), Sample(90.0), Sample(20.0)]
    compared = peer_of("huey", samples, 40.0, more_is_better=more_is_better)
    assert (20.0, ratio) == (compared.value, compared.ratio)


def test_windows_fold_points_in_time() -> None:
    """Each stands at its end; empty ones are left out."""
    points = [(0.1, 1.0), (0.9, 3.0), (2.5, 7.0)]
    assert [(1.0, 3.0), (3.0, 7.0)] == windows(points, 1.0, max)


def test_disturbed_rounds_are_counted_against_the_best_of_the_run() -> None:
    assert 1 == result().disturbed_count(QUIET)
    assert 0 == result().disturbed_count(LOUD)
    assert 0 == result().disturbed_count(None)


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    """But for digits that mean nothing."""
    run = Run(about={"date": "today"}, results=[result()], best=QUIET, failed=["burst on sqlite"])
    save(run, tmp_path / "folder" / "run.json")
    found = load(tmp_path / "folder" / "run.json")
    assert 1235.0 == found.results[0].value
    found.results[0].value = run.results[0].value
    assert run == found
    assert ["run.json"] == [path.name for path in (tmp_path / "folder").iterdir()]


def test_the_table_for_a_terminal_has_a_line_for_each_side() -> None:
    header, ours, theirs = plain(Run(about={}, results=[result()], best=QUIET)).splitlines()
    assert header.startswith("scenario")
    for part in ("Gnomon (disturbed)", "1,235 actions/s", "20 + 30", "2,400", "yes"):
        assert part in ours
    for part in ("PgQueuer 1.6.0", "600 actions/s", "2.06"):
        assert part in theirs
