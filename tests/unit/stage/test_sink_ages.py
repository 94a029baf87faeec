"""How old the outbox is: what is told of it, and when the background lane is held."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from gnomon.contracts.store.outbox import SinkQueue
from gnomon.model.errors import ConfigurationError
from gnomon.stages.config import StagesConfig
from gnomon.stages.sink_ages import SinkAges

SECOND = timedelta(seconds=1)
CONFIG = StagesConfig(outbox_hold=30 * SECOND, outbox_alarm=300 * SECOND)


class Seen:
    """Remembers events and the last value of each gauge."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, object]]] = []
        self.gauges: dict[tuple[str, ...], float] = {}

    def event(self, name: str, /, **fields: object) -> None:
        self.events.append((name, fields))

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        self.gauges[name, *labels.values()] = value

    def count(self, name: str, value: int = 1, /, **labels: str) -> None: ...

    def observe(self, name: str, value: float, /, **labels: str) -> None: ...


class Watched:
    """The ages of a relay and of the stage `one`, as this process serves them."""

    def __init__(self) -> None:
        self.seen = Seen()
        self.changes: list[bool] = []
        self.ages = SinkAges(
            ["", "one"],
            config=CONFIG,
            observer=self.seen,
            changed=lambda: self.changes.append(self.ages.is_behind),
        )

    def note(self, *waiting: SinkQueue, away: tuple[str, ...] = ()) -> None:
        self.ages.note(waiting, away=away)


def waits(sink: str, age_s: float, *, due_in_s: float = 1.0) -> SinkQueue:
    """Something that was put off, unless said."""
    return SinkQueue(sink, timedelta(seconds=age_s), timedelta(seconds=due_in_s))


def test_the_age_of_every_sink_is_a_gauge_and_falls_to_nothing() -> None:
    """Also of those that were never late, and of those that nobody serves here."""
    watched = Watched()
    watched.note(waits("", 7), waits("elsewhere", 9))
    ages = {"relay": 7.0, "one": 0.0, "elsewhere": 9.0}
    for sink, age_s in ages.items():
        assert age_s == watched.seen.gauges["outbox_age_seconds", sink]
    watched.note()
    for sink in ages:
        assert 0.0 == watched.seen.gauges["outbox_age_seconds", sink]


def test_an_old_save_is_reported_once_and_its_end_too() -> None:
    """Of any sink; not again and again while it lasts."""
    watched = Watched()
    for age_s in (300, 301, 400):
        watched.note(waits("elsewhere", age_s))
    assert [("outbox_late", {"sink": "elsewhere", "age_s": 301.0})] == watched.seen.events
    watched.note()
    watched.note()
    assert [("outbox_recovered", {"sink": "elsewhere"})] == watched.seen.events[1:]
    watched.note(waits("elsewhere", 301))
    assert 3 == len(watched.seen.events)


@pytest.mark.parametrize(
    ("waiting", "away", "is_held"),
    [
        (waits("", 31), ("",), True),
        (waits("", 30), ("",), False),
        (waits("one", 31), ("one",), True),
        (waits("one", 31), ("",), False),
        (waits("", 31, due_in_s=-31), (), True),
        (waits("", 31, due_in_s=-30), (), False),
        (waits("", 3600), (), False),
        (waits("elsewhere", 3600, due_in_s=-3600), (), False),
    ],
    ids=[
        "a receiver that takes nothing",
        "not long enough",
        "a stage that takes nothing",
        "another one is away",
        "slower than saves are made",
        "not much slower",
        "one save that is refused while others arrive",
        "nobody here could send it",
    ],
)
def test_the_background_lane_is_held_while_a_sink_is_behind(
    waiting: SinkQueue, away: tuple[str, ...], is_held: bool
) -> None:
    """Away or too slow, for longer than the settings say; a single save's trouble is its own."""
    watched = Watched()
    watched.note(waiting, away=away)
    assert is_held == watched.ages.is_behind
    assert float(is_held) == watched.seen.gauges["background_held",]


def test_holding_and_resuming_are_told_once() -> None:
    """To the reconciler and to the log, with the sinks that are behind."""
    watched = Watched()
    for _ in range(3):
        watched.note(waits("", 31), waits("one", 40, due_in_s=-40), away=("",))
    for _ in range(3):
        watched.note()
    assert [True, False] == watched.changes
    told: list[tuple[str, dict[str, Any]]] = [
        ("background_held", {"sinks": "relay, one"}),
        ("background_resumed", {"sinks": ""}),
    ]
    assert told == watched.seen.events


@pytest.mark.parametrize("name", ["outbox_hold", "outbox_alarm"])
def test_a_hold_or_an_alarm_after_nothing_is_refused(name: str) -> None:
    """It would hold for ever."""
    given: dict[str, Any] = {name: timedelta(0)}
    with pytest.raises(ConfigurationError, match=rf"stages\.{name}"):
        StagesConfig(**given)
