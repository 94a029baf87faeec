"""When occurrences are: the grid of periods, and calendars through both clock changes."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st

from gnomon.model.cron import Calendar, validate_cron
from gnomon.model.errors import InvalidSpec
from gnomon.model.schedule import cron_after, first_occurrence, next_occurrence, occurrence_after
from gnomon.model.spec import CatchUp, Cron, Mock, Once, Periodic, Policy, Spec

START = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
Mode = Literal["none", "one", "all"]


def spec_of(
    policy: Policy,
    *,
    start_at: datetime = START,
    catch_up: Mode = "one",
    catch_up_max: int = 100,
    drift: bool = False,
) -> Spec:
    catch = CatchUp(mode=catch_up, max=catch_up_max)
    return Spec(action=Mock(), policy=policy, start_at=start_at, catch_up=catch, drift=drift)


def times(expression: str, zone: str, start: str, count: int) -> list[str]:
    """The first cron times from a UTC start, as UTC texts."""
    cron = Cron(expression=expression, timezone=zone)
    spec = spec_of(cron, start_at=datetime.fromisoformat(start).replace(tzinfo=UTC))
    found = [first_occurrence(spec)]
    while len(found) < count:
        following = occurrence_after(spec, found[-1])
        assert following is not None
        found.append(following)
    return [f"{time:%m-%d %H:%M}" for time in found]


# -- once and periodic ----------------------------------------------------------------------------


def test_once_has_no_next_occurrence() -> None:
    """The first is the only one."""
    spec = spec_of(Once())
    assert START == first_occurrence(spec)
    assert occurrence_after(spec, START) is None
    assert next_occurrence(spec, START, now=START, skip_missed=True) is None


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (-HOUR, timedelta(0)),
        (-timedelta(microseconds=1), timedelta(0)),
        (timedelta(0), MINUTE),
        (timedelta(seconds=59), MINUTE),
        (MINUTE, 2 * MINUTE),
        (MINUTE + timedelta(microseconds=1), 2 * MINUTE),
        (timedelta(days=3650), timedelta(days=3650) + MINUTE),
    ],
)
def test_the_grid_begins_at_the_start(after: timedelta, expected: timedelta) -> None:
    """Strictly after the moment, at a multiple of the period."""
    spec = spec_of(Periodic(period=MINUTE))
    assert START + expected == occurrence_after(spec, START + after)


def test_the_grid_does_not_follow_wall_clocks() -> None:
    """Every 24 hours are 24 hours, also when start_at is given in a zone whose clocks change."""
    start = datetime(2026, 3, 28, 12, 0, tzinfo=ZoneInfo("Europe/Berlin"))
    spec = spec_of(Periodic(period=timedelta(days=1)), start_at=start)
    first = first_occurrence(spec)
    assert datetime(2026, 3, 28, 11, 0, tzinfo=UTC) == first
    assert datetime(2026, 3, 29, 11, 0, tzinfo=UTC) == occurrence_after(spec, first)


def test_drift_counts_from_the_end() -> None:
    """With drift the next is a period after now, wherever the grid is."""
    spec = spec_of(Periodic(period=MINUTE), drift=True)
    now = START + timedelta(seconds=95)
    assert (now + MINUTE, 0) == next_occurrence(spec, START, now=now, skip_missed=False)


def test_in_time_nothing_is_skipped() -> None:
    """The next occurrence lies ahead: it is the next."""
    for mode in ("none", "one", "all"):
        spec = spec_of(Periodic(period=MINUTE), catch_up=mode)
        now = START + timedelta(seconds=59)
        assert (START + MINUTE, 0) == next_occurrence(spec, START, now=now, skip_missed=False)


@pytest.mark.parametrize(
    ("mode", "maximum", "expected", "skipped"),
    [
        ("none", 100, 11, 10),
        ("one", 100, 11, 10),
        ("all", 100, 1, 0),
        ("all", 10, 1, 0),
        ("all", 9, 2, 1),
        ("all", 1, 10, 9),
    ],
)
def test_missed_periods_follow_the_rule(
    mode: Mode, maximum: int, expected: int, skipped: int
) -> None:
    """Ten periods passed: all of them, the newest few, or none are still to come."""
    spec = spec_of(Periodic(period=MINUTE), catch_up=mode, catch_up_max=maximum)
    found = next_occurrence(spec, START, now=START + 10 * MINUTE, skip_missed=False)
    assert (START + expected * MINUTE, skipped) == found


def test_skipping_overrules_catching_up() -> None:
    """Whoever asks to skip gets the future."""
    spec = spec_of(Periodic(period=MINUTE), catch_up="all")
    found = next_occurrence(spec, START, now=START + 10 * MINUTE, skip_missed=True)
    assert (START + 11 * MINUTE, 10) == found


offsets = st.timedeltas(timedelta(0), timedelta(days=3650))


@given(st.timedeltas(timedelta(seconds=1), timedelta(days=400)), offsets, offsets)
def test_skipping_leads_to_the_future_and_stays_on_the_grid(
    period: timedelta, occurrence: timedelta, late: timedelta
) -> None:
    """After now, at most a period away, a whole number of periods from the start."""
    spec = spec_of(Periodic(period=period))
    occurrence_at = START + occurrence // period * period
    now = occurrence_at + late
    found = next_occurrence(spec, occurrence_at, now=now, skip_missed=True)
    assert found is not None
    assert now < found[0] <= now + period
    assert timedelta(0) == (found[0] - START) % period
    assert found[1] == (found[0] - occurrence_at) // period - 1


@given(
    st.timedeltas(timedelta(seconds=1), timedelta(days=400)), offsets, offsets, st.integers(1, 1000)
)
def test_catching_up_keeps_the_newest(
    period: timedelta, occurrence: timedelta, late: timedelta, kept_max: int
) -> None:
    """At most `max` missed ones are left, and none is left out if they are fewer."""
    spec = spec_of(Periodic(period=period), catch_up="all", catch_up_max=kept_max)
    occurrence_at = START + occurrence // period * period
    now = occurrence_at + late
    found = next_occurrence(spec, occurrence_at, now=now, skip_missed=False)
    assert found is not None
    missed = late // period
    left = max(0, (now - found[0]) // period + 1)
    assert min(missed, kept_max) == left
    assert found[0] > occurrence_at


# -- cron -----------------------------------------------------------------------------------------


def test_cron_counts_the_start_itself() -> None:
    """A start on a cron time is the first occurrence; a microsecond later it is not."""
    cron = Cron(expression="0 * * * *")
    assert START == first_occurrence(spec_of(cron))
    late = spec_of(cron, start_at=START + timedelta(microseconds=1))
    assert START + HOUR == first_occurrence(late)
    assert START + HOUR == occurrence_after(late, START)


@pytest.mark.parametrize(
    ("zone", "expression", "start", "expected"),
    [
        # Berlin, spring: 02:00 CET becomes 03:00 CEST at 01:00 UTC on 29 March.
        (
            "Europe/Berlin",
            "30 2 * * *",
            "2026-03-28",
            ["03-28 01:30", "03-29 01:00", "03-30 00:30"],
        ),
        ("Europe/Berlin", "0 3 * * *", "2026-03-28", ["03-28 02:00", "03-29 01:00", "03-30 01:00"]),
        (
            "Europe/Berlin",
            "59 1 * * *",
            "2026-03-28",
            ["03-28 00:59", "03-29 00:59", "03-29 23:59"],
        ),
        ("Europe/Berlin", "0 * * * *", "2026-03-29T00:00", ["03-29 00:00", "03-29 01:00"]),
        ("Europe/Berlin", "*/30 * * * *", "2026-03-29T00:30", ["03-29 00:30", "03-29 01:00"]),
        # Berlin, autumn: 03:00 CEST becomes 02:00 CET at 01:00 UTC on 25 October.
        (
            "Europe/Berlin",
            "30 2 * * *",
            "2026-10-24",
            ["10-24 00:30", "10-25 00:30", "10-26 01:30"],
        ),
        ("Europe/Berlin", "0 3 * * *", "2026-10-24", ["10-24 01:00", "10-25 02:00", "10-26 02:00"]),
        (
            "Europe/Berlin",
            "30 * * * *",
            "2026-10-25",
            ["10-25 00:30", "10-25 01:30", "10-25 02:30"],
        ),
        # Begun within the repeated hour: its first pass is over.
        ("Europe/Berlin", "45 2 * * *", "2026-10-25T01:31", ["10-26 01:45", "10-27 01:45"]),
        # New York, spring: 02:00 EST becomes 03:00 EDT at 07:00 UTC on 8 March.
        ("America/New_York", "30 2 * * *", "2026-03-07T05:00", ["03-07 07:30", "03-08 07:00"]),
        ("America/New_York", "30 2 * * *", "2026-03-08T08:00", ["03-09 06:30", "03-10 06:30"]),
        # New York, autumn: 02:00 EDT becomes 01:00 EST at 06:00 UTC on 1 November.
        ("America/New_York", "30 1 * * *", "2026-10-31T04:00", ["10-31 05:30", "11-01 05:30"]),
        ("America/New_York", "30 1 * * *", "2026-11-01T05:31", ["11-02 06:30", "11-03 06:30"]),
        ("America/New_York", "*/30 1 * * *", "2026-11-01T05:30", ["11-01 05:30", "11-01 06:00"]),
        # Lord Howe, half an hour. Spring: 02:00 +10:30 becomes 02:30 +11 at 15:30 UTC, 3 October.
        ("Australia/Lord_Howe", "15 2 * * *", "2026-10-02T13:00", ["10-02 15:45", "10-03 15:30"]),
        ("Australia/Lord_Howe", "15 2 * * *", "2026-10-03T15:31", ["10-04 15:15", "10-05 15:15"]),
        # Autumn: 02:00 +11 becomes 01:30 +10:30 at 15:00 UTC, 4 April.
        ("Australia/Lord_Howe", "45 1 * * *", "2026-04-03T13:00", ["04-03 14:45", "04-04 14:45"]),
        ("Australia/Lord_Howe", "45 1 * * *", "2026-04-04T15:00", ["04-05 15:15", "04-06 15:15"]),
    ],
)
def test_cron_follows_debian_through_clock_changes(
    zone: str, expression: str, start: str, expected: list[str]
) -> None:
    """What falls into the gap happens right after it, what exists twice happens once, and
    wildcards follow real time."""
    assert expected == times(expression, zone, start, len(expected))


def test_leap_days_come_every_four_years() -> None:
    """29 February: 2028, 2032; and 2096 is followed by 2104, for 2100 has none."""
    cron = spec_of(Cron(expression="0 0 29 2 *"))
    years: list[int] = []
    moment = START
    while len(years) < 20:
        found = occurrence_after(cron, moment)
        assert found is not None
        assert (2, 29) == (found.month, found.day)
        years.append(found.year)
        moment = found
    assert [2028, 2032, 2036] == years[:3]
    assert [2096, 2104] == years[17:19]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 0 31 * *", ["01-31 00:00", "03-31 00:00", "05-31 00:00"]),
        ("0 0 L * *", ["01-31 00:00", "02-28 00:00", "03-31 00:00"]),
        ("0 12 * * MON-FRI", ["01-01 12:00", "01-02 12:00", "01-05 12:00"]),
        ("0 0 13 * FRI", ["01-02 00:00", "01-09 00:00", "01-13 00:00"]),
    ],
)
def test_calendars_are_read_as_cron_reads_them(expression: str, expected: list[str]) -> None:
    """Short months are left out; a day of month or a day of week is enough."""
    assert expected == times(expression, "UTC", "2026-01-01T00:00", 3)


def test_a_cron_without_a_future_is_refused_at_its_start() -> None:
    """An expression can stop coming due: here by a calendar that has no such day for 50 years."""
    spec = spec_of(Cron(expression="0 0 30 2 MON#1"), start_at=START)
    assert first_occurrence(spec) is not None  # a day of week is enough, see above
    never = spec_of(Cron(expression="0 0 */31 2 MON#5"), start_at=START)
    with pytest.raises(InvalidSpec, match=r"spec\.policy\.expression"):
        first_occurrence(never)
    assert occurrence_after(never, START) is None


@pytest.mark.parametrize(
    ("mode", "maximum", "expected", "skipped"),
    [
        ("none", 100, "01-11 00:01", 1),
        ("one", 100, "01-11 00:01", 1),
        ("all", 10_000, "01-04 01:21", 1),
        ("all", 100, "01-10 22:21", 1),
        ("all", 1, "01-11 00:00", 1),
    ],
)
def test_missed_cron_times_follow_the_rule(
    mode: Mode, maximum: int, expected: str, skipped: int
) -> None:
    """Ten days of every minute were missed: the newest `max` are kept, not the oldest."""
    cron = Cron(expression="* * * * *")
    spec = spec_of(cron, catch_up=mode, catch_up_max=maximum)
    now = START + timedelta(days=10)
    found = next_occurrence(spec, START, now=now, skip_missed=False)
    assert found is not None
    assert (expected, skipped) == (f"{found[0]:%m-%d %H:%M}", found[1])


crons = st.sampled_from([
    "* * * * *", "*/7 * * * *", "30 * * * *", "30 2 * * *", "0,30 1-3 * * *", "15 2 * * SUN",
    "0 0 1 * *", "45 1 29 3,10 *", "59 23 L * *",
])  # fmt: skip
zones = st.sampled_from([
    "UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo",
    "America/Havana", "Asia/Kathmandu",
])  # fmt: skip
moments = st.datetimes(
    datetime(2026, 1, 1),  # noqa: DTZ001 - Hypothesis wants naive bounds
    datetime(2028, 12, 31),  # noqa: DTZ001
    timezones=st.just(UTC),
)


@given(crons, zones, moments)
def test_cron_times_move_forward(expression: str, zone: str, moment: datetime) -> None:
    """Each is strictly after the one before, whatever the clocks of its zone do."""
    spec = spec_of(Cron(expression=expression, timezone=zone), start_at=moment)
    first = first_occurrence(spec)
    assert first >= moment
    second = occurrence_after(spec, first)
    assert second is not None
    assert second > first
    skipped = next_occurrence(spec, moment, now=second, skip_missed=True)
    assert skipped is not None
    assert skipped[0] > second


@given(crons, zones, moments, st.timedeltas(timedelta(0), timedelta(days=3)), st.integers(1, 20))
def test_catching_up_cron_keeps_the_newest(
    expression: str, zone: str, moment: datetime, late: timedelta, kept_max: int
) -> None:
    """The same times as walking through all of them would give."""
    cron = Cron(expression=expression, timezone=zone)
    spec = spec_of(cron, start_at=moment, catch_up="all", catch_up_max=kept_max)
    occurrence_at = first_occurrence(spec)
    now = occurrence_at + late
    missed: list[datetime] = []
    following = occurrence_after(spec, occurrence_at)
    while following is not None and following <= now:
        missed.append(following)
        following = occurrence_after(spec, following)
    found = next_occurrence(spec, occurrence_at, now=now, skip_missed=False)
    assert found is not None
    assert found[0] == (missed[-kept_max:][0] if missed else following)


# -- wildcards and catching up against the plain reading ------------------------------------------

CHANGES = {
    "Australia/Lord_Howe": ("2026-04-04", "2026-10-03"),  # by half an hour
    "Antarctica/Troll": ("2026-03-28", "2026-10-24"),  # by two hours
    "Africa/Cairo": ("2026-04-23", "2026-10-28"),  # at midnight
    "America/Havana": ("2026-03-07", "2026-10-31"),
    "Pacific/Apia": ("2011-12-29",),  # a day that never was
    "Europe/Berlin": ("2026-03-28", "2026-10-24"),
}
PLACES = [(zone, day) for zone, days in CHANGES.items() for day in days]


def cron_times(expression: str, zone: str, start: datetime, end: datetime) -> list[datetime]:
    found, moment = list[datetime](), start - timedelta(microseconds=1)
    while True:
        following = cron_after(Cron(expression=expression, timezone=zone), moment)
        assert following is not None
        if following >= end:
            return found
        found.append(following)
        moment = following


@pytest.mark.parametrize(("zone", "day"), PLACES)
@pytest.mark.parametrize(
    "expression", ["*/10 3 * * *", "*/20 2 * * *", "30 * * * *", "*/30 */2 * * *", "*/10 0 * * *"]
)
def test_wildcards_are_every_real_minute_that_matches(expression: str, zone: str, day: str) -> None:
    """Through any change of the clock: none is left out, none comes twice."""
    start = datetime.fromisoformat(day).replace(tzinfo=UTC)
    end = start + timedelta(days=3)
    fields = CronSim(expression, start)
    minutes = [start + MINUTE * count for count in range((end - start) // MINUTE)]
    local = [(minute, minute.astimezone(ZoneInfo(zone))) for minute in minutes]
    expected = [
        minute
        for minute, wall in local
        if wall.hour in fields.hours and wall.minute in fields.minutes
    ]
    assert expected == cron_times(expression, zone, start, end)


@pytest.mark.parametrize(("zone", "day"), PLACES)
@pytest.mark.parametrize("expression", ["30 2 * * *", "0,30 2,3 * * *", "45 23 * * *"])
def test_the_times_do_not_depend_on_where_one_begins(expression: str, zone: str, day: str) -> None:
    """Asked at any moment, the next time is that of the whole row."""
    start = datetime.fromisoformat(day).replace(tzinfo=UTC)
    row = cron_times(expression, zone, start, start + timedelta(days=4))
    for count in range(48):
        moment = start + count * timedelta(minutes=67)
        following = cron_after(Cron(expression=expression, timezone=zone), moment)
        assert next(time for time in row if time > moment) == following


@pytest.mark.parametrize("expression", ["* * * * *", "*/7 1-5 * * *", "30 2 * * MON", "0 0 1 * *"])
@pytest.mark.parametrize("most", [1, 40, 3_000])
def test_catching_up_keeps_the_newest_of_a_long_time(expression: str, most: int) -> None:
    """Counted in whole days, the same as one by one; over clock changes, too."""
    cron = Cron(expression=expression, timezone="Europe/Berlin")
    spec = spec_of(cron, catch_up="all", catch_up_max=most)
    now = datetime(2026, 4, 2, 11, 30, tzinfo=UTC)
    began = now - timedelta(days=40)
    found = next_occurrence(spec, began, now=now, skip_missed=False)
    missed = cron_times(expression, "Europe/Berlin", began + timedelta(microseconds=1), now)
    due = [*missed, *([now] if cron_after(cron, now - MINUTE) == now else [])]
    expected = due[-most:][0] if due else cron_after(cron, now)
    assert found is not None
    assert expected == found[0]


def test_a_step_of_a_long_catch_up_looks_at_days_and_not_at_times() -> None:
    """A year of minutes: what is not counted one by one cannot hold the event loop."""
    cron = Cron(expression="* * * * *", timezone="Europe/Berlin")
    calendar = CountingCalendar(cron)
    now = datetime(2026, 12, 1, 11, 30, tzinfo=UTC)
    kept = calendar.kept(now - timedelta(days=365), now, 10_000)
    assert now - 9_999 * MINUTE == kept
    assert 10 >= calendar.days


class CountingCalendar(Calendar):
    """Counts the days whose times it lists."""

    days = 0

    def _of_day(self, day: date) -> list[datetime]:
        self.days += 1
        return super()._of_day(day)


@pytest.mark.parametrize(
    ("nickname", "expected"),
    [
        ("@hourly", "2026-03-04T06:00"),
        ("@daily", "2026-03-05T00:00"),
        ("@midnight", "2026-03-05T00:00"),
        ("@weekly", "2026-03-08T00:00"),
        ("@monthly", "2026-04-01T00:00"),
        ("@yearly", "2027-01-01T00:00"),
        (" @annually ", "2027-01-01T00:00"),
    ],
)
def test_nicknames_stand_for_their_fields(nickname: str, expected: str) -> None:
    """As cron knows them."""
    cron = Cron(expression=nickname)
    validate_cron(cron)
    after = datetime(2026, 3, 4, 5, 6, tzinfo=UTC)
    assert expected == f"{cron_after(cron, after):%Y-%m-%dT%H:%M}"


@pytest.mark.parametrize("nickname", ["@reboot", "@dayly", "daily", "@"])
def test_what_is_no_nickname_is_refused(nickname: str) -> None:
    with pytest.raises(InvalidSpec, match="or be @daily"):
        validate_cron(Cron(expression=nickname))
