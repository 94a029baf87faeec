"""Rows of a task table, for those who look at them, add one, or stop one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from gnomon.contracts.store.value import Value

TEXT_CHARS_SHOWN = 1_000  # of a text in a listing
TEXT_CHARS_MAX = 1_000_000  # of a text of one row


class TaskSummary(Value, frozen=True, kw_only=True):
    """A row in a listing; its texts are cut, and its output is left out."""

    id: int
    parent: int | None
    group: str
    remote: str | None  # without its password
    state: str
    plan: datetime
    start: datetime | None
    stop: datetime | None
    pid: int | None
    max: int
    input: str
    error: str | None


class TaskDetail(Value, frozen=True, kw_only=True):
    """A whole row, with its result, and why it waits. Intervals are texts of the engine's own. A
    text of more than so many characters is cut, and says so; a time beyond our calendar is the end
    of it."""

    id: int
    parent: int | None
    group: str
    remote: str | None  # without its password
    state: str
    plan: datetime
    start: datetime | None
    stop: datetime | None
    pid: int | None
    active: str
    live: str
    repeat: str
    cron: str | None
    timeout: str
    count: int
    max: int
    retry: int
    retried: int
    delete: bool
    drift: bool
    data: str | None
    input: str
    output: str | None
    error: str | None
    why: str | None  # it has not started
    until: datetime | None


class TaskDraft(msgspec.Struct, frozen=True, kw_only=True):
    """A row to be inserted; what is None gets the column's default."""

    input: str
    group: str | None = None
    remote: str | None = None
    plan: datetime | None = None
    active: str | None = None
    live: str | None = None
    repeat: str | None = None
    cron: str | None = None
    timeout: str | None = None
    count: int | None = None
    max: int | None = None
    retry: int | None = None
    delete: bool | None = None
    drift: bool | None = None
    header: bool | None = None
    save: bool | None = None
    string: bool | None = None
    delimiter: str | None = None
    quote: str | None = None
    escape: str | None = None
    null: str | None = None
    data: str | None = None


class TaskRows(Protocol):
    """One table. Errors of every method: Unavailable, also if somebody's open transaction holds
    what is to be changed; that is waited for, up to five seconds, and keeps no other call waiting.
    Whatever a row holds, the others are shown."""

    async def page(
        self,
        *,
        states: Sequence[str],
        group: str | None,
        after: int,
        limit: int,
        until: int | None = None,
    ) -> Sequence[TaskSummary]:
        """Rows with a higher id than `after`, and with none above `until`, in order of id; no
        states: all."""
        ...

    async def page_end(self, after: int, *, looks: int) -> int | None:
        """The id up to which so many rows behind `after` reach; None if there are no more. No index
        knows states and groups: who filters looks at these only, and goes on from there."""
        ...

    async def get(self, task_id: int) -> TaskDetail | None:
        """One row."""
        ...

    async def live_count(self, *, limit: int) -> int:
        """How many rows wait or are worked on, counted up to `limit`."""
        ...

    async def insert(self, draft: TaskDraft) -> TaskDetail:
        """A new row. Errors: InvalidSpec, when the table's own rules refuse it."""
        ...

    async def stop(self, task_id: int) -> TaskDetail | None:
        """Let it not be performed, or not again: PLAN, TAKE or WORK becomes STOP. The row as it
        is then, changed or not; None if there is none."""
        ...

    async def plan(self, task_id: int) -> TaskDetail | None:
        """Let it be performed (again): STOP, DONE, FAIL or GONE becomes PLAN, due at once where
        its time is over. The row as it is then, changed or not; None if there is none."""
        ...

    async def close(self) -> None:
        """End all connections."""
        ...
