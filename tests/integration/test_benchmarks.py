"""The smallest benchmark, from the plan to the file and the page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from benchmarks.page import page
from benchmarks.progress import Step
from benchmarks.report import load
from benchmarks.running import measure_all
from benchmarks.scale import QUICK


async def test_a_drain_on_sqlite_is_measured_and_kept(tmp_path: Path) -> None:
    """With real workers; the file says what the page needs."""
    scale = replace(QUICK, drained=200)
    run = await measure_all([Step("drain", "sqlite", 5.0)], scale, peers=[], folder=tmp_path)
    assert ([], False) == (run.failed, run.interrupted)
    (path,) = tmp_path.iterdir()
    kept = load(path)
    drained, whole = kept.results
    assert 0 < whole.value < drained.value
    assert drained.cost is not None
    assert drained.cost.python_us > 0
    assert 1 == len(drained.around)
    assert kept.calibrations >= 2
    assert "| drain, 200 | Gnomon |" in page({path.name: kept})
