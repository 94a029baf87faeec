"""Messages and the model: the one place where the two forms meet.

A message becomes the JSON form of what it says, and goes on like the body of a REST request; so
both say the same, are checked by the same rules, and get the same defaults. What the messages name
otherwise than the JSON form stands in the tables below; the rest has the same name.

By type: Timestamp is a time, Duration a duration, `bytes` is JSON, an enum is a word. What is not
set is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from gnomon.contracts.store import ChangeResult, LimitUse
from gnomon.model.action import Action, Attempt, Meta, Status
from gnomon.model.codec import KEYS_MAX, build_spec, parse_json
from gnomon.model.errors import InvalidRequest, InvalidSpec
from gnomon.model.limits import Limit, limit_key
from gnomon.model.spec import Spec
from gnomon.stages.wire import write_duration, write_time
from gnomon.v1 import action_pb2, scheduler_pb2

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# The JSON form's names to the messages' names.
ARMS = {"push": "send_technical_push"}
POLICIES = {
    "once": "send_once_policy",
    "periodic": "send_periodically_policy",
    "cron": "send_cron_policy",
}
RETRY_NAMES = {
    "max": "max_retries",
    "scale": "restart_period_scale",
    "back_off": "restart_period_back_off",
    "min_period": "min_restart_period",
    "max_period": "max_restart_period",
    "jitter": "restart_period_jitter",
}
STATUS_NAMES = {
    "attempts": "attempts_counter",
    "succeeded": "successful_attempts_counter",
    "failed": "failed_attempts_counter",
    "interrupted": "interrupted_attempts_counter",
    "consecutive_failures": "consecutive_failures_counter",
    "consecutive_interruptions": "consecutive_interruptions_counter",
    "occurrence_failures": "occurrence_failures_counter",
    "current_attempt": "current_attempt_status",
    "last_attempt": "last_attempt_status",
}
# Read and written by hand, because they stand elsewhere than in the JSON form.
_MOVED = frozenset({"action", "policy", "retry", "start_at", "deadline"})


# -- spec, in -------------------------------------------------------------------------------------


def read_spec(message: action_pb2.Spec) -> Spec:
    """The spec that a message says. Errors: InvalidSpec and its kin, as for JSON."""
    plain = _read_fields(message, "spec", leave_out=("start_policy", "send_policy", "action"))
    if message.start_policy.HasField("start_at"):
        plain["start_at"] = read_time(message.start_policy.start_at, "spec.start_policy.start_at")
    if message.send_policy.HasField("deadline"):
        plain["deadline"] = read_time(message.send_policy.deadline, "spec.send_policy.deadline")
    _read_policy(message.send_policy, plain)
    arm = message.action.WhichOneof("action")
    if arm is not None:
        effect: Message = getattr(message.action, arm)
        kind = _turned(ARMS).get(arm, arm)
        plain["action"] = {"type": kind, **_read_fields(effect, f"spec.action.{arm}")}
    return build_spec(plain)


def _read_policy(message: action_pb2.SendPolicy, plain: dict[str, Any]) -> None:
    arm = message.WhichOneof("policy")
    if arm is None:
        return
    path = f"spec.send_policy.{arm}"
    policy: Any = getattr(message, arm)
    plain["policy"] = {
        "type": _turned(POLICIES)[arm],
        **_read_fields(policy, path, leave_out=("retry_policy",)),
    }
    if policy.HasField("retry_policy"):
        retry = _read_fields(policy.retry_policy, f"{path}.retry_policy")
        plain["retry"] = {_turned(RETRY_NAMES)[name]: value for name, value in retry.items()}


def _read_fields(message: Message, path: str, leave_out: Iterable[str] = ()) -> dict[str, Any]:
    """The fields of a message that are set, by name, as plain data."""
    return {
        field.name: _read(field, value, f"{path}.{field.name}")
        for field, value in message.ListFields()
        if field.name not in leave_out
    }


def _read(field: FieldDescriptor, value: Any, path: str) -> Any:
    # Before any of it is looked at: a megabyte holds a million numbers.
    if field.is_repeated and len(value) > KEYS_MAX:
        raise InvalidSpec(path, f"must have at most {KEYS_MAX} items", got=len(value))
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return {read_text(name, path): read_text(text, path) for name, text in value.items()}
    if field.is_repeated:
        return [_read_one(field, item, path) for item in value]
    return _read_one(field, value, path)


def _read_one(field: FieldDescriptor, value: Any, path: str) -> Any:
    """A value of a message as plain data: a time, a duration, JSON, a word of an enum, or
    fields."""
    match value:
        case Timestamp():
            return read_time(value, path)
        case Duration():
            return read_duration(value, path)
        case Message():
            return _read_fields(value, path)
        case bytes():
            return _read_json(value, path)
        case str():
            return read_text(value, path)
        case int() if field.enum_type is not None:
            return read_word(field.enum_type, value, path)
        case _:
            return value


def read_text(text: str, path: str) -> str:
    """A text that every database can hold."""
    if "\x00" in text:
        raise InvalidSpec(path, "holds NUL")
    return text


def read_time(value: Timestamp, path: str) -> datetime:
    """A time in UTC, to the microsecond."""
    try:
        return _EPOCH + timedelta(seconds=value.seconds) + _micros(value.nanos)
    except OverflowError:
        raise InvalidSpec(path, "must be between the years 1 and 9999") from None


def read_duration(value: Duration, path: str) -> timedelta:
    """A duration, to the microsecond."""
    try:
        return timedelta(seconds=value.seconds) + _micros(value.nanos)
    except OverflowError:
        raise InvalidSpec(path, "is too long", got=value.seconds) from None


def _micros(nanos: int) -> timedelta:
    """To the nearest, as in the JSON form: clocks of other languages have nanoseconds."""
    return timedelta(microseconds=(nanos + 500) // 1000)


def _read_json(text: bytes, path: str) -> Any:
    try:
        return parse_json(text)
    except InvalidRequest as exc:
        raise InvalidSpec(path, f"must be JSON: {exc}") from None


def read_word(kind: EnumDescriptor, number: int, path: str) -> str:
    """The JSON form's word for a value of an enum: `STATE_PAUSED` is `paused`."""
    value = kind.values_by_number.get(number)
    if value is None or number == 0:
        known = ", ".join(value.name for value in kind.values[1:])
        raise InvalidSpec(path, f"must be one of {known}", got=number)
    return value.name.removeprefix(_prefix(kind)).lower()


