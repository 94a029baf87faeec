"""What a process of the command line does for all that runs in it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest

from gnomon.cli.process import YOUNG_MAX, together


@pytest.fixture
def collector() -> Iterator[None]:
    """As it was, whatever a test does to it."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


@pytest.mark.usefixtures("collector")
async def test_a_lasting_process_looks_for_garbage_seldom_and_not_among_what_was_loaded() -> None:
    """Looking is a tenth of what an attempt costs; older generations are looked at as before."""
    before = gc.get_threshold()
    seen: list[tuple[tuple[int, int, int], int]] = []

    async def part() -> None:
        seen.append((gc.get_threshold(), gc.get_freeze_count()))

    await together(part(), stop=asyncio.Event())

    ((threshold, frozen),) = seen
    assert (YOUNG_MAX, *before[1:]) == threshold
    assert frozen > 1_000
