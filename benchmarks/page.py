"""Makes docs/benchmarks.md and its plots of the files of runs, and of nothing else."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks import svg
from benchmarks.calibration import CPU_THRESHOLD, SYNC_THRESHOLD, Calibration
from benchmarks.progress import lasting
from benchmarks.report import RUNS, Compared, Cost, Result, Run, amount, load
from benchmarks.scenarios import SCENARIOS

ROOT = Path(__file__).parents[1]
KEPT = Path(__file__).parent / "results"  # the files of the page, in the repository
PAGE = ROOT / "docs" / "benchmarks.md"
PLOTS = ROOT / "docs" / "benchmarks"
ENGINE_NAMES = {"postgres": "PostgreSQL", "sqlite": "SQLite"}
BAR_LABEL_CHARS_MAX = 46
HEADER = (
    "| measure | system | value | Gnomon is | Python | server | WAL | rounds | goal |\n"
    "|---|---|---:|---:|---:|---:|---:|---|---|"
)

HOW_TO_READ = """\
[Performance](explain/performance.md) says what is measured, how, and why some goals are missed. *Gnomon \
is*: how many times better than a peer; what part of a floor or of its own former state it reaches; for \
growth how many times more it costs. *Python*, *server*: processor time of one action, in µs; *WAL*: bytes \
of PostgreSQL's log for one action (on SQLite: all bytes that the processes wrote). *Rounds*: the least and \
the most of them."""  # noqa: E501 - a paragraph


Runs = Mapping[str, Run]  # by the names of their files, the oldest first


def publish(files: Sequence[Path]) -> str:
    """Keep these runs, or the newest, in the repository, and make the page of them."""
    sources = {file.resolve() for file in files or [newest()]}
    for old in KEPT.glob("*.json"):
        if old.resolve() not in sources:
            old.unlink()
    for source in sources:
        if source.parent != KEPT.resolve():
            shutil.copyfile(source, KEPT / source.name)
    shutil.rmtree(PLOTS, ignore_errors=True)
    PLOTS.mkdir(parents=True)
    runs = kept()
    for name, text in plots(runs).items():
        (PLOTS / name).write_text(text)
    PAGE.write_text(page(runs))
    return f"{PAGE.relative_to(ROOT)} shows {', '.join(runs)}"


def kept() -> Runs:
    """Those that the page is made of."""
    return {path.name: load(path) for path in sorted(KEPT.glob("*.json"))}


def newest() -> Path:
    found = sorted(RUNS.glob("*.json"))
    if not found:
        raise SystemExit("there is no run to be published; `make bench` makes one")
    return found[-1]


def page(runs: Runs) -> str:
    """The whole page."""
    sources = ", ".join(f"benchmarks/results/{name}" for name in runs)
    parts = [
        "# Benchmarks",
        f"<!-- Made by `make bench-page` of {sources}; do not edit. -->",
        *abouts(runs),
        HOW_TO_READ,
        *(part for name in SCENARIOS for part in section(runs, name)),
    ]
    return "\n\n".join(parts) + "\n"


def abouts(runs: Runs) -> Iterator[str]:
    """When and where the runs were made."""
    if len(runs) > 1:
        yield (
            f"Measured in {len(runs)} runs. What more than one of them measured is shown of the "
            "newest; compare figures of one run only."
        )
    for number, run in enumerate(runs.values(), 1):
        yield f"**Run {number}**: {about(run)}" if len(runs) > 1 else about(run)
        yield from warnings(run)


def shown(runs: Runs, scenario: str, engine: str) -> tuple[int, Run] | None:
    """The newest run that has this scenario, and its number."""
    for number, run in reversed([*enumerate(runs.values(), 1)]):
        if any((scenario, engine) == (each.scenario, each.engine) for each in run.results):
            return number, run
    return None


def about(run: Run) -> str:
    known = run.about
    peers = ", ".join(known.get("peers", [])) or "no peers"
    return (
        f"{known['date']}, commit {known['commit']}, Gnomon {known['gnomon']} beside {peers}. "
        f"{known['cpus']} processors ({known['processor']}, {known['machine']}), "
        f"Linux {known['kernel']}, "
        f"Python {known['python']}, PostgreSQL {known.get('postgres') or 'not measured'}, "
        f"SQLite {known['sqlite']}; rounds: {known['rounds']}; "
        f"{lasting(sum(run.took_s.values()))} in all. The machine was disturbed in {run.disturbed} "
        f"of {run.calibrations} calibrations (more than {CPU_THRESHOLD:g} times the best time for "
        f"fixed work on all processors, or {SYNC_THRESHOLD:g} times for synced writes); a figure "
        "with such a round is marked ⚠."
    )


