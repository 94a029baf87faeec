"""The HTTP executor against a real server: the suite, and what is its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from gnomon import __version__
from gnomon.contracts.observer import SilentObserver
from gnomon.executors.http import HttpConfig
from gnomon.executors.http.answer import retry_after
from gnomon.executors.http.executor import ANSWER_BYTES_MAX, HttpExecutor
from gnomon.model.errors import ConfigurationError
from gnomon.model.outcome import Failed, Outcome, Succeeded
from gnomon.model.spec import Effect, Http
from tests.conformance.executor.suite import ExecutorSuite, order_of
from tests.fixtures.postgres import free_port
from tests.fixtures.receiver import Receiver, speaking


class Noting(SilentObserver):
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.bytes_read: list[float] = []
        self.events: list[dict[str, object]] = []

    def event(self, name: str, /, **fields: object) -> None:
        self.events.append({"name": name, **fields})

    def observe(self, name: str, value: float, /, **labels: str) -> None:
        assert "http_answer_bytes" == name
        self.bytes_read.append(value)


class HttpStand:
    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self.executor = HttpExecutor(HttpConfig(allow_loopback=True), SilentObserver())

    @property
    def sent_count(self) -> int:
        return len(self._receiver.requests)

    def succeeding(self) -> Effect:
        return Http("POST", f"{self._receiver.url}/ok", json={"name": "ann"})

    def failing(self) -> Effect:
        # A connection that breaks under a method that aiohttp takes for safe to repeat.
        return Http("GET", f"{self._receiver.url}/reset")

    def hanging(self) -> Effect:
        return Http("GET", f"{self._receiver.url}/hang")

    def talkative(self) -> Effect:
        return Http("GET", f"{self._receiver.url}/binary")

    def broken(self) -> Sequence[Effect]:
        url = f"{self._receiver.url}/ok"
        return [
            Http("GET", ""),
            Http("GET", "nonsense"),
            Http("GET", "ftp://127.0.0.1/"),
            Http("GET", "http://[::1"),
            Http("GET", "http://127.0.0.1:99999/"),
            Http("GET", "http://no-such-host.invalid/"),
            Http("NO SUCH\r\nMETHOD", url),
            Http("GET", url, headers={"a\r\nb": "c"}),
            Http("GET", url, headers={"a": "b\r\nc: d"}),
            Http("GET", url, headers={"a": "\x00"}),
            Http("POST", url, json=object()),
            Http("POST", url, body="\ud800"),
            Http("GET", f"{self._receiver.url}/header"),
            Http("GET", f"http://127.0.0.1:{free_port()}/"),
        ]


@pytest.fixture
async def stand(receiver: Receiver) -> AsyncIterator[HttpStand]:
    found = HttpStand(receiver)
    yield found
    await found.executor.close()


class TestHttp(ExecutorSuite):
    """The common promises."""


@pytest.fixture
async def noting() -> Noting:
    return Noting()


@pytest.fixture
async def executor(noting: Noting) -> AsyncIterator[HttpExecutor]:
    config = HttpConfig(allow_loopback=True, answer_timeout=timedelta(seconds=0.2))
    found = HttpExecutor(config, noting)
    yield found
    await found.close()


async def get(executor: HttpExecutor, url: str, *, timeout_s: float = 10.0) -> Outcome:
    return await executor.execute(order_of(Http("GET", url), timeout_s=timeout_s))


async def test_the_receiver_learns_about_the_attempt(
    executor: HttpExecutor, receiver: Receiver
) -> None:
    """Key, attempt and times are sent, in names the user cannot set, beside the user's headers."""
    effect = Http(
        "POST",
        f"{receiver.url}/ok?q=%2Fa%20b",
        headers={"X-Trace": "7", "accept-encoding": "gzip"},
        json={"b": [1, None]},
    )
    assert Succeeded(answer="thank you") == await executor.execute(order_of(effect, attempt_no=3))

    (request,) = receiver.requests
    expected = {
        "X-Trace": "7",
        "webhook-id": "act_aaaaaaaaaaaaaaaaaaaaaaaaaa",
        "gnomon-attempt": "3",
        "gnomon-attempt-id": "00000000-0000-0000-0000-000000000002",
        "gnomon-scheduled-at": "2026-03-01T12:00:00Z",
        "gnomon-expires": "1772366430",
        "user-agent": f"gnomon/{__version__}",
        "content-type": "application/json",
        "accept-encoding": "identity",
    }
    assert expected == {name: request.headers[name] for name in expected}
    assert ["identity"] == request.headers.getall("accept-encoding")
    assert b'{"b":[1,null]}' == receiver.bodies[0]
    assert "/ok?q=%2Fa%20b" == request.raw_path


