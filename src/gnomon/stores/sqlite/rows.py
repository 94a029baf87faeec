"""Rows to values and back: microseconds, 16 bytes, and JSON where there is something to say."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from gnomon.contracts.store import ActionDraft
from gnomon.model.action import Action, Attempt, Meta, State, Status
from gnomon.model.codec import encode_spec, read_attempt, read_spec

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_ENCODER = msgspec.json.Encoder()


def micros(moment: datetime) -> int:
    since = moment - EPOCH
    return since.days * 86_400_000_000 + since.seconds * 1_000_000 + since.microseconds


def micros_or_none(moment: datetime | None) -> int | None:
    return None if moment is None else micros(moment)


def duration_us(duration: timedelta) -> int:
    return duration.days * 86_400_000_000 + duration.seconds * 1_000_000 + duration.microseconds


def moment(us: int) -> datetime:
    return EPOCH + timedelta(0, 0, us)


def moment_or_none(us: int | None) -> datetime | None:
    return None if us is None else moment(us)


def guid_or_none(value: bytes | None) -> UUID | None:
    return None if value is None else UUID(bytes=value)


def encode_attempt(attempt: Attempt) -> str:
    return _ENCODER.encode(attempt).decode()


class LiveRow(NamedTuple):
    """A row of the view `live_action`, in its order."""

    id: str
    shard_id: int
    guid: bytes
    state: str
    keyed: int
    retention_us: int
    created_at: int
    updated_at: int
    scheduled_at: int | None
    occurrence_no: int
    occurrence_at: int
    expires_at: int | None
    attempts: int
    succeeded: int
    failed: int
    interrupted: int
    consecutive_failures: int
    consecutive_interruptions: int
    occurrence_failures: int
    last_attempt: str | None
    spec: str
    queue: str
    priority: int
    running: int | None
    attempt_id: bytes | None
    began_at: int | None
    deadline_at: int | None
    owner: str | None

    def attempt(self) -> Attempt | None:
        """The attempt that runs, if one does."""
        if not self.running:
            return None
        assert self.attempt_id is not None
        assert self.began_at is not None
        return Attempt(
            attempt_id=UUID(bytes=self.attempt_id),
            attempt_no=self.attempts,
            occurrence_no=self.occurrence_no,
            began_at=moment(self.began_at),
            deadline=moment_or_none(self.deadline_at),
            owner=self.owner,
        )

    def status(self) -> Status:
        return Status(
            state=State(self.state),
            scheduled_at=moment_or_none(self.scheduled_at),
            occurrence_no=self.occurrence_no,
            occurrence_at=moment(self.occurrence_at),
            expires_at=moment_or_none(self.expires_at),
            attempts=self.attempts,
            succeeded=self.succeeded,
            failed=self.failed,
            interrupted=self.interrupted,
            consecutive_failures=self.consecutive_failures,
            consecutive_interruptions=self.consecutive_interruptions,
            occurrence_failures=self.occurrence_failures,
            current_attempt=self.attempt(),
            last_attempt=read_attempt(self.last_attempt),
        )

    def action(self) -> Action:
        meta = Meta(
            id=self.id,
            guid=UUID(bytes=self.guid),
            shard=self.shard_id,
            created_at=moment(self.created_at),
            updated_at=moment(self.updated_at),
        )
        return Action(meta=meta, spec=read_spec(self.spec), status=self.status())


class FinishedRow(NamedTuple):
    """A finished action, in the order of the queries."""

    id: str
    shard_id: int
    guid: bytes
    state: str
    created_at: int
    updated_at: int
    occurrence_no: int
    occurrence_at: int
    attempts: int
    succeeded: int
    failed: int
    interrupted: int
    consecutive_failures: int
    consecutive_interruptions: int
    occurrence_failures: int
    attempt_id: bytes | None
    began_at: int | None
    reason: str | None
    finished_at: int
    last_attempt: str | None
    spec: str

    def attempt(self) -> Attempt | None:
        """The last attempt: as written, or for a plain success out of the row itself."""
        if self.last_attempt is not None:
            return read_attempt(self.last_attempt)
        if self.attempt_id is None or self.began_at is None:
            return None
        return Attempt(
            attempt_id=UUID(bytes=self.attempt_id),
            attempt_no=self.attempts,
            occurrence_no=self.occurrence_no,
            began_at=moment(self.began_at),
            ended_at=moment(self.finished_at),
            outcome="succeeded",
        )

    def action(self) -> Action:
        meta = Meta(
            id=self.id,
            guid=UUID(bytes=self.guid),
            shard=self.shard_id,
            created_at=moment(self.created_at),
            updated_at=moment(self.updated_at),
        )
        status = Status(
            state=State(self.state),
            occurrence_no=self.occurrence_no,
            occurrence_at=moment(self.occurrence_at),
            attempts=self.attempts,
            succeeded=self.succeeded,
            failed=self.failed,
            interrupted=self.interrupted,
            consecutive_failures=self.consecutive_failures,
            consecutive_interruptions=self.consecutive_interruptions,
            occurrence_failures=self.occurrence_failures,
            last_attempt=self.attempt(),
            reason=self.reason,
            finished_at=moment(self.finished_at),
        )
        return Action(meta=meta, spec=read_spec(self.spec), status=status)


def draft_row(draft: ActionDraft, now_us: int) -> dict[str, Any]:
    """The parameters under which a draft is stored."""
    spec = draft.spec
    return {
        "id": draft.id,
        "shard": draft.shard,
        "guid": draft.guid.bytes,
        "queue": spec.queue,
        "priority": spec.priority,
        "timeout_us": duration_us(spec.timeout),
        "retention_us": duration_us(draft.retention),
        "keyed": int(draft.keyed),
        "now": now_us,
        "scheduled_at": micros(draft.scheduled_at),
        "occurrence_at": micros(draft.occurrence_at),
        "expires_at": micros_or_none(draft.expires_at),
        "spec": encode_spec(spec),
    }


# In the order in which `create_bulk` takes them.
BULK_FIELDS = (
    "id", "shard", "queue", "priority", "timeout_us", "retention_us", "keyed", "scheduled_at",
    "occurrence_at", "expires_at", "spec",
)  # fmt: skip


def bulk_row(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Many drafts as one set of parameters: the whole bulk is one statement."""
    drafts = [[row[field] for field in BULK_FIELDS] for row in rows]
    return {
        "drafts": _ENCODER.encode(drafts).decode(),
        "packed": b"".join(row["guid"] for row in rows),
        "now": rows[0]["now"],
    }


def drafted_action(draft: ActionDraft, now: datetime) -> Action:
    """The action that a stored draft is."""
    meta = Meta(id=draft.id, guid=draft.guid, shard=draft.shard, created_at=now, updated_at=now)
    status = Status(
        scheduled_at=draft.scheduled_at,
        occurrence_at=draft.occurrence_at,
        expires_at=draft.expires_at,
    )
    return Action(meta=meta, spec=draft.spec, status=status)
