"""The clock of a bench: time passes when the test says so."""

from __future__ import annotations

from datetime import UTC, datetime


class BenchClock:
    """Stands still until it is moved. A start without a zone is in UTC."""

    def __init__(self, now: str | datetime) -> None:
        start = datetime.fromisoformat(now) if isinstance(now, str) else now
        start = start.replace(tzinfo=UTC) if start.tzinfo is None else start.astimezone(UTC)
        self._began = start
        self._now = start

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return (self._now - self._began).total_seconds()

    def move_to(self, now: datetime) -> None:
        self._now = max(self._now, now)
