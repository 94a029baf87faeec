"""How an installation is: its figures, its workers, what nobody serves, and what is wrong.

For people and their scripts: `gnomon status`, `GET /v1/status`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from gnomon.contracts.store.figures import QueueFigures, StageFigures
from gnomon.model.duration import format_duration

OVERDUE_ALARM = timedelta(minutes=1)
SECOND = timedelta(seconds=1)


class WorkerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that told of itself, and did not leave."""

    owner: str
    silent_for: timedelta  # since its last heartbeat
    is_alive: bool
    shards: int  # that it holds
    only_queues: tuple[str, ...] = ()  # if any: it serves no others
    never_queues: tuple[str, ...] = ()  # it has no slots for these


class UnservedStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Actions that are due, and that no living worker serves."""

    need: str
    count: int
    since: datetime


class TaskTableStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of one table of SQL tasks; at `limit` a count means: so many, or more."""

    table: str
    limit: int
    waiting: int = 0  # their plan has not come
    overdue: int = 0
    running: int = 0
    failed: int = 0
    overdue_for: timedelta = timedelta(0)
    problem: str | None = None  # why nothing is known of it


class InstallationStatus(msgspec.Struct, frozen=True, kw_only=True):
    """All of it at one moment. At `limit` a count means: so many, or more."""

    installation: UUID
    engine: str
    durability: str
    at: datetime
    limit: int
    queues: Sequence[QueueFigures]
    stages: Sequence[StageFigures]
    workers: Sequence[WorkerStatus]
    shards: int
    shards_unowned: int
    unserved: Sequence[UnservedStatus] = ()
    task_tables: Sequence[TaskTableStatus] = ()
    partial: bool = False  # there is more than may be looked at: the counts are too low
    problems: Sequence[str] = ()  # what is wrong, in words

    def find_problems(self, *, alarm: timedelta = OVERDUE_ALARM) -> list[str]:
        """What somebody should look after. Dead actions are none: they are kept to be looked at,
        and stay for days."""
        return [*self._of_workers(), *self._of_queues(alarm), *self._of_others(alarm)]

    def _of_workers(self) -> Iterator[str]:
        alive = sum(worker.is_alive for worker in self.workers)
        if not alive:
            yield "no worker is alive"
        elif self.shards_unowned:
            yield f"{self.shards_unowned} of {self.shards} shards have no living owner"

    def _of_queues(self, alarm: timedelta) -> Iterator[str]:
        for queue in self.queues:
            if queue.overdue and queue.overdue_for > alarm:
                yield f"queue {queue.queue}: {_overdue(queue.overdue, queue.overdue_for)}"
        for one in self.unserved:
            yield f"nobody serves {one.need}: {one.count:,} wait, since {one.since.isoformat()}"

    def _of_others(self, alarm: timedelta) -> Iterator[str]:
        for stage in self.stages:
            if stage.overdue and stage.overdue_for > alarm:
                yield f"stage {stage.stage}: {_overdue(stage.overdue, stage.overdue_for)}"
        for table in self.task_tables:
            if table.problem is not None:
                yield f"task table {table.table}: {table.problem}"
            elif table.overdue and table.overdue_for > alarm:
                yield f"task table {table.table}: {_overdue(table.overdue, table.overdue_for)}"


def _overdue(count: int, longest: timedelta) -> str:
    return f"{count:,} overdue, the first for {format_duration(longest // SECOND * SECOND)}"
