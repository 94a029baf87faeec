"""Rounds: repeated when the machine was disturbed, kept when somebody interrupts."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.calibration import Calibration, Gauge
from benchmarks.peers.peer import Peers
from benchmarks.progress import Progress
from benchmarks.scale import QUICK, Scale
from benchmarks.stand import Interrupted, Stand

QUIET, LOUD, LOUDER = (Calibration(cpu_s, 0.01) for cpu_s in (0.2, 0.4, 0.8))
REPEATS = 2


class Scripted(Gauge):
    """Calibrations as the test wants them; quiet when there are no more."""

    def __init__(self, *script: Calibration) -> None:
        super().__init__()
        self.taken = [QUIET]
        self._script = iter(script)

    def take(self, folder: Path) -> Calibration:
        self.taken.append(next(self._script, QUIET))
        return self.taken[-1]


def stand_with(folder: Path, *script: Calibration) -> Stand:
    scale = Scale(rounds=2, repeats=REPEATS, sweep=QUICK.sweep)
    progress = Progress([], stream=io.StringIO())
    return Stand("sqlite", scale, folder, progress, Scripted(*script), Peers())


@pytest.fixture
def numbers() -> Iterator[int]:
    return iter(range(100))


async def test_quiet_rounds_are_measured_once(tmp_path: Path, numbers: Iterator[int]) -> None:
    async def one() -> int:
        return next(numbers)

    found = await stand_with(tmp_path).rounds(one)
    assert [0, 1] == [each.value for each in found]
    assert [(QUIET, QUIET)] * 2 == [each.around for each in found]


async def test_a_disturbed_round_is_repeated(tmp_path: Path, numbers: Iterator[int]) -> None:
    """A noise after it counts as one before it does."""

    async def one() -> int:
        return next(numbers)

    found = await stand_with(tmp_path, QUIET, LOUD).rounds(one)
    assert [1, 2] == [each.value for each in found]


async def test_of_rounds_that_stay_disturbed_the_least_is_kept(
    tmp_path: Path, numbers: Iterator[int]
) -> None:
    """After a bounded number of repeats."""

    async def one() -> int:
        return next(numbers)

    script = [LOUDER, QUIET, LOUD, QUIET, LOUDER, QUIET]
    found = await stand_with(tmp_path, *script).once(one)
    assert (1, (LOUD, QUIET)) == (found.value, found.around)
    assert 1 + REPEATS == next(numbers)


async def test_what_takes_long_is_not_repeated(tmp_path: Path, numbers: Iterator[int]) -> None:
    async def one() -> int:
        return next(numbers)

    found = await stand_with(tmp_path, LOUD).once(one, again=False)
    assert (0, (LOUD, QUIET)) == (found.value, found.around)


async def test_finished_rounds_survive_an_interruption(tmp_path: Path) -> None:
    """The round that went on is lost, what follows is not measured."""
    stand = stand_with(tmp_path)
    begun = [asyncio.Event(), asyncio.Event()]
    waiting = iter(begun)

    async def one() -> int:
        event = next(waiting)
        event.set()
        if event is begun[1]:
            await asyncio.Event().wait()
        return 7

    measuring = asyncio.create_task(stand.rounds(one))
    await begun[1].wait()
    measuring.cancel()
    assert [7] == [each.value for each in await measuring]
    assert stand.interrupted
    with pytest.raises(Interrupted):
        await stand.rounds(one)
