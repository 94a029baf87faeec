"""Actions as a verb leaves them: the same in every engine."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

from gnomon.contracts.store import LOCAL, ActionDraft
from gnomon.model.action import Action, Meta, State, Status
from gnomon.model.pause import PauseTerms, ResumeTimes

# Why a generation is among the finished ones although it did not end by itself.
DELETED = "deleted"
REPLACED = "replaced"


def creator_of(actor: str) -> str | None:
    """Whom new actions count against; those without a token count against nobody."""
    return None if actor == LOCAL else str(actor)


def drafted_action(
    draft: ActionDraft, *, created_at: datetime, updated_at: datetime | None = None
) -> Action:
    """The action as a draft begins it."""
    return Action(
        meta=Meta(
            id=draft.id,
            guid=draft.guid,
            shard=draft.shard,
            created_at=created_at,
            updated_at=updated_at or created_at,
        ),
        spec=draft.spec,
        status=Status(
            scheduled_at=draft.scheduled_at,
            occurrence_at=draft.occurrence_at,
            expires_at=draft.expires_at,
        ),
    )


def with_progress(action: Action, at: datetime, fraction: float, text: str) -> Action:
    """An action with what its current attempt reported."""
    attempt = action.status.current_attempt
    assert attempt is not None
    attempt = msgspec.structs.replace(
        attempt, progress=fraction, progress_text=text or None, progress_at=at
    )
    status = msgspec.structs.replace(action.status, current_attempt=attempt)
    return msgspec.structs.replace(action, status=status)


def deleted_action(action: Action, now: datetime) -> Action:
    """A live action as it is shown after its delete. An attempt in flight counts as interrupted:
    it was made, though its end is not known."""
    before = action.status
    flight = int(before.current_attempt is not None)
    status = msgspec.structs.replace(
        before,
        state=State.CANCELLED,
        scheduled_at=None,
        expires_at=None,
        attempts=before.succeeded + before.failed + before.interrupted + flight,
        interrupted=before.interrupted + flight,
        current_attempt=None,
        reason=DELETED,
        paused_until=None,
        finished_at=now,
    )
    meta = msgspec.structs.replace(action.meta, updated_at=now)
    return Action(meta=meta, spec=action.spec, status=status)


def paused_status(before: Status, terms: PauseTerms, now: datetime) -> Status | None:
    """What a pause makes of an action's status; None if it is paused under these terms already.
    Errors: InvalidSpec if the end is not to come."""
    until = terms.end(now)
    is_paused = before.state is State.PAUSED
    if is_paused and (before.reason, before.paused_until) == (terms.reason, until):
        return None
    return msgspec.structs.replace(
        before, state=State.PAUSED, reason=terms.reason, paused_until=until
    )


def resumed_action(action: Action, guid: UUID, times: ResumeTimes, now: datetime) -> Action:
    """A paused action as it goes on."""
    scheduled_at, occurrence_at, expires_at = times
    status = msgspec.structs.replace(
        action.status,
        state=State.ACTIVE,
        scheduled_at=scheduled_at,
        occurrence_at=occurrence_at,
        expires_at=expires_at,
        reason=None,
        paused_until=None,
    )
    meta = msgspec.structs.replace(action.meta, guid=guid, updated_at=now)
    return Action(meta=meta, spec=action.spec, status=status)
