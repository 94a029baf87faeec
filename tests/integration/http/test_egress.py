"""Calls through an egress proxy: what it is told, and what it never hears of."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp.connector
import pytest

from gnomon.contracts.observer import SilentObserver
from gnomon.executors.http import HeaderSecret, HttpConfig
from gnomon.executors.http.executor import HttpExecutor
from gnomon.model.errors import ConfigurationError
from gnomon.model.outcome import Failed, Outcome, Succeeded
from gnomon.model.secret import Secret
from gnomon.model.spec import Http
from tests.conformance.executor.suite import order_of
from tests.fixtures.authority import Authority
from tests.fixtures.egress import Egress
from tests.fixtures.postgres import free_port
from tests.fixtures.receiver import Receiver, receiving
from tests.integration.http.test_wire import FORBIDDEN, FORBIDDEN_ALWAYS, NAMES
from tests.integration.http.wire import Names

THANKS = Succeeded(answer="thank you")
OUTSIDE = "93.184.216.34"


class Noting(SilentObserver):
    def __init__(self) -> None:
        self.details: list[object] = []

    def event(self, _name: str, /, **fields: object) -> None:
        self.details.append(fields["detail"])


class Calling:
    """An executor behind a proxy whose every connection ends at the receiver."""

    def __init__(self, executor: HttpExecutor, noting: Noting, asked: list[str]) -> None:
        self._executor = executor
        self.details = noting.details
        self.asked = asked  # of the resolver

    async def post(self, url: str, **options: Any) -> Outcome:
        return await self._executor.execute(order_of(Http("POST", url, **options), timeout_s=5.0))


@asynccontextmanager
async def calling(
    proxy: str | None, *, names: dict[str, list[list[str]]] | None = None, **options: Any
) -> AsyncIterator[Calling]:
    secrets = options.pop("secrets", None)
    noting, resolver = Noting(), Names(names or {"a.example": [[OUTSIDE]]})
    config = HttpConfig(**{"allow_http": True, "ports": (80, 443), "proxy": proxy, **options})
    executor = HttpExecutor(config, noting, secrets=secrets, lookup=resolver.lookup)
    try:
        yield Calling(executor, noting, resolver.asked)
    finally:
        await executor.close()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as found:
        yield found


@pytest.fixture
async def egress(receiver: Receiver) -> AsyncIterator[Egress]:
    async with Egress(("127.0.0.1", receiver.port)).listening() as found:
        yield found


async def test_plain_calls_go_through_the_proxy(receiver: Receiver, egress: Egress) -> None:
    """It is told the whole URL; the receiver gets the request as ever."""
    async with calling(egress.url) as caller:
        assert THANKS == await caller.post("http://a.example/ok?x=%2F", json={"n": 1})
    assert ["POST http://a.example/ok?x=%2F HTTP/1.1"] == egress.asked
    (request,) = receiver.requests
    assert ("/ok?x=%2F", "a.example") == (request.raw_path, request.headers["Host"])
    assert b'{"n":1}' == receiver.bodies[0]


@pytest.fixture
async def tls_egress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, receiver: Receiver
) -> AsyncIterator[Egress]:
    """Before a receiver with TLS, whose authority is trusted here."""
    authority = Authority(tmp_path)
    context = ssl.create_default_context(cafile=authority.file)
    monkeypatch.setattr(aiohttp.connector, "_SSL_CONTEXT_VERIFIED", context)
    runner = aiohttp.web.ServerRunner(aiohttp.web.Server(receiver.answer))
    await runner.setup()
    served = authority.issue("DNS:a.example").server_context()
    await aiohttp.web.TCPSite(runner, "127.0.0.1", 0, ssl_context=served).start()
    async with Egress(("127.0.0.1", runner.addresses[0][1])).listening() as found:
        yield found
    await runner.cleanup()


async def test_https_goes_through_a_tunnel(receiver: Receiver, tls_egress: Egress) -> None:
    """The proxy learns the name and the port; the certificate is checked for the name."""
    names = {"a.example": [[OUTSIDE]], "b.example": [[OUTSIDE]]}
    async with calling(tls_egress.url, names=names) as caller:
        assert THANKS == await caller.post("https://a.example/ok")
        assert Failed(error="TLS failed") == await caller.post("https://b.example/ok")
    assert ["CONNECT a.example:443 HTTP/1.1", "CONNECT b.example:443 HTTP/1.1"] == tls_egress.asked
    assert 1 == len(receiver.requests)


async def test_a_tunnel_is_kept_and_used_again(receiver: Receiver, tls_egress: Egress) -> None:
    """One tunnel and one lookup for calls that follow each other."""
    async with calling(tls_egress.url) as caller:
        assert [THANKS] * 3 == [await caller.post("https://a.example/ok") for _ in range(3)]
        assert ["a.example."] == caller.asked
    assert 1 == len(tls_egress.asked)
    assert 3 == len(receiver.requests)


async def test_proxies_of_the_environment_are_ignored(
    egress: Egress, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever starts the process does not decide where its calls go."""
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, egress.url)
        monkeypatch.setenv(name.upper(), egress.url)
    async with calling(None, names={"a.example": [[]]}) as caller:
        assert Failed(error="name not resolved") == await caller.post("http://a.example/ok")
    assert [] == egress.asked


