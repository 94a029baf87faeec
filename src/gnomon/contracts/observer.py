"""What the core tells about itself. Observers are cheap and never raise."""

from __future__ import annotations

from typing import Protocol


class Observer(Protocol):
    """Receives events: a constant name and fields, never a sentence with values in it."""

    def event(self, name: str, /, **fields: object) -> None:
        """Something noteworthy happened."""
        ...

    def count(self, name: str, value: int = 1, /, **labels: str) -> None:
        """Add to a counter."""
        ...

    def observe(self, name: str, value: float, /, **labels: str) -> None:
        """Add to a histogram."""
        ...

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        """Set a gauge."""
        ...


class SilentObserver:
    """The observer that keeps quiet: the default in tests, and of those who hear a part only."""

    def event(self, name: str, /, **fields: object) -> None: ...

    def count(self, name: str, value: int = 1, /, **labels: str) -> None: ...

    def observe(self, name: str, value: float, /, **labels: str) -> None: ...

    def gauge(self, name: str, value: float, /, **labels: str) -> None: ...
