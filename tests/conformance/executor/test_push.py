"""The push executor against a real receiver: the suite, and what is its own."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from gnomon.contracts.observer import SilentObserver
from gnomon.executors.push import PushExecutor, PushTarget
from gnomon.model.errors import ConfigurationError
from gnomon.model.outcome import Failed, Outcome, Succeeded, Unserved
from gnomon.model.secret import Secret
from gnomon.model.spec import Effect, Push
from tests.conformance.executor.suite import SCHEDULED_AT, ExecutorSuite, order_of
from tests.fixtures.receiver import Receiver, speaking

TTL = timedelta(minutes=5)


class Noting(SilentObserver):
    def __init__(self) -> None:
        self.events: list[dict[str, object]] = []

    def event(self, name: str, /, **fields: object) -> None:
        self.events.append({"name": name, **fields})


class StoppedClock:
    """Shows the time at which the suite's actions are due, or a little later."""

    def __init__(self, late: timedelta = timedelta(0)) -> None:
        self.late = late

    def now(self) -> datetime:
        return SCHEDULED_AT + self.late

    def monotonic(self) -> float:
        return 0.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def noting() -> Noting:
    return Noting()


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock()


@pytest.fixture
async def executor(
    receiver: Receiver, noting: Noting, clock: StoppedClock
) -> AsyncIterator[PushExecutor]:
    """Its targets are named as the receiver's paths are."""
    paths = [
        "ok", "hang", "reset", "redirect", "huge", "gzip", "drip", "cut", "binary",
        *(f"status/{code}" for code in (200, 202, 400, 401, 404, 410, 413, 422, 429, 500, 503)),
    ]  # fmt: skip
    targets = {
        path.replace("/", "."): PushTarget(
            name=path.replace("/", "."), url=f"{receiver.url}/{path}"
        )
        for path in paths
    }
    targets["nobody"] = PushTarget(name="nobody", url=f"http://127.0.0.1:{free_port()}/")
    targets["nowhere"] = PushTarget(name="nowhere", url="http://no-such-host.invalid/")
    targets["tls"] = PushTarget(name="tls", url=f"https://127.0.0.1:{receiver.port}/ok")
    found = PushExecutor(targets, clock=clock, observer=noting)
    yield found
    await found.close()


async def send(executor: PushExecutor, target: str, **options: Any) -> Outcome:
    return await executor.execute(order_of(Push(target=target, ttl=TTL, user="ann"), **options))


class PushStand:
    def __init__(self, receiver: Receiver, executor: PushExecutor) -> None:
        self._receiver = receiver
        self.executor = executor

    @property
    def sent_count(self) -> int:
        return len(self._receiver.requests)

    def succeeding(self) -> Effect:
        return Push(target="ok", ttl=TTL, user="ann", payload={"ring": True})

    def failing(self) -> Effect:
        return Push(target="reset", ttl=TTL, device="phone")

    def hanging(self) -> Effect:
        return Push(target="hang", ttl=TTL, user="ann")

    def talkative(self) -> Effect:
        return Push(target="binary", ttl=TTL, user="ann")

    def broken(self) -> Sequence[Effect]:
        return [
            Push(target="x", ttl=TTL, user="ann"),
            Push(target="nobody", ttl=TTL, user="ann"),
            Push(target="nowhere", ttl=TTL, user="ann"),
            Push(target="tls", ttl=TTL, user="ann"),
            Push(target="ok", ttl=TTL, user="\ud800"),
            Push(target="ok", ttl=TTL, user="ann", payload=object()),
            Push(target="ok", ttl=-TTL, user="ann"),
        ]


@pytest.fixture
def stand(receiver: Receiver, executor: PushExecutor) -> PushStand:
    return PushStand(receiver, executor)


class TestPush(ExecutorSuite):
    """The common promises."""


async def test_the_notificator_learns_all_it_needs(receiver: Receiver) -> None:
    """Whom it is for, what, until when, and the key by which it knows a repetition."""
    target = PushTarget(name="n", url=f"{receiver.url}/ok?app=1", token=Secret("t0ps3cret"))
    executor = PushExecutor({"n": target}, clock=StoppedClock())
    effect = Push(target="n", ttl=TTL, user="ann", device="phone", payload={"ring": [1]})
    outcome = await executor.execute(order_of(effect, attempt_no=2))
    await executor.close()
    assert Succeeded(answer="thank you") == outcome
    key = "act_aaaaaaaaaaaaaaaaaaaaaaaaaa"
    assert {
        "key": key,
        "user": "ann",
        "device": "phone",
        "payload": {"ring": [1]},
        "expires_at": "2026-03-01T12:05:00Z",
    } == json.loads(receiver.bodies[0])
    (request,) = receiver.requests
    expected = {
        "Authorization": "Bearer t0ps3cret",
        "Idempotency-Key": key,
        "Gnomon-Attempt": "2",
        "Gnomon-Attempt-Id": "00000000-0000-0000-0000-000000000002",
        "Content-Type": "application/json",
        "Accept-Encoding": "identity",
    }
    assert expected == {name: request.headers[name] for name in expected}
    assert ("POST", "/ok?app=1") == (request.method, request.raw_path)


async def test_who_is_not_named_is_left_out(executor: PushExecutor, receiver: Receiver) -> None:
    """To a user: no device, not a null one. Without a token: no header for it."""
    await send(executor, "ok")
    assert {"key", "user", "payload", "expires_at"} == set(json.loads(receiver.bodies[0]))
    assert "Authorization" not in receiver.requests[0].headers


