"""When the occurrences of an action are: first, next, and which of the missed ones still count.

Pure: the caller passes `now`. Periodic occurrences lie on the grid `start_at + k * period`
in absolute time, so clock changes do not touch them. Cron times are wall-clock times in
their zone and follow Debian's cron at both clock changes, by way of `cronsim`: a time that
does not exist (spring) happens right after the gap, a time that exists twice (autumn)
happens once; wildcard schedules follow real time through both.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from gnomon.model.errors import InvalidSpec
from gnomon.model.spec import Cron, Once, Periodic, Spec

EXPRESSION_CHARS_MAX = 256
MINUTE = timedelta(minutes=1)
WINDOW_GROWTH = 8  # how much farther back each look for missed cron times goes


def validate_policy(spec: Spec) -> None:
    """Refuse a cron expression or a time zone that cannot be evaluated."""
    if isinstance(spec.policy, Cron):
        validate_cron(spec.policy)


def validate_cron(cron: Cron) -> None:
    """Refuse an expression or a time zone that cannot be evaluated."""
    zone = _zone(cron.timezone)
    if len(cron.expression) > EXPRESSION_CHARS_MAX:
        raise InvalidSpec(
            "spec.policy.expression", f"must have at most {EXPRESSION_CHARS_MAX} characters",
            got=cron.expression,
        )  # fmt: skip
    if len(cron.expression.split()) != 5:
        raise InvalidSpec(
            "spec.policy.expression", "must have five fields: minute hour day month weekday",
            got=cron.expression,
        )  # fmt: skip
    try:
        next(CronSim(cron.expression, datetime(2026, 1, 1, tzinfo=zone)))
    except (CronSimError, StopIteration):
        raise InvalidSpec(
            "spec.policy.expression", "is not a cron expression that ever comes due",
            got=cron.expression,
        ) from None  # fmt: skip


@lru_cache(maxsize=256)
def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise InvalidSpec(
            "spec.policy.timezone", "is not a time zone name such as Europe/Berlin", got=name
        ) from None


def first_occurrence(spec: Spec) -> datetime:
    """The planned time of the first occurrence; `spec.start_at` must be filled in."""
    start = _start(spec)
    if isinstance(spec.policy, Cron):
        just_before = start - timedelta(microseconds=1)
        found = next(_cron_times(spec.policy, just_before), None)
        if found is None:
            raise InvalidSpec("spec.policy.expression", "never comes due after start_at")
        return found
    return start


def _start(spec: Spec) -> datetime:
    # In UTC: adding a period to a time in a zone would follow its wall clock, not real time.
    assert spec.start_at is not None
    return spec.start_at.astimezone(UTC)


def occurrence_after(spec: Spec, moment: datetime) -> datetime | None:
    """The first planned time strictly after `moment`, on the grid; None when there is none."""
    match spec.policy:
        case Once():
            return None
        case Periodic(period=period):
            start = _start(spec)
            if moment < start:
                return start
            return start + ((moment - start) // period + 1) * period
        case Cron() as cron:
            return cron_after(cron, moment)


def cron_after(cron: Cron, moment: datetime) -> datetime | None:
    """The first time of a cron expression strictly after `moment`; None when there is none."""
    return next(_cron_times(cron, moment), None)


def next_occurrence(
    spec: Spec, occurrence_at: datetime, *, now: datetime, skip_missed: bool
) -> tuple[datetime, int] | None:
    """The next planned time after `occurrence_at` and how many were passed over to get there.

    `skip_missed` leaves out whatever lies in the past; otherwise the `catch_up` rule of the
    spec decides. None when there is no further occurrence. Of a cron's times any number passed
    over is 1, for counting them would mean walking through all.
    """
    if isinstance(spec.policy, Periodic) and spec.drift:
        return now + spec.policy.period, 0
    following = occurrence_after(spec, occurrence_at)
    if following is None or following > now:
        return None if following is None else (following, 0)
    missed_max = spec.catch_up.max if spec.catch_up.mode == "all" and not skip_missed else 0
    return _after_missed(spec, following, now, missed_max)


def _after_missed(
    spec: Spec, following: datetime, now: datetime, missed_max: int
) -> tuple[datetime, int] | None:
    if isinstance(spec.policy, Periodic):
        missed = (now - following) // spec.policy.period + 1
        skipped = max(0, missed - missed_max)
        return following + skipped * spec.policy.period, skipped
    assert isinstance(spec.policy, Cron)
    if missed_max == 0:
        upcoming = next(_cron_times(spec.policy, now), None)
        return None if upcoming is None else (upcoming, 1)
    kept = _oldest_kept(spec.policy, following, now, missed_max)
    return kept, int(kept != following)


def _oldest_kept(cron: Cron, following: datetime, now: datetime, missed_max: int) -> datetime:
    """The oldest of the newest `missed_max` times from `following` to `now`.

    Looks back from `now` in growing windows, so the cost depends on how many are kept and not
    on how long nothing ran.
    """
    window = missed_max * MINUTE
    while now - following > window:
        times = []
        for time in _cron_times(cron, now - window):
            if time > now:
                break
            times.append(time)
        if len(times) >= missed_max:
            return times[-missed_max]
        window *= WINDOW_GROWTH
    return _within_window(cron, following, now, missed_max)


def _within_window(cron: Cron, following: datetime, now: datetime, missed_max: int) -> datetime:
    if now - following < missed_max * MINUTE:
        return following  # cron times are a minute apart or more: there cannot be too many
    times = [following]
    for time in _cron_times(cron, following):
        if time > now:
            break
        times.append(time)
    return times[-missed_max:][0]


def _cron_times(cron: Cron, moment: datetime) -> Iterator[datetime]:
    """The times strictly after `moment`, in order, without end or until there are no more."""
    last = moment
    for found in CronSim(cron.expression, moment.astimezone(_zone(cron.timezone))):
        time = found.astimezone(UTC)
        # In the repeated hour of autumn the wall clock alone would lead back into the first pass.
        if time > last:
            yield time
            last = time
