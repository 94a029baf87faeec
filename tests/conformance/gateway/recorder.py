"""An observer that remembers what it was told."""

from __future__ import annotations

from gnomon.contracts.observer import SilentObserver


class Recorder(SilentObserver):
    """Keeps the events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, object]]] = []

    def event(self, name: str, /, **fields: object) -> None:
        self.events.append((name, fields))
