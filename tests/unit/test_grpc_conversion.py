"""Messages and JSON say the same things: what one form can say, the other says, and both agree."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, get_args
from uuid import UUID

import msgspec
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.gateways.errors import problem_of
from gnomon.gateways.grpc.conversion import (
    ARMS,
    POLICIES,
    RETRY_NAMES,
    STATUS_NAMES,
    read_spec,
    read_time,
    write_action,
    write_problem,
    write_spec,
)
from gnomon.model.action import Action, Attempt, Meta, State, Status
from gnomon.model.codec import build_spec, decode_spec, encode_spec, parse_json
from gnomon.model.errors import InvalidSpec, NotFound
from gnomon.model.spec import CatchUp, Cron, Effect, Http, Mock, Once, Periodic, Push, Retry, Spec
from gnomon.stages.wire import write_time
from gnomon.v1 import action_pb2

KINDS: dict[str, type[Any]] = {kind.__struct_config__.tag: kind for kind in get_args(Effect)}
NOW = datetime(2030, 1, 1, tzinfo=UTC)

# -- values ---------------------------------------------------------------------------------------

CHARS = st.characters(codec="utf-8", exclude_characters="\x00")
texts = st.text(CHARS, max_size=20)
times = st.datetimes(
    min_value=datetime(1970, 1, 1),  # noqa: DTZ001 - hypothesis adds the zone
    max_value=datetime(9000, 1, 1),  # noqa: DTZ001
    timezones=st.just(UTC),
)
durations = st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=3660))
counts = st.integers(min_value=0, max_value=2**31 - 1)
jsons = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**17), 10**17)
    | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
BY_FIELD: dict[str, st.SearchStrategy[Any]] = {
    "json": jsons,
    "payload": jsons,
    "args": st.lists(jsons, max_size=3),
    "parameters": st.lists(jsons, max_size=3),
    "kwargs": st.dictionaries(texts, jsons, max_size=3),
    "headers": st.dictionaries(texts, texts, max_size=3),
    "success": st.lists(st.integers(100, 599), max_size=3).map(tuple),
}
BY_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    str: texts,
    str | None: st.none() | texts,
    int: counts,
    bool: st.booleans(),
    timedelta: durations,
}


def values_of(field: msgspec.structs.FieldInfo) -> st.SearchStrategy[Any]:
    if field.required and field.type is str:
        return st.text(CHARS, min_size=1, max_size=20)  # in a message, empty is not given
    return BY_FIELD[field.name] if field.name in BY_FIELD else BY_TYPE[field.type]


def effects_of(kind: type[Any]) -> st.SearchStrategy[Any]:
    fields = {field.name: values_of(field) for field in msgspec.structs.fields(kind)}
    return st.fixed_dictionaries(fields).map(lambda values: kind(**values))


effects = st.one_of([effects_of(kind) for kind in KINDS.values()])
policies = st.one_of(
    st.just(Once()),
    st.builds(Periodic, period=durations),
    st.builds(Cron, expression=st.text(CHARS, min_size=1, max_size=20), timezone=texts),
)
retries = st.builds(
    Retry,
    max=counts,
    min_period=durations,
    max_period=durations,
    scale=st.floats(0, 1e300),
    back_off=st.floats(0, 1e300),
)
specs = st.builds(
    Spec,
    action=effects,
    policy=policies,
    start_at=st.none() | times,
    deadline=st.none() | times,
    retry=retries,
    timeout=durations,
    active=st.none() | durations,
    drift=st.booleans(),
    catch_up=st.builds(CatchUp, mode=st.sampled_from(["none", "one", "all"]), max=counts),
    jitter=durations,
    occurrences_max=st.none() | counts,
    successes_max=st.none() | counts,
    consecutive_failures_max=st.none() | counts,
    interruptions_max=counts,
    retention=st.none() | durations,
    labels=st.dictionaries(texts, texts, max_size=3),
    queue=texts,
    priority=counts,
)


# -- the same things ------------------------------------------------------------------------------


@given(specs)
@settings(max_examples=300)
def test_a_spec_survives_the_way_through_a_message(spec: Spec) -> None:
    """Out and in again gives what its JSON form gives out and in again: the same spec."""
    sent = write_spec(spec).SerializeToString()
    through_message = read_spec(action_pb2.Spec.FromString(sent))
    through_json = build_spec(parse_json(encode_spec(spec).encode(), bytes_max=2**20))
    assert through_json == through_message
    assert decode_spec(encode_spec(spec)) == through_message


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_defaults_are_those_of_json(kind: type[Any]) -> None:
    """A message with the required fields only, and JSON with the same, are the same spec."""
    tag = kind.__struct_config__.tag
    given_: dict[str, Any] = {
        field.name: "x" if field.type is str else timedelta(seconds=5)
        for field in msgspec.structs.fields(kind)
        if field.required
    }
    message = action_pb2.Spec()
    arm = getattr(message.action, ARMS.get(tag, tag))
    arm.SetInParent()
    for name, value in given_.items():
        if isinstance(value, timedelta):
            getattr(arm, name).FromTimedelta(value)
        else:
            setattr(arm, name, value)
    assert build_spec({"action": {"type": tag, **given_}}) == read_spec(message)


def test_defaults_of_a_spec_are_those_of_json() -> None:
    """Empty parts are as good as absent ones."""
    message = action_pb2.Spec(
        action=action_pb2.Action(mock=action_pb2.MockAction()),
        start_policy=action_pb2.StartPolicy(),
        send_policy=action_pb2.SendPolicy(
            send_once_policy=action_pb2.SendOncePolicy(retry_policy=action_pb2.RetryPolicy())
        ),
        catch_up=action_pb2.CatchUp(),
    )
    assert Spec(action=Mock()) == read_spec(message)


def test_every_kind_has_an_arm_with_the_same_fields() -> None:
    """What JSON can ask for, a message can, field by field, and nothing else."""
    arms = action_pb2.Action.DESCRIPTOR.oneofs_by_name["action"].fields
    turned = {value: name for name, value in ARMS.items()}
    shown = {turned.get(arm.name, arm.name): names(arm.message_type) for arm in arms}
    known = {tag: set(kind.__struct_fields__) for tag, kind in KINDS.items()}
    assert known == shown


def test_every_field_of_a_spec_has_its_place() -> None:
    """A field that is added to the model must be added to the messages."""
    spec = names(action_pb2.Spec.DESCRIPTOR) - {"start_policy", "send_policy"}
    policy = {
        "start_at": action_pb2.StartPolicy.DESCRIPTOR,
        "deadline": action_pb2.SendPolicy.DESCRIPTOR,
    }
    assert all(name in names(kind) for name, kind in policy.items())
    assert set(Spec.__struct_fields__) == spec | set(policy) | {"policy", "retry"}
    assert set(Retry.__struct_fields__) == set(RETRY_NAMES)
    assert set(RETRY_NAMES.values()) == names(action_pb2.RetryPolicy.DESCRIPTOR)
    assert set(CatchUp.__struct_fields__) == names(action_pb2.CatchUp.DESCRIPTOR)
    for kind in (Once, Periodic, Cron):
        arm = action_pb2.SendPolicy.DESCRIPTOR.fields_by_name[
            POLICIES[str(kind.__struct_config__.tag)]
        ]
        assert set(kind.__struct_fields__) == names(arm.message_type) - {"retry_policy"}


def test_every_field_that_is_shown_has_its_place() -> None:
    """Meta, status and attempt, whole; states word by word."""
    status = {STATUS_NAMES.get(name, name) for name in Status.__struct_fields__}
    assert status == names(action_pb2.Status.DESCRIPTOR)
    assert set(Meta.__struct_fields__) == names(action_pb2.Meta.DESCRIPTOR)
    assert set(Attempt.__struct_fields__) == names(action_pb2.AttemptStatus.DESCRIPTOR)
    words = {f"STATE_{state.upper()}" for state in State} | {"STATE_UNSPECIFIED"}
    assert words == set(action_pb2.State.keys())


def test_a_field_that_is_not_set_means_its_default() -> None:
    """Without presence, zero and "not set" are one: the model's default must be that zero."""
    pairs: list[tuple[type[Any], Descriptor, dict[str, str]]] = [
        (Spec, action_pb2.Spec.DESCRIPTOR, {}),
        (Retry, action_pb2.RetryPolicy.DESCRIPTOR, RETRY_NAMES),
        (CatchUp, action_pb2.CatchUp.DESCRIPTOR, {}),
        (Periodic, action_pb2.SendPeriodicallyPolicy.DESCRIPTOR, {}),
        (Cron, action_pb2.SendCronPolicy.DESCRIPTOR, {}),
    ]
    for arm in action_pb2.Action.DESCRIPTOR.oneofs_by_name["action"].fields:
        tag = next((tag for tag, name in ARMS.items() if name == arm.name), arm.name)
        assert arm.message_type is not None
        pairs.append((KINDS[tag], arm.message_type, {}))
    for kind, descriptor, renamed in pairs:
        for field in msgspec.structs.fields(kind):
            shown = descriptor.fields_by_name.get(renamed.get(field.name, field.name))
            if shown is None or field.required or shown.has_presence or shown.is_repeated:
                continue
            if shown.type in (FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_ENUM):
                continue  # empty is no JSON, and the first word of an enum is none
            assert shown.default_value == field.default, (kind, field.name)


