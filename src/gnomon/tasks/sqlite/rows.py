"""Rows to values and back: times and intervals are texts in SQLite."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from gnomon.model.errors import InvalidSpec
from gnomon.model.task import DueTask, GroupKey, Task
from gnomon.model.task.interval import Interval, read_interval
from gnomon.model.task.repeat import Repetition, next_cron, read_cron

FIRST = datetime.min.replace(tzinfo=UTC)


class InvalidColumn(Exception):  # noqa: N818 - the user's text, and his error
    """A column holds what its type would not allow; the text says it as PostgreSQL would."""


def text_of(moment: datetime) -> str:
    """A time as it is stored: comparable as a text."""
    naive = moment.astimezone(UTC).replace(tzinfo=None)
    return naive.isoformat(sep=" ", timespec="microseconds")


def moment_of(text: str) -> datetime:
    """A stored time; one before our calendar is the beginning of it."""
    if text.startswith("0000-"):
        return FIRST
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def interval_of(text: str) -> Interval:
    """A stored interval. Errors: InvalidColumn."""
    try:
        return read_interval(text)
    except InvalidSpec:
        raise InvalidColumn(f'invalid input syntax for type interval: "{text}"') from None


class LockRow(NamedTuple):
    """A row of the query `lock`, in its order."""

    lease_guid: str | None
    owner: str | None
    process: str | None
    beat: int
    heartbeat_at: str


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
        """Whether it is taken already, or due and not expired. Errors: InvalidColumn."""
        if self.state == "TAKE":
            return True
        if self.state != "PLAN" or moment_of(self.plan) > now:
            return False
        return self.max < 0 or not is_expired(self.plan, interval_of(self.active), now=now)

    def task(self, start: datetime) -> Task:
        """The row in WORK. Errors: InvalidColumn, also for what is needed only at its end."""
        for text in (self.group, self.input, self.null, self.delimiter, self.quote, self.escape):
            if not is_text(text):
                raise InvalidColumn('invalid byte sequence for encoding "UTF8"')
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


class WindowRow(NamedTuple):
    """A row of the queries `window_…`, in their order."""

    id: int
    max: int
    done_max: int
    live: str
    plan: str
    active: str
    cron: str | None
    since: str | None

    @property
    def waiting(self) -> DueTask:
        try:
            live_s = interval_of(self.live).length.total_seconds()
        except InvalidColumn:
            live_s = 0.0  # said when the row is taken
        return DueTask(id=self.id, max=self.max, count=self.done_max, live_s=live_s)

    @property
    def first(self) -> datetime | None:
        """The first time of a `cron` whose row was given no plan."""
        return first_of(self.cron, self.plan, self.since)

    def is_lasting(self, now: datetime) -> bool:
        """Whether it may still be begun; what cannot be read is said when the row is taken."""
        try:
            return self.max < 0 or not is_expired(self.plan, interval_of(self.active), now=now)
        except InvalidColumn:
            return True


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
    since: str | None

    @property
    def first(self) -> datetime | None:
        """The first time of a `cron` whose row was given no plan; it waits for that."""
        return first_of(self.cron, self.plan, self.since)

    def repetition(self) -> Repetition:
        """Errors: InvalidColumn."""
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
    """Errors: InvalidColumn."""
    try:
        return read_cron(text)
    except InvalidSpec:
        raise InvalidColumn(f'invalid cron expression: "{text}"') from None


def first_of(cron: str | None, plan: str, since: str | None) -> datetime | None:
    """The first time of a row with a `cron` and no plan of its own."""
    if cron is None or plan != since:
        return None
    try:
        known = cron_of(cron)
    except InvalidColumn:
        return None  # said when the row is taken
    return None if known is None else next_cron(known, after=moment_of(plan))


def bytes_of(text: str) -> bytes:
    """A text with its bytes as they came, for a parameter that is cast to a text."""
    return text.encode("utf-8", "surrogateescape")


def shown(text: str) -> str:
    """A text that may be written, whatever its bytes were."""
    return text.encode("utf-8", "replace").decode()


def is_text(value: str) -> bool:
    """Whether its bytes were UTF-8: SQLite takes any."""
    return not any("\udc80" <= char <= "\udcff" for char in value)


def is_expired(plan: str, active: Interval, *, now: datetime) -> bool:
    """Whether a row that was planned then may not be begun any more."""
    try:
        return active.after(moment_of(plan)) <= now
    except OverflowError:
        return False
