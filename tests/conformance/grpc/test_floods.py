"""Messages and metadata made to hurt (design/security.md 7.4: proto, headers in gRPC metadata)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.struct_pb2 import ListValue, Struct, Value

from gnomon.gateways.grpc.service import MESSAGE_BYTES_MAX
from gnomon.v1 import action_pb2, handler_pb2, scheduler_pb2
from gnomon.v1 import scheduler_pb2 as pb
from tests.conformance.grpc.conftest import Served, spec_of
from tests.conformance.grpc.test_refusals import METHOD, Refusal, raw_refusal


def number_of(message: type[Message], field: str) -> int:
    return message.DESCRIPTOR.fields_by_name[field].number


ID, SPEC = number_of(pb.CreateRequest, "id"), number_of(pb.CreateRequest, "spec")
ACTION, LABELS = number_of(action_pb2.Spec, "action"), number_of(action_pb2.Spec, "labels")
HTTP = number_of(action_pb2.Action, "http")
SUCCESS = number_of(action_pb2.HttpCall, "success")
OPEN_GROUP, CLOSE_GROUP = 3, 4


def varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def part(number: int, content: bytes) -> bytes:
    """A field that has a length."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def tag(number: int, kind: int) -> bytes:
    return varint(number << 3 | kind)


def nested(number: int, depth: int) -> bytes:
    found = b""
    for _ in range(depth):
        found = part(number, found)
    return found


def in_spec(content: bytes) -> bytes:
    """A request to create `a` whose spec has this at its end."""
    return part(ID, b"a") + part(SPEC, spec_of().SerializeToString() + content)


def any_in_any(depth: int) -> bytes:
    found = AnyMessage()
    for _ in range(depth):
        outer = AnyMessage()
        outer.Pack(found)
        found = outer
    return found.SerializeToString()


def nested_value(depth: int) -> bytes:
    found = Value(null_value=0)  # type: ignore[arg-type]
    for _ in range(depth):
        found = Value(list_value=ListValue(values=[found]))
    return found.SerializeToString()


def http_with(content: bytes) -> bytes:
    """A spec whose call has this at its end."""
    action = part(HTTP, action_pb2.HttpCall(method="POST", url="https://a.example/")
                  .SerializeToString() + content)  # fmt: skip
    return part(ID, b"a") + part(SPEC, part(ACTION, action))


BOMBS = {
    "messages 101 deep": in_spec(nested(ACTION, 101)),
    "messages 10,000 deep": in_spec(nested(ACTION, 10_000)),
    "unknown messages 101 deep": in_spec(nested(100, 101)),
    "groups 101 deep": in_spec(tag(100, OPEN_GROUP) * 101 + tag(100, CLOSE_GROUP) * 101),
    "groups 100,000 deep": in_spec(tag(100, OPEN_GROUP) * 100_000),
    "a group that only ends": in_spec(tag(100, CLOSE_GROUP)),
    "groups in place of a message": part(ID, b"a") + tag(SPEC, OPEN_GROUP) * 1000,
    "any in any, 1,000 times": in_spec(part(100, any_in_any(1000))),
    "any in place of the action": part(ID, b"a") + part(SPEC, part(ACTION, any_in_any(10))),
    "an unknown type": in_spec(part(100, AnyMessage(type_url="x/os.system").SerializeToString())),
    "struct, 50 deep": in_spec(part(100, nested_value(50))),
    "a length of 2^31": part(ID, b"a") + tag(SPEC, 2) + varint(2**31),
    "a length of 2^31 - 1": part(ID, b"a") + tag(SPEC, 2) + varint(2**31 - 1),
    "a length of 2^63": part(ID, b"a") + tag(SPEC, 2) + varint(2**63),
    "a length of eleven bytes": part(ID, b"a") + tag(SPEC, 2) + b"\xff" * 11,
    "a field of number 0": in_spec(b"\x02\x00"),
    "a map of 50,000": in_spec(
        b"".join(part(LABELS, part(1, b"%d" % n) + part(2, b"v")) for n in range(50_000))
    ),
    "a map of one name 50,000 times": in_spec(
        part(LABELS, part(1, b"a b") + part(2, b"v")) * 50_000
    ),
    "numbers packed, 10^6": http_with(part(SUCCESS, b"\x01" * 1_000_000)),
    "numbers not packed, 400,000": http_with((tag(SUCCESS, 0) + b"\x01") * 400_000),
    "the same message 100,000 times": part(ID, b"a") + part(SPEC, b"") * 100_000,
}


