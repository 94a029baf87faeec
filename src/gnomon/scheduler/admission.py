"""Admission: what is asked for becomes what is stored, or is refused with the reason.

Pure but for the values it is given: the present, a guid, the installation.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Literal, NamedTuple
from uuid import UUID

import msgspec

from gnomon.contracts.store import LOCAL, ActionDraft, Installation
from gnomon.model.action import Action, State
from gnomon.model.codec import read_back, stored_form
from gnomon.model.declaration import Revision
from gnomon.model.duration import parse_duration
from gnomon.model.effects import validate_effect
from gnomon.model.errors import InvalidRequest, InvalidSpec
from gnomon.model.ids import action_id, keyed_guid, shard_of
from gnomon.model.pause import decide_resume
from gnomon.model.schedule import first_occurrence, validate_policy
from gnomon.model.spec import Spec, validate
from gnomon.model.transition import due_at, expiry_of

IfExists = Literal["error", "keep", "replace"]

PAST_MAX = timedelta(minutes=10)
KEY_CHARS_MAX = 255
KEY_KEPT_FOR = timedelta(days=1)
WAKE_WITHIN = timedelta(seconds=10)  # many polls, as workers are configured by default
SPEC_CHARS_MAX = 128 * 1024
CACHED_CHARS_MAX = 4096  # longer ones seldom repeat; so the memory stays within some megabytes


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One action asked for. Without an id it gets one; with a key it can be repeated safely."""

    spec: Spec
    id: str | None = None
    key: str | None = None
    delay: timedelta | None = None  # due first so long after the present, if `start_at` is not said


class Plan(NamedTuple):
    """What a spec means at one moment, but for its jitter, which goes by the guid."""

    asked: Spec  # held, so that no other one gets its `id()`
    spec: Spec
    occurrence_at: datetime
    expires_at: datetime | None  # without jitter


Plans = dict[int, Plan]  # by the `id()` of the spec that is asked for


def admit(
    request: Request,
    *,
    guid: UUID,
    now: datetime,
    installation: Installation,
    retention: timedelta,
    actor: str = LOCAL,
    plans: Plans | None = None,
) -> ActionDraft:
    """Validate, fill in the defaults, and decide when the first attempt is due. `plans`: of others
    at this moment; a bulk shares its specs, and nobody changes one while they are admitted."""
    named = None if request.id is None else action_id(request.id)
    plan = None if plans is None else plans.get(id(request.spec))
    if plan is None or request.delay is not None:
        plan = _plan(request, now)
        if plans is not None and request.delay is None:
            plans[id(request.spec)] = plan
    _, spec, due, expires_at = plan
    if request.key is not None:
        key, owner = _admit_key(request.key), None if actor == LOCAL else actor
        guid = keyed_guid(installation.id, named or "", key, actor=owner)
    name = named or str(guid)
    if spec.jitter:
        due = due_at(spec, guid, 1, plan.occurrence_at)
        expires_at = expiry_of(spec, plan.occurrence_at, due)
    if spec.deadline is not None and due >= spec.deadline:
        raise InvalidSpec("spec.deadline", "is before the first occurrence", got=spec.deadline)
    return ActionDraft(
        id=name,
        guid=guid,
        shard=shard_of(name, installation.shard_count),
        spec=spec,
        scheduled_at=due,
        occurrence_at=plan.occurrence_at,
        expires_at=expires_at,
        retention=_retention(retention if spec.retention is None else spec.retention, request.key),
        keyed=request.key is not None,
    )


def _plan(request: Request, now: datetime) -> Plan:
    spec = _admit_spec(_delayed(request, now), now)
    occurrence_at = first_occurrence(spec)
    return Plan(request.spec, spec, occurrence_at, expiry_of(spec, occurrence_at, occurrence_at))


def shards_to_wake(drafts: Iterable[ActionDraft], now: datetime) -> set[int]:
    """Where something is due before the polls of the owners find it anyway. A hint costs a round
    trip, and on PostgreSQL a lock of the whole database."""
    return {draft.shard for draft in drafts if draft.scheduled_at < now + WAKE_WITHIN}


def _delayed(request: Request, now: datetime) -> Spec:
    if request.delay is None or request.spec.start_at is not None:
        return request.spec
    delay = parse_duration(request.delay, "delay")
    return msgspec.structs.replace(request.spec, start_at=now + delay)


def check_request(request: Request) -> None:
    """Whether it would be admitted at any time, for what is written down now and stored later.
    Errors: InvalidSpec and its kin."""
    if request.id is not None:
        action_id(request.id)
    text = request_text(request)
    if len(text) > SPEC_CHARS_MAX:
        raise InvalidSpec("spec", f"is {len(text)} characters long; {SPEC_CHARS_MAX} are kept")
    _validated(text)


def in_trace(request: Request, traceparent: str | None) -> Request:
    """The request as it is stored: with the trace in which it was made, unless it names one."""
    if traceparent is None or request.spec.traceparent is not None:
        return request
    spec = msgspec.structs.replace(request.spec, traceparent=traceparent)
    return msgspec.structs.replace(request, spec=spec)


def request_text(request: Request) -> str:
    """The spec that is asked for, without when it starts and who asks."""
    return stored_form(msgspec.structs.replace(request.spec, start_at=None, traceparent=None))


def is_same(request: Request, stored: Spec) -> bool:
    """Whether an action with this spec is what is asked for. When it starts counts only if that is
    said: otherwise it has started."""
    text = request_text(request)
    stored = msgspec.structs.replace(stored, traceparent=None)
    if request.spec.start_at is None:
        stored = msgspec.structs.replace(stored, start_at=None)
        return _validated(text) == stored and request.delay is None
    starts_at = request.spec.start_at
    return msgspec.structs.replace(_validated(text), start_at=starts_at) == stored


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


def validated(spec: Spec) -> Spec:
    """The spec as it would be stored, if it obeys the rules. Errors: InvalidSpec."""
    return _validated(stored_form(spec))


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


def decide_revision(
    draft: ActionDraft,
    action: Action,
    now: datetime,
    goes_on: bool,  # noqa: FBT001 - a contract's
) -> Revision:
    """What a changed declaration makes of a live action. Its plan stays, unless the policy changed:
    then it begins anew. Who is paused stays so, unless it `goes_on`."""
    status, keeps_plan = action.status, action.spec.policy == draft.spec.policy
    state = State.ACTIVE if goes_on else status.state
    if not keeps_plan:
        is_begun = status.attempts > 0  # another occurrence is another delivery
        return Revision(
            spec=draft.spec,
            state=state,
            occurrence_no=status.occurrence_no + is_begun,
            occurrence_at=draft.occurrence_at,
            scheduled_at=draft.scheduled_at if state is State.ACTIVE else None,
            expires_at=draft.expires_at,
        )
    spec = msgspec.structs.replace(draft.spec, start_at=action.spec.start_at)
    assert status.occurrence_at is not None
    due, occurrence_at = status.scheduled_at, status.occurrence_at
    expires_at = expiry_of(spec, occurrence_at, due or occurrence_at)
    if goes_on:
        revised = msgspec.structs.replace(action, spec=spec)
        due, occurrence_at, expires_at = decide_resume(revised, now)
    return Revision(
        spec=spec,
        state=state,
        occurrence_no=status.occurrence_no,
        occurrence_failures=status.occurrence_failures,
        occurrence_at=occurrence_at,
        scheduled_at=due if state is State.ACTIVE else None,
        expires_at=expires_at,
    )
