"""`python -m benchmarks`: measures, keeps what it measured in a file, and makes the page of it."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

import uvloop

from benchmarks.page import publish
from benchmarks.peers.peer import PEERS
from benchmarks.progress import Step, lasting
from benchmarks.running import measure_all
from benchmarks.scale import ENGINES, FULL, QUICK, Engine, Scale
from benchmarks.scenarios import SCENARIOS

PENDING_FULL = 10_000_000
SNAPSHOT_FULL_S = 300.0
SQLITE_QUICK = ("drain", "create", "growth")  # beside PostgreSQL, if it is to be quick
INTERRUPTED = 130  # as shells say it


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog=scenario_list(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="small numbers: to see that it works")
    parser.add_argument("--only", type=names_of(SCENARIOS), default=[], help="scenarios, by commas")
    parser.add_argument("--engine", choices=get_args(Engine), help="default: both")
    peers = [peer.key for peer in PEERS]
    parser.add_argument(
        "--peers", type=names_of([*peers, "none"]), default=peers,
        help=f"by commas: {', '.join(peers)}; none",
    )  # fmt: skip
    parser.add_argument("--rounds", type=positive, help="of all sides in turn; the median counts")
    parser.add_argument(
        "--repeats", type=int, help="of a round on a disturbed machine, before it is only marked"
    )
    parser.add_argument(
        "--count", type=positive, help="drain, burst and cancel so many; a fifth in bulk"
    )
    parser.add_argument("--minutes", type=float, help="of `sustained`; default 5")
    parser.add_argument(
        "--full-growth", action="store_true",
        help="up to 10 million pending, too, and a snapshot that is held for 5 minutes",
    )  # fmt: skip
    parser.add_argument("--profile", action="store_true", help="show where the time goes")
    parser.add_argument(
        "--publish", nargs="*", type=run_file, metavar="FILE",
        help="measure nothing: make docs/benchmarks.md of these runs, or of the newest",
    )  # fmt: skip
    return parser.parse_args(arguments)


def names_of(known: Iterable[str]) -> Callable[[str], list[str]]:
    """Reads names that are separated by commas."""

    def read(text: str) -> list[str]:
        names = [name for name in text.split(",") if name]
        unknown = [name for name in names if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(
                f"there is no {', '.join(unknown)}; known: {', '.join(known)}"
            )
        return names

    return read


def run_file(text: str) -> Path:
    path = Path(text)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"there is no file {text}")
    return path


def positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
    return int(text)


def scenario_list() -> str:
    """What each scenario measures and how long it takes."""
    lines = ["scenarios (about so long on two cores: PostgreSQL, SQLite; quick):", ""]
    for name, scenario in SCENARIOS.items():
        times = [
            lasting(expected_s(name, engine, FULL)) if engine in scenario.takes else "not there"
            for engine in ENGINES
        ]
        lines.append(f"  {name}: {', '.join(times)}; {lasting(scenario.quick_s)}")
        lines += textwrap.wrap(
            scenario.about, 90, initial_indent=" " * 6, subsequent_indent=" " * 6
        )
    total_s = sum(step.expected_s for step in planned(FULL, quick=False))
    grown_s = sum(takes.grown_s for each in SCENARIOS.values() for takes in each.takes.values())
    whole, grown = lasting(total_s), lasting(total_s + grown_s)
    lines += [
        "",
        f"All of them take about {whole} on a quiet machine, with --full-growth {grown}.",
        "Rounds on a disturbed machine are repeated, so it may be more.",
        "Ctrl-C ends early and keeps what is there.",
    ]
    return "\n".join(lines)


def scale_of(options: argparse.Namespace) -> Scale:
    scale = QUICK if options.quick else FULL
    if options.rounds:
        scale = replace(scale, rounds=options.rounds)
    if options.repeats is not None:
        scale = replace(scale, repeats=options.repeats)
    if options.minutes:
        scale = replace(scale, sustained_for_s=60 * options.minutes)
    if options.count:
        created = max(1_000, options.count // 5)
        scale = replace(
            scale, drained=options.count, burst=options.count, created=created,
            campaign=options.count,
        )  # fmt: skip
    if options.full_growth:
        scale = replace(
            scale, growth=(*scale.growth, PENDING_FULL), snapshot_for_s=SNAPSHOT_FULL_S,
            loaded_pending=(*scale.loaded_pending, PENDING_FULL),
            console=(*scale.console, PENDING_FULL),
        )  # fmt: skip
    return scale


def expected_s(name: str, engine: Engine, scale: Scale, *, quick: bool = False) -> float:
    scenario = SCENARIOS[name]
    if quick:
        return scenario.quick_s
    takes = scenario.takes[engine]
    longer_s = scale.sustained_for_s - FULL.sustained_for_s if name == "sustained" else 0.0
    grown_s = takes.grown_s if PENDING_FULL in scale.growth else 0.0
    return takes.always_s + takes.round_s * scale.rounds + longer_s + grown_s


def planned(
    scale: Scale, *, quick: bool, only: Sequence[str] = (), engine: Engine | None = None
) -> list[Step]:
    """All, unless some are named; of SQLite the quick ones only, if it is to be quick."""
    steps = []
    for each in [engine] if engine else ENGINES:
        names = only or (SQLITE_QUICK if quick and not engine and each == "sqlite" else SCENARIOS)
        steps += [
            Step(name, each, expected_s(name, each, scale, quick=quick))
            for name in names
            if each in SCENARIOS[name].takes
        ]
    return steps


def main(arguments: Sequence[str] | None = None) -> int:
    options = parsed(arguments)
    if options.publish is not None:
        print(publish(options.publish))
        return 0
    scale = scale_of(options)
    steps = planned(scale, quick=options.quick, only=options.only, engine=options.engine)
    run = uvloop.run(
        measure_all(
            steps, scale, peers=options.peers, profiled=options.profile, quick=options.quick
        )
    )
    if run.interrupted:
        return INTERRUPTED
    return 1 if run.failed else 0


if __name__ == "__main__":
    sys.exit(main())
