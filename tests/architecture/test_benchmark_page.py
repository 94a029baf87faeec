"""The page of benchmarks shows what was measured: it is made of one file that is here, too."""

from __future__ import annotations

from benchmarks.page import KEPT, PAGE, PLOTS, page, plots
from benchmarks.report import Run, load


def kept() -> tuple[Run, str]:
    (path,) = KEPT.glob("*.json")
    return load(path), path.name


def test_the_page_is_made_of_the_kept_run() -> None:
    """`make bench-page` makes it; nobody edits a figure."""
    run, name = kept()
    assert page(run, name) == PAGE.read_text()


def test_the_plots_are_made_of_the_kept_run() -> None:
    run, _ = kept()
    assert plots(run) == {path.name: path.read_text() for path in PLOTS.iterdir()}


def test_the_run_says_where_it_comes_from() -> None:
    """Date, commit, machine and versions."""
    run, _ = kept()
    for field in ("date", "commit", "cpus", "processor", "kernel", "python", "postgres", "sqlite"):
        assert run.about[field]
