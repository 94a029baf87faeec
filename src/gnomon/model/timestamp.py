"""The one way in which a moment is written for others to read."""

from __future__ import annotations

from datetime import UTC, datetime


def rfc3339(moment: datetime) -> str:
    """A moment with a time zone, in UTC: `2026-11-16T19:45:58Z`."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
