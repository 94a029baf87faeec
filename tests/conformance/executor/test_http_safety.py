"""The HTTP executor's safety, one layer at a time: signatures, secrets, rates, the other end."""

from __future__ import annotations

import base64
import socket
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from standardwebhooks import Webhook

from gnomon.contracts.observer import SilentObserver
from gnomon.executors.http import HeaderSecret, HttpConfig, HttpTarget
from gnomon.executors.http.connector import CheckedResolver
from gnomon.executors.http.executor import HttpExecutor
from gnomon.model.errors import ConfigurationError
from gnomon.model.outcome import Failed, Outcome, Succeeded
from gnomon.model.secret import Secret
from gnomon.model.signature import verify
from gnomon.model.spec import Http
from tests.conformance.executor.suite import order_of
from tests.fixtures.receiver import Receiver

KEY = "whsec_" + base64.b64encode(b"k" * 32).decode()
NEXT_KEY = "whsec_" + base64.b64encode(b"n" * 32).decode()


class Noting(SilentObserver):
    def __init__(self) -> None:
        self.events: list[dict[str, object]] = []

    def event(self, name: str, /, **fields: object) -> None:
        self.events.append({"name": name, **fields})


class Calling:
    """Makes executors and closes them."""

    def __init__(self) -> None:
        self.noting = Noting()
        self.made: list[HttpExecutor] = []

    def executor(self, *, lookup: Any = None, **options: Any) -> HttpExecutor:
        settings = {"allow_loopback": True, **options.pop("settings", {})}
        extra = {"lookup": lookup} if lookup else {}
        found = HttpExecutor(HttpConfig(**settings), self.noting, **options, **extra)
        self.made.append(found)
        return found


@pytest.fixture
async def calling() -> AsyncIterator[Calling]:
    found = Calling()
    yield found
    for executor in found.made:
        await executor.close()


async def post(executor: HttpExecutor, url: str, **options: Any) -> Outcome:
    timeout_s = options.pop("timeout_s", 5.0)
    return await executor.execute(order_of(Http("POST", url, **options), timeout_s=timeout_s))


# -- signatures -----------------------------------------------------------------------------------


def target(prefix: str, *keys: str, name: str = "hooks") -> HttpTarget:
    signing_keys = tuple(Secret(key) for key in keys or (KEY,))
    return HttpTarget(name=name, url_prefix=prefix, signing_keys=signing_keys)


async def test_calls_under_the_prefix_are_signed(calling: Calling, receiver: Receiver) -> None:
    """By the standard, as its own library verifies it, and with the attempt as ours does."""
    targets = {"hooks": target(f"{receiver.url}/ok", KEY, NEXT_KEY)}
    executor = calling.executor(targets=targets)
    await post(executor, f"{receiver.url}/ok/a?b", json={"n": [1, "ä"]})
    await executor.execute(order_of(Http("GET", f"{receiver.url}/ok"), attempt_no=7))
    (first, second), (body, nothing) = receiver.requests, receiver.bodies
    for key in (KEY, NEXT_KEY):
        assert {"n": [1, "ä"]} == Webhook(key).verify(body, dict(first.headers))
    sent_at = datetime.fromtimestamp(int(second.headers["webhook-timestamp"]), UTC)
    late = order_of(Http("GET", "x")).deadline - timedelta(seconds=1)
    delivery = verify(second.headers, nothing, [KEY], now=late, tolerance=abs(late - sent_at))
    assert ("act_aaaaaaaaaaaaaaaaaaaaaaaaaa", 7) == delivery[:2]


@pytest.mark.parametrize(
    "path",
    [
        "/okay", "/", "/OK/a", "/x/ok", "/ok/../x", "/ok/%2e%2E/x", "/ok/..", "/ok/.%2e/x",
        "/ok/a%2f..",
    ],
)  # fmt: skip
async def test_calls_elsewhere_are_not_signed(
    calling: Calling, receiver: Receiver, path: str
) -> None:
    """Not beside the prefix, and not by steps back out of it."""
    executor = calling.executor(targets={"hooks": target(f"{receiver.url}/ok")})
    await post(executor, f"{receiver.url}{path}")
    assert not {"webhook-signature", "gnomon-signature"} & {
        name.lower() for name in receiver.requests[0].headers
    }


