"""What happened in one world: an append-only record, in the order of the store's own commits."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple


class Event(NamedTuple):
    at_s: float
    who: str
    what: str
    details: tuple[object, ...]

    def __str__(self) -> str:
        shown = " ".join(str(detail) for detail in self.details)
        return f"{self.at_s:10.4f}  {self.who:<8} {self.what:<18} {shown}"


class Violation(NamedTuple):
    """A rule that did not hold, and where."""

    rule: str
    detail: str
    at_s: float

    def __str__(self) -> str:
        return f"{self.rule}: {self.detail} (at {self.at_s:.4f} s)"


class History:
    """Events, what was reached (coverage), and what was violated."""

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self.events: list[Event] = []
        self.coverage: Counter[str] = Counter()
        self.violations: list[Violation] = []

    def note(self, who: str, what: str, *details: object) -> None:
        self.events.append(Event(self._time(), who, what, details))

    def reach(self, place: str, count: int = 1) -> None:
        if count:
            self.coverage[place] += count

    def violate(self, rule: str, *details: object) -> None:
        shown = " ".join(str(detail) for detail in details)
        self.violations.append(Violation(rule, shown, self._time()))
        self.note("rules", "VIOLATED", rule, shown)

    def digest(self) -> str:
        """The same seed must give the same digest."""
        found = hashlib.sha256()
        for event in self.events:
            found.update(f"{event.at_s!r}{event.who}{event.what}{event.details}".encode())
        return found.hexdigest()