@pytest.mark.slow
@pytest.mark.parametrize("resolves", [False, True])
async def test_the_proxy_never_hears_of_a_forbidden_address(egress: Egress, resolves: bool) -> None:
    """The whole list. With `proxy_resolves` names that only a resolver knows to lead inside are
    the proxy's to refuse; what is written as an address, or as an inner name, is not."""
    policies: list[tuple[list[str], dict[str, Any]]] = [
        (FORBIDDEN, {"allow_http": False, "ports": (443,)}),
        (FORBIDDEN_ALWAYS, {}),
    ]
    for urls, settings in policies:
        async with calling(egress.url, names=NAMES, proxy_resolves=resolves, **settings) as caller:
            for url in urls:
                if not (resolves and is_only_known_by_looking(url)):
                    assert isinstance(await caller.post(url), Failed), url
    assert [] == egress.asked


def is_only_known_by_looking(url: str) -> bool:
    """Whether a URL of the list is a name like any other until it is looked up."""
    return url.partition("://")[2].partition("/")[0].endswith(".example") or "xn--" in url


@pytest.mark.parametrize("addresses", [["127.0.0.1"], [OUTSIDE, "10.0.0.1"], ["::1"]])
async def test_a_name_that_leads_inside_is_refused_before_the_proxy(
    egress: Egress, addresses: list[str]
) -> None:
    """Unless the operator leaves names to the proxy: then nobody here even asks."""
    names = {"a.example": [addresses]}
    async with calling(egress.url, names=names) as caller:
        refused = Failed(error="the address is not allowed")
        assert refused == await caller.post("http://a.example/ok")
        assert "a.example leads to" in str(caller.details[0])
        assert [] == egress.asked
    async with calling(egress.url, names=names, proxy_resolves=True) as caller:
        assert THANKS == await caller.post("http://a.example/ok")
        assert [] == caller.asked


async def test_an_inner_proxy_is_for_the_operator_only(receiver: Receiver, egress: Egress) -> None:
    """Its name leads inside and is connected to; a user who names it is refused."""
    names = {"a.example": [[OUTSIDE]], "proxy.internal": [["127.0.0.1"]]}
    proxy = f"http://proxy.internal:{egress.port}"
    ports = (80, egress.port)
    async with calling(proxy, names=names, ports=ports) as caller:
        assert THANKS == await caller.post("http://a.example/ok")
        assert Failed(error="the address is not allowed") == await caller.post(f"{proxy}/ok")
    assert 1 == len(egress.asked) == len(receiver.requests)


async def test_this_machine_is_called_directly(receiver: Receiver, egress: Egress) -> None:
    """`localhost` said to the proxy would be the proxy's machine."""
    async with calling(egress.url, allow_loopback=True) as caller:
        assert THANKS == await caller.post(f"{receiver.url}/ok")
    assert [] == egress.asked


async def test_this_machine_is_checked_as_ever(receiver: Receiver, egress: Egress) -> None:
    """A `localhost` that leads away is not called, proxy or not."""
    names = {"localhost": [["10.0.0.1"]]}
    async with calling(egress.url, names=names, allow_loopback=True) as caller:
        outcome = await caller.post(f"http://localhost:{receiver.port}/ok")
        assert Failed(error="the address is not allowed") == outcome
        assert "localhost leads to 10.0.0.1, away from this machine" == caller.details[0]
    assert [] == egress.asked


