"""What the base of the distribution weighs: packages, megabytes; and that it needs no extra."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

DISTRIBUTION = "gnomon-scheduler"
PACKAGES_MAX = 20
MEGABYTES_MAX = 40
Extras = frozenset[str]
OURS_MB = 4  # installed editable here, so its files are not counted


def needed_by(
    name: str, extras: frozenset[str] = frozenset()
) -> Iterator[tuple[str, frozenset[str]]]:
    """What pip would install for it, one step down."""
    for line in distribution(name).requires or ():
        wanted = Requirement(line)
        marker = wanted.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in {"", *extras}):
            yield re.sub(r"[-_.]+", "-", wanted.name).lower(), Extras(wanted.extras)


def closure(name: str) -> set[str]:
    """All packages that installing one brings."""
    found: dict[str, Extras] = {}
    waiting = [(name, Extras())]
    while waiting:
        package, extras = waiting.pop()
        if package not in found or extras - found[package]:
            found[package] = found.get(package, Extras()) | extras
            waiting.extend(needed_by(package, found[package]))
    return set(found) - {name}


def megabytes(name: str) -> float:
    files = (file.locate() for file in distribution(name).files or ())
    sizes = (path.stat().st_size for path in map(_plain, files) if path.is_file())
    return sum(sizes) / 1e6


def _plain(path: object) -> Path:
    return Path(str(path))


def test_the_base_is_few_packages() -> None:
    """Under 20, beside Gnomon itself; one that brings many shows here."""
    packages = closure(DISTRIBUTION)
    assert {"aiohttp", "msgspec", "typer"} <= packages
    assert len(packages) < PACKAGES_MAX, sorted(packages)


def test_the_base_is_small() -> None:
    """Under 40 MB with its compiled files."""
    sizes = {name: megabytes(name) for name in closure(DISTRIBUTION)}
    assert sum(sizes.values()) + OURS_MB < MEGABYTES_MAX, sizes


def test_a_wrong_zone_says_so_where_there_are_none() -> None:
    """Without the system's zones and without tzdata the remedy is named."""
    program = """
import sys, zoneinfo
zoneinfo.reset_tzpath([])
sys.modules["tzdata"] = None
from gnomon.model.cron import find_zone
find_zone("Europe/Berlin")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert "this machine has no time zones: pip install tzdata" in done.stderr
