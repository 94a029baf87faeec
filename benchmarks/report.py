"""What was measured: values, statistics, the file of a run and its table for a terminal."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Literal, TypeVar

import msgspec

from benchmarks.calibration import Calibration, is_disturbed
from gnomon import __version__

ROOT = Path(__file__).parents[1]
RUNS = Path(__file__).parent / "results" / "runs"  # not in the repository
T = TypeVar("T")


class Cost(msgspec.Struct, kw_only=True, frozen=True):
    """What one action cost. `wal_bytes` on SQLite: all that the processes wrote."""

    python_us: float
    server_us: float | None = None
    wal_bytes: float | None = None


class Sample(msgspec.Struct, frozen=True):
    """What one side reached in one round."""

    value: float
    cost: Cost | None = None


class Compared(msgspec.Struct, kw_only=True):
    """What Gnomon stands beside. `kind`: another system, the least that any program could do, or
    itself in another state."""

    name: str
    kind: Literal["peer", "floor", "before"]
    value: float
    ratio: float
    rounds: list[float] = []
    cost: Cost | None = None
    extra: dict[str, Any] = {}


class Series(msgspec.Struct, kw_only=True):
    """Something over time, for a plot."""

    title: str
    unit: str
    lines: dict[str, list[tuple[float, float]]]  # (seconds, value)


class Result(msgspec.Struct, kw_only=True):
    """One figure of Gnomon's, with its rounds, beside others.

    A ratio is how many times better than a peer, or what part of a floor or of the former state is
    reached: more is better. In `growth` and `memory` it is the growth: less is better.
    """

    scenario: str
    measure: str
    engine: str
    unit: str
    value: float
    rounds: list[float] = []
    cost: Cost | None = None
    compared: list[Compared] = []
    goal: str | None = None
    met: bool | None = None
    around: list[tuple[Calibration, Calibration]] = []  # the rounds
    series: list[Series] = []
    extra: dict[str, Any] = {}

    def disturbed_count(self, best: Calibration | None) -> int:
        """How many of the rounds were on a disturbed machine, by the best of the whole run."""
        return 0 if best is None else sum(is_disturbed(pair, best) for pair in self.around)


class Run(msgspec.Struct, kw_only=True):
    """One measurement, as it is kept."""

    about: dict[str, Any]
    results: list[Result] = []
    best: Calibration | None = None  # the best calibration that was seen
    calibrations: int = 0
    disturbed: int = 0  # of them
    took_s: dict[str, float] = {}  # by scenario and engine
    failed: list[str] = []
    missing: dict[str, str] = {}  # peers that could not be installed, and why
    interrupted: bool = False


# -- statistics -----------------------------------------------------------------------------------


def percentiles(values: Sequence[float], *, name: str = "") -> dict[str, float]:
    """p50, p99 and the largest, the given values being seconds, in milliseconds."""
    found = {"p50": median(values), "p99": quantile(values, 0.99), "max": max(values)}
    return {f"{name}{key}_ms": value * 1000 for key, value in found.items()}


def quantile(values: Sequence[float], part: float) -> float:
    """The value below which that part of the values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def median_cost(costs: Iterable[Cost | None]) -> Cost | None:
    """Of each field by itself."""
    known = [cost for cost in costs if cost is not None]
    if not known:
        return None
    return Cost(
        python_us=median(cost.python_us for cost in known),
        server_us=_median(cost.server_us for cost in known),
        wal_bytes=_median(cost.wal_bytes for cost in known),
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def middle(samples: Sequence[Sample]) -> float:
    return median(sample.value for sample in samples)


def peer_of(
    name: str, samples: Sequence[Sample], ours: float, *, more_is_better: bool = True
) -> Compared:
    """A peer's rounds beside Gnomon's value."""
    value = middle(samples)
    return Compared(
        name=name,
        kind="peer",
        value=value,
        ratio=ours / value if more_is_better else value / ours,
        rounds=[sample.value for sample in samples],
        cost=median_cost(sample.cost for sample in samples),
    )


def windows(
    points: Iterable[tuple[float, T]], width_s: float, fold: Callable[[list[T]], float]
) -> list[tuple[float, float]]:
    """Points in time, folded window by window; each window stands at its end."""
    found: dict[int, list[T]] = {}
    for at, value in points:
        found.setdefault(int(at // width_s), []).append(value)
    return [((place + 1) * width_s, fold(values)) for place, values in sorted(found.items())]


# -- circumstances --------------------------------------------------------------------------------


def circumstances(**known: Any) -> dict[str, Any]:
    """What must be known to read the figures."""
    return {
        "gnomon": __version__,
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d %H:%M %Z"),
        "cpus": os.cpu_count(),
        "processor": processor(),
        "machine": platform.machine(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "load_before": list(os.getloadavg()),
        **known,
    }


def processor() -> str:
    """The processor's name, as Linux knows it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown processor"


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


# -- kept and shown -------------------------------------------------------------------------------


def rounded(value: Any) -> Any:
    """Four significant digits: more would pretend."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {name: rounded(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(part) for part in value]
    return value


def save(run: Run, path: Path) -> None:
    """Write the file of a run, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = msgspec.json.format(msgspec.json.encode(rounded(msgspec.to_builtins(run))), indent=1)
    unfinished = path.with_suffix(".tmp")
    unfinished.write_bytes(text + b"\n")
    unfinished.replace(path)


def load(path: Path) -> Run:
    return msgspec.json.decode(path.read_bytes(), type=Run)


def amount(value: float) -> str:
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


HEADER = (
    "scenario",
    "engine",
    "measure",
    "system",
    "value",
    "ratio",
    "CPU µs",
    "WAL B",
    "goal",
    "met",
)


def plain(run: Run) -> str:
    """The table, for a terminal."""
    rows = [HEADER, *(row for result in run.results for row in _rows(result, run.best))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _rows(result: Result, best: Calibration | None) -> list[tuple[str, ...]]:
    mark = " (disturbed)" if result.disturbed_count(best) else ""
    met = {True: "yes", False: "NO", None: ""}[result.met]
    unit = result.unit
    first = (result.scenario, result.engine, result.measure, f"Gnomon{mark}")
    last = (result.goal or "", met)
    return [
        (*first, f"{amount(result.value)} {unit}", "", *_cost(result.cost), *last),
        *(
            ("", "", "", each.name, f"{amount(each.value)} {unit}", f"{each.ratio:.2f}",
             *_cost(each.cost), "", "")
            for each in result.compared
        ),
    ]  # fmt: skip


def _cost(cost: Cost | None) -> tuple[str, str]:
    if cost is None:
        return "", ""
    server = "" if cost.server_us is None else f" + {amount(cost.server_us)}"
    wal = "" if cost.wal_bytes is None else amount(cost.wal_bytes)
    return f"{amount(cost.python_us)}{server}", wal