@given(
    st.builds(
        Status,
        state=st.sampled_from(State),
        scheduled_at=st.none() | times,
        occurrence_no=counts,
        attempts=counts,
        succeeded=counts,
        last_attempt=st.none()
        | st.builds(
            Attempt,
            attempt_id=st.uuids(),
            attempt_no=counts,
            occurrence_no=counts,
            began_at=times,
            outcome=texts,
            error=st.none() | texts,
        ),
        reason=st.none() | texts,
    )
)
def test_a_status_is_shown_whole(status: Status) -> None:
    """Times, counters, states and attempts are those of the model."""
    action = Action(
        meta=Meta(id="a", guid=UUID(int=1), shard=3, created_at=NOW, updated_at=NOW),
        spec=Spec(action=Mock()),
        status=status,
    )
    shown = write_action(action).status
    assert f"STATE_{status.state.upper()}" == action_pb2.State.Name(shown.state)
    assert (status.attempts, status.succeeded, status.occurrence_no) == (
        shown.attempts_counter,
        shown.successful_attempts_counter,
        shown.occurrence_no,
    )
    assert (status.scheduled_at is not None) == shown.HasField("scheduled_at")
    if status.scheduled_at is not None:
        assert status.scheduled_at == read_time(shown.scheduled_at, "")
    assert (status.last_attempt is not None) == shown.HasField("last_attempt_status")
    if status.last_attempt is not None:
        last = shown.last_attempt_status
        assert (str(status.last_attempt.attempt_id), status.last_attempt.error) == (
            last.attempt_id,
            last.error if last.HasField("error") else None,
        )


