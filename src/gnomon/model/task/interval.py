"""Intervals as PostgreSQL reads them, for where there is no PostgreSQL to ask.

`90`, `'5 min'`, `'1 hour 30 min'`, `'1 day 02:30:00'`, `'1.5 months'`, `'P1Y2M3DT4H5M6S'`. An
interval has three parts that do not turn into each other: months, which are as long as the
calendar says, days, and microseconds. Times are UTC, so a day has 24 hours here.
"""

from __future__ import annotations

import calendar
import re
from datetime import datetime, timedelta
from fractions import Fraction
from functools import lru_cache

import msgspec

from gnomon.model.errors import InvalidSpec

TEXT_CHARS_MAX = 200
DAYS_PER_MONTH = 30  # where a month must have a length: comparisons and fractions
MONTHS_MAX = 12 * 10_000  # beyond the calendar of `datetime`
DAYS_MAX = 366 * 10_000
_US_PER_DAY = 86_400_000_000

_MONTHS = {"months": 1, "years": 12, "decades": 120, "centuries": 1200, "millennia": 12_000}
_DAYS = {"days": 1, "weeks": 7}
_MICROS = {
    "microseconds": 1, "milliseconds": 1_000, "seconds": 1_000_000, "minutes": 60_000_000,
    "hours": 3_600_000_000,
}  # fmt: skip
# PostgreSQL's spellings, beside the full words in singular and plural.
_SPELLINGS = {
    "us": "microseconds", "usec": "microseconds", "usecs": "microseconds",
    "usecond": "microseconds", "useconds": "microseconds", "ms": "milliseconds",
    "msec": "milliseconds", "msecs": "milliseconds", "msecond": "milliseconds",
    "mseconds": "milliseconds",
    "s": "seconds", "sec": "seconds", "secs": "seconds", "m": "minutes", "min": "minutes",
    "mins": "minutes", "h": "hours", "hr": "hours", "hrs": "hours", "d": "days", "w": "weeks",
    "mon": "months", "mons": "months", "y": "years", "yr": "years", "yrs": "years",
    "dec": "decades", "decs": "decades", "c": "centuries", "cent": "centuries",
    "century": "centuries", "mil": "millennia", "mils": "millennia", "millennium": "millennia",
}  # fmt: skip
_UNITS = {
    **_SPELLINGS,
    **{unit: unit for unit in (*_MONTHS, *_DAYS, *_MICROS)},
    **{unit.removesuffix("s"): unit for unit in (*_MONTHS, *_DAYS, *_MICROS)},
}
_ISO_UNITS = {"Y": "years", "M": "months", "W": "weeks", "D": "days"}
_ISO_TIME_UNITS = {"H": "hours", "M": "minutes", "S": "seconds"}

_NUMBER = r"[+-]?(?:\d{1,18}(?:\.\d{0,18})?|\.\d{1,18})"
_PART = re.compile(
    rf"\s*(?:(?P<sign>[+-]?)(?P<hours>\d{{1,9}}):(?P<minutes>\d{{2}})"
    rf"(?::(?P<seconds>\d{{2}}(?:\.\d{{0,18}})?))?"
    rf"|(?P<number>{_NUMBER})\s*(?P<unit>[A-Za-z]*))(?=[\s\d+-]|$)",
    re.ASCII,
)
_ISO = re.compile(rf"P(?P<date>(?:{_NUMBER}[YMWD])*)(?:T(?P<time>(?:{_NUMBER}[HMS])+))?", re.ASCII)
_ISO_PART = re.compile(rf"({_NUMBER})([YMWDHS])", re.ASCII)


class Interval(msgspec.Struct, frozen=True):
    """A length of time whose months are the calendar's."""

    months: int = 0
    days: int = 0
    micros: int = 0

    @property
    def length(self) -> timedelta:
        """How long it is where that must be one number: a month counts 30 days."""
        return timedelta(days=self.months * DAYS_PER_MONTH + self.days, microseconds=self.micros)

    @property
    def is_even(self) -> bool:
        """Whether it is always equally long."""
        return self.months == 0

    def after(self, moment: datetime) -> datetime:
        """The moment plus the interval: months first, at most to the last day of the month.

        Errors: OverflowError beyond the year 9999.
        """
        if self.months:
            moment = _add_months(moment, self.months)
        return moment + timedelta(days=self.days, microseconds=self.micros)