def read_guid(text: str, path: str) -> UUID:
    """A generation."""
    try:
        return UUID(text)
    except ValueError:
        raise InvalidSpec(path, "must be a guid", got=text) from None


# -- spec, out ------------------------------------------------------------------------------------


def write_spec(spec: Spec) -> action_pb2.Spec:
    """A spec as a message, with the defaults written out."""
    plain = msgspec.structs.asdict(spec)
    message = action_pb2.Spec()
    write_fields(message, {name: plain[name] for name in plain if name not in _MOVED})
    if spec.start_at is not None:
        message.start_policy.start_at.CopyFrom(write_time(spec.start_at))
    if spec.deadline is not None:
        message.send_policy.deadline.CopyFrom(write_time(spec.deadline))
    policy: Any = getattr(message.send_policy, POLICIES[_tag_of(spec.policy)])
    write_fields(policy, msgspec.structs.asdict(spec.policy))
    retry = msgspec.structs.asdict(spec.retry)
    write_fields(policy.retry_policy, {RETRY_NAMES[name]: retry[name] for name in retry})
    tag = _tag_of(spec.action)
    arm = ARMS.get(tag, tag)
    if arm not in message.action.DESCRIPTOR.fields_by_name:
        return message  # a stored spec that cannot be read: its status says so
    effect: Message = getattr(message.action, arm)
    effect.SetInParent()  # a mock without anything is still a mock
    write_fields(effect, msgspec.structs.asdict(spec.action))
    return message


