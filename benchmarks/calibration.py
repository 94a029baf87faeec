"""How disturbed the machine was: fixed work before and after each round, beside the best seen.

Two kinds of work, for two kinds of neighbours: hashing on all processors at once, and small writes
that are synced one after the other. A round between two calibrations is disturbed if either took
longer than the threshold allows against the best of the whole measurement.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

CPU_THRESHOLD = 1.25
SYNC_THRESHOLD = 2.0
FIRST = 3  # calibrations before anything is measured: the first one alone may be a bad one
HASHED_BYTES = 16 * 1024 * 1024
HASHED_TIMES = 4
SYNCED = 20
SYNCED_BYTES = 8 * 1024


class Calibration(msgspec.Struct, frozen=True):
    """Seconds for the fixed work."""

    cpu_s: float
    sync_s: float


def best_of(taken: Iterable[Calibration]) -> Calibration:
    """The least of each kind."""
    found = list(taken)
    return Calibration(min(c.cpu_s for c in found), min(c.sync_s for c in found))


def strain(taken: Calibration, best: Calibration) -> float:
    """How much longer than allowed the work took; above 1 it was disturbed."""
    return max(
        taken.cpu_s / best.cpu_s / CPU_THRESHOLD, taken.sync_s / best.sync_s / SYNC_THRESHOLD
    )


def is_disturbed(around: Iterable[Calibration], best: Calibration) -> bool:
    """Whether a round between these calibrations counts as disturbed."""
    return any(strain(taken, best) > 1.0 for taken in around)


class Gauge:
    """Takes calibrations and remembers them all."""

    def __init__(self) -> None:
        self.taken: list[Calibration] = []

    @property
    def best(self) -> Calibration:
        return best_of(self.taken)

    def take(self, folder: Path) -> Calibration:
        """Do the work once, on the disk of this folder; some tenths of a second."""
        for _ in range(1 if self.taken else FIRST):
            self.taken.append(Calibration(hash_on_all_processors(), sync_writes(folder)))
        return self.taken[-1]


def hash_on_all_processors() -> float:
    """Seconds until each processor has hashed so much; hashing lets go of the interpreter."""
    data = bytes(HASHED_BYTES)

    def work(_number: int) -> None:
        for _ in range(HASHED_TIMES):
            hashlib.sha256(data).digest()

    count = os.cpu_count() or 1
    with ThreadPoolExecutor(count) as threads:
        began = time.perf_counter()
        list(threads.map(work, range(count)))
        return time.perf_counter() - began


def sync_writes(folder: Path) -> float:
    """Seconds for some small writes, each of them synced."""
    path = folder / "calibration"
    with path.open("wb", buffering=0) as file:
        began = time.perf_counter()
        for _ in range(SYNCED):
            file.write(bytes(SYNCED_BYTES))
            os.fsync(file.fileno())
        took_s = time.perf_counter() - began
    path.unlink()
    return took_s
