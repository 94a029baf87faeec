"""How much slots do before the event loop turns.

Attempts that never wait would else keep from it, for as long as any are there, all that brings more
of them and all that records how they ended.
"""

from __future__ import annotations

import asyncio
import math

TURN_MAX = 64  # attempts, of all slots together
TURN_S_MAX = 0.001  # and no more begins after this time


class LoopTurn:
    """One turn of the event loop, and what its slots may still do in it."""

    def __init__(self) -> None:
        self._left = TURN_MAX
        self._ends_at = math.inf  # not known yet

    def is_over(self, now: float) -> bool:
        """One attempt more has ended: whether the loop should have its turn."""
        if self._left == TURN_MAX:
            self._ends_at = now + TURN_S_MAX
            asyncio.get_running_loop().call_soon(self._begin)
        self._left -= 1
        return self._left <= 0 or now >= self._ends_at

    def _begin(self) -> None:
        self._left = TURN_MAX
