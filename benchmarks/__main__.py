"""`python -m benchmarks`: measures, and writes one JSON object a line to standard output."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

import asyncpg
import msgspec
import uvloop

from benchmarks.report import Result, circumstances, plain, publish, save
from benchmarks.scenarios import SCENARIOS
from benchmarks.stand import ENGINES, FULL, QUICK, Engine, Scale, Stand, progress, stand_for

GROWTH_FULL = 10_000_000
SQLITE_QUICK = ("drain", "create", "growth")  # beside PostgreSQL, within the minute


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small numbers, under a minute")
    parser.add_argument("--only", default="", help=f"comma-separated: {', '.join(SCENARIOS)}")
    parser.add_argument("--engine", choices=get_args(Engine), help="default: both")
    parser.add_argument("--rounds", type=int, help="of A and B in turn, where they are repeated")
    parser.add_argument("--count", type=int, help="drain, burst and cancel so many, create a fifth")
    parser.add_argument("--full-growth", action="store_true", help="growth up to 10 M pending, too")
    parser.add_argument("--profile", action="store_true", help="show where the time goes (stderr)")
    parser.add_argument("--publish", action="store_true", help="let the documents show this one")
    options = parser.parse_args(arguments)
    partial = options.quick or options.only or options.engine or options.count or options.profile
    if options.publish and partial:
        parser.error("--publish is for a full measurement, without --quick, --only and the like")
    return options


def scale_of(options: argparse.Namespace) -> Scale:
    scale = QUICK if options.quick else FULL
    if options.rounds:
        scale = replace(scale, rounds=options.rounds)
    if options.count:
        created = max(1_000, options.count // 5)
        scale = replace(
            scale, drained=options.count, burst=options.count, created=created,
            campaign=options.count,
        )  # fmt: skip
    if options.full_growth:
        scale = replace(scale, growth=(*scale.growth, GROWTH_FULL))
    return scale


def chosen(options: argparse.Namespace, engine: Engine) -> list[str]:
    """All, unless some are named; of SQLite the quick ones only, if it is to be quick."""
    if options.quick and not options.only and not options.engine and engine == "sqlite":
        return list(SQLITE_QUICK)
    names = [name for name in options.only.split(",") if name] or list(SCENARIOS)
    unknown = [name for name in names if name not in SCENARIOS]
    if unknown:
        raise SystemExit(
            f"there is no scenario {', '.join(unknown)}; known: {', '.join(SCENARIOS)}"
        )
    return names


async def measure_on(stand: Stand, names: Sequence[str], failed: list[str]) -> list[Result]:
    """What was measured; a scenario that breaks is named in `failed`, and the others go on."""
    found = []
    for name in names:
        began = time.perf_counter()
        progress(f"{name} on {stand.engine}")
        try:
            async for result in SCENARIOS[name](stand):
                found.append(result)
                print(msgspec.json.encode(result.line()).decode(), flush=True)
        except Exception:
            progress(f"{name} on {stand.engine} failed:\n{traceback.format_exc()}")
            failed.append(f"{name} on {stand.engine}")
        progress(f"{name} on {stand.engine} took {time.perf_counter() - began:.1f} s")
    return found


async def server_version(stand: Stand) -> str:
    """The version, after checking that the server is durable: else no figure means anything."""
    assert stand.server is not None
    connection = await asyncpg.connect(stand.server.dsn)
    try:
        for name in ("fsync", "synchronous_commit", "full_page_writes"):
            value = await connection.fetchval(f"SHOW {name}")
            if value != "on":
                raise RuntimeError(f"{name} is {value}")
        return str(await connection.fetchval("SHOW server_version"))
    finally:
        await connection.close()


async def measure_all(options: argparse.Namespace) -> int:
    results: list[Result] = []
    failed: list[str] = []
    version: str | None = None
    scale = scale_of(options)
    about = circumstances(None)
    for engine in [options.engine] if options.engine else ENGINES:
        with stand_for(engine, scale, profiled=options.profile) as stand:
            if stand.server is not None:
                version = await server_version(stand)
            results += await measure_on(stand, chosen(options, engine), failed)
    about["postgres"] = version
    progress(f"written to {save(results, about)}")
    if options.publish and not failed:
        publish(results, about)
    print(plain(results), file=sys.stderr)
    missed = [f"{r.scenario} ({r.engine})" for r in results if r.met is False]
    if missed:
        progress(f"goals missed: {', '.join(missed)}")
    if failed:
        progress(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def main() -> int:
    return uvloop.run(measure_all(parsed()))


if __name__ == "__main__":
    sys.exit(main())