def write_fields(message: Any, values: Mapping[str, Any]) -> None:
    """Set fields by name; None is not set."""
    fields = message.DESCRIPTOR.fields_by_name
    for name, value in values.items():
        if value is None:
            continue
        field: FieldDescriptor = fields[name]
        match value:
            case datetime():
                getattr(message, name).CopyFrom(write_time(value))
            case timedelta():
                getattr(message, name).CopyFrom(write_duration(value))
            case _ if field.type == FieldDescriptor.TYPE_BYTES:
                setattr(message, name, msgspec.json.encode(value))
            case UUID():
                setattr(message, name, str(value))
            case dict():
                getattr(message, name).update(value)
            case list() | tuple():
                _write_items(getattr(message, name), value)
            case msgspec.Struct():
                getattr(message, name).SetInParent()
                write_fields(getattr(message, name), msgspec.structs.asdict(value))
            case str() if field.enum_type is not None:
                named = field.enum_type.values_by_name.get(_prefix(field.enum_type) + value.upper())
                setattr(message, name, 0 if named is None else named.number)  # 0: of tomorrow
            case _:
                setattr(message, name, value)


def _write_items(messages: Any, items: Sequence[Any]) -> None:
    for item in items:
        if isinstance(item, msgspec.Struct):
            write_fields(messages.add(), msgspec.structs.asdict(item))
        else:
            messages.append(item)


def _prefix(kind: EnumDescriptor) -> str:
    """What every value's name begins with: an enum's values share one namespace with others."""
    return kind.values[0].name.removesuffix("UNSPECIFIED")


def _tag_of(part: msgspec.Struct) -> str:
    return str(part.__struct_config__.tag)


def _turned(table: Mapping[str, str]) -> dict[str, str]:
    return {value: name for name, value in table.items()}


# -- limits ---------------------------------------------------------------------------------------


def read_limit(message: scheduler_pb2.Limit) -> Limit:
    """The limit that a message says; whether it obeys the rules is for the scheduler to say."""
    plain = _read_fields(message, "limit")
    key = limit_key(plain.pop("kind", ""), plain.pop("name", ""))
    return Limit(kind=key.kind, name=key.name, **plain)


def write_limit_use(use: LimitUse) -> scheduler_pb2.LimitUse:
    message = scheduler_pb2.LimitUse()
    write_fields(message, msgspec.structs.asdict(use))
    return message


# -- what is answered -----------------------------------------------------------------------------


def write_action(action: Action) -> action_pb2.ScheduledAction:
    """An action as a message."""
    return action_pb2.ScheduledAction(
        meta=write_meta(action.meta),
        spec=write_spec(action.spec),
        status=write_status(action.status),
    )


def write_meta(meta: Meta) -> action_pb2.Meta:
    message = action_pb2.Meta()
    write_fields(message, msgspec.structs.asdict(meta))
    return message


def write_status(status: Status) -> action_pb2.Status:
    message = action_pb2.Status()
    plain = msgspec.structs.asdict(status)
    write_fields(message, {STATUS_NAMES.get(name, name): plain[name] for name in plain})
    return message


def write_attempt(attempt: Attempt) -> action_pb2.AttemptStatus:
    message = action_pb2.AttemptStatus()
    write_fields(message, msgspec.structs.asdict(attempt))
    return message


def write_changed(changed: ChangeResult, durability: str) -> scheduler_pb2.Changed:
    """The answer to a change."""
    flight = changed.in_flight
    return scheduler_pb2.Changed(
        action=write_action(changed.action),
        in_flight=None if flight is None else write_attempt(flight),
        repeated=changed.repeated,
        asked=changed.asked,
        durability=durability,
    )


def write_problem(problem: Mapping[str, object]) -> scheduler_pb2.Problem:
    """A problem document; what is not in every one goes into `fields`."""
    document = dict(problem)
    known = {name: str(document.pop(name)) for name in ("code", "title", "detail")}
    for name in ("type", "status"):  # an identifier for the web, and HTTP's number
        del document[name]
    fields = {
        name: value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for name, value in document.items()
    }
    return scheduler_pb2.Problem(**known, fields=fields)
