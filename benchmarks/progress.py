"""Shows people how far the measurement is: what goes on, which round, how long it still takes.

On a terminal the last line is kept up to date; elsewhere each piece of news is a line of its own.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, TextIO

PACES = (0.3, 5.0)  # how much faster or slower than expected a machine is believed to be
ERASE = "\r\x1b[K"


class Step(NamedTuple):
    """A scenario on an engine, and how long it is expected to take."""

    scenario: str
    engine: str
    expected_s: float

    def __str__(self) -> str:
        return f"{self.scenario} on {self.engine}"


class Progress:
    """What is done and what is left."""

    def __init__(
        self,
        steps: Sequence[Step],
        *,
        stream: TextIO = sys.stderr,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._waiting = list(steps)
        self._stream = stream
        self._clock = clock
        self._terminal = stream.isatty()
        self._step: Step | None = None
        self._began = clock()
        self._expected_s = self._took_s = 0.0  # of what is finished
        self._round = ""

    def begin(self, step: Step) -> None:
        self._waiting.remove(step)
        self._step, self._began, self._round = step, self._clock(), ""
        self.say(self.status())

    def end(self) -> float:
        """The scenario is over; the seconds that it took."""
        assert self._step is not None
        took_s = self._clock() - self._began
        self._expected_s += self._step.expected_s
        self._took_s += took_s
        self.say(f"{self._step} took {lasting(took_s)}")
        self._step = None
        return took_s

    def round(self, number: int, count: int, *, again: int = 0) -> None:
        """A round begins: the first is number 1; `again`: for how many times it is repeated."""
        self._round = f"round {number} of {count}" + (f", repeated ({again})" if again else "")
        if self._terminal:
            self.refresh()
        else:
            self.say(self.status())

    def say(self, text: str) -> None:
        """A line that stays."""
        erased = ERASE if self._terminal else ""
        self._stream.write(f"{erased}{time.strftime('%H:%M:%S')} {text}\n")
        self.refresh()

    def refresh(self) -> None:
        """Bring the last line of a terminal up to date."""
        if self._terminal and self._step is not None:
            self._stream.write(f"{ERASE}{self.status()}")
        self._stream.flush()

    def close(self) -> None:
        if self._terminal:
            self._stream.write(ERASE)
            self._stream.flush()

    def status(self) -> str:
        parts = [str(self._step) if self._step else "", self._round]
        shown = ": ".join(part for part in parts if part)
        return f"{shown}, about {lasting(self.left_s())} left"

    def left_s(self) -> float:
        """Seconds, by what was expected and how the finished ones kept to it."""
        pace = pace_of(self._expected_s, self._took_s)
        left_s = pace * sum(step.expected_s for step in self._waiting)
        if self._step is not None:
            left_s += max(0.0, pace * self._step.expected_s - (self._clock() - self._began))
        return left_s


def pace_of(expected_s: float, took_s: float) -> float:
    """How many times longer than expected things take here."""
    if expected_s <= 0:
        return 1.0
    least, most = PACES
    return min(max(took_s / expected_s, least), most)


def lasting(seconds: float) -> str:
    """A length of time as people say it."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    if minutes >= 10:
        return f"{minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
