"""Admission: what is asked for becomes what is stored, or is refused with the reason.

Pure but for the values it is given: the present, a guid, the installation.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from uuid import UUID

import msgspec

from gnomon.contracts.store import LOCAL, ActionDraft, Installation
from gnomon.model.action import Action
from gnomon.model.codec import read_back, stored_form
from gnomon.model.effects import validate_effect
from gnomon.model.errors import InvalidRequest, InvalidSpec
from gnomon.model.ids import action_id, keyed_guid, shard_of
from gnomon.model.schedule import first_occurrence, next_occurrence, validate_policy
from gnomon.model.spec import Once, Spec, validate
from gnomon.model.transition import due_at, expiry_of

PAST_MAX = timedelta(minutes=10)
KEY_CHARS_MAX = 255
KEY_KEPT_FOR = timedelta(days=1)
SPEC_CHARS_MAX = 128 * 1024
CACHED_CHARS_MAX = 4096  # longer ones seldom repeat; so the memory stays within some megabytes


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One action asked for. Without an id it gets one; with a key it can be repeated safely."""

    spec: Spec
    id: str | None = None
    key: str | None = None


def admit(
    request: Request,
    *,
    guid: UUID,
    now: datetime,
    installation: Installation,
    retention: timedelta,
    actor: str = LOCAL,
) -> ActionDraft:
    """Validate, fill in the defaults, and decide when the first attempt is due."""
    named = None if request.id is None else action_id(request.id)
    spec = _admit_spec(request.spec, now)
    if request.key is not None:
        key, owner = _admit_key(request.key), None if actor == LOCAL else actor
        guid = keyed_guid(installation.id, named or "", key, actor=owner)
    name = named or str(guid)
    occurrence_at = first_occurrence(spec)
    due = due_at(spec, guid, 1, occurrence_at)
    if spec.deadline is not None and due >= spec.deadline:
        raise InvalidSpec("spec.deadline", "is before the first occurrence", got=spec.deadline)
    return ActionDraft(
        id=name,
        guid=guid,
        shard=shard_of(name, installation.shard_count),
        spec=spec,
        scheduled_at=due,
        occurrence_at=occurrence_at,
        expires_at=expiry_of(spec, occurrence_at, due),
        retention=_retention(retention if spec.retention is None else spec.retention, request.key),
        keyed=request.key is not None,
    )


def _retention(wanted: timedelta, key: str | None) -> timedelta:
    """A key is remembered by what is kept of its action: forgotten, it would bring a guid back."""
    return wanted if key is None else max(wanted, KEY_KEPT_FOR)


def _admit_spec(spec: Spec, now: datetime) -> Spec:
    text = stored_form(spec)
    if len(text) > SPEC_CHARS_MAX:
        raise InvalidSpec("spec", f"is {len(text)} characters long; {SPEC_CHARS_MAX} are kept")
    spec = _validated(text) if len(text) <= CACHED_CHARS_MAX else _validated.__wrapped__(text)
    if spec.start_at is None:
        is_short = len(text) <= CACHED_CHARS_MAX
        spec = _starting(text, now) if is_short else msgspec.structs.replace(spec, start_at=now)
    elif spec.start_at < now - PAST_MAX:
        raise InvalidSpec(
            "spec.start_at", "must not be more than 10 minutes in the past",
            got=spec.start_at.isoformat(),
        )  # fmt: skip
    if spec.deadline is not None and spec.deadline <= now:
        raise InvalidSpec("spec.deadline", "has passed", got=spec.deadline.isoformat())
    return spec


# The actions of a bulk are mostly alike: what was found right once is right again.
@lru_cache(maxsize=1024)
def _validated(text: str) -> Spec:
    spec = read_back(text)
    validate(spec)
    validate_policy(spec)
    validate_effect(spec.action)
    return spec


@lru_cache(maxsize=1024)
def _starting(text: str, now: datetime) -> Spec:
    return msgspec.structs.replace(_validated(text), start_at=now)


def _admit_key(key: str) -> str:
    if not 1 <= len(key) <= KEY_CHARS_MAX or not key.isprintable():
        raise InvalidRequest(
            f"the idempotency key must be 1 to {KEY_CHARS_MAX} printable characters"
        )
    return key


def decide_resume(action: Action, now: datetime) -> tuple[datetime, datetime, datetime | None]:
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