@pytest.mark.parametrize("name", BOMBS)
async def test_a_bomb_is_an_invalid_argument(served: Served, name: str) -> None:
    """Never INTERNAL, in little time; nothing is stored, and the next caller is served."""
    raw = BOMBS[name]
    assert len(raw) < MESSAGE_BYTES_MAX
    async with asyncio.timeout(10):
        found = Refusal(await raw_refusal(served, "Create", raw))
    assert grpc.StatusCode.INVALID_ARGUMENT == found.code
    assert found.problem.code in ("invalid_request", "invalid_spec", "unknown_field")
    assert len(found.detail) < 1000
    assert [] == served.recorder.events, "nothing of it is a slip of ours"
    await served.create("b")
    listed = await served.stub.List(pb.ListRequest())
    assert ["b"] == [action.meta.id for action in listed.actions]


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("numbers packed, 10^6", "spec.action.http.success"),
        ("numbers not packed, 400,000", "spec.action.http.success"),
        ("a map of 50,000", "spec.labels"),
    ],
)
async def test_long_lists_are_counted_before_they_are_read(
    served: Served, name: str, path: str
) -> None:
    """A megabyte of numbers would keep everybody else waiting for half a second."""
    found = Refusal(await raw_refusal(served, "Create", BOMBS[name]))
    assert path == found.problem.fields["path"]
    assert "at most 1000 items" in found.detail


@pytest.mark.parametrize("size", [MESSAGE_BYTES_MAX + 1, 10_000_000])
async def test_what_is_too_large_is_not_even_read(served: Served, size: int) -> None:
    """10^7 packed numbers, and one byte too many."""
    raw = http_with(part(SUCCESS, b"\x01" * size))
    error = await raw_refusal(served, "Create", raw)
    assert grpc.StatusCode.RESOURCE_EXHAUSTED == error.code()
    await served.create("b")


def message_types() -> Iterator[Descriptor]:
    for file in (action_pb2, handler_pb2, scheduler_pb2):
        yield from file.DESCRIPTOR.message_types_by_name.values()


def test_the_protocol_has_nothing_without_end() -> None:
    """No Any, Struct or Value, whose parsers had holes, and no message that can hold itself."""

    def walk(message: Descriptor, above: tuple[str, ...]) -> None:
        assert message.full_name not in above, f"{message.full_name} can hold itself"
        own = message.full_name.startswith("gnomon.v1.")
        assert own or message.full_name in (
            "google.protobuf.Duration", "google.protobuf.Timestamp",
        )  # fmt: skip
        for field in message.fields:
            if field.message_type is not None:
                walk(field.message_type, (*above, message.full_name))

    found = list(message_types())
    assert len(found) > 20
    for message in found:
        walk(message, ())


def test_the_parser_bounds_depth() -> None:
    """Should the protocol ever get such a message: upb gives up at a hundred levels."""
    with pytest.raises(DecodeError):
        Struct.FromString(part(1, part(1, b"a") + part(2, nested_value(100))))


# -- metadata -------------------------------------------------------------------------------------


async def get(served: Served, *metadata: tuple[str, str | bytes]) -> Any:
    await served.create("a")
    return await served.stub.Get(pb.GetRequest(id="a"), metadata=metadata)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x-bin", bytes(range(256))),
        ("x-bin", b"\r\nauthorization: Bearer x"),
        ("authorization-bin", b"Bearer gnomon_" + b"A" * 43),
        ("gnomon-problem-bin", b"\xff" * 100),
        ("x-forwarded-for", "127.0.0.1"),
        ("x", "=cmd()"),
        ("grpc-previous-rpc-attempts", "9999999999999999999"),
    ],
)
async def test_metadata_of_callers_means_nothing(
    served: Served, name: str, value: str | bytes
) -> None:
    """But for the token: what is binary is not looked into, and is no token under another name."""
    assert "a" == (await get(served, (name, value))).action.meta.id


@pytest.mark.parametrize(
    "metadata",
    [
        tuple(("x", "a") for _ in range(10_000)),
        (("x", "a" * 1_000_000),),
        (("x-bin", b"a" * 1_000_000),),
    ],
)
async def test_too_much_metadata_is_refused(
    served: Served, metadata: tuple[tuple[str, str | bytes], ...]
) -> None:
    """10,000 entries, and one of a megabyte: the call fails, the server lives."""
    await served.create("a")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await served.stub.Get(pb.GetRequest(id="a"), metadata=metadata)
    assert caught.value.code() in (
        grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE,
    )  # fmt: skip
    assert "a" == (await served.stub.Get(pb.GetRequest(id="a"))).action.meta.id


async def test_a_length_that_lies_ends_the_call(served: Served) -> None:
    """A frame that announces 2^31 bytes is refused by its announcement."""
    call: Any = served.channel.unary_unary(METHOD + "Get", request_serializer=lambda raw: raw)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(b"\x0a" + varint(2**31 - 1) + b"a")
    assert grpc.StatusCode.INVALID_ARGUMENT == caught.value.code()
