"""The boundary of the gRPC gateway: bytes become messages, callers are known, errors are told."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

import grpc
import msgspec
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

from gnomon.channels import PUSHBACK_KEY
from gnomon.contracts.observer import Observer
from gnomon.contracts.store import Actor
from gnomon.contracts.traces import Tracing
from gnomon.gateways.auth import OPERATE, READ, WRITE, Authorizer, Principal, bearer_token
from gnomon.gateways.boundary import Boundary, RefusedError
from gnomon.gateways.errors import row_of
from gnomon.gateways.grpc.conversion import write_problem
from gnomon.gateways.redaction import WHOLE, Sight
from gnomon.model.errors import InvalidRequest, UnknownField
from gnomon.v1 import entity_pb2, scheduler_pb2

SERVICE = scheduler_pb2.DESCRIPTOR.services_by_name["SchedulerService"]
ENTITY_SERVICE = entity_pb2.DESCRIPTOR.services_by_name["EntityService"]
STATE_SERVICE = entity_pb2.DESCRIPTOR.services_by_name["StateService"]
SCOPES = {
    **dict.fromkeys(("Get", "List", "Attempts", "Watch", "ListLimits"), READ),
    **dict.fromkeys(("GetEntity", "ListEntities", "ExplainEntity"), READ),
    **dict.fromkeys(("ListParked", "ListStages", "Read"), READ),
    **dict.fromkeys(("SetLimit", "DropLimit", "ForgetStage"), OPERATE),
}  # the other rpcs write
PROBLEM_KEY = "gnomon-problem-bin"

M = TypeVar("M", bound=Message)
Context = grpc.aio.ServicerContext[Any, Any]


# -- callers --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, and with which token."""

    principal: Principal
    token: str | None = field(repr=False)
    sight: Sight = WHOLE  # how he sees actions

    @property
    def name(self) -> str:
        return self.principal.name


# -- messages --------------------------------------------------------------------------------------


def parse(kind: type[M], raw: bytes) -> M:
    """A message out of bytes. Errors: InvalidRequest, UnknownField."""
    message = kind()
    try:
        message.ParseFromString(raw)
    except DecodeError:
        raise InvalidRequest(f"the request is not a {kind.DESCRIPTOR.full_name}") from None
    size = message.ByteSize()
    message.DiscardUnknownFields()
    if message.ByteSize() != size:
        # To ignore it could mean to drop a deadline: rather let the caller know.
        raise UnknownField(next(_unknown(kind.FromString(raw)), "request"))
    return message


def _unknown(message: Message, path: str = "") -> Iterator[str]:
    """Where the fields are that this server does not know; they have but a number."""
    unknown: Any = UnknownFieldSet(message)  # a sequence, which its types do not say
    yield from (f"{path}{number.field_number}" for number in unknown)
    for known, value in message.ListFields():
        if known.message_type is None or known.message_type.GetOptions().map_entry:
            continue  # no message below it: our maps are of texts
        for part in value if known.is_repeated else (value,):
            yield from _unknown(part, f"{path}{known.name}.")


async def _see_all(_principal: Principal) -> Sight:
    return WHOLE


# -- the boundary ---------------------------------------------------------------------------------


class ServiceBoundary:
    """Every rpc of a service, over the methods of `rpcs` that are named as the rpcs are.

    Every exception leaves as a status and a problem.
    """

    def __init__(
        self,
        rpcs: object,
        authorizer: Authorizer,
        observer: Observer,
        service: ServiceDescriptor = SERVICE,
        tracing: Tracing | None = None,
        *,
        sight: Callable[[Principal], Awaitable[Sight]] = _see_all,
    ) -> None:
        self._sight = sight
        self._tracing = tracing
        self._rpcs = rpcs
        self._service = service
        self._authorizer = authorizer
        self._boundary = Boundary(observer)

    def handlers(self) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        """For the server: every rpc of the service, by name."""
        return {method.name: self._handler(method) for method in self._service.methods}

    def _handler(self, method: MethodDescriptor) -> grpc.RpcMethodHandler[Any, Any]:
        verb = getattr(self._rpcs, _snake(method.name))
        # No deserializer: gRPC would call a broken message our fault and tell nothing.
        if method.server_streaming:
            return grpc.unary_stream_rpc_method_handler(
                self._streaming(method, verb), response_serializer=_serialize
            )
        return grpc.unary_unary_rpc_method_handler(
            self._unary(method, verb), response_serializer=_serialize
        )

    def _unary(
        self, method: MethodDescriptor, verb: Callable[[Message, Caller], Awaitable[Message]]
    ) -> Any:
        async def answer(raw: bytes, context: Context) -> Message:
            try:
                with self._boundary.guarding("gRPC", method.full_name):
                    caller = await self._caller(method, context)
                    with self._traced(context):
                        return await verb(_parsed(method, raw), caller)
            except RefusedError as refused:
                await _abort(context, refused)

        return answer

    def _streaming(
        self, method: MethodDescriptor, verb: Callable[[Message, Caller], AsyncIterator[Message]]
    ) -> Any:
        async def answer(raw: bytes, context: Context) -> AsyncIterator[Message]:
            try:
                with self._boundary.guarding("gRPC", method.full_name):
                    caller = await self._caller(method, context)
                    async for message in verb(_parsed(method, raw), caller):
                        yield message
            except RefusedError as refused:
                await _abort(context, refused)

        return answer

    def _traced(self, context: Context) -> AbstractContextManager[None]:
        """What is done within belongs to the caller's trace."""
        if self._tracing is None:
            return nullcontext()
        metadata: Iterable[tuple[str, str | bytes]] = context.invocation_metadata() or ()
        return self._tracing.trace_request({name: str(value) for name, value in metadata})

    async def _caller(self, method: MethodDescriptor, context: Context) -> Caller:
        """Before the message is looked at: strangers learn nothing about it."""
        metadata: Iterable[tuple[str, str | bytes]] = context.invocation_metadata() or ()
        token = bearer_token([value for name, value in metadata if name == "authorization"])
        scope = SCOPES.get(method.name, WRITE)
        principal = await self._authorizer.check(token, scope)
        named = msgspec.structs.replace(principal, name=Actor(principal.name, "grpc"))
        return Caller(named, token, await self._sight(principal))


async def _abort(context: Context, refused: RefusedError) -> NoReturn:
    problem = write_problem(refused.problem)
    trailing: list[tuple[str, str | bytes]] = [(PROBLEM_KEY, problem.SerializeToString())]
    wait_s = refused.retry_after_s
    if wait_s is not None:
        trailing.append((PUSHBACK_KEY, str(round(wait_s * 1000))))
    status = grpc.StatusCode[row_of(refused.error).grpc]
    await context.abort(status, problem.detail, tuple(trailing))


def _parsed(method: MethodDescriptor, raw: bytes) -> Message:
    return parse(GetMessageClass(method.input_type), raw)


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
