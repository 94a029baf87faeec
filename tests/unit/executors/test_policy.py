"""The policy of HTTP calls: schemes, ports, hosts, and what their names lead to."""

from __future__ import annotations

from typing import Any

import pytest
from yarl import URL

from gnomon.executors.http import HttpConfig
from gnomon.executors.http.policy import NotAllowedError, Policy
from gnomon.executors.http.rates import HostRates
from gnomon.model.errors import ConfigurationError


def verdict(url: str, *addresses: str, **settings: Any) -> str | None:
    """Why a call is refused; None if it is not."""
    policy, parsed = Policy(HttpConfig(**settings)), URL(url, encoded=True)
    try:
        policy.admit(parsed)
        policy.check(parsed.raw_host or "", parsed.port or 0, addresses)
    except NotAllowedError as exc:
        return str(exc)
    return None


def test_public_https_is_allowed() -> None:
    assert verdict("https://api.example/x?y", "93.184.216.34", "2606:2800::1") is None
    assert verdict("https://93.184.216.34/") is None
    assert verdict("https://[2606:2800::1]/") is None


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://api.example/", "allow_http"),
        ("http://93.184.216.34/", "allow_http"),
        ("ftp://api.example/", "allow_http"),
        *[(f"https://api.example:{port}/", "http.ports") for port in (22, 25, 5432, 6379, 8443)],
        ("https://2130706433/", "plain address"),
        ("https://0x7f.1/", "plain address"),
        ("https://127.0.0.1/", "forbidden"),
        ("https://[::1]/", "forbidden"),
        ("https://[::ffff:127.0.0.1]/", "forbidden"),
        ("https://169.254.169.254/latest/meta-data/", "forbidden"),
        ("https://localhost/", "inner"),
        ("https://localhost./", "inner"),
        ("https://intranet/", "inner"),
        ("https://metadata.google.internal/", "inner"),
        ("https://METADATA.GOOGLE.INTERNAL./", "inner"),
        ("https://kubernetes.default.svc.cluster.local/", "inner"),
        ("https://x.localhost/", "inner"),
    ],
)
def test_by_default_the_rest_is_refused(url: str, words: str) -> None:
    """https, port 443, no address and no name of an inner network."""
    found = verdict(url)
    assert found is not None
    assert words in found


@pytest.mark.parametrize(
    "addresses",
    [("127.0.0.1",), ("8.8.8.8", "10.0.0.1"), ("8.8.8.8", "::1"), ("::ffff:169.254.169.254",)],
)
def test_one_forbidden_address_is_enough(addresses: tuple[str, ...]) -> None:
    """Mixed answers are refused whole: nobody may choose among them."""
    assert "forbidden" in (verdict("https://rebind.example/", *addresses) or "")


def test_plain_http_needs_its_port() -> None:
    assert verdict("http://api.example/", allow_http=True) == "port 80 is not in http.ports"
    assert verdict("http://api.example/", "8.8.8.8", allow_http=True, ports=(80, 443)) is None


def test_allowed_networks_open_addresses_and_names() -> None:
    """The network, and nothing beside it."""
    networks = {"allow_networks": ("10.1.0.0/16",)}
    assert verdict("https://10.1.2.3/", **networks) is None
    assert verdict("https://billing.internal/", "10.1.2.3", **networks) is None
    assert verdict("https://10.2.2.3/", **networks) is not None
    assert verdict("https://billing.internal/", "10.1.2.3", "10.2.2.3", **networks) is not None


def test_allowed_hosts_open_one_host() -> None:
    """By name: its addresses are not looked at. As a URL: scheme and port are allowed with it."""
    by_name = {"allow_hosts": ("Billing.internal.",)}
    assert verdict("https://billing.internal/", "10.0.0.1", **by_name) is None
    assert verdict("http://billing.internal/", "10.0.0.1", **by_name) is not None
    assert verdict("https://x.billing.internal/", "10.0.0.1", **by_name) is not None
    by_url = {"allow_hosts": ("http://billing.internal:8080",)}
    assert verdict("http://billing.internal:8080/x", "10.0.0.1", **by_url) is None
    assert verdict("http://billing.internal/", "10.0.0.1", **by_url) is not None
    assert verdict("https://billing.internal/", "10.0.0.1", **by_url) is not None
    assert verdict("http://10.0.0.1:8080/", "10.0.0.1", **by_url) is not None


def test_only_hosts_close_all_others() -> None:
    assert verdict("https://api.example/", "8.8.8.8", only_hosts=("API.example",)) is None
    assert verdict("https://other.example/", only_hosts=("api.example",)) is not None
    assert verdict("http://127.0.0.1/", only_hosts=("a.example",), allow_loopback=True) is not None


def test_loopback_is_allowed_as_it_is_written() -> None:
    """As `localhost` or a loopback address, on any port; not through a name that leads there."""
    for host in ("localhost:8321", "LOCALHOST", "127.0.0.1:1", "127.9.9.9", "[::1]:8080"):
        assert verdict(f"http://{host}/", allow_loopback=True) is None, host
    assert verdict("http://localhost/", "127.0.0.1", "::1", allow_loopback=True) is None
    assert verdict("http://localhost/", "127.0.0.1", "10.0.0.1", allow_loopback=True) is not None
    assert verdict("https://rebind.example/", "127.0.0.1", allow_loopback=True) is not None
    assert verdict("http://0.0.0.0:8321/", allow_loopback=True) is not None
    assert verdict("http://10.0.0.1/", allow_loopback=True) is not None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("allow_networks", ("10.0.0.0/33",)),
        ("allow_networks", ("10.0.0.1/8",)),  # not a network: bits below the mask
        ("allow_hosts", ("http://a.example/path",)),
        ("allow_hosts", ("ftp://a.example",)),
        ("allow_hosts", ("*.example",)),
        ("allow_hosts", ("http://user@a.example",)),
        ("only_hosts", ("https://a.example",)),
        ("ports", (0,)),
        ("ports", (65536,)),
        ("rate_per_host_max", -1.0),
        ("rate_per_host_max", float("nan")),
    ],
)
def test_rules_that_mean_nothing_are_refused(name: str, value: object) -> None:
    """At start, with the name of the setting."""
    with pytest.raises(ConfigurationError, match=f"http.{name}"):
        HttpConfig(**{name: value})  # type: ignore[arg-type]


# -- rates ----------------------------------------------------------------------------------------


def test_a_host_gets_its_rate() -> None:
    """A second's worth at once, then one by one; another host has turns of its own."""
    rates = HostRates(4.0)
    waits = [rates.take("a", 100.0, 60.0) for _ in range(7)]
    assert [0.0, 0.0, 0.0, 0.0, 0.25, 0.5, 0.75] == waits
    assert 0.0 == rates.take("b", 100.0, 60.0)
    assert [0.0] * 4 + [0.25] == [rates.take("a", 110.0, 60.0) for _ in range(5)]


def test_a_turn_too_late_is_not_taken() -> None:
    """Who cannot wait leaves the turn to others."""
    rates = HostRates(0.5)
    assert 0.0 == rates.take("a", 100.0, 1.0)
    assert rates.take("a", 100.0, 1.0) is None
    assert 2.0 == rates.wait_s("a", 100.0)
    assert 2.0 == rates.take("a", 100.0, 10.0)
    assert 4.0 == rates.take("a", 100.0, 10.0)


def test_no_rate_is_no_limit() -> None:
    rates = HostRates(0.0)
    assert [0.0] * 1000 == [rates.take("a", 1.0, 0.0) for _ in range(1000)]
