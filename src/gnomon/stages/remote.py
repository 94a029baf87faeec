"""A stage that another service is: `gnomon.v1.StageService`, called in batches.

That the service is away is nobody's failure. What it is, it says itself, at the start, when it has
been away, and every half minute: until it has, every change of an entity is kept for it, and
nothing is called.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar, Unpack

import grpc
from google.protobuf.internal import api_implementation
from google.protobuf.message import DecodeError, Message

from gnomon.channels import Endpoint, is_too_large, open_channel, pushback_of
from gnomon.clock import wait_set
from gnomon.contracts.observer import Observer
from gnomon.contracts.store.batches import bytes_of
from gnomon.contracts.store.outbox import OutboxRow
from gnomon.model.errors import BugError, ConfigurationError
from gnomon.model.ids import NAME_PATTERN
from gnomon.model.outcome import cut
from gnomon.model.secret import Secret, hide
from gnomon.model.stage.graph import Reach
from gnomon.model.stage.paths import normal, outside
from gnomon.stages.bound_stage import Answer, OutageError, StageInput
from gnomon.stages.stage import Wake
from gnomon.stages.stage_info import BATCH_MAX, DEBOUNCE_MAX, StageInfo, StageOptions, make_info
from gnomon.stages.wire import (
    RemoteError,
    read_answers,
    read_duration,
    read_outcomes,
    read_refusals,
    write_item,
    write_saved,
)
from gnomon.v1 import stage_pb2 as pb

SERVICE = "/gnomon.v1.StageService/"
ASK_TIMEOUT_S = 1.0
DESCRIBE_TIMEOUT_S = 5.0
DEADLINE_DEFAULT = timedelta(seconds=30)
DESCRIBE_EVERY_S = 30.0
DESCRIBE_AGAIN_S = 1.0  # while it is not known, or refused
PATHS_MAX = 1_000
REQUEST_BYTES_MAX = 3 * 1024 * 1024  # below the 4 MiB that services take unless told otherwise
ANSWER_BYTES_MAX = 16 * 1024 * 1024
ENVELOPE_BYTES = 2_000  # about what an item has besides document and state
DETAIL_CHARS_MAX = 500
AFTER_MAX = timedelta(minutes=5)

# The service, the way to it, or who we are to it: no fault of the entities.
_OUTAGES = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
    }
)

_CONNECTION_OPTIONS = ("tls", "ca_file", "certificate_file", "key_file", "authority", "token")

R = TypeVar("R", bound=Message)
T = TypeVar("T")


class RemoteOptions(StageOptions, total=False):
    """How a remote stage is reached (see `channels.Endpoint`), and the options of any stage."""

    tls: bool
    ca_file: str | None
    certificate_file: str | None
    key_file: str | None
    authority: str | None
    token: Secret | None


class StageEndpoint(Endpoint):
    """A service that implements `gnomon.v1.StageService`."""

    @property
    def path(self) -> str:
        return f"stage {self.name}"


class GrpcStage:
    """A stage that another service is. Errors: ConfigurationError."""

    asks_here = False

    def __init__(
        self,
        kind: str,
        name: str,
        address: str,
        *,
        deadline_max: timedelta = timedelta(minutes=5),
        **options: Unpack[RemoteOptions],
    ) -> None:
        if api_implementation.Type() != "upb":
            raise ConfigurationError(
                "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "must not choose another parser than upb"
            )
        given: dict[str, Any] = dict(options)
        connection = {key: given.pop(key) for key in _CONNECTION_OPTIONS if key in given}
        endpoint = self._endpoint = StageEndpoint(name=name, address=address, **connection)
        if not NAME_PATTERN.fullmatch(name):
            endpoint.refuse("name", "must be 1 to 64 characters out of A-Z a-z 0-9 . _ -")
        self._debounces_as_given = "debounce" in given
        # Before it has described itself, it may watch everything.
        self.info = make_info(name, Reach(kind, (), ()), {"revision": 0, **given})
        # Read now: a file that is missing should be known at the start, not at the first call.
        self._credentials = endpoint.credentials()
        self._deadline_max = deadline_max
        self._deadline_s = min(DEADLINE_DEFAULT, deadline_max).total_seconds()
        self._can_ask = False
        self._refused: str | None = None  # why its description is not believed
        self._told: str | None = None  # the last trouble that was told
        self._is_lost = False  # it did not even describe itself
        self._was_away = asyncio.Event()  # it may come back as another one
        self._channel: grpc.aio.Channel | None = None

    def __repr__(self) -> str:
        return f"RemoteStage({self.info.name!r}, {self._endpoint.address!r})"

    async def close(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    # -- what it is -------------------------------------------------------------------------------

    async def keep_described(self, observer: Observer, changed: Callable[[str], None]) -> None:
        while True:
            if await self.describe(observer):
                changed(self.info.name)
            if self.info.revision and self._refused is None:
                await wait_set(self._was_away, DESCRIBE_EVERY_S)
            await asyncio.sleep(DESCRIBE_AGAIN_S)

    async def describe(self, observer: Observer) -> bool:
        """Let it describe itself; True if it is another one than before, or there again."""
        request = pb.DescribeRequest(stage=self.info.name)
        try:
            told = await self._call("Describe", request, pb.DescribeResponse, DESCRIBE_TIMEOUT_S)
        except (OutageError, RemoteError) as exc:
            self._is_lost = True
            self._tell(observer, "stage_undescribed", str(exc))
            return False
        try:
            info = self._described(told)
        except ConfigurationError as exc:
            self._refused = exc.problem
            self._tell(observer, "stage_refused", str(exc))
            return False
        is_new = info != self.info or self._refused is not None or self._is_lost
        self._can_ask = pb.STAGE_CAPABILITY_SHOULD_PROCESS in told.capabilities
        deadline = read_duration(told.deadline) if told.HasField("deadline") else DEADLINE_DEFAULT
        self._deadline_s = min(deadline or DEADLINE_DEFAULT, self._deadline_max).total_seconds()
        self.info, self._refused, self._told, self._is_lost = info, None, None, False
        self._was_away.clear()
        return is_new

    def _tell(self, observer: Observer, event: str, problem: str) -> None:
        """Once, not every second."""
        if problem != self._told:
            self._told = problem
            observer.event(event, stage=self.info.name, problem=problem)

    def _described(self, told: pb.DescribeResponse) -> StageInfo:
        """Errors: ConfigurationError, when it cannot be the stage that we mean."""
        if told.name != self.info.name:
            self._endpoint.refuse("name", f"the service is stage {told.name[:64]!r}")
        kind = self.info.reach.kind
        if told.kind != kind:
            self._endpoint.refuse(
                "kind", f"the service looks after the kind {told.kind[:64]!r}, not {kind!r}"
            )
        if not 1 <= told.revision <= 2**31 - 1:
            self._endpoint.refuse("revision", "must be at least 1")
        if len(told.watch) + len(told.writes) > PATHS_MAX:
            self._endpoint.refuse("watch", f"more than {PATHS_MAX} paths")
        reach = Reach(kind, tuple(map(normal, told.watch)), tuple(map(normal, told.writes)))
        lost = outside(self.info.reach.writes, reach.writes)
        if lost:
            # Nobody would look after these fields any more, and nothing would tell.
            self._endpoint.refuse("writes", f"it does not write {', '.join(lost[:5])} any more")
        debounce = self.info.debounce
        if not self._debounces_as_given:
            debounce = min(read_duration(told.debounce), DEBOUNCE_MAX)
        return replace(
            self.info,
            reach=reach,
            revision=told.revision,
            batch=max(1, min(told.max_batch, BATCH_MAX)),
            debounce=debounce,
            wants_saves=pb.STAGE_CAPABILITY_AFTER_SAVE in told.capabilities,
        )

    # -- calls ------------------------------------------------------------------------------------

    def ask(self, view: StageInput) -> bool | Wake:
        raise BugError(f"stage {self.info.name} is elsewhere: ask many (entity {view.entity.key})")

    async def ask_many(self, views: Sequence[StageInput]) -> Sequence[bool | Wake | Exception]:
        """Errors: OutageError, when it is away. That it is slow is a failure to answer."""
        if not self._can_ask:
            return [True] * len(views)
        answers: list[bool | Wake | Exception] = []
        for some in self._in_calls(views, self._view_bytes):
            request = pb.ShouldProcessRequest(
                stage=self.info.name,
                revision=self.info.revision,
                items=[write_item(view, self.info.name) for view in some],
            )
            try:
                told = await self._call(
                    "ShouldProcess", request, pb.ShouldProcessResponse, ASK_TIMEOUT_S
                )
                answers += read_answers(told, len(some))
            except RemoteError as exc:
                answers += [exc] * len(some)
            except OutageError as exc:
                if not isinstance(exc, SlowError):
                    raise
                answers += [exc] * len(some)
        return answers

    async def process(self, views: Sequence[StageInput]) -> Sequence[Answer]:
        answers: list[Answer] = []
        for some in self._in_calls(views, self._view_bytes):
            revision = self.info.revision
            request = pb.ProcessRequest(
                stage=self.info.name,
                revision=revision,
                items=[write_item(view, self.info.name) for view in some],
            )
            told = await self._call("Process", request, pb.ProcessResponse, self._deadline_s)
            answers += read_outcomes(told, some, revision=revision)
        return answers

    async def after_save(self, rows: Sequence[OutboxRow]) -> Sequence[Exception | None]:
        """What was not accepted comes again. Errors: OutageError."""
        answers: dict[str, Exception | None] = {}
        otherwise: Exception = RemoteError("not accepted")
        for some in self._in_calls(rows, _row_bytes):
            request = pb.AfterSaveRequest(stage=self.info.name, saved=map(write_saved, some))
            try:
                told = await self._call(
                    "AfterSave", request, pb.AfterSaveResponse, self._deadline_s
                )
            except RemoteError as exc:
                otherwise = exc
            else:
                answers |= read_refusals(told) | dict.fromkeys(told.accepted)
        return [answers.get(row.key, otherwise) for row in rows]

    def _in_calls(self, items: Sequence[T], size_of: Callable[[T], int]) -> Iterator[list[T]]:
        """Cut into what one call may carry, by number and by bytes. Errors: OutageError."""
        if self._refused is not None:
            raise OutageError(f"its description was refused: {self._refused}")
        if not self.info.revision:
            raise OutageError("it has not described itself yet")
        some: list[T] = []
        size = 0
        for item in items:
            more = size_of(item)
            if some and (len(some) >= self.info.batch or size + more > REQUEST_BYTES_MAX):
                yield some
                some, size = [], 0
            some.append(item)
            size += more
        if some:
            yield some

    def _view_bytes(self, view: StageInput) -> int:
        state = view.states.get(self.info.name)
        return (
            bytes_of(view.loaded.text) + (0 if state is None else len(state.body)) + ENVELOPE_BYTES
        )

    async def _call(self, method: str, request: Message, kind: type[R], timeout_s: float) -> R:
        """One call. Errors: OutageError, RemoteError."""
        if self._channel is None:
            self._channel = open_channel(
                self._endpoint, self._credentials, answer_bytes_max=ANSWER_BYTES_MAX
            )
        token = self._endpoint.token
        metadata = () if token is None else (("authorization", f"Bearer {token.reveal()}"),)
        # Neither serializer nor deserializer: bytes go and bytes come.
        call: Any = self._channel.unary_unary(SERVICE + method)
        try:
            raw: bytes = await call(
                request.SerializeToString(), timeout=timeout_s, metadata=metadata,
                wait_for_ready=False,
            )  # fmt: skip
            return kind.FromString(raw)
        except grpc.aio.AioRpcError as exc:
            raise self._error_of(exc, method) from None
        except DecodeError:
            raise RemoteError(f"{method} answered what is no {kind.DESCRIPTOR.name}") from None

    def _error_of(self, exc: grpc.aio.AioRpcError, method: str) -> Exception:
        said = exc.details() or ""
        if self._endpoint.token is not None:
            said = hide(said, self._endpoint.token)
        said = cut(said, DETAIL_CHARS_MAX)
        problem = f"{method} answered {exc.code().name}: {said}"
        if is_too_large(exc) or exc.code() not in _OUTAGES:
            return RemoteError(problem)
        self._was_away.set()
        wanted = pushback_of(exc)
        after = None if wanted is None else min(wanted, AFTER_MAX)
        if exc.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return SlowError(problem, after=after)
        return OutageError(problem, after=after)


class SlowError(OutageError):
    """It did not answer in time."""


def _row_bytes(row: OutboxRow) -> int:
    return row.size + ENVELOPE_BYTES
