"""The handler of schedules: live actions that fire again and again, in words, with what comes next.

A bounded number is looked at for each answer, and `next` goes on where the look ended, whether
something was found or not.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from gnomon.contracts.store import Selection
from gnomon.gateways.rest.call import Call
from gnomon.model.action import Action, State
from gnomon.model.errors import InvalidSpec
from gnomon.model.spec import Cron, Once, Periodic
from gnomon.scheduler.preview import Preview, previewed

LIMIT_MAX = 200
FIRINGS = 3


class ScheduleAnswer(msgspec.Struct, kw_only=True):
    """An action that fires again and again."""

    id: str
    state: State
    queue: str
    reason: str | None  # why it is paused
    paused_until: datetime | None
    words: str
    timezone: str
    firings: list[datetime]  # the next ones, unless it is paused
    succeeded: int
    failed: int
    consecutive_failures: int
    last_outcome: str | None
    last_ended_at: datetime | None


class ScheduleList(msgspec.Struct):
    """A page in order of id; there may be more behind it even if it is empty."""

    schedules: list[ScheduleAnswer]
    next: str | None


async def list_schedules(call: Call) -> ScheduleList:
    """What fires again and again, in words, with its next firings."""
    query = call.query
    limit = query.number("limit", 50)
    if not 1 <= limit <= LIMIT_MAX:
        raise InvalidSpec("query.limit", f"must be between 1 and {LIMIT_MAX}", got=limit)
    now = await call.services.scheduler.time.now()
    page = await call.services.scheduler.list(
        Selection(recurring=True, search=query.one("search")),
        after=query.one("after"),
        limit=limit,
    )
    return ScheduleList([show_schedule(one, now) for one in page.actions], page.next)


def show_schedule(action: Action, now: datetime) -> ScheduleAnswer:
    status, last = action.status, action.status.last_attempt
    preview = _preview(action, status.occurrence_at or now)
    is_paused = status.state is State.PAUSED
    return ScheduleAnswer(
        id=action.meta.id,
        state=status.state,
        queue=action.spec.queue,
        reason=status.reason,
        paused_until=status.paused_until,
        words=preview.words,
        timezone=preview.timezone,
        firings=[] if is_paused else [firing.at for firing in preview.firings],
        succeeded=status.succeeded,
        failed=status.failed,
        consecutive_failures=status.consecutive_failures,
        last_outcome=None if last is None else last.outcome,
        last_ended_at=None if last is None else last.ended_at,
    )


def _preview(action: Action, start: datetime) -> Preview:
    match action.spec.policy:
        case Cron(expression=cron, timezone=timezone):
            return previewed(cron=cron, timezone=timezone, every=None, start=start, count=FIRINGS)
        case Periodic(period=every):
            return previewed(cron=None, timezone=None, every=every, start=start, count=FIRINGS)
        case Once():
            raise AssertionError("a schedule repeats")
