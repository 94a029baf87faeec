"""Stages over gRPC: views and answers as messages, for both sides of the wire.

What comes from a service is looked at before it is believed: positions, echoes, JSON, times. A
state's protobuf message is carried as bytes with the name of its type and never unpacked.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from gnomon.contracts.store.entities import Entity, StageState, StateWrite
from gnomon.contracts.store.outbox import OutboxRow
from gnomon.model.errors import InvalidRequest, InvalidSpec
from gnomon.model.ids import EntityKey
from gnomon.model.stage.patch import Patch
from gnomon.stages.answers import WrongAnswerError, check_time
from gnomon.stages.bound_stage import Answer, StageInput, StageResult
from gnomon.stages.codec import (
    STATE_BYTES_MAX,
    UndecodableError,
    canonical_json,
    check_type_name,
)
from gnomon.stages.documents import LoadedDocument
from gnomon.stages.stage import KEEP, Quarantine, RetryLater, Update, Wake
from gnomon.v1 import stage_pb2 as pb

TYPE_PREFIX = "type.googleapis.com/"
MESSAGE_CHARS_MAX = 2_000
RETRY_AFTER_MAX = timedelta(days=30)
NO_ROOT = UUID(int=0)  # of a caller that does not tell it

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class RemoteError(Exception):
    """A stage elsewhere failed, or answered what cannot be."""


# -- times ----------------------------------------------------------------------------------------


def write_time(moment: datetime) -> Timestamp:
    """A moment as a message. Errors: RemoteError, for one without a zone."""
    if moment.tzinfo is None:
        raise RemoteError("a time must have a zone")
    seconds, micros = divmod((moment - _EPOCH) // _MICROSECOND, 1_000_000)
    return Timestamp(seconds=seconds, nanos=micros * 1000)


def read_time(message: Timestamp) -> datetime:
    """A message as a moment. Errors: RemoteError."""
    try:
        # Up, not down: a timer must not fire before its time.
        micros = timedelta(microseconds=-(-message.nanos // 1000))
        return _EPOCH + timedelta(seconds=message.seconds) + micros
    except OverflowError:
        raise RemoteError("a time must be between the years 1 and 9999") from None


def read_duration(message: Duration) -> timedelta:
    """A duration as a message; what is longer than a month is a month."""
    if not 0 <= message.seconds < RETRY_AFTER_MAX.total_seconds():
        return RETRY_AFTER_MAX if message.seconds > 0 else timedelta(0)
    return timedelta(seconds=message.seconds, microseconds=max(0, message.nanos) // 1000)


def write_duration(value: timedelta) -> Duration:
    """A duration as a message."""
    seconds, micros = divmod(value // _MICROSECOND, 1_000_000)
    return Duration(seconds=seconds, nanos=micros * 1000)


# -- states ---------------------------------------------------------------------------------------


def write_state(state: StageState | StateWrite) -> pb.StageState:
    """A state as a message."""
    version = state.version if isinstance(state, StageState) else 0
    if state.type is None:
        return pb.StageState(version=version, revision=state.revision, json=state.body)
    carried = AnyMessage(type_url=TYPE_PREFIX + state.type, value=state.body)
    return pb.StageState(version=version, revision=state.revision, message=carried)


def read_state(message: pb.StageState, *, revision: int) -> StateWrite:
    """A state to be stored, written by a revision. Errors: InvalidSpec."""
    match message.WhichOneof("body"):
        case "json":
            try:
                body = canonical_json(message.json)
            except InvalidRequest as exc:
                raise InvalidSpec("state.json", f"must be JSON: {exc}") from None
            kind = None
        case "message":
            body = message.message.value
            kind = check_type_name(message.message.type_url.rpartition("/")[2])
        case _:
            raise InvalidSpec("state", "must have a message or json")
    if len(body) > STATE_BYTES_MAX:
        raise InvalidSpec("state", f"must have at most {STATE_BYTES_MAX} bytes", got=len(body))
    return StateWrite(body=body, revision=revision, type=kind)


# -- items ----------------------------------------------------------------------------------------


def write_item(view: StageInput, stage: str) -> pb.EntityView:
    """An entity in front of a stage, as a message."""
    entity, state = view.entity, view.states.get(stage)
    return pb.EntityView(
        entity=pb.Entity(
            kind=entity.kind,
            id=entity.id,
            epoch=entity.epoch,
            version=entity.version,
            document=view.loaded.text.encode(),
        ),
        state=None if state is None else write_state(state),
        now=write_time(view.now),
        reasons=sorted(view.reasons),
        attempt=view.attempt,
    )


def read_item(message: pb.EntityView, stage: str) -> StageInput:
    """A message as a local stage is shown it. Errors: UndecodableError, RemoteError."""
    entity = message.entity
    try:
        text = entity.document.decode()
    except UnicodeDecodeError:
        raise UndecodableError("the entity is not UTF-8") from None
    states = {}
    if message.HasField("state"):
        states[stage] = _stored(message.state)
    now = read_time(message.now)
    return StageInput(
        Entity(
            key=str(EntityKey(entity.kind, entity.id)),
            shard=0,
            epoch=entity.epoch,
            version=entity.version,
            doc=text,
            changed_at=now,
        ),
        LoadedDocument(text),
        states,
        now,
        reasons=frozenset(message.reasons),
        attempt=message.attempt,
    )


def _stored(message: pb.StageState) -> StageState:
    write = read_state(message, revision=message.revision)
    return StageState(
        version=message.version, revision=write.revision, body=write.body, type=write.type
    )


# -- answers of should_process --------------------------------------------------------------------


def write_answer(answer: bool | Wake | Exception) -> pb.Answer:  # noqa: FBT001 - a value
    """An answer as a message. To be woken never is a no; who fails to say no gets the entity."""
    if isinstance(answer, Exception):
        return pb.Answer(process=True)
    if isinstance(answer, Wake):
        return pb.Answer() if answer.at is None else pb.Answer(wake=write_time(answer.at))
    return pb.Answer(process=bool(answer))


def read_answers(
    message: pb.ShouldProcessResponse, count: int
) -> Sequence[bool | Wake | Exception]:
    """The answers by position. Errors: RemoteError."""
    if len(message.answers) != count:
        raise RemoteError(f"answered {len(message.answers)} of {count} asks")
    return [_read_answer(answer) for answer in message.answers]


def _read_answer(message: pb.Answer) -> bool | Wake | Exception:
    if message.WhichOneof("answer") != "wake":
        return message.process
    try:
        return Wake(check_time(read_time(message.wake), "wake"))
    except (RemoteError, WrongAnswerError) as exc:
        return exc


# -- outcomes of process --------------------------------------------------------------------------


def write_outcome(view: StageInput, answer: Answer) -> pb.Outcome:
    """What a stage made of a view, as a message."""
    try:
        update = None if isinstance(answer, Exception) else _write_update(answer)
        failure = _write_failure(answer) if isinstance(answer, Exception) else None
    except (RemoteError, TypeError, ValueError, OverflowError, RecursionError) as exc:
        update, failure = None, _write_failure(exc)
    return pb.Outcome(
        entity_id=view.entity.id, version=view.entity.version, update=update, failure=failure
    )


def _write_update(result: StageResult) -> pb.Update:
    update = pb.Update(note=result.note[:MESSAGE_CHARS_MAX])
    if isinstance(result.patch, list):
        update.json_patch = msgspec.json.encode(result.patch)
    elif result.patch:
        update.merge_patch = msgspec.json.encode(result.patch)
    if isinstance(result.state, StateWrite):
        update.state.CopyFrom(write_state(result.state))
    if result.wake is None:
        update.cancel_timer = True
    elif isinstance(result.wake, datetime):
        update.wake.CopyFrom(write_time(result.wake))
    return update


def _write_failure(error: Exception) -> pb.Failure:
    if isinstance(error, Quarantine | UndecodableError):
        kind = pb.FAILURE_KIND_QUARANTINE
        text = str(error)
    else:
        kind = pb.FAILURE_KIND_RETRY
        text = str(error) if isinstance(error, RetryLater) else f"{type(error).__name__}: {error}"
    failure = pb.Failure(kind=kind, message=text[:MESSAGE_CHARS_MAX])
    if isinstance(error, RetryLater) and error.after is not None:
        failure.retry_after.CopyFrom(write_duration(error.after))
    return failure


def write_refusal(key: str, error: Exception) -> pb.Refusal:
    """A save that was not accepted."""
    return pb.Refusal(key=key, failure=_write_failure(error))


def read_refusals(message: pb.AfterSaveResponse) -> dict[str, Exception]:
    """Why saves were not accepted, by their keys."""
    return {refusal.key: _read_failure(refusal.failure) for refusal in message.refused}


def read_outcomes(
    message: pb.ProcessResponse, views: Sequence[StageInput], *, revision: int
) -> Sequence[Answer]:
    """The answers by position. Errors: RemoteError, when they are not those to the views."""
    if len(message.outcomes) != len(views):
        raise RemoteError(f"answered {len(message.outcomes)} of {len(views)} entities")
    for outcome, view in zip(message.outcomes, views, strict=True):
        wanted = view.entity
        if (outcome.entity_id, outcome.version) != (wanted.id, wanted.version):
            told = f"{outcome.entity_id[:200]!r} v{outcome.version}"
            raise RemoteError(f"mixed up: {wanted.id!r} v{wanted.version} answered as {told}")
    return [_read_outcome(outcome, revision) for outcome in message.outcomes]


def _read_outcome(message: pb.Outcome, revision: int) -> Answer:
    match message.WhichOneof("result"):
        case "update":
            try:
                return _read_update(message.update, revision)
            except (InvalidRequest, RemoteError, WrongAnswerError) as exc:
                return RemoteError(f"the answer is not valid: {exc}")
        case "failure":
            return _read_failure(message.failure)
    return RemoteError("the outcome has neither update nor failure")


def _read_update(update: pb.Update, revision: int) -> StageResult:
    wake: Any = KEEP
    if update.WhichOneof("timer") == "wake":
        wake = check_time(read_time(update.wake), "wake")
    elif update.cancel_timer:
        wake = None
    return Update(
        patch=_read_patch(update),
        state=read_state(update.state, revision=revision) if update.HasField("state") else KEEP,
        wake=wake,
        note=update.note,
    )


def _read_patch(update: pb.Update) -> Patch:
    """The patch of an update: a merge patch or a JSON patch. Errors: RemoteError."""
    patch: Patch = {}
    match update.WhichOneof("patch"):
        case "merge_patch":
            patch = _read_json(update.merge_patch, dict, "merge_patch must be a JSON object")
        case "json_patch":
            patch = _read_json(update.json_patch, list[dict[str, Any]], "json_patch must be a list")
    return patch


def _read_json(raw: bytes, kind: Any, problem: str) -> Any:
    """How deep it goes is looked at when the patched document is stored."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        raise RemoteError(f"{problem}: {str(exc)[:200]}") from None


