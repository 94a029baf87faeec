"""A clock that a test turns by hand, ids that it can foresee, and an audience that remembers."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from uuid import UUID

from gnomon.contracts.env import Env

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class HandClock:
    """Stands still until told otherwise."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds


class CountingEntropy:
    """Ids in a row."""

    def __init__(self) -> None:
        self._next = 0

    def guid(self) -> UUID:
        self._next += 1
        return UUID(int=self._next)

    def guids(self, count: int) -> list[UUID]:
        return [self.guid() for _ in range(count)]

    def token(self) -> UUID:
        return self.guid()

    def fraction(self) -> float:
        return 0.5


class Audience:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.counts: Counter[str] = Counter()

    def event(self, name: str, /, **_fields: object) -> None:
        self.events.append(name)

    def count(self, name: str, value: int = 1, /, **_labels: str) -> None:
        self.counts[name] += value

    def observe(self, name: str, value: float, /, **_labels: str) -> None: ...

    def gauge(self, name: str, value: float, /, **_labels: str) -> None: ...


def surroundings() -> tuple[Env, HandClock, Audience]:
    """An Env and the two parts of it that a test looks at."""
    clock, audience = HandClock(), Audience()
    return Env(clock=clock, entropy=CountingEntropy(), observer=audience), clock, audience
