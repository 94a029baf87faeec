"""The gRPC executor against a real server: the suite, and what is its own."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest

from gnomon.clock import SystemClock
from gnomon.contracts.observer import SilentObserver
from gnomon.executors.grpc import GrpcExecutor, GrpcTarget
from gnomon.model.errors import ConfigurationError
from gnomon.model.outcome import Failed, Outcome, Succeeded, Unserved
from gnomon.model.secret import Secret
from gnomon.model.spec import Effect, Grpc
from tests.conformance.executor.suite import ExecutorSuite, order_of
from tests.fixtures.handler import Handler, handling
from tests.fixtures.postgres import free_port

FINAL = [
    "INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "FAILED_PRECONDITION",
    "OUT_OF_RANGE", "UNIMPLEMENTED", "DATA_LOSS",
]  # fmt: skip
PASSING = [
    "UNAVAILABLE", "RESOURCE_EXHAUSTED", "ABORTED", "INTERNAL", "UNKNOWN", "CANCELLED",
    "UNAUTHENTICATED",
]  # fmt: skip


class Noting(SilentObserver):
    def __init__(self) -> None:
        self.events: list[dict[str, object]] = []

    def event(self, name: str, /, **fields: object) -> None:
        self.events.append({"name": name, **fields})


@pytest.fixture
async def handler() -> AsyncIterator[Handler]:
    async with handling() as found:
        yield found


@pytest.fixture
def noting() -> Noting:
    return Noting()


def executor_of(observer: SilentObserver | None = None, **addresses: str) -> GrpcExecutor:
    targets = {
        name: GrpcTarget(name=name, address=address, tls=False)
        for name, address in addresses.items()
    }
    return GrpcExecutor(targets, clock=SystemClock(), observer=observer)


@pytest.fixture
async def executor(handler: Handler, noting: Noting) -> AsyncIterator[GrpcExecutor]:
    found = executor_of(noting, shop=handler.address, nowhere=f"127.0.0.1:{free_port()}")
    yield found
    await found.close()


async def call(executor: GrpcExecutor, name: str, **options: Any) -> Outcome:
    return await executor.execute(order_of(Grpc(target="shop", handler=name), **options))


class GrpcStand:
    def __init__(self, handler: Handler, executor: GrpcExecutor) -> None:
        self._handler = handler
        self.executor = executor

    @property
    def sent_count(self) -> int:
        return len(self._handler.requests)

    def succeeding(self) -> Effect:
        return Grpc(target="shop", handler="ok", payload={"name": "ann"})

    def failing(self) -> Effect:
        return Grpc(target="shop", handler="UNAVAILABLE")  # what gRPC itself would send again

    def hanging(self) -> Effect:
        return Grpc(target="shop", handler="hang")

    def talkative(self) -> Effect:
        return Grpc(target="shop", handler="long")

    def broken(self) -> Sequence[Effect]:
        return [
            Grpc(target="x", handler="ok"),
            Grpc(target="", handler="ok"),
            Grpc(target="nowhere", handler="ok"),
            Grpc(target="shop", handler="\ud800"),
            Grpc(target="shop", handler="ok", payload=object()),
            Grpc(target="shop", handler="ok", payload="\ud800"),
            Grpc(target="shop", handler="raise"),
        ]


@pytest.fixture
def stand(handler: Handler, executor: GrpcExecutor) -> GrpcStand:
    return GrpcStand(handler, executor)


class TestGrpc(ExecutorSuite):
    """The common promises."""


async def test_the_handler_is_told_of_the_trace(executor: GrpcExecutor, handler: Handler) -> None:
    """In the metadata, where its own instrumentation looks for it."""
    order = order_of(Grpc(target="shop", handler="ok"))
    await executor.execute(msgspec.structs.replace(order, carrier={"traceparent": "00-a-b-01"}))
    assert "00-a-b-01" == handler.metadata[0]["traceparent"]


async def test_the_handler_learns_about_the_attempt(
    executor: GrpcExecutor, handler: Handler
) -> None:
    """Key, attempt and times are in the message; key and attempt in the metadata, too."""
    effect = Grpc(target="shop", handler="ok", payload={"b": [1, None]})
    assert Succeeded(answer="thank you") == await executor.execute(order_of(effect, attempt_no=3))
    (request,) = handler.requests
    key, attempt_id = "act_aaaaaaaaaaaaaaaaaaaaaaaaaa", "00000000-0000-0000-0000-000000000002"
    assert (key, "greet-ann", attempt_id, 3, 1) == (
        request.key,
        request.id,
        request.attempt_id,
        request.attempt_no,
        request.occurrence_no,
    )
    assert "2026-03-01T12:00:00Z" == request.scheduled_at.ToJsonString()
    assert "2026-03-01T12:00:30Z" == request.deadline.ToJsonString()
    assert ("ok", b'{"b":[1,null]}') == (request.handler, request.payload)
    sent = handler.metadata[0]
    assert (key, attempt_id, "3") == (
        sent["gnomon-key"],
        sent["gnomon-attempt-id"],
        sent["gnomon-attempt-no"],
    )
    assert sent["user-agent"].startswith("gnomon/")


async def test_no_payload_is_empty(executor: GrpcExecutor, handler: Handler) -> None:
    """Nothing is not `null`."""
    await call(executor, "ok")
    assert b"" == handler.requests[0].payload


@pytest.mark.parametrize("status", FINAL)
async def test_final_statuses_are_not_retried(executor: GrpcExecutor, status: str) -> None:
    """The handler's sentence is kept as its answer."""
    expected = Failed(error=f"answered {status}", retryable=False, answer=f"this is {status}")
    assert expected == await call(executor, status)