async def test_the_longest_prefix_gives_the_keys(calling: Calling, receiver: Receiver) -> None:
    """And another port is another receiver."""
    targets = {
        "all": target(receiver.url, KEY, name="all"),
        "one": target(f"{receiver.url}/ok/", NEXT_KEY, name="one"),
        "other": target("http://127.0.0.1:1/ok/a/", KEY, name="other"),
    }
    await post(calling.executor(targets=targets), f"{receiver.url}/ok/a/b", json=1)
    headers = dict(receiver.requests[0].headers)
    assert 1 == Webhook(NEXT_KEY).verify(receiver.bodies[0], headers)


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"url_prefix": "hooks"}, "targets.hooks.url_prefix"),
        ({"url_prefix": "ftp://a.example"}, "targets.hooks.url_prefix"),
        ({"signing_keys": ()}, "targets.hooks.signing_keys"),
        ({"signing_keys": (Secret("canary"),)}, "targets.hooks.signing_keys"),
        ({"signing_keys": (Secret(KEY),) * 6}, "targets.hooks.signing_keys"),
    ],
)
def test_wrong_targets_are_refused(options: dict[str, Any], path: str) -> None:
    """With the option's name, without its value."""
    good = {"name": "hooks", "url_prefix": "https://a.example", "signing_keys": (Secret(KEY),)}
    with pytest.raises(ConfigurationError) as caught:
        HttpTarget(**{**good, **options})
    assert path == caught.value.path
    assert "canary" not in str(caught.value)


# -- secrets --------------------------------------------------------------------------------------


def token(*hosts: str, value: str = "Bearer canary-7") -> dict[str, HeaderSecret]:
    return {"token": HeaderSecret(Secret(value), frozenset(hosts))}


HEADERS = {"authorization": "secret://token"}


async def test_a_secret_is_sent_to_its_host(calling: Calling, receiver: Receiver) -> None:
    executor = calling.executor(secrets=token("127.0.0.1"))
    assert isinstance(await post(executor, f"{receiver.url}/ok", headers=HEADERS), Succeeded)
    assert "Bearer canary-7" == receiver.requests[0].headers["Authorization"]


@pytest.mark.parametrize(
    ("secrets", "headers"),
    [
        (token("api.example"), HEADERS),
        (token("127.0.0.10", "0.0.1", ""), HEADERS),
        ({}, HEADERS),
        (token("127.0.0.1"), {"authorization": "secret://other"}),
    ],
)
async def test_a_secret_is_not_sent_elsewhere(
    calling: Calling, receiver: Receiver, secrets: Any, headers: dict[str, str]
) -> None:
    """A name that is not there and one that is not for this host: the same words, no request."""
    outcome = await post(calling.executor(secrets=secrets), f"{receiver.url}/ok", headers=headers)
    assert Failed(error="a header names no secret that this host may get") == outcome
    assert [] == receiver.requests


async def test_a_secret_is_not_sent_in_the_open(calling: Calling) -> None:
    """Not even where plain http is allowed, unless the operator named the host."""
    settings = {"allow_http": True, "ports": (80,)}
    executor = calling.executor(settings=settings, secrets=token("api.example"))
    outcome = await post(executor, "http://api.example/", headers=HEADERS)
    assert Failed(error="a header names no secret that this host may get") == outcome


@pytest.mark.parametrize("end", ["\r\nx-forged: 1", "\n", "\x00", "\x7f"])
async def test_a_secret_is_one_header(calling: Calling, receiver: Receiver, end: str) -> None:
    """A file with a line too much makes no header more: nothing is sent."""
    executor = calling.executor(secrets=token("127.0.0.1", value=f"Bearer canary-7{end}"))
    outcome = await post(executor, f"{receiver.url}/ok", headers=HEADERS)
    assert Failed(error="request not valid") == outcome
    assert [] == receiver.requests
    assert "canary" not in str(calling.noting.events)


async def test_a_receiver_that_repeats_a_secret_is_not_believed(
    calling: Calling, receiver: Receiver
) -> None:
    """What it says is kept without the secret, wherever the cut would be."""
    for value, answer in (("this is 500", "***"), ("Bearer is 500", "this ***")):
        executor = calling.executor(secrets=token("127.0.0.1", value=value))
        outcome = await post(executor, f"{receiver.url}/status/500", headers=HEADERS)
        assert Failed(error="answered 500", answer=answer) == outcome