async def test_a_body_is_sent_as_it_is(executor: HttpExecutor, receiver: Receiver) -> None:
    """A text goes out in UTF-8, with the user's content type."""
    effect = Http("PUT", f"{receiver.url}/ok", headers={"Content-Type": "text/csv"}, body="ü;1")
    await executor.execute(order_of(effect))
    assert "ü;1".encode() == receiver.bodies[0]
    assert "text/csv" == receiver.requests[0].headers["Content-Type"]


async def test_a_header_of_the_user_takes_the_place_of_ours(
    executor: HttpExecutor, receiver: Receiver
) -> None:
    """However it is written, it is sent once; but an answer is never wanted packed."""
    headers = {
        "USER-agent": "ann", "accept": "text/csv", "content-TYPE": "x/y", "Accept-encoding": "br",
    }  # fmt: skip
    await executor.execute(order_of(Http("POST", f"{receiver.url}/ok", headers=headers, json=1)))
    sent = receiver.requests[0].headers
    names = ("User-Agent", "Accept", "Content-Type", "Accept-Encoding")
    expected = [["ann"], ["text/csv"], ["x/y"], ["identity"]]
    assert expected == [sent.getall(name) for name in names]


@pytest.mark.parametrize(
    ("method", "body", "length"),
    [
        ("GET", None, None), ("HEAD", None, None), ("POST", None, "0"), ("DELETE", "", "0"),
        ("PUT", "ü", "2"), ("DELETE", "ab", "2"),
    ],
)  # fmt: skip
async def test_the_length_of_a_body_is_told(
    executor: HttpExecutor, receiver: Receiver, method: str, body: str | None, length: str | None
) -> None:
    """In bytes; where no body is expected, there is none to tell of."""
    await executor.execute(order_of(Http(method, f"{receiver.url}/ok", body=body)))
    assert length == receiver.requests[0].headers.get("Content-Length")
    assert (body or "").encode() == receiver.bodies[0]


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"])
async def test_every_method_is_sent(
    executor: HttpExecutor, receiver: Receiver, method: str
) -> None:
    """Six methods, each as named."""
    outcome = await executor.execute(order_of(Http(method, f"{receiver.url}/ok")))
    assert isinstance(outcome, Succeeded)
    assert method == receiver.requests[0].method


@pytest.mark.parametrize("status", [200, 201, 204, 299])
async def test_any_2xx_is_success(executor: HttpExecutor, receiver: Receiver, status: int) -> None:
    """Without `success`, 200 to 299 are."""
    assert isinstance(await get(executor, f"{receiver.url}/status/{status}"), Succeeded)


@pytest.mark.parametrize("status", [300, 304, 400, 404, 408, 500, 599])
async def test_other_answers_fail_and_may_be_tried_again(
    executor: HttpExecutor, receiver: Receiver, status: int
) -> None:
    """The error names the status; what was said with it is kept."""
    outcome = await get(executor, f"{receiver.url}/status/{status}")
    answer = None if status == 304 else f"this is {status}"
    assert Failed(error=f"answered {status}", answer=answer) == outcome


async def test_success_codes_replace_the_2xx(executor: HttpExecutor, receiver: Receiver) -> None:
    """With `success=(404,)` a 404 is success and a 200 is not."""
    gone = Http("DELETE", f"{receiver.url}/status/404", success=(404,))
    there = Http("DELETE", f"{receiver.url}/status/200", success=(404,))
    assert isinstance(await executor.execute(order_of(gone)), Succeeded)
    assert isinstance(await executor.execute(order_of(there)), Failed)