@pytest.mark.parametrize("status", PASSING)
async def test_passing_statuses_may_be_retried(executor: GrpcExecutor, status: str) -> None:
    """Every other status."""
    outcome = await call(executor, status)
    assert isinstance(outcome, Failed)
    assert (f"answered {status}", True) == (outcome.error, outcome.retryable)


def test_every_status_is_decided() -> None:
    """A status that gRPC adds must be given its place."""
    known = {*FINAL, *PASSING, "OK", "DEADLINE_EXCEEDED"}
    assert known == {code.name for code in grpc.StatusCode}


async def test_a_deadline_is_a_time_out(executor: GrpcExecutor) -> None:
    """Whoever's clock ran out first."""
    assert Failed(error="timed out after 30 s") == await call(executor, "DEADLINE_EXCEEDED")
    assert Failed(error="timed out after 0.1 s") == await call(executor, "hang", timeout_s=0.1)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1500", timedelta(seconds=1.5)),
        ("999999999", timedelta(hours=1)),
        ("9" * 5000, None),
        ("-1", None),
        ("soon", None),
    ],
)
async def test_pushback_is_honoured(
    executor: GrpcExecutor, handler: Handler, value: str, expected: timedelta | None
) -> None:
    """A handler may ask for patience, up to an hour."""
    handler.trailing = (("grpc-retry-pushback-ms", value),)
    outcome = await call(executor, "RESOURCE_EXHAUSTED")
    assert isinstance(outcome, Failed)
    assert expected == outcome.retry_after


async def test_pushback_does_not_make_the_channel_retry(
    executor: GrpcExecutor, handler: Handler
) -> None:
    """One order is one call, whatever the handler asks for."""
    handler.trailing = (("grpc-retry-pushback-ms", "0"),)
    await call(executor, "UNAVAILABLE")
    assert 1 == len(handler.requests)


async def test_too_large_an_answer_is_final(executor: GrpcExecutor, handler: Handler) -> None:
    """It would be as large again."""
    assert Failed(error="answer too large", retryable=False) == await call(executor, "huge")
    assert 1 == len(handler.requests)


async def test_an_answer_that_is_no_message_is_still_ok(executor: GrpcExecutor) -> None:
    """The status decides."""
    assert Succeeded(answer=None) == await call(executor, "garbage")


async def test_a_handler_that_restarts_is_found_again(handler: Handler) -> None:
    """While it is away attempts fail at once and may be retried; then they succeed again."""
    away = Handler()
    server = await away.start()
    executor = executor_of(shop=away.address)
    assert isinstance(await call(executor, "ok"), Succeeded)
    under_way = asyncio.ensure_future(call(executor, "hang"))
    await away.hanging.wait()
    await server.stop(None)
    assert Failed(error="answered UNAVAILABLE") == await asyncio.wait_for(under_way, 5)
    assert Failed(error="answered UNAVAILABLE") == await call(executor, "ok")
    back = await away.start()
    async with asyncio.timeout(10):
        while not isinstance(await call(executor, "ok"), Succeeded):
            await asyncio.sleep(0.05)
    await executor.close()
    await back.stop(None)


