"""Adds the figures of an installation up from what an engine found, part by part."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from gnomon.contracts.store import InstallationFigures, QueueFigures, StageFigures

ARRIVALS_LOOKED_AT = 200  # of each shard at least, whatever the number of shards
NOTHING = timedelta(0)
COUNTS = ("waiting", "overdue", "running", "dead")


class Presence(msgspec.Struct, frozen=True):
    """Who is there."""

    workers_alive: int
    shards: int
    shards_unowned: int


class FiguresTally:
    """Counts never pass the limit: at it they mean "or more"."""

    def __init__(self, *, at: datetime, limit: int) -> None:
        self._at = at
        self.limit = limit
        self._queues: dict[str, QueueFigures] = {}
        self._stages: dict[str, StageFigures] = {}
        self.partial = False

    def queue(self, name: str) -> QueueFigures:
        """What was found of it so far."""
        return self._queues.get(name, QueueFigures(queue=name))

    def add_queue(
        self,
        queue: str,
        *,
        waiting: int = 0,
        overdue: int = 0,
        running: int = 0,
        dead: int = 0,
        since: datetime | None = None,
    ) -> None:
        """A part of a queue; `since` is the due time of its oldest overdue action."""
        known = self.queue(queue)
        self._queues[queue] = QueueFigures(
            queue=queue,
            waiting=self._capped(known.waiting + waiting),
            overdue=self._capped(known.overdue + overdue),
            running=self._capped(known.running + running),
            dead=self._capped(known.dead + dead),
            overdue_for=max(known.overdue_for, self._age(since)),
        )

    def add_stage(
        self, stage: str, *, overdue: int = 0, parked: int = 0, since: datetime | None = None
    ) -> None:
        """A part of a stage's queue."""
        known = self._stages.get(stage, StageFigures(stage=stage))
        self._stages[stage] = StageFigures(
            stage=stage,
            overdue=self._capped(known.overdue + overdue),
            parked=self._capped(known.parked + parked),
            overdue_for=max(known.overdue_for, self._age(since)),
        )

    def total(self, presence: Presence) -> InstallationFigures:
        """Queues and stages in order of their names, those with nothing to count left out."""
        queues = [self._at_limit(one) for _, one in sorted(self._queues.items()) if _counts(one)]
        return InstallationFigures(
            at=self._at,
            limit=self.limit,
            queues=queues,
            stages=[one for _, one in sorted(self._stages.items()) if one.overdue or one.parked],
            workers_alive=presence.workers_alive,
            shards=presence.shards,
            shards_unowned=presence.shards_unowned,
            partial=self.partial,
        )

    def _at_limit(self, one: QueueFigures) -> QueueFigures:
        """A part may have been added before the limit was lowered."""
        counts = {name: self._capped(getattr(one, name)) for name in COUNTS}
        return msgspec.structs.replace(one, **counts)

    def lower_limit(self, limit: int) -> None:
        """Counts end sooner than was asked for."""
        self.limit = min(self.limit, limit)

    def _capped(self, count: int) -> int:
        return min(count, self.limit)

    def _age(self, since: datetime | None) -> timedelta:
        return NOTHING if since is None else max(self._at - since, NOTHING)


def _counts(one: QueueFigures) -> bool:
    return bool(one.waiting or one.overdue or one.running or one.dead)


def arrivals_looked_at(limit: int, shards: int) -> int:
    """How many arrivals of each shard are looked at: about the limit in all."""
    return max(ARRIVALS_LOOKED_AT, limit // max(shards, 1))