@pytest.mark.parametrize(
    ("late", "sent"),
    [(timedelta(0), 1), (TTL - timedelta(microseconds=1), 1), (TTL, 0), (2 * TTL, 0)],
)
async def test_an_expired_push_is_not_sent(
    executor: PushExecutor, receiver: Receiver, clock: StoppedClock, late: timedelta, sent: int
) -> None:
    """Nor tried again: it can only get older."""
    clock.late = late
    outcome = await send(executor, "ok")
    assert sent == len(receiver.requests)
    if not sent:
        assert Failed(error="expired before it could be sent", retryable=False) == outcome


@pytest.mark.parametrize("code", [200, 202])
async def test_any_2xx_is_success(executor: PushExecutor, code: int) -> None:
    """The notificator has taken it."""
    assert Succeeded(answer=f"this is {code}") == await send(executor, f"status.{code}")


@pytest.mark.parametrize("code", [400, 404, 410, 413, 422])
async def test_a_refused_push_is_final(executor: PushExecutor, code: int) -> None:
    """It is wrong, or whom it is for is not there."""
    expected = Failed(error=f"answered {code}", retryable=False, answer=f"this is {code}")
    assert expected == await send(executor, f"status.{code}")


@pytest.mark.parametrize("code", [401, 429, 500, 503])
async def test_other_answers_may_be_tried_again(executor: PushExecutor, code: int) -> None:
    """The operator or the notificator mends them."""
    expected = Failed(error=f"answered {code}", answer=f"this is {code}")
    assert expected == await send(executor, f"status.{code}")


@pytest.mark.parametrize(
    ("code", "expected"), [(429, timedelta(seconds=7)), (503, timedelta(seconds=7)), (500, None)]
)
async def test_retry_after_is_honoured(
    executor: PushExecutor, receiver: Receiver, code: int, expected: timedelta | None
) -> None:
    """On 429 and 503."""
    receiver.answer_headers = {"Retry-After": "7"}
    outcome = await send(executor, f"status.{code}")
    assert isinstance(outcome, Failed)
    assert expected == outcome.retry_after


async def test_redirects_are_not_followed(executor: PushExecutor, receiver: Receiver) -> None:
    """The token is for one address."""
    assert Failed(error="answered 307") == await send(executor, "redirect")
    assert 1 == len(receiver.requests)


async def test_large_slow_and_broken_answers_count_by_their_status(
    executor: PushExecutor, receiver: Receiver
) -> None:
    """The notificator said 200 first; of what follows 2 KiB are kept."""
    assert Succeeded(answer="x" * 2048) == await send(executor, "huge")
    assert receiver.bytes_sent < 20 * 1024 * 1024
    assert Succeeded(answer="half of") == await send(executor, "cut")
    assert isinstance(await send(executor, "gzip"), Succeeded)
    assert isinstance(await send(executor, "drip", timeout_s=1.5), Succeeded)


async def test_errors_tell_users_little_and_operators_more(
    executor: PushExecutor, noting: Noting
) -> None:
    """The same few words for everybody."""
    found = [await send(executor, target) for target in ("x", "nobody", "nowhere", "tls", "reset")]
    assert [
        Unserved("push target x"),
        Failed(error="connection failed"),
        Failed(error="name not resolved"),
        Failed(error="TLS failed"),
        Failed(error="connection broke before an answer"),
    ] == found
    assert Failed(error="timed out after 0.1 s") == await send(executor, "hang", timeout_s=0.1)
    assert 5 == len(noting.events)


async def test_what_is_no_http_is_a_failure() -> None:
    """And what was said is not repeated."""
    async with speaking(b"220 smtp.example ESMTP\r\n") as url:
        executor = PushExecutor({"n": PushTarget(name="n", url=url)}, clock=StoppedClock())
        outcome = await executor.execute(order_of(Push(target="n", ttl=TTL, user="ann")))
        await executor.close()
    assert Failed(error="answer is not HTTP") == outcome


async def test_proxy_variables_are_ignored(
    executor: PushExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment cannot redirect pushes."""
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    monkeypatch.delenv("no_proxy", raising=False)
    assert isinstance(await send(executor, "ok"), Succeeded)


def test_secrets_are_not_shown() -> None:
    """Neither by the target nor by the executor."""
    target = PushTarget(name="n", url="https://a/", token=Secret("t0ps3cret"))
    shown = repr(target) + str(target) + repr(PushExecutor({"n": target}, clock=StoppedClock()))
    assert "t0ps3cret" not in shown


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("url", ""),
        ("url", "a.example"),
        ("url", "ftp://a/"),
        ("url", "http://"),
        ("url", "http://a:0/"),
        ("url", "http://a:x/"),
        ("url", "http://[::1"),
        ("url", "https://user:password@a/"),
        ("url", "https://a/ b"),
        ("token", Secret("")),
        ("token", Secret("a\r\nb")),
        ("connect_timeout", timedelta(0)),
    ],
)
def test_wrong_options_are_refused(option: str, value: Any) -> None:
    """The error names the option, and not what a URL may hold."""
    options: dict[str, Any] = {"name": "n", "url": "https://a/", option: value}
    with pytest.raises(ConfigurationError, match=rf"targets\.n\.{option}") as caught:
        PushTarget(**options)
    assert "password@" not in str(caught.value)


def test_a_bad_name_is_refused() -> None:
    """A target is named as queues are."""
    with pytest.raises(ConfigurationError, match="targets"):
        PushTarget(name="a b", url="https://a/")
