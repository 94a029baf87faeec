"""What is shown of a measurement, and how long it is believed to take."""

from __future__ import annotations

import io

import pytest

from benchmarks.progress import ERASE, PACES, Progress, Step, lasting, pace_of

DRAIN = Step("drain", "postgres", 60.0)
BURST = Step("burst", "sqlite", 120.0)


class Terminal(io.StringIO):
    """A stream that says it is one."""

    def isatty(self) -> bool:
        return True


class Clock:
    """Moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_time_left_is_what_was_expected() -> None:
    """Of the scenario that goes on, the part that is left."""
    clock = Clock()
    progress = Progress([DRAIN, BURST], stream=io.StringIO(), clock=clock)
    assert 180.0 == progress.left_s()
    progress.begin(DRAIN)
    clock.now = 20.0
    assert 160.0 == progress.left_s()


def test_a_slower_machine_makes_the_rest_longer() -> None:
    """What is finished tells the pace; what takes longer than expected leaves nothing, not less."""
    clock = Clock()
    progress = Progress([DRAIN, BURST], stream=io.StringIO(), clock=clock)
    progress.begin(DRAIN)
    clock.now = 90.0
    assert 120.0 == progress.left_s()
    progress.end()
    assert 180.0 == progress.left_s()


@pytest.mark.parametrize(
    ("expected_s", "took_s", "pace"),
    [(0.0, 0.0, 1.0), (10.0, 20.0, 2.0), (10.0, 0.1, PACES[0]), (10.0, 900.0, PACES[1])],
)
def test_the_pace_is_bounded(expected_s: float, took_s: float, pace: float) -> None:
    """One odd scenario says little about the others."""
    assert pace == pace_of(expected_s, took_s)


def test_elsewhere_than_on_a_terminal_every_round_is_a_line() -> None:
    """And nothing is erased, so that it can be read in a file."""
    stream = io.StringIO()
    progress = Progress([DRAIN], stream=stream, clock=Clock())
    progress.begin(DRAIN)
    progress.round(2, 3)
    progress.round(2, 3, again=1)
    progress.refresh()
    shown = stream.getvalue()
    assert "drain on postgres: round 2 of 3, about 1 min 0 s left\n" in shown
    assert "round 2 of 3, repeated (1), about" in shown
    assert ERASE not in shown
    assert 3 == shown.count("\n")


def test_a_terminal_keeps_one_line_up_to_date() -> None:
    """A line that stays is written above it."""
    stream = Terminal()
    progress = Progress([DRAIN], stream=stream, clock=Clock())
    progress.begin(DRAIN)
    progress.round(1, 3)
    progress.say("a word")
    lines = stream.getvalue().split("\n")
    assert lines[-2].endswith("a word")
    assert f"{ERASE}drain on postgres: round 1 of 3, about 1 min 0 s left" == lines[-1]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.0, "59 s"), (61.0, "1 min 1 s"), (700.0, "11 min"), (5_400.0, "1 h 30 min")],
)
def test_lengths_of_time_are_said_as_people_do(seconds: float, text: str) -> None:
    assert text == lasting(seconds)
