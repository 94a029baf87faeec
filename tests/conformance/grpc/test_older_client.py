"""A client made from an older protocol: it knows less than the server, and works."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from tests.conformance.grpc.conftest import Served

BASELINE = Path(__file__).parents[3] / "proto" / "baseline.binpb"
# What a client of former times would not have known; here to have a difference from today's.
UNKNOWN_TO_IT = {
    "Spec": {"labels", "queue", "priority", "catch_up", "jitter"},
    "Status": {"occurrence_at", "expires_at", "occurrence_failures_counter", "reason"},
    "Action": {"python", "grpc"},
    "Changed": {"durability", "in_flight"},
}


def promised() -> FileDescriptorSet:
    return FileDescriptorSet.FromString(BASELINE.read_bytes())


def older() -> FileDescriptorSet:
    files = promised()
    for file in files.file:
        for message in file.message_type:
            forget(message, UNKNOWN_TO_IT.get(message.name, set()))
    return files


def forget(message: DescriptorProto, names: set[str]) -> None:
    kept = [field for field in message.field if field.name not in names]
    real = {field.oneof_index for field in kept if field.HasField("oneof_index")}
    order = sorted(real)
    for field in kept:
        if field.HasField("oneof_index"):
            field.oneof_index = order.index(field.oneof_index)
    oneofs = [message.oneof_decl[index] for index in order]
    del message.field[:]
    message.field.extend(kept)
    del message.oneof_decl[:]
    message.oneof_decl.extend(oneofs)


class OlderClient:
    """Messages out of a descriptor set, in a pool of their own, and calls by name."""

    def __init__(self, files: FileDescriptorSet, served: Served) -> None:
        self._pool = DescriptorPool()
        for file in files.file:
            self._pool.Add(file)
        self._channel = served.channel

    def message(self, name: str) -> Any:
        return GetMessageClass(self._pool.FindMessageTypeByName(f"gnomon.v1.{name}"))

    def rpc(self, name: str, *, streaming: bool = False) -> Any:
        kind = self._channel.unary_stream if streaming else self._channel.unary_unary
        return kind(
            f"/gnomon.v1.SchedulerService/{name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=self.message(f"{name}Response").FromString,
        )


@pytest.mark.parametrize("protocol", [promised, older])
async def test_an_older_client_still_works(
    served: Served, protocol: Callable[[], FileDescriptorSet]
) -> None:
    """Create, look, list, change and watch, with what it knows; what it does not know is passed
    over."""
    client = OlderClient(protocol(), served)
    spec = client.message("Spec")()
    spec.action.mock.answer = "hello"
    spec.start_policy.start_at.FromJsonString("2100-01-01T00:00:00Z")
    spec.send_policy.send_periodically_policy.period.FromSeconds(60)
    request = client.message("CreateRequest")(id="a", spec=spec)
    created = await client.rpc("Create")(request)
    assert "a" == created.changed.action.meta.id
    assert "hello" == created.changed.action.spec.action.mock.answer
    shown = await client.rpc("Get")(client.message("GetRequest")(id="a"))
    assert 60 == shown.action.spec.send_policy.send_periodically_policy.period.seconds
    await client.rpc("Pause")(
        client.message("PauseRequest")(id="a", if_match=shown.action.meta.guid)
    )
    page = await client.rpc("List")(client.message("ListRequest")())
    assert [2] == [action.status.state for action in page.actions]
    await client.rpc("Delete")(client.message("DeleteRequest")(id="a"))
    watched = client.rpc("Watch", streaming=True)(client.message("WatchRequest")(id="a"))
    assert [5] == [answer.action.status.state async for answer in watched]


def test_the_older_protocol_is_older() -> None:
    """The test above would say nothing, were both the same."""
    assert promised() != older()
