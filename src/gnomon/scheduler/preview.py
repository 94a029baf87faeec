"""The next firings of a schedule, in words and times, by the same code that fires them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from datetime import timezone as fixed_zone

import msgspec

from gnomon.clock import SystemClock
from gnomon.model.cron import calendar_of, find_zone
from gnomon.model.duration import format_duration
from gnomon.model.errors import InvalidRequest, InvalidSpec
from gnomon.model.schedule import first_occurrence, occurrence_after
from gnomon.model.spec import Cron, Mock, Once, Periodic, Spec
from gnomon.scheduler.admission import validated
from gnomon.scheduler.options import Duration, Options, moment_of, request_of

COUNT_DEFAULT = 10
FIRINGS_MAX = 100
YEARS_MAX = 100  # changes of the clock are looked for so far ahead
DAY = timedelta(days=1)
MINUTE = timedelta(minutes=1)


class Firing(msgspec.Struct, frozen=True, kw_only=True):
    """A time at which it fires."""

    at: datetime  # UTC
    local: datetime  # the same, as the clocks of its zone show it
    note: str | None = None  # what a change of the clock has to do with it


class ClockChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a zone's clock: from `before` to `after`, at the same moment."""

    at: datetime
    before: datetime
    after: datetime

    @property
    def words(self) -> str:
        """`clocks go forward from 02:00 to 03:00`."""
        way = (
            "forward"
            if self.after.replace(tzinfo=None) > self.before.replace(tzinfo=None)
            else "back"
        )
        return f"clocks go {way} from {self.before:%H:%M} to {self.after:%H:%M}"


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """What a schedule means."""

    words: str
    timezone: str
    firings: list[Firing]
    clock_changes: list[ClockChange]  # until the last firing


def preview(
    *,
    cron: str | None = None,
    timezone: str | None = None,
    every: Duration | None = None,
    from_: datetime | str | None = None,
    count: int = COUNT_DEFAULT,
) -> Preview:
    """The next `count` firings of a cron expression or a period, from now or `from_` on. Errors:
    InvalidSpec, InvalidRequest."""
    start = SystemClock().now() if from_ is None else moment_of(from_, "from")
    return previewed(cron=cron, timezone=timezone, every=every, start=start, count=count)


def previewed(
    *,
    cron: str | None,
    timezone: str | None,
    every: Duration | None,
    start: datetime,
    count: int,
) -> Preview:
    """The same from a moment on. Pure."""
    if not 1 <= count <= FIRINGS_MAX:
        raise InvalidRequest(f"count: must be between 1 and {FIRINGS_MAX} (got {count})")
    spec = _spec(cron, timezone, every, start)
    policy = spec.policy
    zone = find_zone(policy.timezone) if isinstance(policy, Cron) else UTC
    firings = [
        Firing(at=at, local=at.astimezone(zone), note=_note(spec, at)) for at in _times(spec, count)
    ]
    return Preview(
        words=_words(spec),
        timezone=policy.timezone if isinstance(policy, Cron) else "UTC",
        firings=firings,
        clock_changes=list(_clock_changes(zone, start, firings[-1].at)),
    )


def _spec(cron: str | None, timezone: str | None, every: Duration | None, start: datetime) -> Spec:
    if cron is None and every is None:
        raise InvalidSpec("cron", "or every is required: say when it is to fire")
    given: Options = {}
    if cron is not None:
        given["cron"] = cron
    if timezone is not None:
        given["timezone"] = timezone
    if every is not None:
        given["every"] = every
    request = request_of(Mock(), given)
    return msgspec.structs.replace(validated(request.spec), start_at=start.astimezone(UTC))


def _times(spec: Spec, count: int) -> Iterator[datetime]:
    at: datetime | None = first_occurrence(spec)
    while at is not None and count:
        yield at
        at, count = occurrence_after(spec, at), count - 1


def _words(spec: Spec) -> str:
    match spec.policy:
        case Cron() as cron:
            return f"{calendar_of(cron).words()}, {cron.timezone}"
        case Periodic(period=period):
            return f"Every {format_duration(period)}"
        case Once():
            raise AssertionError("a schedule repeats")


def _note(spec: Spec, at: datetime) -> str | None:
    return calendar_of(spec.policy).note(at) if isinstance(spec.policy, Cron) else None


def _clock_changes(zone: tzinfo, start: datetime, end: datetime) -> Iterator[ClockChange]:
    """Those of a zone between two moments; one a day at most."""
    end = min(end, start + 365 * YEARS_MAX * DAY)
    before = start.astimezone(UTC)
    while before < end:
        after = min(before + DAY, end)
        if before.astimezone(zone).utcoffset() != after.astimezone(zone).utcoffset():
            yield _change_between(zone, before, after)
        before = after


def _change_between(zone: tzinfo, before: datetime, after: datetime) -> ClockChange:
    offset = before.astimezone(zone).utcoffset()
    assert offset is not None
    while after - before > MINUTE:
        middle = before + (after - before) / 2
        if middle.astimezone(zone).utcoffset() == offset:
            before = middle
        else:
            after = middle
    at = after.replace(second=0, microsecond=0)  # clocks are changed at full minutes
    return ClockChange(at=at, before=at.astimezone(fixed_zone(offset)), after=at.astimezone(zone))
