"""A stage of this process for a Gnomon elsewhere: `gnomon.v1.StageService` over a `Stage`.

Without TLS it answers its own machine only, unless it is told that it may do more.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from gnomon.extras import require

try:
    import grpc
except ModuleNotFoundError:
    require("grpc")
    raise

from gnomon.clock import SystemClock
from gnomon.contracts.clock import Clock
from gnomon.model.attempt_boundary import AttemptBoundary
from gnomon.model.errors import ConfigurationError
from gnomon.model.ids import entity_kind
from gnomon.model.secret import Secret
from gnomon.stages.bound_stage import LocalStage, OutageError
from gnomon.stages.stage import Stage
from gnomon.stages.wire import (
    read_item,
    read_saved,
    write_answer,
    write_duration,
    write_outcome,
    write_refusal,
)
from gnomon.v1 import stage_pb2 as pb

SERVICE = "gnomon.v1.StageService"
REQUEST_BYTES_MAX = 16 * 1024 * 1024
GRACEFUL_S = 10.0
DETAIL_CHARS_MAX = 500

Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageServerOptions:
    """Who may call, and how long a call may take."""

    deadline: timedelta = timedelta(seconds=30)
    certificate_file: str | None = None  # with its chain
    key_file: str | None = None
    client_ca_file: str | None = None  # callers must have a certificate of this authority
    token: Secret | None = None  # callers must send it as `authorization: Bearer …`
    allow_plain: bool = False  # others may call without TLS: a proxy in front speaks it

    def __post_init__(self) -> None:
        if (self.certificate_file is None) != (self.key_file is None):
            raise ConfigurationError("key_file", "certificate and key go together")
        if self.client_ca_file is not None and self.certificate_file is None:
            raise ConfigurationError("client_ca_file", "needs certificate_file and key_file")

    def credentials(self) -> grpc.ServerCredentials | None:
        """None without TLS."""
        if self.certificate_file is None or self.key_file is None:
            return None
        authority = None if self.client_ca_file is None else _read(self.client_ca_file)
        return grpc.ssl_server_credentials(
            [(_read(self.key_file), _read(self.certificate_file))],
            root_certificates=authority,
            require_client_auth=authority is not None,
        )


class StageServer:
    """Serves one stage. Made inside a running event loop; `address` has the port that it took."""

    def __init__(
        self,
        kind: str,
        stage: Stage[Any, Any],
        address: str,
        *,
        entity: Any = None,
        options: StageServerOptions | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._options = options or StageServerOptions()
        self._clock = clock or SystemClock()
        self._stage = LocalStage(entity_kind(kind), stage, entity)
        self._server = grpc.aio.server(
            options=(
                ("grpc.so_reuseport", 0),  # a port that is taken is an error
                ("grpc.max_receive_message_length", REQUEST_BYTES_MAX),
            )
        )
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, self._handlers()),)
        )
        self.address = self._listen(address)

    def __repr__(self) -> str:
        return f"StageServer({self._stage.info.name!r}, {self.address!r})"

    async def start(self) -> None:
        """Begin to answer."""
        await self._server.start()

    async def stop(self) -> None:
        """Let calls under way end, for a while."""
        await self._server.stop(GRACEFUL_S)

    def _listen(self, address: str) -> str:
        credentials = self._options.credentials()
        if credentials is None and not self._options.allow_plain and not _is_loopback(address):
            raise ConfigurationError(
                "address",
                f"{address!r} is not a loopback address: give certificate_file and key_file, or "
                "allow_plain behind a proxy that speaks TLS",
            )
        try:
            if credentials is None:
                port = self._server.add_insecure_port(address)
            else:
                port = self._server.add_secure_port(address, credentials)
        except RuntimeError:
            raise ConfigurationError("address", f"cannot listen on {address!r}") from None
        return f"{address.rpartition(':')[0]}:{port}"

    # -- the rpcs ---------------------------------------------------------------------------------

    def _handlers(self) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        return {
            "Describe": self._handler(pb.DescribeRequest, self._describe),
            "ShouldProcess": self._handler(pb.ShouldProcessRequest, self._should_process),
            "Process": self._handler(pb.ProcessRequest, self._process),
            "AfterSave": self._handler(pb.AfterSaveRequest, self._after_save),
        }

    def _handler(
        self, kind: type[Any], answer: Callable[[Any], Awaitable[Any]]
    ) -> grpc.RpcMethodHandler[Any, Any]:
        async def handle(request: Any, context: Context) -> Any:
            await self._check(request.stage, context)
            with AttemptBoundary(Exception) as attempt:
                return await answer(request)
            error = attempt.failure
            if isinstance(error, OutageError):
                await context.abort(grpc.StatusCode.UNAVAILABLE, str(error)[:DETAIL_CHARS_MAX])
            said = f"{type(error).__name__}: {error}"[:DETAIL_CHARS_MAX]
            return await context.abort(grpc.StatusCode.UNKNOWN, said)

        return grpc.unary_unary_rpc_method_handler(
            handle,
            request_deserializer=kind.FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )

    async def _check(self, stage: str, context: Context) -> None:
        token = self._options.token
        if token is not None:
            sent = [value for name, value in context.invocation_metadata() or ()
                    if name == "authorization"]  # fmt: skip
            wanted = f"Bearer {token.reveal()}".encode()
            if len(sent) != 1 or not hmac.compare_digest(str(sent[0]).encode(), wanted):
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, "a valid token is needed")
        if stage != self._stage.info.name:
            said = f"this is stage {self._stage.info.name}"
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, said)

    async def _describe(self, _request: pb.DescribeRequest) -> pb.DescribeResponse:
        info = self._stage.info
        can = [pb.STAGE_CAPABILITY_SHOULD_PROCESS] if self._stage.has_ask else []
        if info.wants_saves:
            can.append(pb.STAGE_CAPABILITY_AFTER_SAVE)
        return pb.DescribeResponse(
            name=info.name,
            kind=info.reach.kind,
            revision=info.revision,
            watch=info.reach.watch,
            writes=[path or "*" for path in info.reach.writes],
            max_batch=info.batch,
            deadline=write_duration(self._options.deadline),
            capabilities=can,
            debounce=write_duration(info.debounce) if info.debounce else None,
        )

    async def _should_process(self, request: pb.ShouldProcessRequest) -> pb.ShouldProcessResponse:
        views = [read_item(item, self._stage.info.name) for item in request.items]
        answers = await self._stage.ask_many(views)
        return pb.ShouldProcessResponse(answers=map(write_answer, answers))

    async def _process(self, request: pb.ProcessRequest) -> pb.ProcessResponse:
        views = [read_item(item, self._stage.info.name) for item in request.items]
        answers = await self._stage.process(views)
        return pb.ProcessResponse(outcomes=map(write_outcome, views, answers))

    async def _after_save(self, request: pb.AfterSaveRequest) -> pb.AfterSaveResponse:
        now = self._clock.now()
        rows = [read_saved(saved, self._stage.info.name, now=now) for saved in request.saved]
        answers = await self._stage.after_save(rows)
        told = list(zip((row.key for row in rows), answers, strict=True))
        return pb.AfterSaveResponse(
            accepted=[key for key, answer in told if answer is None],
            refused=[write_refusal(key, answer) for key, answer in told if answer is not None],
        )


async def serve_stage(
    kind: str,
    stage: Stage[Any, Any],
    address: str,
    *,
    stop: asyncio.Event,
    entity: Any = None,
    options: StageServerOptions | None = None,
) -> None:
    """Be a stage over entities of a kind, for others, at `host:port` until `stop` is set.

    Errors: ConfigurationError, InvalidSpec.
    """
    server = StageServer(kind, stage, address, entity=entity, options=options)
    await server.start()
    try:
        await stop.wait()
    finally:
        await server.stop()


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _read(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as exc:
        raise ConfigurationError(file, f"cannot be read: {exc.strerror}") from None