async def test_a_peer_that_breaks_off_is_a_failure() -> None:
    """A connection that is cut, and one that does not speak gRPC."""

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(cut, "127.0.0.1", 0)
    executor = executor_of(shop=f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    outcome = await call(executor, "ok", timeout_s=5)
    await executor.close()
    server.close()
    await server.wait_closed()
    assert isinstance(outcome, Failed)
    assert outcome.retryable


async def test_addresses_are_told_to_operators_only(executor: GrpcExecutor, noting: Noting) -> None:
    """Users learn the status; the library's words go to the observer."""
    outcome = await executor.execute(order_of(Grpc(target="nowhere", handler="ok")))
    assert Failed(error="answered UNAVAILABLE") == outcome
    (event,) = noting.events
    assert "grpc.call_failed" == event["name"]
    assert "127.0.0.1" in str(event["detail"])


async def test_an_unknown_target_is_handed_back(executor: GrpcExecutor) -> None:
    """Another worker may have it."""
    outcome = await executor.execute(order_of(Grpc(target="x", handler="ok")))
    assert Unserved("grpc target x") == outcome


async def test_a_burst_on_a_new_connection_succeeds(handler: Handler) -> None:
    """More than the service takes at once wait for their turn, and none is broken off."""
    executor = executor_of(shop=handler.address)
    outcomes = await asyncio.gather(*(call(executor, "ok") for _ in range(500)))
    await executor.close()
    assert {Succeeded(answer="thank you")} == set(outcomes)


async def test_calls_under_way_are_bounded(handler: Handler) -> None:
    """With one at once a second call waits for the first, within its own time."""
    target = GrpcTarget(name="shop", address=handler.address, tls=False, in_flight_max=1)
    executor = GrpcExecutor({"shop": target}, clock=SystemClock())
    first = asyncio.ensure_future(call(executor, "hang"))
    await handler.hanging.wait()
    assert Failed(error="timed out after 0.1 s") == await call(executor, "ok", timeout_s=0.1)
    first.cancel()
    await asyncio.wait([first])
    assert isinstance(await call(executor, "ok"), Succeeded)
    await executor.close()
    assert ["hang", "ok"] == [request.handler for request in handler.requests]


async def test_proxy_variables_are_ignored(
    handler: Handler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment cannot redirect calls."""
    for name in ("grpc_proxy", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    monkeypatch.delenv("no_proxy", raising=False)
    executor = executor_of(shop=handler.address)
    outcome = await call(executor, "ok")
    await executor.close()
    assert isinstance(outcome, Succeeded)


# -- TLS ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    for name in ("server", "client"):
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
             "-nodes", "-days", "2", "-subj", f"/CN={name}.test",
             "-addext", f"subjectAltName=DNS:{name}.test",
             "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem"],
            check=True, capture_output=True,
        )  # fmt: skip
    return folder


@pytest.fixture
async def secure(certificates: Path) -> AsyncIterator[Handler]:
    pair = [(certificates / f"server.{end}").read_bytes() for end in ("key", "pem")]
    trusted = (certificates / "client.pem").read_bytes()
    credentials = grpc.ssl_server_credentials(
        [(pair[0], pair[1])], root_certificates=trusted, require_client_auth=True
    )
    async with handling(credentials) as found:
        yield found


async def one_call(target: GrpcTarget) -> Outcome:
    executor = GrpcExecutor({"shop": target}, clock=SystemClock())
    try:
        return await call(executor, "ok", timeout_s=5)
    finally:
        await executor.close()


async def test_tls_both_ways_with_a_token(secure: Handler, certificates: Path) -> None:
    """The service is known by its certificate, we by ours, and the token goes along."""
    whole: dict[str, Any] = {
        "name": "shop",
        "address": secure.address,
        "ca_file": str(certificates / "server.pem"),
        "certificate_file": str(certificates / "client.pem"),
        "key_file": str(certificates / "client.key"),
        "authority": "server.test",
        "token": Secret("t0ps3cret"),
    }
    assert isinstance(await one_call(GrpcTarget(**whole)), Succeeded)
    assert "Bearer t0ps3cret" == secure.metadata[0]["authorization"]
    strangers = [
        {**whole, "authority": "other.test"},
        {**whole, "ca_file": str(certificates / "client.pem")},
        {**whole, "ca_file": None},
        {**whole, "certificate_file": None, "key_file": None},
    ]
    for options in strangers:
        outcome = await one_call(GrpcTarget(**options))
        assert Failed(error="answered UNAVAILABLE") == outcome, options
    assert 1 == len(secure.requests)


def test_secrets_are_not_shown() -> None:
    """Neither by the target nor by the executor."""
    target = GrpcTarget(name="shop", address="a:1", tls=False, token=Secret("t0ps3cret"))
    executor = GrpcExecutor({"shop": target}, clock=SystemClock())
    assert "t0ps3cret" not in repr(target) + str(target) + repr(executor)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("address", ""),
        ("address", "a"),
        ("address", "a:0"),
        ("address", "a:99999"),
        ("address", "unix:/run/x"),
        ("address", "dns:///a:1"),
        ("address", "user@a:1"),
        ("address", "a b:1"),
        ("authority", "a\r\nb"),
        ("in_flight_max", 0),
        ("in_flight_max", 10_001),
        ("ca_file", "/no/such/file"),
        ("key_file", "/no/such/file"),
        ("token", Secret("a\nb")),
        ("token", Secret("")),
    ],
)
def test_wrong_options_are_refused(option: str, value: Any) -> None:
    """When the worker starts, and the error names the option."""
    options: dict[str, Any] = {"name": "shop", "address": "a:1", option: value}
    with pytest.raises(ConfigurationError, match=rf"targets\.shop\.{option}"):
        GrpcExecutor({"shop": GrpcTarget(**options)}, clock=SystemClock())


def test_files_for_tls_without_tls_are_refused() -> None:
    """Somebody believes in a protection that is not there."""
    with pytest.raises(ConfigurationError, match=r"targets\.shop\.tls"):
        GrpcTarget(name="shop", address="a:1", tls=False, ca_file="/x")


def test_a_bad_name_is_refused() -> None:
    """A target is named as queues are."""
    with pytest.raises(ConfigurationError, match="targets"):
        GrpcTarget(name="a b", address="a:1")