async def test_410_is_final(executor: HttpExecutor, receiver: Receiver) -> None:
    """Gone means gone: no retry."""
    outcome = await get(executor, f"{receiver.url}/status/410")
    assert isinstance(outcome, Failed)
    assert not outcome.retryable


@pytest.mark.parametrize(
    ("status", "value", "expected"),
    [
        (429, "7", timedelta(seconds=7)),
        (503, "7", timedelta(seconds=7)),
        (503, "Sun, 01 Mar 2026 12:01:00 GMT", timedelta(minutes=1)),
        (503, "100000", timedelta(hours=1)),
        (503, "9" * 5000, timedelta(hours=1)),
        (503, "soon", None),
        (503, "-5", None),
        (503, "Sun, 01 Mar 2020 12:00:00 GMT", None),
        (500, "7", None),
    ],
)
async def test_retry_after_is_honoured(
    executor: HttpExecutor,
    receiver: Receiver,
    status: int,
    value: str,
    expected: timedelta | None,
) -> None:
    """On 429 and 503, in seconds or as a date by the receiver's clock, up to an hour."""
    receiver.answer_headers = {"Retry-After": value, "Date": "Sun, 01 Mar 2026 12:00:00 GMT"}
    outcome = await get(executor, f"{receiver.url}/status/{status}")
    assert isinstance(outcome, Failed)
    assert expected == outcome.retry_after


def test_retry_after_without_a_date_uses_the_present() -> None:
    """A receiver that does not tell its time is taken to share ours."""
    now = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
    assert timedelta(seconds=30) == retry_after("Sun, 01 Mar 2026 12:00:30 GMT", None, now)
    assert retry_after("Mon, 99 Foo 2026 25:00:00 GMT", None, now) is None


async def test_redirects_are_not_followed(executor: HttpExecutor, receiver: Receiver) -> None:
    """A redirect to the loopback address is a failure and reaches nobody."""
    outcome = await get(executor, f"{receiver.url}/redirect")
    assert Failed(error="answered 307") == outcome
    assert ["/redirect"] == [request.path for request in receiver.requests]


async def test_a_huge_answer_is_left_unread(
    executor: HttpExecutor, receiver: Receiver, noting: Noting
) -> None:
    """Of 100 MB at most 64 KiB are read and 2 KiB kept; the status decides."""
    outcome = await get(executor, f"{receiver.url}/huge")
    assert Succeeded(answer="x" * 2048) == outcome
    assert [ANSWER_BYTES_MAX] == noting.bytes_read
    assert receiver.bytes_sent < 20 * 1024 * 1024  # what the buffers of the kernel swallow


async def test_a_gzip_bomb_stays_packed(
    executor: HttpExecutor, receiver: Receiver, noting: Noting
) -> None:
    """Nobody asked for gzip: 20 MB of zeros are taken as the 20 KB that came."""
    outcome = await get(executor, f"{receiver.url}/gzip")
    assert isinstance(outcome, Succeeded)
    assert noting.bytes_read[0] < 30_000


async def test_a_dripping_answer_does_not_hold_up_the_result(
    executor: HttpExecutor, receiver: Receiver, noting: Noting
) -> None:
    """A 200 whose body never ends is a success as soon as patience with the body is over."""
    async with asyncio.timeout(20):
        outcome = await get(executor, f"{receiver.url}/drip", timeout_s=60)
    assert isinstance(outcome, Succeeded)
    assert noting.bytes_read[0] < 100


async def test_a_dripping_answer_ends_before_the_attempt_does(
    noting: Noting, receiver: Receiver
) -> None:
    """The known status is not lost to a time-out of the attempt."""
    executor = HttpExecutor(
        HttpConfig(allow_loopback=True, answer_timeout=timedelta(minutes=1)), noting
    )
    outcome = await get(executor, f"{receiver.url}/drip", timeout_s=1.5)
    await executor.close()
    assert isinstance(outcome, Succeeded)


async def test_an_answer_cut_off_counts_by_its_status(
    executor: HttpExecutor, receiver: Receiver
) -> None:
    """The receiver said 200 before the connection broke: it was received."""
    assert Succeeded(answer="half of") == await get(executor, f"{receiver.url}/cut")


