"""What was measured, as JSON lines for programs, a table and a plot for people."""

from __future__ import annotations

import os
import platform
import sqlite3
import statistics
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from gnomon import __version__

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
PUBLISHED = Path(__file__).parent / "RESULTS.md"
PERFORMANCE_PAGE = ROOT / "docs" / "explain" / "performance.md"
TABLE_BEGINS = "<!-- table: written by `python -m benchmarks --publish` -->"
TABLE_ENDS = "<!-- end of table -->"


class Result(msgspec.Struct, kw_only=True):
    """One figure, beside what it is compared with.

    `ratio` is how many times better than the rival, or what part of the floor or of the former
    state is reached: more is better. In `growth` and `memory` it is the growth: less is better.
    """

    scenario: str
    measure: str
    engine: str
    value: float
    unit: str
    peer: str | None = None
    floor: str | None = None
    compared_value: float | None = None
    ratio: float | None = None
    goal: str | None = None
    met: bool | None = None
    extra: dict[str, Any] = msgspec.field(default_factory=dict)

    def line(self) -> dict[str, Any]:
        """As one JSON object; what is not known is left out."""
        fields = {name: value for name, value in self.fields() if value is not None}
        return {name: rounded(value) for name, value in {**fields, **self.extra}.items()}

    def fields(self) -> list[tuple[str, Any]]:
        return [(name, getattr(self, name)) for name in self.__struct_fields__ if name != "extra"]


def rounded(value: Any) -> Any:
    """Four significant digits: more would pretend."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {name: rounded(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(part) for part in value]
    return value


def percentiles(values: Sequence[float], *, name: str = "") -> dict[str, float]:
    """p50, p99 and the largest, the given values being seconds, in milliseconds."""
    ordered = sorted(values)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    found = {"p50": statistics.median(ordered), "p99": p99, "max": ordered[-1]}
    return {f"{name}{key}_ms": value * 1000 for key, value in found.items()}


def circumstances(server_version: str | None) -> dict[str, Any]:
    """What must be known to read the figures."""
    return {
        "gnomon": __version__,
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d %H:%M %Z"),
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "postgres": server_version,
        "load_before": list(os.getloadavg()),
    }


def commit() -> str:
    """The commit that is measured, with a plus if the tree differs from it."""
    told = subprocess.run(
        ["git", "describe", "--always", "--dirty=+"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return told.stdout.strip() or "unknown"


# -- for people -----------------------------------------------------------------------------------

HEADER = ("scenario", "engine", "measure", "value", "compared with", "ratio", "goal", "met")


def table_rows(results: Sequence[Result]) -> list[tuple[str, ...]]:
    return [
        (
            result.scenario,
            result.engine,
            result.measure,
            f"{amount(result.value)} {result.unit}",
            compared(result),
            "" if result.ratio is None else f"{result.ratio:.2f}",
            result.goal or "",
            {True: "yes", False: "**no**", None: ""}[result.met],
        )
        for result in results
    ]


def compared(result: Result) -> str:
    name = result.peer or result.floor
    if name is None:
        return ""
    if result.compared_value is None:
        return name
    return f"{name}: {amount(result.compared_value)}"


def amount(value: float) -> str:
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def markdown(results: Sequence[Result]) -> str:
    """The table, as it stands in documents."""
    lines = ["| " + " | ".join(HEADER) + " |", "|---|---|---|---:|---|---:|---|---|"]
    lines += ["| " + " | ".join(row) + " |" for row in table_rows(results)]
    return "\n".join(lines)


def plain(results: Sequence[Result]) -> str:
    """The table, for a terminal."""
    rows = [HEADER, *table_rows(results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def plot(results: Sequence[Result], path: Path) -> None:
    """Ratios as bars: to the right of 1 is better than what it is compared with."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    shown = [result for result in results if result.ratio is not None]
    if not shown:
        return
    names = [f"{r.scenario}: {r.measure} ({r.engine})" for r in shown]
    colours = {True: "#2a7f4f", False: "#b3382c", None: "#6f7f8f"}
    figure, axes = plt.subplots(figsize=(13, 1.2 + 0.38 * len(shown)))
    bars = axes.barh(names, [r.ratio or 0.0 for r in shown], color=[colours[r.met] for r in shown])
    axes.bar_label(bars, labels=[f" {r.ratio:.2f}  {compared(r)}" for r in shown], fontsize=7)
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.margins(x=0.3)
    axes.invert_yaxis()
    axes.set_xlabel("ratio to the rival, floor or former state (log scale)")
    axes.set_title("green: goal met, red: missed, grey: no goal", fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)


# -- where it is kept -----------------------------------------------------------------------------


def save(results: Sequence[Result], about: dict[str, Any]) -> Path:
    """Write lines, table and plot of one measurement into a folder of its own."""
    folder = RESULTS / f"{time.strftime('%Y%m%d-%H%M%S')}-{commit()}"
    folder.mkdir(parents=True)
    lines = [about, *(result.line() for result in results)]
    (folder / "results.jsonl").write_bytes(b"".join(msgspec.json.encode(x) + b"\n" for x in lines))
    (folder / "table.md").write_text(f"{told(about)}\n\n{markdown(results)}\n")
    plot(results, folder / "ratios.png")
    return folder


def publish(results: Sequence[Result], about: dict[str, Any]) -> None:
    """Make this measurement the one that the documents show."""
    text = f"{told(about)}\n\n{markdown(results)}\n"
    PUBLISHED.write_text(f"# Last good results\n\nWritten by `--publish`.\n\n{text}")
    page = PERFORMANCE_PAGE.read_text()
    before, _, rest = page.partition(TABLE_BEGINS)
    _, _, after = rest.partition(TABLE_ENDS)
    PERFORMANCE_PAGE.write_text(f"{before}{TABLE_BEGINS}\n\n{text}\n{TABLE_ENDS}{after}")


def told(about: dict[str, Any]) -> str:
    return (
        f"{about['date']}, commit {about['commit']}, {about['cpus']} CPUs ({about['machine']}), "
        f"Python {about['python']}, PostgreSQL {about['postgres'] or 'not measured'}, "
        f"SQLite {about['sqlite']}."
    )