# -- rates ----------------------------------------------------------------------------------------


async def test_a_host_gets_no_more_than_its_rate(calling: Calling, receiver: Receiver) -> None:
    """Two a second: the third waits, the fourth has no time to, and says for how long."""
    executor = calling.executor(settings={"rate_per_host_max": 2.0})
    outcomes = [await post(executor, f"{receiver.url}/ok", timeout_s=0.9) for _ in range(3)]
    assert [Succeeded(answer="thank you")] * 3 == outcomes
    refused = await post(executor, f"{receiver.url}/ok", timeout_s=0.05)
    assert isinstance(refused, Failed)
    assert "too many calls to this host" == refused.error
    assert refused.retry_after is not None
    assert timedelta(0) < refused.retry_after <= timedelta(seconds=0.5)
    assert 3 == len(receiver.requests)


async def test_another_way_to_write_a_host_has_no_rate_of_its_own(
    calling: Calling, receiver: Receiver
) -> None:
    """Capital letters and a dot at the end name the same host."""
    port = receiver.url.rpartition(":")[2]
    settings = {"rate_per_host_max": 1.0, "allow_hosts": (f"http://a.example:{port}",)}
    executor = calling.executor(settings=settings, lookup=answering("127.0.0.1"))
    for host in ("a.example", "A.Example"):
        await post(executor, f"http://{host}:{port}/ok", timeout_s=1.5)
    refused = await post(executor, f"http://a.EXAMPLE.:{port}/ok", timeout_s=0.05)
    assert isinstance(refused, Failed)
    assert "too many calls to this host" == refused.error
    assert {f"a.example:{port}"} == {request.headers["host"] for request in receiver.requests}


# -- addresses ------------------------------------------------------------------------------------


def answering(*addresses: str) -> Any:
    async def lookup(
        name: str, port: int, family: socket.AddressFamily
    ) -> Sequence[tuple[socket.AddressFamily, str]]:
        return [(socket.AF_INET6 if ":" in text else socket.AF_INET, text) for text in addresses]

    return lookup


@pytest.mark.parametrize("addresses", [("127.0.0.1",), ("93.184.216.34", "127.0.0.1"), ("::1",)])
async def test_a_name_that_leads_inside_is_refused(
    calling: Calling, receiver: Receiver, addresses: tuple[str, ...]
) -> None:
    """If any of its addresses is forbidden; the user is told little, the operator why."""
    settings = {"allow_http": True, "ports": (receiver.port,)}
    executor = calling.executor(settings=settings, lookup=answering(*addresses))
    outcome = await post(executor, f"http://a.example:{receiver.port}/ok")
    assert Failed(error="the address is not allowed") == outcome
    assert [] == receiver.requests
    assert "a.example leads to" in str(calling.noting.events[0]["detail"])


async def test_the_other_end_is_looked_at_again(
    calling: Calling, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Should a resolver ever let a forbidden address through, nothing is written to it."""

    async def careless(
        self: CheckedResolver, host: str, port: int = 0, family: int = 0
    ) -> list[dict[str, Any]]:
        kind = socket.AF_INET
        place = {"hostname": host, "host": "127.0.0.1", "port": port}
        return [{**place, "family": kind, "proto": 0, "flags": 0}]

    monkeypatch.setattr(CheckedResolver, "resolve", careless)
    settings = {"allow_http": True, "ports": (receiver.port,)}
    outcome = await post(
        calling.executor(settings=settings), f"http://a.example:{receiver.port}/ok"
    )
    assert Failed(error="the address is not allowed") == outcome
    assert [] == receiver.requests


async def test_specs_that_passed_by_admission_are_checked_all_the_same(
    calling: Calling, receiver: Receiver
) -> None:
    """A spec may come into the store by another way; its request is not made."""
    executor = calling.executor()
    for headers in ({"Host": "inner"}, {"webhook-id": "forged"}, {"Transfer-Encoding": "chunked"}):
        outcome = await post(executor, f"{receiver.url}/ok", headers=headers)
        assert Failed(error="request not valid") == outcome
    assert [] == receiver.requests
