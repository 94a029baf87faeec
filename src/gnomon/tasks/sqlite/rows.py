"""Rows to values and back: times and intervals are texts in SQLite."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from gnomon.model.errors import InvalidSpec
from gnomon.model.task import GroupKey, Task
from gnomon.model.task.interval import Interval, read_interval
from gnomon.model.task.repeat import Repetition, read_cron


class Misread(Exception):  # noqa: N818 - the user's text, and his error
    """A column holds what its type would not allow; the text says it as PostgreSQL would."""


def text_of(moment: datetime) -> str:
    """A time as it is stored: comparable as a text."""
    naive = moment.astimezone(UTC).replace(tzinfo=None)
    return naive.isoformat(sep=" ", timespec="microseconds")


def moment_of(text: str) -> datetime:
    """A stored time."""
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def interval_of(text: str) -> Interval:
    """A stored interval. Errors: Misread."""
    try:
        return read_interval(text)
    except InvalidSpec:
        raise Misread(f'invalid input syntax for type interval: "{text}"') from None


class TaskRow(NamedTuple):
    """A row of the query `row`, in its order."""

    id: int
    group: str
    remote: str | None
    input: str
    plan: str
    state: str
    pid: int | None
    start: str | None
    active: str
    max: int
    done_max: int  # the column `count`
    live: str
    timeout: str
    save: int
    header: int
    string: int
    delimiter: str
    quote: str
    escape: str
    null: str
    repeat: str
    cron: str | None

    def is_due(self, now: datetime) -> bool:
        """Whether it may be performed: taken already, or due and not expired. Errors: Misread."""
        if self.state == "TAKE":
            return True
        if self.state != "PLAN" or moment_of(self.plan) > now:
            return False
        return self.max < 0 or not is_expired(self.plan, interval_of(self.active), now=now)

    def task(self, start: datetime) -> Task:
        """The row in WORK. Errors: Misread, also for what is needed only at its end."""
        interval_of(self.repeat)
        cron_of(self.cron)
        return Task(
            id=self.id,
            key=GroupKey(self.group),
            input=self.input,
            plan=moment_of(self.plan),
            start=start,
            max=self.max,
            count=self.done_max,
            live_s=interval_of(self.live).length.total_seconds(),
            timeout=interval_of(self.timeout).length,
            save=bool(self.save),
            header=bool(self.header),
            string=bool(self.string),
            delimiter=self.delimiter,
            quote=self.quote,
            escape=self.escape,
            null=self.null,
        )


class RepetitionRow(NamedTuple):
    """A row of the query `repetition`, in its order."""

    state: str
    pid: int | None
    start: str | None
    plan: str
    repeat: str
    cron: str | None
    drift: int
    delete: int
    retry: int
    retried: int

    def repetition(self) -> Repetition:
        """Errors: Misread."""
        return Repetition(
            plan=moment_of(self.plan),
            repeat=interval_of(self.repeat),
            cron=cron_of(self.cron),
            drift=bool(self.drift),
            delete=bool(self.delete),
            retry=self.retry,
            retried=self.retried,
        )


def cron_of(text: str | None) -> str | None:
    """Errors: Misread."""
    try:
        return read_cron(text)
    except InvalidSpec:
        raise Misread(f'invalid cron expression: "{text}"') from None


def is_expired(plan: str, active: Interval, *, now: datetime) -> bool:
    """Whether a row that was planned then may not be begun any more."""
    try:
        return active.after(moment_of(plan)) <= now
    except OverflowError:
        return False
