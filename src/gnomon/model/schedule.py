"""When the occurrences of an action are: first, next, and which of the missed ones still count.

Pure: the caller passes `now`. Periodic occurrences lie on the grid `start_at + k * period`
in absolute time, so clock changes do not touch them. Cron times are wall-clock times in
their zone: see `gnomon.model.cron`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from gnomon.model.cron import calendar_of, validate_cron
from gnomon.model.errors import InvalidSpec
from gnomon.model.spec import Cron, Once, Periodic, Spec


def validate_policy(spec: Spec) -> None:
    """Refuse a cron expression or a time zone that cannot be evaluated."""
    if isinstance(spec.policy, Cron):
        validate_cron(spec.policy)


def first_occurrence(spec: Spec) -> datetime:
    """The planned time of the first occurrence; `spec.start_at` must be filled in."""
    start = _start(spec)
    if isinstance(spec.policy, Cron):
        just_before = start - timedelta(microseconds=1)
        first = next(_cron_times(spec.policy, just_before), None)
        if first is None:
            raise InvalidSpec("spec.policy.expression", "never comes due after start_at")
        return first
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
    """The first occurrence to fire after some were missed, `missed_max` of which may still be
    fired, and how many are passed over (of a cron: 1 for any number)."""
    if isinstance(spec.policy, Periodic):
        missed = (now - following) // spec.policy.period + 1
        skipped = max(0, missed - missed_max)
        return following + skipped * spec.policy.period, skipped
    assert isinstance(spec.policy, Cron)
    if missed_max == 0:
        upcoming = next(_cron_times(spec.policy, now), None)
        return None if upcoming is None else (upcoming, 1)
    kept = calendar_of(spec.policy).kept(following, now, missed_max)
    return kept, int(kept != following)


def _cron_times(cron: Cron, moment: datetime) -> Iterator[datetime]:
    return calendar_of(cron).after(moment)