async def test_the_login_is_for_the_proxy_only(
    tmp_path: Path, receiver: Receiver, egress: Egress
) -> None:
    """From a file, and seen by nobody behind the proxy; on a kept connection it is sent again."""
    (tmp_path / "login").write_text("worker:s3cret:é\n")
    async with calling(egress.url, proxy_login_file=str(tmp_path / "login")) as caller:
        assert [THANKS] * 2 == [await caller.post("http://a.example/ok") for _ in range(2)]
    assert ["Proxy-Authorization: Basic d29ya2VyOnMzY3JldDrDqQ=="] * 2 == egress.logins
    assert "Proxy-Authorization" not in receiver.requests[0].headers


async def test_the_login_goes_with_a_tunnel(
    tmp_path: Path, receiver: Receiver, tls_egress: Egress
) -> None:
    """With CONNECT, not with the request inside."""
    (tmp_path / "login").write_text("worker:s3cret")
    async with calling(tls_egress.url, proxy_login_file=str(tmp_path / "login")) as caller:
        assert THANKS == await caller.post("https://a.example/ok")
    assert ["Proxy-Authorization: Basic d29ya2VyOnMzY3JldA=="] == tls_egress.logins
    assert "Proxy-Authorization" not in receiver.requests[0].headers


async def test_a_secret_is_not_told_to_the_proxy(receiver: Receiver, egress: Egress) -> None:
    """By plain http a header would pass through its hands, so it is not sent at all."""
    secrets = {"token": HeaderSecret(Secret("canary"), frozenset({"a.example"}))}
    async with calling(egress.url, secrets=secrets) as caller:
        outcome = await caller.post(
            "http://a.example/", headers={"authorization": "secret://token"}
        )
    assert Failed(error="a header names no secret that this host may get") == outcome
    assert [] == egress.asked


@pytest.mark.parametrize("status", ["403 Forbidden", "407 Proxy Authentication Required", "302 x"])
async def test_a_refusal_of_the_proxy_is_told(receiver: Receiver, status: str) -> None:
    """In the same words, whatever it was; the status is for the operator."""
    async with (
        Egress(("127.0.0.1", receiver.port), status=status).listening() as egress,
        calling(egress.url) as caller,
    ):
        outcome = await caller.post("https://a.example/")
        assert Failed(error="the proxy refused the call") == outcome
        assert [f"the proxy answered {status[:3]}"] == caller.details
    assert [] == receiver.requests


@pytest.mark.parametrize("host", ["127.0.0.1", "proxy.internal", "gone.internal"])
async def test_a_proxy_that_is_not_there_is_told(host: str) -> None:
    """Refused connections and names that lead nowhere; nothing goes round it."""
    names: dict[str, list[list[str]]] = {
        "a.example": [[OUTSIDE]], "proxy.internal": [["127.0.0.1"]], "gone.internal": [[]],
    }  # fmt: skip
    async with calling(f"http://{host}:{free_port()}", names=names) as caller:
        for scheme in ("http", "https"):
            outcome = await caller.post(f"{scheme}://a.example/")
            assert Failed(error="the proxy cannot be reached") == outcome


@pytest.mark.parametrize(
    ("options", "path", "words"),
    [
        ({"proxy": ""}, "http.proxy", "such as"),
        ({"proxy": "proxy.internal:3128"}, "http.proxy", "such as"),
        ({"proxy": "https://proxy.internal:3128"}, "http.proxy", "such as"),
        ({"proxy": "socks5://proxy.internal:1080"}, "http.proxy", "such as"),
        ({"proxy": "http://proxy.internal:3128/path"}, "http.proxy", "such as"),
        ({"proxy": "http://a:canary@proxy.internal:3128"}, "http.proxy", "proxy_login_file"),
        ({"proxy": "http://:canary@proxy.internal:3128"}, "http.proxy", "proxy_login_file"),
        ({"proxy_resolves": True}, "http.proxy", "missing"),
        ({"proxy_login_file": "/x"}, "http.proxy", "missing"),
    ],
)
def test_wrong_settings_are_refused(options: dict[str, Any], path: str, words: str) -> None:
    """With the name of the setting, without a password."""
    with pytest.raises(ConfigurationError, match=words) as caught:
        HttpConfig(**options)
    assert path == caught.value.path
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("content", [None, b"", b"canary", b":canary", b"\xff:canary"])
def test_a_login_that_is_none_is_refused(tmp_path: Path, content: bytes | None) -> None:
    """When the worker starts, without what is in the file."""
    file = tmp_path / "login"
    if content is not None:
        file.write_bytes(content)
    config = HttpConfig(proxy="http://proxy.internal:3128", proxy_login_file=str(file))
    with pytest.raises(ConfigurationError, match="user:password") as caught:
        HttpExecutor(config, SilentObserver())
    assert "canary" not in str(caught.value)
