"""What is refused leaves as a status, a sentence and a problem; nothing is told that is ours."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from gnomon.channels import PUSHBACK_KEY
from gnomon.gateways.errors import TABLE
from gnomon.gateways.grpc.boundary import PROBLEM_KEY
from gnomon.gateways.grpc.service import MESSAGE_BYTES_MAX
from gnomon.model.errors import (
    BugError,
    ConfigurationError,
    Exhausted,
    GnomonError,
    IdentityMismatch,
    NotSupported,
    SchemaMismatch,
    StoreUnavailable,
    Unavailable,
)
from gnomon.v1 import action_pb2 as actions
from gnomon.v1 import scheduler_pb2 as pb
from tests.conformance.grpc.conftest import Served, spec_of

STALE = "00000000-0000-4000-8000-000000000000"
METHOD = "/gnomon.v1.SchedulerService/"


class Refusal:
    """A call that was refused, with the problem that came with it."""

    def __init__(self, error: grpc.aio.AioRpcError) -> None:
        trailing = dict(error.trailing_metadata() or ())
        self.code = error.code()
        self.detail = error.details() or ""
        self.pushback = trailing.get(PUSHBACK_KEY)
        raw = trailing.get(PROBLEM_KEY, b"")
        assert isinstance(raw, bytes)
        self.problem = pb.Problem.FromString(raw)


async def refusal_of(call: Any) -> Refusal:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return Refusal(caught.value)


async def raw_refusal(
    served: Served, name: str, message: bytes, **options: Any
) -> grpc.aio.AioRpcError:
    call: Any = served.channel.unary_unary(METHOD + name)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(message, **options)
    return caught.value


async def test_not_found(served: Served) -> None:
    """Every verb on an id that is not there, and the field that names it."""
    for name, request in [
        ("Get", pb.GetRequest(id="a")),
        ("Delete", pb.DeleteRequest(id="a")),
        ("RunNow", pb.RunNowRequest(id="a")),
        ("Pause", pb.PauseRequest(id="a")),
        ("Resume", pb.ResumeRequest(id="a")),
        ("Retry", pb.RetryRequest(id="a")),
    ]:
        found = await refusal_of(getattr(served.stub, name)(request))
        assert (grpc.StatusCode.NOT_FOUND, "not_found") == (found.code, found.problem.code)
        assert {"kind": "action", "name": "a"} == dict(found.problem.fields)
        assert found.detail == found.problem.detail


async def test_watch_of_nothing_is_not_found(served: Served) -> None:
    """A stream is refused as a call is."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        _ = [answer async for answer in served.stub.Watch(pb.WatchRequest(id="a"))]
    assert "not_found" == Refusal(caught.value).problem.code


async def test_already_exists_conflict_and_precondition(served: Served) -> None:
    """The three that a caller decides upon."""
    created = await served.create("a")
    exists = await refusal_of(served.stub.Create(pb.CreateRequest(id="a", spec=spec_of())))
    assert (grpc.StatusCode.ALREADY_EXISTS, "already_exists") == (exists.code, exists.problem.code)
    for name, request in [
        ("Replace", pb.ReplaceRequest(id="a", spec=spec_of(), if_match=STALE)),
        ("Delete", pb.DeleteRequest(id="a", if_match=STALE)),
        ("Pause", pb.PauseRequest(id="a", if_match=STALE)),
        ("RunNow", pb.RunNowRequest(id="a", if_match=STALE)),
    ]:
        stale = await refusal_of(getattr(served.stub, name)(request))
        assert (grpc.StatusCode.ABORTED, "conflict") == (stale.code, stale.problem.code)
        assert created.action.meta.guid == stale.problem.fields["found"]
    state = await refusal_of(served.stub.Retry(pb.RetryRequest(id="a")))
    assert (grpc.StatusCode.FAILED_PRECONDITION, "active") == (
        state.code,
        state.problem.fields["state"],
    )


def mock_with(**fields: Any) -> actions.Spec:
    return spec_of(action=actions.Action(mock=actions.MockAction(**fields)))


def http_with(**fields: Any) -> actions.Spec:
    whole = {"method": "POST", "url": "https://a.example/", **fields}
    return spec_of(action=actions.Action(http=actions.HttpCall(**whole)))


def policy_with(**fields: Any) -> actions.Spec:
    return spec_of(send_policy=actions.SendPolicy(**fields))


def retrying(**fields: Any) -> actions.Spec:
    retry = actions.RetryPolicy(**fields)
    return policy_with(send_once_policy=actions.SendOncePolicy(retry_policy=retry))


