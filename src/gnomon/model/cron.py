"""Cron calendars: the times of an expression in a zone, day by day.

`cronsim` reads the expression; the times are worked out here, a local day at once. On nearly all
days a zone's clock runs evenly, and they are plain arithmetic. On a day with a clock change they
follow Debian's cron: what has a wildcard in its minutes or hours follows real time, whatever the
size of the change; of the rest a time that does not exist happens right after the gap, and one
that exists twice happens once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache, lru_cache
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from gnomon.model.errors import InvalidSpec
from gnomon.model.spec import Cron

EXPRESSION_CHARS_MAX = 256
YEARS_MAX = 50  # after so many without a time there is none
UNEVEN_MAX = 64  # days remembered
DAY = timedelta(days=1)
MINUTE = timedelta(minutes=1)
CHANGE_MAX = timedelta(hours=3)  # by so much clocks are changed, at most
EARLIEST = datetime.min.replace(tzinfo=UTC)
_NO_ZONES = "cannot be looked up, this machine has no time zones: pip install tzdata"


NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

_DAYS = {
    "Monday through Friday": "on weekdays",
    "Sunday and Saturday": "at weekends",
    "Saturday and Sunday": "at weekends",
}


def fields_of(expression: str) -> str:
    """The five fields of an expression, which may have one of cron's nicknames instead."""
    return NICKNAMES.get(expression.strip(), expression)


def validate_cron(cron: Cron) -> None:
    """Refuse an expression or a time zone that cannot be evaluated."""
    find_zone(cron.timezone)
    if len(cron.expression) > EXPRESSION_CHARS_MAX:
        raise InvalidSpec(
            "spec.policy.expression", f"must have at most {EXPRESSION_CHARS_MAX} characters",
            got=cron.expression,
        )  # fmt: skip
    fields = fields_of(cron.expression)
    if len(fields.split()) != 5:
        raise InvalidSpec(
            "spec.policy.expression",
            "must have five fields, minute hour day month weekday, or be @daily, @hourly …",
            got=cron.expression,
        )
    try:
        next(CronSim(fields, datetime(2026, 1, 1, tzinfo=UTC)))
    except (CronSimError, StopIteration):
        raise InvalidSpec(
            "spec.policy.expression", "is not a cron expression that ever comes due",
            got=cron.expression,
        ) from None  # fmt: skip


@lru_cache(maxsize=256)
def find_zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        problem = "is not a time zone name such as Europe/Berlin" if _has_zones() else _NO_ZONES
        raise InvalidSpec("spec.policy.timezone", problem, got=name) from None


@cache
def _has_zones() -> bool:
    return bool(available_timezones())


@lru_cache(maxsize=1024)
def calendar_of(cron: Cron) -> Calendar:
    """The calendar of an expression; they are few, and asked again and again."""
    return Calendar(cron)


