"""Pauses: why an action is paused, when it goes on by itself, and with which occurrence."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from gnomon.model.action import Action
from gnomon.model.attempt_boundary import AttemptBoundary
from gnomon.model.duration import is_duration, parse_duration
from gnomon.model.errors import InvalidSpec
from gnomon.model.schedule import next_occurrence
from gnomon.model.spec import Once
from gnomon.model.transition import expiry_of

REASON_CHARS_MAX = 200

Until = datetime | timedelta | str | float  # a time with its zone, or a duration from now on
# scheduled_at, occurrence_at, expires_at
ResumeTimes = tuple[datetime, datetime, datetime | None]


class PauseTerms(msgspec.Struct, frozen=True, kw_only=True):
    """Why an action is paused, and when it goes on by itself: both may be left open."""

    reason: str | None = None
    until: datetime | timedelta | None = None  # a duration counts from the database's present

    def end(self, now: datetime) -> datetime | None:
        """When it goes on. Errors: InvalidSpec if that is not to come."""
        if self.until is None:
            return None
        try:
            end = now + self.until if isinstance(self.until, timedelta) else self.until
        except OverflowError:
            raise InvalidSpec("until", "must be before the year 10000", got=self.until) from None
        if end <= now:
            raise InvalidSpec(
                "until", f"must be in the future: it is {now.isoformat()}", got=end.isoformat()
            )
        return end


NO_TERMS = PauseTerms()


def pause_terms(reason: str | None, until: Until | None) -> PauseTerms:
    """What a user says of a pause. Errors: InvalidSpec."""
    if reason is not None:
        _check_reason(reason)
    return PauseTerms(reason=reason, until=None if until is None else _read_until(until))


def _check_reason(reason: object) -> None:
    if not isinstance(reason, str):
        raise InvalidSpec("reason", "must be a text", got=reason)
    if not 1 <= len(reason) <= REASON_CHARS_MAX or not reason.isprintable() or reason.isspace():
        raise InvalidSpec(
            "reason", f"must be one line of 1 to {REASON_CHARS_MAX} printable characters",
            got=reason,
        )  # fmt: skip


def _read_until(until: object) -> datetime | timedelta:
    match until:
        case datetime():
            moment = until
        case str() if not is_duration(until):
            moment = _read_moment(until)
        case _:
            return parse_duration(until, "until")
    if moment.tzinfo is None:
        raise InvalidSpec("until", "must have a time zone, for example +01:00 or Z", got=until)
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise InvalidSpec("until", "must be between the years 1 and 9999", got=until) from None


def _read_moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidSpec(
            "until", "must be a time such as 2026-12-24T18:00Z, or a duration such as 2h", got=text
        ) from None


def decide_resume(action: Action, now: datetime) -> ResumeTimes:
    """When a paused action goes on: as planned if that is to come, else by its catch-up rule."""
    spec, status = action.spec, action.status
    assert status.occurrence_at is not None
    planned = status.scheduled_at or status.occurrence_at
    if planned > now:
        return planned, status.occurrence_at, status.expires_at
    if not isinstance(spec.policy, Once) and spec.catch_up.mode == "none":
        upcoming = next_occurrence(spec, status.occurrence_at, now=now, skip_missed=True)
        if upcoming is not None:
            return upcoming[0], upcoming[0], expiry_of(spec, upcoming[0], upcoming[0])
    return now, status.occurrence_at, spec.deadline


def decide_end(action: Action, now: datetime) -> ResumeTimes:
    """`decide_resume` for any action that a store may hold, when its pause ends by itself: where
    that cannot be decided it is due now, and its attempt shows what is wrong with it."""
    with AttemptBoundary(Exception):
        return decide_resume(action, now)
    assert action.status.occurrence_at is not None
    return now, action.status.occurrence_at, action.spec.deadline


def pause_sentence(reason: str | None, until: datetime | None) -> str:
    """What a paused action says of itself."""
    why = "It is paused: " if reason is None else f"It is paused: {reason}; "
    if until is None:
        return f"{why}nothing begins until it is resumed."
    return f"{why}nothing begins until {until:%Y-%m-%d %H:%M:%S} UTC, when it goes on by itself."
