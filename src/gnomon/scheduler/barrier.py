"""Callers who wait until an attempt under way has ended: so many at once, and seldom asking.

Each holds a connection of its gateway for as long as an attempt may take, and asks the store again
and again. Without a bound a few hundred of them would leave nothing for anybody else.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gnomon.model.errors import Exhausted

BARRIERS_MAX = 100  # in one process
RETRY_S = 5.0
POLL_MIN_S = 0.05
POLL_MAX_S = 1.0
POLL_GROWTH = 1.5


class Barriers:
    """Counts who waits."""

    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def place(self, *, wanted: bool) -> Iterator[None]:
        """Taken before the change, so that whoever is refused has changed nothing. Errors:
        Exhausted."""
        if not wanted:
            yield
            return
        if self.count >= BARRIERS_MAX:
            raise Exhausted("barriers", value=BARRIERS_MAX, retry_after_s=RETRY_S)
        self.count += 1
        try:
            yield
        finally:
            self.count -= 1


def pauses() -> Iterator[float]:
    """Seconds between questions: short at first, for most attempts are."""
    pause_s = POLL_MIN_S
    while True:
        yield pause_s
        pause_s = min(POLL_MAX_S, pause_s * POLL_GROWTH)
