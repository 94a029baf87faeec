"""Durations as people write them: `90`, `"30s"`, `"5m"`, `"1h30m"`, `"PT5M"` → `timedelta`."""

from __future__ import annotations

import math
import re
from datetime import timedelta

import msgspec

from gnomon.model.errors import InvalidSpec

_UNITS = {
    "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0,
}  # fmt: skip
_PART = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s|m|h|d|w)", re.ASCII)
_WHOLE = re.compile(r"(?:\d+(?:\.\d+)?(?:us|ms|s|m|h|d|w))+", re.ASCII)
TEXT_CHARS_MAX = 64
DURATION_MAX = timedelta(days=3660)  # ten years: longer is a slip of the unit


def parse_duration(value: object, path: str) -> timedelta:
    """Read a duration; `path` names the field in the error."""
    match value:
        case timedelta():
            duration = value
        case bool():
            raise InvalidSpec(path, "must be a duration such as 30, '30s' or '5m'", got=value)
        case int() | float():
            duration = _from_seconds(value, path)
        case str() if len(value) <= TEXT_CHARS_MAX:
            duration = _from_text(value, path)
        case _:
            raise InvalidSpec(path, "must be a duration such as 30, '30s' or '5m'", got=value)
    if duration < timedelta(0):
        raise InvalidSpec(path, "must not be negative", got=value)
    if duration > DURATION_MAX:
        raise InvalidSpec(path, f"must be at most {DURATION_MAX.days} days", got=value)
    return duration


def is_duration(text: str) -> bool:
    """Whether a text looks like a duration, and not like a time."""
    return bool(_WHOLE.fullmatch(text) or re.match(r"[+-]?P", text, re.IGNORECASE))


def _from_seconds(value: int | float, path: str) -> timedelta:
    if isinstance(value, float) and not math.isfinite(value):  # an int may be beyond any float
        raise InvalidSpec(path, "must be a finite number of seconds", got=value)
    if abs(value) > DURATION_MAX.total_seconds() * 2:
        raise InvalidSpec(path, f"must be at most {DURATION_MAX.days} days", got=value)
    return timedelta(seconds=value)


def _from_text(text: str, path: str) -> timedelta:
    if _WHOLE.fullmatch(text):
        total = math.fsum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
        return _from_seconds(total, path)
    try:
        return msgspec.convert(text, timedelta)  # ISO 8601
    except msgspec.ValidationError:
        raise InvalidSpec(
            path, "must be a duration such as '30s', '5m' or 'PT5M'", got=text
        ) from None


def format_duration(value: timedelta) -> str:
    """A short form that `parse_duration` reads back to the same value."""
    micros = value // timedelta(microseconds=1)
    if micros == 0:
        return "0s"
    parts = []
    for unit in ("w", "d", "h", "m", "s", "ms", "us"):
        size = round(_UNITS[unit] * 1_000_000)
        count, micros = divmod(micros, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)
