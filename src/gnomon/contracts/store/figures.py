"""The figures of an installation: how much waits, is overdue, runs and has died; for people, for
metrics and for who decides how many workers there should be. Never for a decision about one row."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from gnomon.contracts.store.value import Value

COUNT_MAX = 10_000  # enough to see that something piles up; counting on would cost and tell no more
ALIVE_FOR = timedelta(seconds=30)  # after its last sign of life: who is silent for longer is gone
COUNT_LEAST = 1_000  # also of many queues
COUNTED_MAX = 20_000  # of all queues together, so that many of them cost no more than one
LANES_MAX = 20_000  # looked at in all; each is one step in an index


def limit_for(queues: int, limit: int) -> int:
    """Up to which number each of so many queues is counted."""
    return min(limit, max(COUNT_LEAST, COUNTED_MAX // (2 * max(queues, 1))))


class QueueFigures(Value, frozen=True):
    """The actions of one queue. At `InstallationFigures.limit` a count means: so many, or more."""

    queue: str
    waiting: int = 0  # their time has not come
    overdue: int = 0  # due, and no attempt has begun
    running: int = 0
    dead: int = 0  # and still kept
    overdue_for: timedelta = timedelta(0)  # the one that has been due the longest


class StageFigures(Value, frozen=True):
    """The queue of one stage; counts as above."""

    stage: str
    overdue: int = 0  # entities that are ready for it, and due
    parked: int = 0  # quarantined or looping
    overdue_for: timedelta = timedelta(0)


class InstallationFigures(Value, frozen=True):
    """All of it at one moment. A queue or a stage without anything to count is left out."""

    at: datetime
    limit: int  # where counts end: as asked for, or less if there are many queues
    queues: Sequence[QueueFigures]
    stages: Sequence[StageFigures]
    workers_alive: int
    shards: int
    shards_unowned: int  # nobody has their lease, or its owner is silent
    partial: bool = False  # there was more to look at than may be looked at: the counts are too low

    @property
    def actions(self) -> QueueFigures:
        """All queues together, under the empty name."""
        return QueueFigures(
            queue="",
            waiting=sum(one.waiting for one in self.queues),
            overdue=sum(one.overdue for one in self.queues),
            running=sum(one.running for one in self.queues),
            dead=sum(one.dead for one in self.queues),
            overdue_for=max((one.overdue_for for one in self.queues), default=timedelta(0)),
        )
