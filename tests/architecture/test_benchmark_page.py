"""The page of benchmarks shows what was measured: it is made of files that are here, too."""

from __future__ import annotations

from benchmarks.page import PAGE, PLOTS, kept, page, plots


def test_the_page_is_made_of_the_kept_runs() -> None:
    """`make bench-page` makes it; nobody edits a figure."""
    assert page(kept()) == PAGE.read_text()


def test_the_plots_are_made_of_the_kept_runs() -> None:
    assert plots(kept()) == {path.name: path.read_text() for path in PLOTS.iterdir()}


def test_each_run_says_where_it_comes_from() -> None:
    """Date, commit, machine and versions."""
    runs = kept().values()
    assert runs
    for run in runs:
        for field in (
            "date", "commit", "cpus", "processor", "kernel", "python", "postgres", "sqlite",
        ):  # fmt: skip
            assert run.about[field]