async def test_dripping_headers_time_out(executor: HttpExecutor) -> None:
    """A receiver that never finishes its status is given up with the attempt's time."""
    async with speaking(b"HTTP/1.1 200 OK\r\n", *[b"A: b\r\n"] * 1000, pause_s=0.02) as url:
        outcome = await get(executor, url, timeout_s=0.2)
    assert Failed(error="timed out after 0.2 s") == outcome


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (b"220 smtp.example ESMTP\r\n", "answer is not HTTP"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n", "answer too large"),
        (b"", "connection closed before an answer"),
    ],
)
async def test_strange_receivers_fail_in_few_words(
    executor: HttpExecutor, said: bytes, error: str
) -> None:
    """What the receiver said is not repeated in the error."""
    async with speaking(said) as url:
        assert Failed(error=error) == await get(executor, url)


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
async def test_a_broken_connection_is_one_failed_attempt(
    executor: HttpExecutor, receiver: Receiver, method: str
) -> None:
    """On a fresh connection and on one that was kept: sent once, and told in the same words."""
    first = await executor.execute(order_of(Http(method, f"{receiver.url}/reset")))
    await executor.execute(order_of(Http(method, f"{receiver.url}/ok")))
    again = await executor.execute(order_of(Http(method, f"{receiver.url}/reset")))
    assert [Failed(error="connection closed before an answer")] * 2 == [first, again]
    assert 3 == len(receiver.requests)


async def test_errors_tell_users_little_and_operators_more(
    executor: HttpExecutor, receiver: Receiver, noting: Noting
) -> None:
    """The same few words for everybody; the kind of error goes to the observer."""
    refused = await get(executor, f"http://127.0.0.1:{free_port()}/")
    nowhere = await get(executor, "https://no-such-host.invalid/")
    no_tls = await get(executor, receiver.url.replace("http:", "https:"))
    reset = await get(executor, f"{receiver.url}/reset")
    hung = await get(executor, f"{receiver.url}/hang", timeout_s=0.1)
    assert [
        Failed(error="connection refused"),
        Failed(error="name not resolved"),
        Failed(error="TLS failed"),
        Failed(error="connection closed before an answer"),
        Failed(error="timed out after 0.1 s"),
    ] == [refused, nowhere, no_tls, reset, hung]
    assert "ClientConnectorDNSError" == noting.events[1]["kind"]


async def test_connections_are_kept_and_cookies_are_not(
    executor: HttpExecutor, receiver: Receiver
) -> None:
    """Two calls share a connection; what a receiver set for one is not sent with the next."""
    receiver.answer_headers = {"Set-Cookie": "session=secret; Path=/"}
    named = receiver.url.replace("127.0.0.1", "localhost")  # numbers never get cookies
    await get(executor, f"{named}/status/200")
    await get(executor, f"{named}/status/200")
    first, second = receiver.requests
    assert first.transport is second.transport
    assert "Cookie" not in second.headers


async def test_proxy_variables_are_ignored(
    executor: HttpExecutor, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment cannot redirect calls."""
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    monkeypatch.delenv("no_proxy", raising=False)
    assert isinstance(await get(executor, f"{receiver.url}/ok"), Succeeded)


async def test_connections_to_one_host_are_bounded(noting: Noting, receiver: Receiver) -> None:
    """With one connection a second call waits for the first, within its own time."""
    executor = HttpExecutor(HttpConfig(allow_loopback=True, connections_per_host_max=1), noting)
    first = asyncio.ensure_future(get(executor, f"{receiver.url}/hang"))
    while not receiver.requests:
        await asyncio.sleep(0)
    second = await get(executor, f"{receiver.url}/ok", timeout_s=0.1)
    first.cancel()
    await asyncio.wait([first])
    await executor.close()
    assert Failed(error="timed out after 0.1 s") == second
    assert 1 == len(receiver.requests)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("connections_max", 0),
        ("connections_per_host_max", -1),
        ("connect_timeout", timedelta(0)),
        ("keep_alive", timedelta(seconds=-1)),
    ],
)
def test_wrong_settings_are_refused(name: str, value: object) -> None:
    """The error names the setting."""
    with pytest.raises(ConfigurationError, match=f"http.{name}"):
        HttpConfig(**{name: value})  # type: ignore[arg-type]