BAD_SPECS: list[tuple[actions.Spec, str]] = [
    (actions.Spec(), "spec.action"),
    (spec_of(action=actions.Action()), "spec.action"),
    (spec_of(priority=10), "spec.priority"),
    (spec_of(priority=-1), "spec.priority"),
    (spec_of(occurrences_max=0), "spec.occurrences_max"),
    (spec_of(occurrences_max=2**62), "spec.occurrences_max"),
    (spec_of(queue=""), "spec.queue"),
    (spec_of(queue="a\x00b"), "spec.queue"),
    (spec_of(labels={"a\x00": "b"}), "spec.labels"),
    (spec_of(labels={"a": "\u2028"}), "spec.labels.a"),
    (spec_of(timeout=Duration(seconds=-1)), "spec.timeout"),
    (spec_of(timeout=Duration(seconds=10**12)), "spec.timeout"),
    (spec_of(timeout=Duration(seconds=2**63 - 1)), "spec.timeout"),
    (spec_of(timeout=Duration(nanos=1500)), "spec.timeout"),
    (spec_of(catch_up=actions.CatchUp(mode=77)), "spec.catch_up.mode"),  # type: ignore[arg-type]
    (spec_of(catch_up=actions.CatchUp(max=0)), "spec.catch_up.max"),
    (
        spec_of(start_policy=actions.StartPolicy(start_at=Timestamp(seconds=-(2**63)))),
        "spec.start_policy.start_at",
    ),
    (
        spec_of(start_policy=actions.StartPolicy(start_at=Timestamp(seconds=2**63 - 1))),
        "spec.start_policy.start_at",
    ),
    (spec_of(start_policy=actions.StartPolicy(start_at=Timestamp(seconds=1))), "spec.start_at"),
    (policy_with(deadline=Timestamp(seconds=5)), "spec.deadline"),
    (policy_with(send_periodically_policy=actions.SendPeriodicallyPolicy()), "spec.policy"),
    (
        policy_with(
            send_periodically_policy=actions.SendPeriodicallyPolicy(period=Duration(nanos=1000))
        ),
        "spec.policy.period",
    ),
    (
        policy_with(send_cron_policy=actions.SendCronPolicy(expression="* *")),
        "spec.policy.expression",
    ),
    (retrying(max_retries=2**40), "spec.retry.max"),
    (retrying(restart_period_scale=float("nan")), "spec.retry.scale"),
    (retrying(restart_period_back_off=float("inf")), "spec.retry.back_off"),
    (retrying(min_restart_period=Duration()), "spec.retry.min_period"),
    (mock_with(answer="a\x00"), "spec.action.mock.answer"),
    (mock_with(fail=-5), "spec.action.fail"),
    (http_with(url=""), "spec.action"),
    (http_with(url="file:///etc/passwd"), "spec.action.url"),
    (http_with(headers={"host": "a"}), "spec.action.headers.host"),
    (http_with(headers={"a": "b\r\nc"}), "spec.action.headers.a"),
    (http_with(json=b"{"), "spec.action.http.json"),
    (http_with(json=b'{"a":1,"a":2}'), "spec.action.http.json"),
    (http_with(json=b"[" * 60_000), "spec.action.http.json"),
    (http_with(json=b"NaN"), "spec.action.http.json"),
    (http_with(json=b'"\\ud800"'), "spec.action.http.json"),
    (http_with(json=b"1" * 5000), "spec.action.http.json"),
    (http_with(json=b'"' + b"x" * 70_000 + b'"'), "spec.action.http.json"),
    (http_with(json=b"1", body="2"), "spec.action.body"),
    (http_with(success=[10**17]), "spec.action.success"),
]


@pytest.mark.parametrize(("spec", "path"), BAD_SPECS)
async def test_a_bad_spec_is_refused_with_its_field(
    served: Served, spec: actions.Spec, path: str
) -> None:
    """The same rules as for JSON, and nothing is stored."""
    found = await refusal_of(served.stub.Create(pb.CreateRequest(id="a", spec=spec)))
    assert grpc.StatusCode.INVALID_ARGUMENT == found.code
    assert ("invalid_spec", path) == (found.problem.code, found.problem.fields["path"])
    missing = await refusal_of(served.stub.Get(pb.GetRequest(id="a")))
    assert "not_found" == missing.problem.code


@pytest.mark.parametrize(
    ("name", "request_"),
    [
        ("Create", pb.CreateRequest(id="a")),
        ("Create", pb.CreateRequest(id="", spec=spec_of())),
        ("Create", pb.CreateRequest(id="a/b", spec=spec_of())),
        ("Create", pb.CreateRequest(id="a", spec=spec_of(), idempotency_key="")),
        ("Replace", pb.ReplaceRequest(spec=spec_of())),
        ("Replace", pb.ReplaceRequest(id="a", spec=spec_of(), if_match="x")),
        ("Get", pb.GetRequest()),
        ("List", pb.ListRequest(limit=0)),
        ("List", pb.ListRequest(limit=2**40)),
        ("List", pb.ListRequest(after="?")),
        ("List", pb.ListRequest(queue="\x00")),
        ("List", pb.ListRequest(states=[0])),  # type: ignore[list-item]
        ("List", pb.ListRequest(states=[99])),  # type: ignore[list-item]
        ("List", pb.ListRequest(due_before=Timestamp(seconds=2**62))),
        ("Attempts", pb.AttemptsRequest(id="a", limit=-1)),
    ],
)
async def test_a_bad_request_is_an_invalid_argument(
    served: Served, name: str, request_: Message
) -> None:
    """Never INTERNAL."""
    found = await refusal_of(getattr(served.stub, name)(request_))
    assert grpc.StatusCode.INVALID_ARGUMENT == found.code
    assert found.problem.code.startswith("invalid_")