def _read_failure(failure: pb.Failure) -> Exception:
    """What a remote stage raised: Quarantine, RetryLater, or a RemoteError."""
    text = failure.message[:MESSAGE_CHARS_MAX]
    if failure.kind == pb.FAILURE_KIND_QUARANTINE:
        return Quarantine(text)
    if failure.HasField("retry_after"):
        return RetryLater(text, after=read_duration(failure.retry_after))
    return RemoteError(text)


# -- saves ----------------------------------------------------------------------------------------


def write_saved(row: OutboxRow) -> pb.SavedVersion:
    """A saved version as a message."""
    kind, entity_id = EntityKey.parse(row.entity_key)
    return pb.SavedVersion(
        entity=pb.Entity(
            kind=kind,
            id=entity_id,
            epoch=row.epoch,
            version=row.version,
            document=b"" if row.doc is None else row.doc.encode(),
        ),
        state=None if row.state is None else write_state(row.state),
        author=row.author,
        changed=row.paths,
        deleted=row.doc is None,
        key=row.key,
        root=str(row.root),
    )


def read_saved(message: pb.SavedVersion, stage: str, *, now: datetime) -> OutboxRow:
    """A message as a local stage is told it. Errors: InvalidSpec, ValueError."""
    entity = message.entity
    return OutboxRow(
        shard=0,
        n=0,
        sink=stage,
        entity_key=str(EntityKey(entity.kind, entity.id)),
        epoch=entity.epoch,
        version=entity.version,
        author=message.author,
        root=UUID(message.root) if message.root else NO_ROOT,
        paths=tuple(message.changed),
        doc=None if message.deleted else entity.document.decode(),
        state=_stored(message.state) if message.HasField("state") else None,
        key=message.key,
        attempts=0,
        at=now,
    )
