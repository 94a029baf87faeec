"""How old what waits in the outbox has become, and what follows from it.

Of every sink the age of the oldest save is a metric; past an alarm age it is an event, and another
one when it has recovered. While a sink is behind that is served here, the background lane is held:
users' saves and what follows from them go on.

A sink is behind if it takes nothing, or not as fast as saves are made. A single save that is
refused while others arrive holds up nothing but its own entity; it grows old, and so raises the
alarm, until it is quarantined: then it is a person's business, and has no age here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import timedelta

from gnomon.contracts.observer import Observer
from gnomon.contracts.store.outbox import SinkQueue
from gnomon.stages.config import StagesConfig

NOTHING = timedelta(0)


class SinkAges:
    """Knows which sinks are late, and whether the background lane is held."""

    def __init__(
        self,
        sinks: Collection[str],
        *,
        config: StagesConfig,
        observer: Observer,
        changed: Callable[[], None],  # told when `is_behind` is another
    ) -> None:
        self._served = frozenset(sinks)
        self._seen: set[str] = {*sinks}
        self._late: set[str] = set()
        self._hold = config.outbox_hold
        self._alarm = config.outbox_alarm
        self._observer = observer
        self._changed = changed
        self.is_behind = False

    def note(self, waiting: Sequence[SinkQueue], *, away: Collection[str]) -> None:
        """Take in what a survey found; `away`: sinks that take nothing at present."""
        ages = {queue.sink: queue.age for queue in waiting}
        self._seen.update(ages)
        for sink in sorted(self._seen):
            self._note_age(sink, ages.get(sink, NOTHING))
        behind = [label_of(queue.sink) for queue in waiting if self._is_behind(queue, away)]
        if bool(behind) != self.is_behind:
            self.is_behind = bool(behind)
            name = "background_held" if behind else "background_resumed"
            self._observer.event(name, sinks=", ".join(behind))
            self._changed()
        self._observer.gauge("background_held", float(self.is_behind))

    def _note_age(self, sink: str, age: timedelta) -> None:
        label, age_s = label_of(sink), age.total_seconds()
        self._observer.gauge("outbox_age_seconds", age_s, sink=label)
        if age > self._alarm and sink not in self._late:
            self._late.add(sink)
            self._observer.event("outbox_late", sink=label, age_s=age_s)
        elif age <= self._alarm and sink in self._late:
            self._late.remove(sink)
            self._observer.event("outbox_recovered", sink=label)

    def _is_behind(self, waiting: SinkQueue, away: Collection[str]) -> bool:
        if waiting.sink not in self._served:
            return False  # holding back would not help it
        is_slow = -waiting.due_in > self._hold
        return is_slow or (waiting.sink in away and waiting.age > self._hold)


def label_of(sink: str) -> str:
    """A sink as people read it."""
    return sink or "relay"
