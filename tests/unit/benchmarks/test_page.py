"""The page that is made of a run, and its plots."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import msgspec

from benchmarks.page import page, plots
from benchmarks.report import Run, Series
from benchmarks.svg import Bar, bars, lines
from tests.unit.benchmarks.test_report import QUIET, result

ABOUT = {
    "date": "2026-11-16 10:00 UTC", "commit": "abc1234", "gnomon": "0.1.0", "cpus": 2,
    "processor": "a processor", "machine": "x86_64", "kernel": "6.1", "python": "3.11.7",
    "sqlite": "3.40.1", "postgres": "15.18", "rounds": 2, "peers": ["PgQueuer 1.6.0"],
}  # fmt: skip
LATE = Series(title="Lateness", unit="ms", lines={"p99": [(0.0, 1.0), (10.0, 3.0)]})


def run_of(**fields: object) -> Run:
    run = Run(about=dict(ABOUT), results=[result()], best=QUIET, calibrations=4, disturbed=1)
    return msgspec.structs.replace(run, **fields)


def test_the_page_says_what_when_and_where() -> None:
    text = page({"x.json": run_of()})
    for part in ("2026-11-16", "abc1234", "a processor", "PostgreSQL 15.18", "PgQueuer 1.6.0"):
        assert part in text
    assert "benchmarks/results/x.json" in text
    assert "disturbed in 1 of 4 calibrations" in text


def test_every_side_has_a_row_with_its_cost() -> None:
    text = page({"x.json": run_of()})
    assert (
        "| drain, 10 | Gnomon | **1,235** actions/s ⚠ |  | 20 | 30 | 2,400 | 1,200 to 1,300 (2) "
        "| >= 2 x: yes |" in text
    )
    assert "|  | PgQueuer 1.6.0 | 600 actions/s | 2.06 x |  |  |  |  |  |" in text


def test_what_is_missing_or_broken_is_said() -> None:
    broken = run_of(
        about={**ABOUT, "quick": True},
        interrupted=True,
        missing={"awa": "awa cannot be installed: no such file"},
        failed=["burst on sqlite: TimeoutError"],
    )
    text = page({"x.json": broken})
    for part in ("A short run", "interrupted", "awa cannot be installed", "burst on sqlite"):
        assert part in text


def test_there_is_a_plot_for_peers_and_for_what_has_a_time() -> None:
    """And the page shows them."""
    with_time = msgspec.structs.replace(result(), scenario="sustained", compared=[], series=[LATE])
    runs = {"x.json": run_of(results=[result(), with_time])}
    assert ["drain-postgres-0.svg", "sustained-postgres-1-0.svg"] == list(plots(runs))
    for name in plots(runs):
        assert f"(benchmarks/{name})" in page(runs)


def test_of_several_runs_the_newest_counts_for_each_scenario() -> None:
    """What takes long is measured by itself. Neither the rows nor the plots of one run are shown
    beside those of another."""
    replace = msgspec.structs.replace
    long = replace(result(), scenario="sustained", compared=[], series=[LATE])
    runs = {
        "1.json": run_of(results=[long, replace(result(), value=111.0)], failed=["burst"]),
        "2.json": run_of(results=[replace(result(), value=222.0), replace(result(), value=223.0)]),
    }
    text = page(runs)
    assert "Measured in 2 runs" in text
    assert "### drain on PostgreSQL (run 2)" in text
    assert "### sustained on PostgreSQL (run 1)" in text
    assert "**222**" in text
    assert "**223**" in text
    assert "**111**" not in text
    assert "**Failed**: burst" in text
    assert ["drain-postgres-0.svg", "drain-postgres-1.svg", "sustained-postgres-0-0.svg"] == list(
        plots(runs)
    )
    for name in plots(runs):
        assert f"(benchmarks/{name})" in text


def test_plots_are_well_formed_whatever_they_are_called() -> None:
    """An empty plot, and one of zeros, too."""
    for text in (
        bars("<a> & b", [Bar("one", 10.0, "10"), Bar("none", 0.0, "0", 1)]),
        bars("nothing", []),
        lines("<late>", "ms", LATE.lines),
        lines("zero", "rows", {"dead": [(0.0, 0.0)]}),
        lines("nothing", "rows", {}),
    ):
        assert "{http://www.w3.org/2000/svg}svg" == ET.fromstring(text).tag
