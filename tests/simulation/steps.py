"""The database's clock is set: ahead or back by seconds, for good or for a moment.

Nothing is promised but that it is no loss: what is due is due by this clock, wherever it stands.
What the rules remember of the past is told anew as if the clock had always been right, so that they
ask for the same punctuality after a step as before it.
"""

from __future__ import annotations

import asyncio
import random
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from gnomon.testing.virtual import VirtualClock, VirtualLoop
from tests.simulation.drawing import seconds

if TYPE_CHECKING:
    from tests.simulation.world import World

STEPPED_WORLDS = 0.3
STEPPED_CALM_WORLDS = 0.5  # where nothing else excuses a delay
PAUSE_S = 8.0  # between two steps, on average
STEP_S = (0.5, 12.0)
OFFSET_MAX = timedelta(seconds=20)  # from the true time, all steps taken together
MOMENT_S = (0.5, 3.0)  # how long a wrong clock is left wrong, where it is set right again


class SteppedClock(VirtualClock):
    """The database's clock, which somebody may set."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__(loop)
        self.offset = timedelta(0)
        self.first = self._last = super().now()
        self.stepped_s: list[float] = []  # when it was set, in seconds of the loop

    def now(self) -> datetime:
        return super().now() + self.offset

    @property
    def last(self) -> datetime:
        """The latest time that it has ever shown."""
        return max(self._last, self.now())

    def step(self, by: timedelta) -> None:
        self._last = self.last
        self.offset += by
        self.first = min(self.first, self.now())
        self.stepped_s.append(self._loop.time())

    def was_set_since(self, second: float) -> bool:
        return bool(self.stepped_s) and self.stepped_s[-1] >= second


class Steps:
    """Who sets the clock of a world, in some of the worlds."""

    def __init__(self, seed: int, *, is_calm: bool) -> None:
        self.dice = random.Random(f"steps {seed}")
        share = STEPPED_CALM_WORLDS if is_calm else STEPPED_WORLDS
        self.are_on = self.dice.random() < share

    async def keep_stepping(self, world: World) -> None:
        dice = self.dice
        while self.are_on:
            await asyncio.sleep(dice.expovariate(1 / PAUSE_S))
            by = seconds(dice.uniform(*STEP_S)) * dice.choice((-1, 1))
            if abs(world.clock.offset + by) > OFFSET_MAX:
                by = -by
            _set(world, by)
            if dice.random() < 0.4:
                await asyncio.sleep(dice.uniform(*MOMENT_S))
                _set(world, -by)


def _set(world: World, by: timedelta) -> None:
    world.history.note("database", "clock set", by.total_seconds())
    world.history.reach("clock set ahead" if by > timedelta(0) else "clock set back")
    world.clock.step(by)
    world.holds.clock_was_set(by)
    world.rules.clock_was_set(by, noticed_within=world.config.poll)