def warnings(run: Run) -> Iterator[str]:
    if run.about.get("quick"):
        yield (
            "**A short run with small numbers, which shows that measuring works: its figures mean "
            "little.**"
        )
    if run.interrupted:
        yield "**The run was interrupted: only what was finished is here.**"
    for why in run.missing.values():
        yield f"**Missing peer**: {why}"
    for name in run.failed:
        yield f"**Failed**: {name}"


def section(runs: Runs, scenario: str) -> Iterator[str]:
    """A scenario, on both engines."""
    found = {engine: shown(runs, scenario, engine) for engine in ENGINE_NAMES}
    if not any(found.values()):
        return
    yield f"## {scenario}"
    text = SCENARIOS[scenario].about
    yield text[0].upper() + text[1:]
    for engine, title in ENGINE_NAMES.items():
        if (its := found[engine]) is None:
            continue
        number, run = its
        yield f"### {scenario} on {title}" + (f" (run {number})" if len(runs) > 1 else "")
        numbered = results_of(run, scenario, engine)
        yield "\n".join(
            [HEADER, *(row for _, result in numbered for row in rows(result, run.best))]
        )
        names = [name for number, result in numbered for name in plots_of(number, result)]
        if names:
            yield "\n".join(f"![{name.removesuffix('.svg')}](benchmarks/{name})" for name in names)


def results_of(run: Run, scenario: str, engine: str) -> list[tuple[int, Result]]:
    """With their places in the run."""
    return [
        (place, result)
        for place, result in enumerate(run.results)
        if (scenario, engine) == (result.scenario, result.engine)
    ]


def rows(result: Result, best: Calibration | None) -> Iterator[str]:
    mark = " ⚠" if result.disturbed_count(best) else ""
    goal = result.goal or ""
    if result.met is not None:
        goal += ": yes" if result.met else ": **no**"
    value = f"**{amount(result.value)}** {result.unit}{mark}"
    yield _row(result.measure, "Gnomon", value, "", *costs(result.cost), spread(result), goal)
    for each in result.compared:
        value = f"{amount(each.value)} {result.unit}"
        ratio = f"{each.ratio:.2f} x"
        yield _row("", each.name, value, ratio, *costs(each.cost), spread(each), "")


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def costs(cost: Cost | None) -> tuple[str, str, str]:
    if cost is None:
        return "", "", ""
    known = (cost.python_us, cost.server_us, cost.wal_bytes)
    python, server, wal = ("" if value is None else amount(value) for value in known)
    return python, server, wal


def spread(side: Result | Compared) -> str:
    if len(side.rounds) < 2:
        return ""
    return f"{amount(min(side.rounds))} to {amount(max(side.rounds))} ({len(side.rounds)})"


def plots(runs: Runs) -> Mapping[str, str]:
    """File names and their SVG, of all that the page shows."""
    found: dict[str, str] = {}
    for scenario in SCENARIOS:
        for engine in ENGINE_NAMES:
            its = shown(runs, scenario, engine)
            for place, result in results_of(its[1], scenario, engine) if its else ():
                found |= plots_of(place, result)
    return found


def plots_of(number: int, result: Result) -> dict[str, str]:
    """Bars where there are peers, lines where there is a time."""
    name = f"{result.scenario}-{result.engine}-{number}"
    found = {}
    if any(each.kind == "peer" for each in result.compared):
        found[f"{name}.svg"] = svg.bars(f"{result.measure} ({result.unit})", bars_of(result))
    for place, series in enumerate(result.series):
        found[f"{name}-{place}.svg"] = svg.lines(series.title, series.unit, series.lines)
    return found


def bars_of(result: Result) -> list[svg.Bar]:
    return [
        svg.Bar("Gnomon", result.value, amount(result.value)),
        *(
            svg.Bar(each.name[:BAR_LABEL_CHARS_MAX], each.value, amount(each.value), 1)
            for each in result.compared
        ),
    ]
