"""Rows to values and back: microseconds, 16 bytes, and JSON where there is something to say."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any
from uuid import UUID

import msgspec

from gnomon.contracts.store import ActionDraft
from gnomon.model.action import Action, Attempt, Meta, State, Status
from gnomon.model.codec import encode_spec, read_attempt, read_spec

Row = sqlite3.Row

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COUNTERS = (
    "occurrence_no", "attempts", "succeeded", "failed", "interrupted", "consecutive_failures",
    "consecutive_interruptions", "occurrence_failures",
)  # fmt: skip

_ENCODER = msgspec.json.Encoder()


def micros(moment: datetime) -> int:
    since = moment - EPOCH
    return since.days * 86_400_000_000 + since.seconds * 1_000_000 + since.microseconds


def micros_or_none(moment: datetime | None) -> int | None:
    return None if moment is None else micros(moment)


@lru_cache(maxsize=256)  # there are few of them
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


def encode_texts(texts: Sequence[str | None]) -> str:
    return _ENCODER.encode(texts).decode()


def running_attempt(row: Row) -> Attempt | None:
    """The attempt that runs, if one does. The columns of the view `live_action`."""
    if not row["running"]:
        return None
    return Attempt(
        attempt_id=UUID(bytes=row["attempt_id"]),
        attempt_no=row["attempts"],
        occurrence_no=row["occurrence_no"],
        began_at=moment(row["began_at"]),
        deadline=moment_or_none(row["deadline_at"]),
        owner=row["owner"],
    )


def live_status(row: Row) -> Status:
    """The columns of the view `live_action`."""
    return Status(
        **_counts(row),
        state=State(row["state"]),
        scheduled_at=moment_or_none(row["scheduled_at"]),
        occurrence_at=moment(row["occurrence_at"]),
        expires_at=moment_or_none(row["expires_at"]),
        need=row["need"] or None,
        current_attempt=running_attempt(row),
        last_attempt=read_attempt(row["last_attempt"]),
        reason=row["reason"],
        paused_until=moment_or_none(row["paused_until"]),
    )


def live_action(row: Row) -> Action:
    """The columns of the view `live_action`."""
    return Action(meta=_meta(row), spec=read_spec(row["spec"]), status=live_status(row))


def finished_action(row: Row) -> Action:
    """The columns of the table `finished_action`."""
    status = Status(
        **_counts(row),
        state=State(row["state"]),
        occurrence_at=moment(row["occurrence_at"]),
        last_attempt=_last_attempt(row),
        reason=row["reason"],
        finished_at=moment(row["finished_at"]),
    )
    return Action(meta=_meta(row), spec=read_spec(row["spec"]), status=status)


def _last_attempt(row: Row) -> Attempt | None:
    """As it was written, or for a plain success out of the row itself."""
    if row["last_attempt"] is not None:
        return read_attempt(row["last_attempt"])
    if row["attempt_id"] is None or row["began_at"] is None:
        return None
    return Attempt(
        attempt_id=UUID(bytes=row["attempt_id"]),
        attempt_no=row["attempts"],
        occurrence_no=row["occurrence_no"],
        began_at=moment(row["began_at"]),
        ended_at=moment(row["finished_at"]),
        outcome="succeeded",
    )


def _meta(row: Row) -> Meta:
    return Meta(
        id=row["id"],
        guid=UUID(bytes=row["guid"]),
        shard=row["shard_id"],
        created_at=moment(row["created_at"]),
        updated_at=moment(row["updated_at"]),
    )


def _counts(row: Row) -> dict[str, Any]:
    return {name: row[name] for name in COUNTERS}


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


def bulk_row(drafts: Sequence[ActionDraft], now_us: int, creator: str | None) -> dict[str, Any]:
    """Many drafts as one set of parameters: the whole bulk is one statement."""
    return {
        "drafts": _ENCODER.encode(list(map(_bulk_fields, drafts))).decode(),
        "packed": b"".join([draft.guid.bytes for draft in drafts]),
        "now": now_us,
        "creator": creator,
    }


def _bulk_fields(draft: ActionDraft) -> tuple[object, ...]:
    """In the order in which `create_bulk` takes them."""
    spec, due = draft.spec, draft.scheduled_at
    due_us = micros(due)
    return (
        draft.id,
        draft.shard,
        spec.queue,
        spec.priority,
        duration_us(spec.timeout),
        duration_us(draft.retention),
        int(draft.keyed),
        due_us,
        due_us if draft.occurrence_at is due else micros(draft.occurrence_at),
        micros_or_none(draft.expires_at),
        encode_spec(spec),
    )