class Calendar:
    """The times of one expression in one zone."""

    def __init__(self, cron: Cron) -> None:
        self._zone = find_zone(cron.timezone)
        self._fields = fields = CronSim(
            fields_of(cron.expression), datetime(2026, 1, 1, tzinfo=UTC)
        )
        self._is_wild = is_wild = fields.parts[1].startswith("*") or fields.parts[2].startswith("*")
        self._of_uneven = lru_cache(UNEVEN_MAX)(self._real if is_wild else self._put_off)
        self._moments = [
            timedelta(hours=hour, minutes=minute)
            for hour in sorted(fields.hours)
            for minute in sorted(fields.minutes)
        ]

    def after(self, moment: datetime) -> Iterator[datetime]:
        """The times strictly after a moment, in order, without end or until there are no more."""
        last, day = moment, self._day_of(moment) - DAY  # yesterday's may be put off into today
        end = min(day.year + YEARS_MAX, date.max.year - 1)
        while day.year <= end:
            if day.month not in self._fields.months:
                day = (day.replace(day=1) + 32 * DAY).replace(day=1)
                continue
            for time in self._of_day_after(day, last):
                yield time
                last, end = time, min(day.year + YEARS_MAX, date.max.year - 1)
            day += DAY

    def kept(self, following: datetime, now: datetime, most: int) -> datetime:
        """The oldest of the newest `most` times from `following` to `now`.

        Counts whole days back from `now`: the cost is that of the days, not of the times.
        """
        first, today = self._day_of(following), self._day_of(now)
        left, day = most, today
        while day >= first:
            if day.month not in self._fields.months:
                day = day.replace(day=1) - DAY
                continue
            count = self._count(day) if first < day < today else None
            if count is None or count >= left:
                times = [time for time in self._of_day(day) if following <= time <= now]
                if len(times) >= left:
                    return times[-left]
                count = len(times)
            left -= count
            day -= DAY
        return following

    # -- in words ---------------------------------------------------------------------------------

    def words(self) -> str:
        """`At 09:00 on weekdays`."""
        text: str = self._fields.explain()
        for days, word in _DAYS.items():
            text = text.replace(f" on {days}", f" {word}")
        return text

    def note(self, moment: datetime) -> str | None:
        """What a clock change has to do with one of its times; on nearly all days nothing."""
        wall = moment.astimezone(self._zone)
        if self._even_start(wall.date()) is not None:
            return None
        if self._zone.utcoffset(wall.replace(fold=0)) != self._zone.utcoffset(wall.replace(fold=1)):
            which = ("the first time", "the second time")[wall.fold]
            return (
                f"{wall:%H:%M} comes twice on this day: {'' if self._is_wild else 'once, '}{which}"
            )
        missing = [] if self._is_wild else self._put_off_to(moment, wall.date())
        verb = "does" if len(missing) == 1 else "do"
        return f"{' and '.join(missing)} {verb} not exist on this day" if missing else None

    def _put_off_to(self, moment: datetime, day: date) -> list[str]:
        midnight = datetime(day.year, day.month, day.day)  # noqa: DTZ001 - a wall clock's
        walls = [midnight + planned for planned in self._moments]
        shown = moment.astimezone(self._zone).replace(tzinfo=None)
        return [f"{w:%H:%M}" for w in walls if w != shown and self._instant(w) == moment]

    # -- one day ----------------------------------------------------------------------------------

    def _day_of(self, moment: datetime) -> date:
        return moment.astimezone(self._zone).date()

    def _of_day_after(self, day: date, last: datetime) -> Iterator[datetime]:
        if not self._fields.match_day(day):
            return
        start = self._even_start(day)
        if start is None:
            yield from (time for time in self._of_uneven(day) if time > last)
            return
        first = bisect_right(self._moments, last - start)
        for place in range(first, len(self._moments)):
            yield start + self._moments[place]

    def _of_day(self, day: date) -> list[datetime]:
        """All times whose wall clock is of this day."""
        return list(self._of_day_after(day, EARLIEST))

    def _count(self, day: date) -> int:
        if not self._fields.match_day(day):
            return 0
        return len(self._of_uneven(day) if self._even_start(day) is None else self._moments)

    def _even_start(self, day: date) -> datetime | None:
        """When the day begins; None if the zone's clock is changed in it."""
        start, end = self._midnight(day), self._midnight(day + DAY)
        return start if end - start == DAY else None

    def _midnight(self, day: date) -> datetime:
        return datetime(day.year, day.month, day.day, tzinfo=self._zone).astimezone(UTC)

    # -- days with a clock change -----------------------------------------------------------------

    def _real(self, day: date) -> list[datetime]:
        """Every real minute of the day whose wall clock matches."""
        times = []
        time, end = self._midnight(day) - CHANGE_MAX, self._midnight(day + DAY) + CHANGE_MAX
        while time < end:
            wall = time.astimezone(self._zone)
            is_match = wall.hour in self._fields.hours and wall.minute in self._fields.minutes
            if is_match and wall.date() == day:
                times.append(time)
            time += MINUTE
        return times

    def _put_off(self, day: date) -> list[datetime]:
        """Each once: at its first pass, or right after the gap in which it would have been."""
        midnight = datetime(day.year, day.month, day.day)  # noqa: DTZ001 - a wall clock's
        return sorted({self._instant(midnight + moment) for moment in self._moments})

    def _instant(self, wall: datetime) -> datetime:
        while True:
            instant = wall.replace(tzinfo=self._zone).astimezone(UTC)
            if instant.astimezone(self._zone).replace(tzinfo=None, fold=0) == wall:
                return instant
            wall += MINUTE
