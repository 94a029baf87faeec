"""Calls of `gnomon.v1.ActionHandler` as effects.

The status decides. What the handler answers is for people to see: an answer that is no
`HandleResponse` is still the answer of a handler that said OK. One order is one call: retries and
hedging of the channel are off, for nobody would have counted them, and so are proxies and settings
that a name server could hand out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import grpc
import msgspec
from google.protobuf.internal import api_implementation
from google.protobuf.message import DecodeError
from google.protobuf.timestamp_pb2 import Timestamp

from gnomon.channels import Endpoint, is_too_large, open_channel, pushback_of
from gnomon.contracts.clock import Clock
from gnomon.contracts.executor import AttemptRequest
from gnomon.contracts.observer import Observer, SilentObserver
from gnomon.executors._target import no_target, serves_target
from gnomon.model.attempt_boundary import AttemptBoundary
from gnomon.model.errors import ConfigurationError, short
from gnomon.model.ids import NAME_PATTERN, NAME_RULE
from gnomon.model.outcome import Failed, Outcome, Succeeded, cut
from gnomon.model.secret import hide
from gnomon.model.spec import Grpc
from gnomon.v1.handler_pb2 import HandleRequest, HandleResponse

METHOD = "/gnomon.v1.ActionHandler/Handle"
ANSWER_BYTES_MAX = 1024 * 1024
RETRY_AFTER_MAX = timedelta(hours=1)
DETAIL_CHARS_MAX = 200
IN_FLIGHT_MAX = 10_000

_FINAL = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.ALREADY_EXISTS,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.DATA_LOSS,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcTarget(Endpoint):
    """A service that implements `gnomon.v1.ActionHandler`."""

    # Calls under way at once; the others wait for their turn. Many services take a hundred streams
    # on a connection, those that they have answered and not closed yet among them, and break off
    # what is beyond while the connection is new.
    in_flight_max: int = 90

    def __post_init__(self) -> None:
        if not NAME_PATTERN.fullmatch(self.name):
            raise ConfigurationError(f"targets.{short(self.name)}", NAME_RULE)
        if not 1 <= self.in_flight_max <= IN_FLIGHT_MAX:
            self.refuse("in_flight_max", f"must be between 1 and {IN_FLIGHT_MAX}")
        Endpoint.__post_init__(self)


class GrpcExecutor:
    """Calls handlers."""

    def __init__(
        self,
        targets: Mapping[str, GrpcTarget],
        *,
        clock: Clock,  # noqa: ARG002 - executors with targets are all made alike
        observer: Observer | None = None,
    ) -> None:
        if api_implementation.Type() != "upb":
            raise ConfigurationError(
                "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "must not choose another parser than upb"
            )
        self._targets = targets
        # Read now: a file that is missing should be known at the start, not at the first attempt.
        self._credentials = {name: target.credentials() for name, target in targets.items()}
        self._observer = observer or SilentObserver()
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._turns = {
            name: asyncio.Semaphore(target.in_flight_max) for name, target in targets.items()
        }

    def __repr__(self) -> str:
        return f"GrpcExecutor({', '.join(sorted(self._targets))})"

    def serves(self, need: str) -> bool:
        return serves_target("grpc", self._targets, need)

    async def execute(self, order: AttemptRequest) -> Outcome:
        effect = order.effect
        assert isinstance(effect, Grpc)
        target = self._targets.get(effect.target)
        if target is None:
            return no_target("grpc", effect.target)
        with AttemptBoundary(Exception) as attempt:
            async with asyncio.timeout(order.timeout_s) as limit, self._turns[target.name]:
                return await self._call(order, effect, target, limit)
        error = attempt.failure
        if isinstance(error, TimeoutError):
            return Failed(error=f"timed out after {order.timeout_s:g} s")
        if isinstance(error, grpc.aio.AioRpcError):
            return self._refused(order, error, target)
        self._tell(order, "the call could not be made", type(error).__name__)
        return Failed(error="the call could not be made")

    async def close(self) -> None:
        channels, self._channels = self._channels, {}
        await asyncio.gather(*(channel.close() for channel in channels.values()))

    async def _call(
        self, order: AttemptRequest, effect: Grpc, target: GrpcTarget, limit: asyncio.Timeout
    ) -> Outcome:
        request = request_of(order, effect)
        metadata = [
            *order.carrier.items(),
            ("gnomon-key", order.key),
            ("gnomon-attempt-id", str(order.attempt_id)),
            ("gnomon-attempt-no", str(order.attempt_no)),
        ]
        if target.token is not None:
            metadata.append(("authorization", f"Bearer {target.token.reveal()}"))
        # Neither serializer nor deserializer: bytes go and bytes come.
        call: Any = self._channel(target).unary_unary(METHOD)
        answer: bytes = await call(
            request.SerializeToString(),
            timeout=_left_s(limit),
            metadata=tuple(metadata),
            wait_for_ready=False,
        )
        return Succeeded(answer=_answer_of(answer, target))

    def _channel(self, target: GrpcTarget) -> grpc.aio.Channel:
        channel = self._channels.get(target.name)
        if channel is None:
            channel = self._channels[target.name] = open_channel(
                target, self._credentials[target.name], answer_bytes_max=ANSWER_BYTES_MAX
            )
        return channel

    def _refused(
        self, order: AttemptRequest, exc: grpc.aio.AioRpcError, target: GrpcTarget
    ) -> Failed:
        code, said = exc.code(), exc.details() or ""
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return Failed(error=f"timed out after {order.timeout_s:g} s")
        if is_too_large(exc):
            # It was done, and would be answered in the same way again.
            return Failed(error="answer too large", retryable=False)
        error = f"answered {code.name}"
        if code is grpc.StatusCode.UNAVAILABLE:
            # Mostly the library's words, about addresses of the inner network.
            self._tell(order, error, said)
            return Failed(error=error, retry_after=_patience(exc))
        return Failed(
            error=error,
            retryable=code not in _FINAL,
            retry_after=_patience(exc),
            answer=_cut(said, target),
        )

    def _tell(self, order: AttemptRequest, error: str, detail: str) -> None:
        self._observer.event(
            "grpc.call_failed",
            id=order.id,
            attempt_id=str(order.attempt_id),
            error=error,
            detail=cut(detail, DETAIL_CHARS_MAX),
        )


def request_of(order: AttemptRequest, effect: Grpc) -> HandleRequest:
    """What the handler is told."""
    scheduled_at, deadline = Timestamp(), Timestamp()
    scheduled_at.FromDatetime(order.scheduled_at)
    deadline.FromDatetime(order.deadline)
    return HandleRequest(
        key=order.key,
        id=order.id,
        attempt_id=str(order.attempt_id),
        attempt_no=order.attempt_no,
        occurrence_no=order.occurrence_no,
        scheduled_at=scheduled_at,
        deadline=deadline,
        handler=effect.handler,
        payload=b"" if effect.payload is None else msgspec.json.encode(effect.payload),
    )


def _left_s(limit: asyncio.Timeout) -> float:
    """What is left of the attempt's time: the deadline that the handler learns."""
    when = limit.when()
    assert when is not None
    return max(0.0, when - asyncio.get_running_loop().time())


def _answer_of(raw: bytes, target: GrpcTarget) -> str | None:
    try:
        return _cut(HandleResponse.FromString(raw).answer, target)
    except DecodeError:
        return None


def _cut(said: str, target: GrpcTarget) -> str | None:
    """What was said, without the token, should the handler repeat it."""
    return cut(said if target.token is None else hide(said, target.token)) or None


def _patience(exc: grpc.aio.AioRpcError) -> timedelta | None:
    """How long the handler wants to be left alone."""
    wanted = pushback_of(exc)
    return None if wanted is None else min(wanted, RETRY_AFTER_MAX)