def test_times_are_shown_in_utc() -> None:
    """Whatever zone they were given in."""
    moment = datetime.fromisoformat("2030-01-01T02:00:00.000001+02:00")
    assert NOW + timedelta(microseconds=1) == read_time(write_time(moment), "")


@pytest.mark.parametrize("nanos", [0, 499, 500, 1_499, 1_500, 999_999_499, 999_999_500])
def test_nanoseconds_are_rounded_as_in_json(nanos: int) -> None:
    """Whoever takes the time of a clock with nanoseconds gets the nearest microsecond."""
    by_json = msgspec.convert(f"2030-01-01T00:00:00.{nanos:09}Z", datetime)
    seconds = int(NOW.timestamp())
    assert by_json == read_time(Timestamp(seconds=seconds, nanos=nanos), "")


def test_an_empty_message_is_refused_like_an_empty_object() -> None:
    """The same error, in the same words."""
    with pytest.raises(InvalidSpec) as by_json:
        build_spec({})
    with pytest.raises(InvalidSpec) as by_message:
        read_spec(action_pb2.Spec())
    assert str(by_json.value) == str(by_message.value)


def test_a_missing_field_is_named() -> None:
    """A call without a URL, a push without a time to live."""
    for effect in (
        action_pb2.Action(http=action_pb2.HttpCall(method="GET")),
        action_pb2.Action(send_technical_push=action_pb2.SendTechnicalPush(target="a")),
    ):
        with pytest.raises(InvalidSpec, match="missing required field"):
            read_spec(action_pb2.Spec(action=effect))


def test_problems_are_the_problem_documents() -> None:
    """Code, title, detail, and the rest as fields."""
    found = write_problem({**problem_of(NotFound("action", "a")), "request_id": "7"})
    assert ("not_found", "It does not exist", "action 'a' does not exist") == (
        found.code,
        found.title,
        found.detail,
    )
    assert {"kind": "action", "name": "a", "request_id": "7"} == dict(found.fields)


def names(descriptor: Descriptor | None) -> set[str]:
    assert descriptor is not None
    return {field.name for field in descriptor.fields}


def test_samples_cover_every_kind() -> None:
    """The strategies above are drawn from the union itself; these are among it."""
    assert {Http, Mock, Push} <= set(KINDS.values())