@pytest.mark.parametrize(
    "raw",
    [
        b"\xff",
        b"\x0a\xff\xff\xff\xff\x07",  # a length of 2^31 - 1
        b"\x0a\x02\xff\xfe",  # an id that is not UTF-8
        b"\x0b" * 200,  # groups in groups
        b"\x12\x03\x1a\x01\x0a",  # a message that ends in its midst
    ],
)
async def test_what_is_no_message_is_an_invalid_argument(served: Served, raw: bytes) -> None:
    """The caller's fault is not called ours."""
    found = Refusal(await raw_refusal(served, "Create", raw))
    assert (grpc.StatusCode.INVALID_ARGUMENT, "invalid_request") == (found.code, found.problem.code)


async def test_an_unknown_field_is_refused(served: Served) -> None:
    """At any depth: what a newer caller means by it would be silently dropped."""
    spec = spec_of().SerializeToString() + b"\xf8\x07\x01"  # field 127 of the spec
    raw = b"\x0a\x01a\x12" + bytes([len(spec)]) + spec
    found = Refusal(await raw_refusal(served, "Create", raw))
    assert (grpc.StatusCode.INVALID_ARGUMENT, "unknown_field") == (found.code, found.problem.code)
    assert ("spec.127", "spec.127: there is no such field") == (
        found.problem.fields["path"],
        found.detail,
    )
    bulk = b"\x0a" + bytes([len(raw)]) + raw
    found = Refusal(await raw_refusal(served, "CreateMany", bulk))
    assert "actions.spec.127" == found.problem.fields["path"]


async def test_too_large_a_message_is_refused(served: Served) -> None:
    """Before it is read as a message."""
    error = await raw_refusal(served, "Create", b"\x0a" * (MESSAGE_BYTES_MAX + 1))
    assert grpc.StatusCode.RESOURCE_EXHAUSTED == error.code()
    await served.create("a")


async def test_packed_messages_are_refused(served: Served) -> None:
    """A bomb stays packed."""
    message = pb.GetRequest(id="a" * 10_000).SerializeToString()
    error = await raw_refusal(served, "Get", message, compression=grpc.Compression.Gzip)
    assert grpc.StatusCode.UNIMPLEMENTED == error.code()


async def test_there_is_no_reflection(served: Served) -> None:
    """Nor any other service."""
    for name in ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"):
        call: Any = served.channel.stream_stream(f"/{name}/ServerReflectionInfo")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            _ = [answer async for answer in call(iter([b""]))]
        assert grpc.StatusCode.UNIMPLEMENTED == caught.value.code()


@pytest.mark.parametrize(
    "error",
    [
        Exhausted("actions", value=5, retry_after_s=2.0),
        Unavailable("later"),
        StoreUnavailable("no database"),
        NotSupported("x", engine="sqlite"),
        SchemaMismatch(found=1, expected=2),
        IdentityMismatch("a copy"),
    ],
)
async def test_errors_of_the_scheduler_are_told(
    served: Served, monkeypatch: pytest.MonkeyPatch, error: GnomonError
) -> None:
    """Each has the status of the table and says what it says; patience is asked for."""
    fail_get(served, monkeypatch, error)
    found = await refusal_of(served.stub.Get(pb.GetRequest(id="a")))
    assert TABLE[error.code].grpc == found.code.name
    assert (error.code, str(error)) == (found.problem.code, found.problem.detail)
    wait_s = getattr(error, "retry_after_s", None)
    assert found.pushback == (None if wait_s is None else str(round(wait_s * 1000)))


@pytest.mark.parametrize(
    "error", [ValueError("canary"), BugError("canary"), ConfigurationError("canary", "x")]
)
async def test_slips_are_internal_without_detail(
    served: Served, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Logged whole under an id; the answer has the id and nothing else."""
    fail_get(served, monkeypatch, error)
    found = await refusal_of(served.stub.Get(pb.GetRequest(id="a")))
    assert (grpc.StatusCode.INTERNAL, "internal") == (found.code, found.problem.code)
    assert "canary" not in str(found.problem) + found.detail
    ((name, fields),) = served.recorder.events
    assert "request_failed" == name
    assert found.problem.fields["request_id"] == fields["request_id"]
    assert error is fields["exc_info"]


def fail_get(served: Served, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    async def get(id: str) -> None:
        raise error

    monkeypatch.setattr(served.app.scheduler, "get", get)
