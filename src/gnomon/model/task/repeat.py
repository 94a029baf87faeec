"""When a task comes again: repeats on a grid or after its end, cron, pauses of a group, retries.

Pure: the caller passes `now`. What an engine can say in its own SQL it may; these are the rules
for where it cannot, and what it is compared with.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Literal

import msgspec

from gnomon.model.cron import validate_cron
from gnomon.model.errors import InvalidSpec
from gnomon.model.schedule import cron_after
from gnomon.model.spec import Cron
from gnomon.model.task.interval import Interval
from gnomon.model.task.row import Outcome

RETRY_FIRST_S = 1
RETRY_S_MAX = 3600
_DOUBLINGS_MAX = 12  # 2 ** 12 s is more than the most that is waited
ZERO = Interval()


class Repetition(msgspec.Struct, frozen=True, kw_only=True):
    """The columns of a row that say whether and when it comes again."""

    plan: datetime
    repeat: Interval = ZERO
    cron: str | None = None  # as `read_cron` gives it
    drift: bool = False
    delete: bool = True
    retry: int = 0
    retried: int = 0


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a row whose task has ended."""

    state: Literal["DONE", "FAIL", "PLAN"]
    retry_at: datetime | None = None  # with PLAN: when it is tried again
    repeat_at: datetime | None = None  # a copy of the row is planned for then
    is_removed: bool = False


def settle(row: Repetition, outcome: Outcome, *, now: datetime) -> Ending:
    """Decide about a row: tried again, repeated, removed. A retry comes before the repeat."""
    if outcome.error is None:
        return Ending(
            state="DONE",
            repeat_at=next_plan(row, now=now),
            is_removed=row.delete and outcome.output is None,
        )
    if row.retried < row.retry:
        return Ending(state="PLAN", retry_at=now + retry_delay(row.retried))
    return Ending(state="FAIL", repeat_at=next_plan(row, now=now))


def next_plan(row: Repetition, *, now: datetime) -> datetime | None:
    """When the repeat of a row is; None if it has none, or none that the calendar knows."""
    try:
        if row.cron is not None:
            return next_cron(row.cron, after=max(row.plan, now))
        if row.repeat.length <= timedelta(0):
            return None
        return row.repeat.after(now) if row.drift else next_on_grid(row.plan, row.repeat, now=now)
    except OverflowError:
        return None


def next_on_grid(plan: datetime, step: Interval, *, now: datetime) -> datetime:
    """`plan + step + step …`, the first of them after `now`, and always at least one step on.

    Months are added one by one, so that the 31st, once shortened, stays shortened.
    """
    assert step.length > timedelta(0)
    if step.is_even:
        return plan + max(1, (now - plan) // step.length + 1) * step.length
    moment = step.after(plan)
    while moment <= now:
        following = step.after(moment)
        if following <= moment:  # a month less many days may not get on at all
            raise OverflowError("the interval leads nowhere")
        moment = following
    return moment


def paused_plan(plan: datetime, pause: timedelta, *, drift: bool, now: datetime) -> datetime:
    """The new plan of a due row with a pause, when one like it in its group has just ended."""
    if drift:
        return now + pause
    return plan + ((now - plan) // pause + 1) * pause


def retry_delay(retried: int) -> timedelta:
    """How long a row waits after its error: a second, doubled each time, at most an hour."""
    return timedelta(seconds=min(RETRY_FIRST_S << min(retried, _DOUBLINGS_MAX), RETRY_S_MAX))


def next_cron(text: str, *, after: datetime) -> datetime | None:
    """The first time of `'0 3 * * *'` (UTC) or `'0 3 * * * Europe/Berlin'` after a moment.

    None if there is none: what is no cron expression has none, too.
    """
    try:
        validate_cron(_cron(text))
    except InvalidSpec:
        return None
    return cron_after(_cron(text), after.astimezone(UTC))


def read_cron(text: str | None) -> str | None:
    """The column `cron`, checked; empty means none. Errors: InvalidSpec."""
    if text is None or not text.strip():
        return None
    validate_cron(_cron(text))
    return text


def _cron(text: str) -> Cron:
    """Five fields, and perhaps a zone after them."""
    *fields, last = text.split() or [""]
    if len(fields) == 5:
        return Cron(expression=" ".join(fields), timezone=last)
    return Cron(expression=text)
