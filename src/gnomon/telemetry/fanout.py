"""Several observers behind one."""

from __future__ import annotations

from gnomon.contracts.observer import Observer


class Fanout:
    """Tells each of its observers everything, in order."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def event(self, name: str, /, **fields: object) -> None:
        for observer in self._observers:
            observer.event(name, **fields)

    def count(self, name: str, value: int = 1, /, **labels: str) -> None:
        for observer in self._observers:
            observer.count(name, value, **labels)

    def observe(self, name: str, value: float, /, **labels: str) -> None:
        for observer in self._observers:
            observer.observe(name, value, **labels)

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        for observer in self._observers:
            observer.gauge(name, value, **labels)
