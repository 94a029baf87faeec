"""Previews: the next firings in words and times, both changes of the clock marked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

import gnomon
from gnomon.model.errors import InvalidRequest, InvalidSpec
from gnomon.model.schedule import cron_after
from gnomon.model.spec import Cron
from gnomon.scheduler.preview import Preview

BERLIN = "Europe/Berlin"


def previewed(cron: str, start: str, *, count: int = 3, timezone: str = BERLIN) -> Preview:
    return gnomon.preview(cron=cron, timezone=timezone, from_=start, count=count)


def local_times(found: Preview) -> list[str]:
    return [f"{firing.local:%m-%d %H:%M %z}" for firing in found.firings]


@pytest.mark.parametrize(
    ("cron", "words"),
    [
        ("0 9 * * 1-5", "At 09:00 on weekdays, Europe/Berlin"),
        ("0 9 * * 6,0", "At 09:00 at weekends, Europe/Berlin"),
        ("@daily", "At 00:00 every day, Europe/Berlin"),
        ("*/5 * * * *", "Every fifth minute of every hour, Europe/Berlin"),
        ("0 9 L * *", "At 09:00 on the last day of every month, Europe/Berlin"),
    ],
)
def test_a_schedule_is_said_in_words(cron: str, words: str) -> None:
    """As people would say it."""
    assert words == previewed(cron, "2026-01-01T00:00Z").words


def test_times_are_those_that_will_be_fired() -> None:
    """The same code says them; the first one may be the start itself."""
    found = previewed("0 9 * * 1-5", "2026-11-20T08:00Z", count=30)
    assert "11-20 09:00 +0100" == local_times(found)[0]
    cron = Cron(expression="0 9 * * 1-5", timezone=BERLIN)
    for firing, following in zip(found.firings, found.firings[1:], strict=False):
        assert following.at == cron_after(cron, firing.at)


def test_spring_is_marked() -> None:
    """What does not exist happens right after the gap, and it is said which time that was."""
    found = previewed("30 2 * * *", "2027-03-27T00:00Z")
    assert ["03-27 02:30 +0100", "03-28 03:00 +0200", "03-29 02:30 +0200"] == local_times(found)
    assert [None, "02:30 does not exist on this day", None] == [one.note for one in found.firings]
    (change,) = found.clock_changes
    assert "clocks go forward from 02:00 to 03:00" == change.words
    assert datetime(2027, 3, 28, 1, tzinfo=UTC) == change.at


def test_times_that_fall_together_are_all_named() -> None:
    """Two that do not exist, and one that does, are one firing."""
    found = previewed("0,30 2,3 * * *", "2027-03-28T00:00Z", count=2)
    assert ["03-28 03:00 +0200", "03-28 03:30 +0200"] == local_times(found)
    assert "02:00 and 02:30 do not exist on this day" == found.firings[0].note


def test_autumn_is_marked() -> None:
    """What exists twice happens once; a wildcard follows real time and happens twice."""
    once = previewed("30 2 * * *", "2027-10-30T12:00Z", count=2)
    assert ["10-31 02:30 +0200", "11-01 02:30 +0100"] == local_times(once)
    assert "02:30 comes twice on this day: once, the first time" == once.firings[0].note
    assert ["clocks go back from 03:00 to 02:00"] == [one.words for one in once.clock_changes]

    twice = previewed("*/30 * * * *", "2027-10-31T00:30Z", count=2)
    assert ["10-31 02:30 +0200", "10-31 02:00 +0100"] == local_times(twice)
    assert [
        "02:30 comes twice on this day: the first time",
        "02:00 comes twice on this day: the second time",
    ] == [one.note for one in twice.firings]


def test_a_zone_without_changes_has_none() -> None:
    """Nothing is marked where nothing happens."""
    found = previewed("@monthly", "2026-01-01T00:00Z", count=24, timezone="Asia/Tokyo")
    assert [] == found.clock_changes
    assert {None} == {firing.note for firing in found.firings}


def test_a_period_begins_at_once() -> None:
    """On the grid from its start, as `schedule(every=…)` fires it."""
    found = gnomon.preview(every="90m", from_="2026-01-01T00:00Z", count=3)
    assert "Every 1h30m" == found.words
    times = [firing.at for firing in found.firings]
    assert [
        datetime(2026, 1, 1, tzinfo=UTC) + number * timedelta(minutes=90) for number in range(3)
    ] == times


def test_a_schedule_that_seldom_fires_is_found_quickly() -> None:
    """29 February: centuries ahead, as many as there are."""
    found = previewed("0 0 29 2 *", "2026-01-01T00:00Z", count=100)
    assert 100 == len(found.firings)
    assert 2028 == found.firings[0].local.year


def test_it_can_be_sent() -> None:
    """Over REST it is JSON, and the client reads it."""
    found = previewed("30 2 * * *", "2027-03-27T00:00Z")
    sent = msgspec.json.decode(msgspec.json.encode(found), type=Preview)
    assert [firing.at for firing in found.firings] == [firing.at for firing in sent.firings]
    assert found.clock_changes[0].words == sent.clock_changes[0].words


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "cron: or every is required"),
        ({"cron": "0 9 * *"}, "must have five fields"),
        ({"cron": "0 9 * * *", "timezone": "Berlin"}, "is not a time zone name"),
        ({"every": "5m", "cron": "@daily"}, "cannot be combined with cron"),
        ({"every": "5m", "timezone": BERLIN}, "timezone: is for cron only"),
        ({"every": "1ms"}, "period"),
        ({"cron": "@daily", "from_": "2026-01-01"}, "from: must have a time zone"),
        ({"cron": "@daily", "count": 0}, "count: must be between 1 and 100"),
        ({"cron": "@daily", "count": 101}, "count: must be between 1 and 100"),
    ],
)
def test_what_is_wrong_is_said(options: dict[str, object], said: str) -> None:
    """As `schedule` would say it."""
    with pytest.raises((InvalidSpec, InvalidRequest), match=said):
        gnomon.preview(**options)  # type: ignore[arg-type]