def _add_months(moment: datetime, months: int) -> datetime:
    year, month0 = divmod(moment.year * 12 + moment.month - 1 + months, 12)
    if not 1 <= year <= 9999:
        raise OverflowError(f"the year {year} is beyond the calendar")
    day = min(moment.day, calendar.monthrange(year, month0 + 1)[1])
    return moment.replace(year=year, month=month0 + 1, day=day)


def parse_interval(value: str | float) -> timedelta:
    """The length of an interval; numbers are seconds. Errors: InvalidSpec."""
    return read_interval(value).length


@lru_cache(maxsize=1024)
def read_interval(value: str | float) -> Interval:
    """Read an interval; numbers, also as text, are seconds. Errors: InvalidSpec."""
    text = f"{value:.6f}" if isinstance(value, float) else str(value).strip()
    try:
        if len(text) > TEXT_CHARS_MAX:
            raise ValueError
        interval = _from_iso(text) if text.startswith("P") else _from_words(text)
    except (ValueError, OverflowError):
        raise InvalidSpec(
            "interval", "must be an interval such as 90, '5 min' or '1 hour 30 min'", got=value
        ) from None
    days = abs(interval.days) + abs(interval.micros) // _US_PER_DAY
    if abs(interval.months) > MONTHS_MAX or days > DAYS_MAX:
        raise InvalidSpec("interval", "is longer than the calendar", got=value)
    return interval


class _Sum:
    """Adds parts up; what is left of a month goes to the days, of a day to the microseconds."""

    def __init__(self) -> None:
        self.months, self.days, self.micros = 0, 0, Fraction(0)

    def add(self, number: str, unit: str) -> None:
        count = Fraction(number + "0" if number.endswith(".") else number)
        if unit in _MICROS:
            self.micros += count * _MICROS[unit]
        elif unit in _DAYS:
            self._add_days(count * _DAYS[unit])
        elif unit == "months":
            self.months += int(count)
            self._add_days((count - int(count)) * DAYS_PER_MONTH)
        else:
            self.months += round(count * _MONTHS[unit])

    def _add_days(self, days: Fraction) -> None:
        self.days += int(days)
        self.micros += (days - int(days)) * _US_PER_DAY

    def total(self, *, sign: int = 1) -> Interval:
        return Interval(
            months=sign * self.months, days=sign * self.days, micros=sign * round(self.micros)
        )


def _from_words(text: str) -> Interval:
    words, is_ago = text.removeprefix("@"), False
    if words.lower().endswith(" ago"):
        words, is_ago = words[:-4], True
    words = words.rstrip()
    amounts, at = _Sum(), 0
    if not words:
        raise ValueError
    while at < len(words):
        part = _PART.match(words, at)
        if part is None or part.end() == at:
            raise ValueError
        _add_part(amounts, part, is_last=part.end() == len(words))
        at = part.end()
    return amounts.total(sign=-1 if is_ago else 1)


def _add_part(amounts: _Sum, part: re.Match[str], *, is_last: bool) -> None:
    if part["number"] is None:
        sign = part["sign"]
        if int(part["minutes"]) > 59 or float(part["seconds"] or 0) >= 60:
            raise ValueError
        amounts.add(sign + part["hours"], "hours")
        amounts.add(sign + part["minutes"], "minutes")
        amounts.add(sign + (part["seconds"] or "0"), "seconds")
    elif part["unit"]:
        unit = _UNITS.get(part["unit"].lower())
        if unit is None:
            raise ValueError
        amounts.add(part["number"], unit)
    elif is_last:
        amounts.add(part["number"], "seconds")
    else:
        raise ValueError


def _from_iso(text: str) -> Interval:
    whole = _ISO.fullmatch(text)
    if whole is None or not (whole["date"] or whole["time"]):
        raise ValueError
    amounts = _Sum()
    for number, letter in _ISO_PART.findall(whole["date"]):
        amounts.add(number, _ISO_UNITS[letter])
    for number, letter in _ISO_PART.findall(whole["time"] or ""):
        amounts.add(number, _ISO_TIME_UNITS[letter])
    return amounts.total()
