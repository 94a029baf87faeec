"""`python -m tests.simulation --seeds 2000`: live through many worlds, say which broke a rule.

The last line on stdout is one JSON object; everything for people goes to stderr.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from tests.simulation.ablations import ABLATIONS
from tests.simulation.world import run_seed

EVENTS_SHOWN = 40
TWICE_EVERY = 100  # one seed in so many is lived through twice, to see that it is the same world
FLOOR_SEEDS = 2_000  # from so many seeds on the floors below are asked for
FAILURES_SHOWN = 5
CHUNK = 10

# In how many of 2,000 worlds at least: a place that is never reached is not tested.
FLOORS = {
    "steal": 400,
    "begun on arrival": 400,
    "helper begin": 200,
    "lost answer of move_and_begin": 20,
    "lost answer of begin": 80,
    "lost answer of finish": 100,
    "lost answer of create": 80,
    "unknown answer": 200,
    "keyed repeat": 50,
    "repeated result": 100,
    "late result": 200,
    "held result": 100,
    "held and lapsed": 50,
    "passed over": 100,
    "recall": 100,
    "swept": 200,
    "same number again": 300,
    "buried": 200,
    "buried with attempts": 60,
    "buried, and went on elsewhere": 40,
    "swept take-back": 2,
    "crash with attempts": 200,
    "freeze beyond lease": 400,
    "stall": 100,
    "shutdown": 100,
    "outcome interrupted": 50,
    "outcome abandoned": 20,
    "hang": 200,
    "attempt asked to end": 50,
    "extended": 200,
    "overlap": 10,
    "duplicate": 100,
    "missed": 200,
    "catch-up": 200,
    "ended done": 1_000,
    "ended dead": 200,
    "ended expired": 80,
    "ended cancelled": 30,
    "change during an attempt": 400,
    "barrier": 5,
    "refused conflict": 80,
    "pause ok": 400,
    "pause until ok": 400,
    "pause ended": 200,
    "resume ok": 400,
    "run_now ok": 400,
    "retry ok": 100,
    "purge": 200,
    "calm": 50,
    "outage": 200,
    "own attempt outlived its reservation": 20,
    "action undecidable": 50,
    "attempt lost": 100,
    "late commit": 600,
    "arrival behind a mark": 400,
    "held row passed over": 600,
    "clock set ahead": 400,
    "clock set back": 400,
    "guest begin": 200,
    "guest begin for a queue": 100,
    "outcome unserved": 400,
    "long read": 200,
    "read waited for a connection": 150,
    "armed": 400,
    "armed and confirmed": 400,
    "armed and changed": 80,
}


class Report(NamedTuple):
    """What a process says about one seed."""

    seed: int
    rule: str | None
    text: str
    reached: list[str]


def live(seed: int, ablation: str | None) -> Report:
    """One seed, in whatever process."""
    guard = None if ablation is None else ABLATIONS[ablation]
    outcome = run_seed(seed, guard)
    reached = list(outcome.coverage)
    if outcome.violations:
        return Report(seed, outcome.violations[0].rule, _story(seed, ablation), reached)
    if seed % TWICE_EVERY == 0 and run_seed(seed, guard).history.digest() != (
        outcome.history.digest()
    ):
        text = f"seed {seed}: two lives of it differ, so it cannot be replayed"
        return Report(seed, "determinism", text, reached)
    return Report(seed, None, "", reached)


def _story(seed: int, ablation: str | None) -> str:
    """What is needed to understand a failure, and to see it again."""
    outcome = run_seed(seed, None if ablation is None else ABLATIONS[ablation])
    again = f"python -m tests.simulation --seed {seed}"
    if ablation is not None:
        again += f" --ablation {ablation}"
    lines = [f"seed {seed}: {violation}" for violation in outcome.violations]
    lines += [str(event) for event in outcome.events[-EVENTS_SHOWN:]]
    return "\n".join([*lines, f"replay: {again}"])


def live_all(seeds: range, ablation: str | None, processes: int) -> Iterator[Report]:
    task = functools.partial(live, ablation=ablation)
    if processes <= 1:
        yield from map(task, seeds)
        return
    # A process lives through one chunk: a world leaves its crashed workers behind in memory, and
    # the collector would look at all of them again and again.
    gc.freeze()
    with multiprocessing.get_context("fork").Pool(processes, maxtasksperchild=1) as pool:
        yield from pool.imap_unordered(task, seeds, chunksize=CHUNK)


class Progress:
    """A line that updates on a terminal, a line every tenth elsewhere."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._is_terminal = sys.stderr.isatty()

    def step(self, failures: int) -> None:
        self._done += 1
        text = f"{self._done}/{self._total} seeds, {failures} failures"
        if self._is_terminal:
            print(f"\r{text}", end="", file=sys.stderr, flush=True)
        elif self._done % max(1, self._total // 10) == 0:
            print(text, file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._is_terminal:
            print(file=sys.stderr)


def shortfalls(reached: Counter[str], seeds: int) -> list[str]:
    """Places that were not reached often enough."""
    if seeds < FLOOR_SEEDS:
        return []
    return [
        f"coverage: {place} in {reached[place]} of {seeds} seeds, at least {floor} of 2000 wanted"
        for place, floor in FLOORS.items()
        if reached[place] * FLOOR_SEEDS < floor * seeds
    ]


def main(arguments: list[str] | None = None) -> int:
    options = _parse(arguments)
    if options.seed is not None:
        return _replay(options.seed, options.ablation)
    seeds = range(options.first, options.first + options.seeds)
    reached: Counter[str] = Counter()
    rules: Counter[str] = Counter()
    progress = Progress(len(seeds))
    started = time.monotonic()
    for report in live_all(seeds, options.ablation, options.processes):
        reached.update(report.reached)
        if report.rule is not None:
            rules[report.rule] += 1
            if rules.total() <= FAILURES_SHOWN:
                print(f"\n{report.text}\n", file=sys.stderr)
        progress.step(rules.total())
    progress.end()
    seeds_per_s = len(seeds) / (time.monotonic() - started)
    missing = shortfalls(reached, len(seeds)) if options.ablation is None else []
    _print_coverage(reached, rules, missing)
    failures = rules.total()
    summary = {"seeds": len(seeds), "failures": failures, "seeds_per_s": round(seeds_per_s, 1)}
    print(json.dumps(summary), flush=True)
    return 1 if failures or missing else 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many worlds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="replay this one and show all of it")
    parser.add_argument("--ablation", choices=sorted(ABLATIONS), help="switch this guard off")
    parser.add_argument("--processes", type=int, default=2)
    return parser.parse_args(arguments)


def _replay(seed: int, ablation: str | None) -> int:
    outcome = run_seed(seed, None if ablation is None else ABLATIONS[ablation])
    for event in outcome.events:
        print(event)
    for violation in outcome.violations:
        print(f"seed {seed}: {violation}")
    return 1 if outcome.violations else 0


def _print_coverage(reached: Counter[str], rules: Counter[str], missing: list[str]) -> None:
    print("reached in so many worlds:", file=sys.stderr)
    for place in sorted(reached):
        floor = f"  (floor {FLOORS[place]} of 2000)" if place in FLOORS else ""
        print(f"{reached[place]:8}  {place}{floor}", file=sys.stderr)
    for rule, count in rules.most_common():
        print(f"{count:8}  VIOLATED {rule}", file=sys.stderr)
    for line in missing:
        print(line, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
