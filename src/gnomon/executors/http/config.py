"""The settings of HTTP calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from yarl import URL

from gnomon.model.addresses import network_of
from gnomon.model.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpConfig:
    """Where calls may go, and how connections are made and kept. See [HTTP](../howto/http.md)."""

    connections_max: int = 1_000  # calls at the same time, of this process
    connections_per_host_max: int = 100  # calls at the same time to one host, of this process
    rate_per_host_max: float = 0.0  # calls a second to one host, of this process; 0: no limit
    connect_timeout: timedelta = timedelta(seconds=5)  # for each address that is tried
    # For the body, once the status is known; always ends before the attempt's own time does.
    answer_timeout: timedelta = timedelta(seconds=5)
    # Below the five seconds after which common servers hang up: a request sent into a connection
    # that is being closed fails, and is not repeated by itself.
    keep_alive: timedelta = timedelta(seconds=4)
    allow_http: bool = False  # plain http, too; its port must be in `ports`
    ports: tuple[int, ...] = (443,)  # that may be called
    # Networks that may be called although they are private or otherwise forbidden: `10.1.0.0/16`.
    allow_networks: tuple[str, ...] = ()
    # Hosts that may be called wherever their names lead: `billing.internal`, on one of `ports`;
    # `http://billing.internal:8080` is allowed just so, with its scheme and port.
    allow_hosts: tuple[str, ...] = ()
    only_hosts: tuple[str, ...] = ()  # if any: no other host is called
    # `localhost`, 127.0.0.0/8 and ::1, on any port, without https. `gnomon up` on SQLite, without
    # tokens, turns it on unless it is set: there, who may schedule is on this machine already.
    allow_loopback: bool = False
    # `http://host:port` of an egress proxy, through which all calls go but those to this machine.
    proxy: str | None = None
    proxy_login_file: str | None = None  # holds `user:password` for the proxy
    # Names are left to the proxy, not looked up and checked here first: for workers without DNS.
    proxy_resolves: bool = False

    def __post_init__(self) -> None:
        for name in ("connections_max", "connections_per_host_max"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"http.{name}", "must be at least 1")
        if not 0 <= self.rate_per_host_max <= 1e6:
            raise ConfigurationError("http.rate_per_host_max", "must be between 0 and 1,000,000")
        for name in ("connect_timeout", "answer_timeout", "keep_alive"):
            if getattr(self, name) <= timedelta(0):
                raise ConfigurationError(f"http.{name}", "must be more than 0")
        if not all(1 <= port <= 65535 for port in self.ports):
            raise ConfigurationError("http.ports", "must be between 1 and 65535")
        self._check_each("allow_networks", network_of, "such as 10.1.0.0/16")
        self._check_each(
            "allow_hosts", HostRule.read, "a host, or a URL with a host and nothing else"
        )
        self._check_each("only_hosts", host_of, "a host")
        self._check_proxy()

    def _check_proxy(self) -> None:
        """Without the value in the problem: who writes a password there shall not read it in a
        log."""
        if self.proxy is None:
            if self.proxy_login_file is not None or self.proxy_resolves:
                raise ConfigurationError("http.proxy", "is missing, though there are options of it")
            return
        if "@" in self.proxy:
            raise ConfigurationError("http.proxy", "must hold no login; use http.proxy_login_file")
        try:
            place = HostRule.read(self.proxy)
        except ValueError:
            place = None
        if place is None or place.scheme != "http" or not place.port:
            raise ConfigurationError("http.proxy", "must be such as http://proxy.internal:3128")

    def _check_each(self, name: str, read: Callable[[str], object], wanted: str) -> None:
        for text in getattr(self, name):
            try:
                read(text)
            except ValueError:
                raise ConfigurationError(f"http.{name}", f"{text!r} is not {wanted}") from None


@dataclass(frozen=True, slots=True)
class HostRule:
    """A host; with a scheme and a port if they matter."""

    host: str
    scheme: str | None = None
    port: int | None = None

    @classmethod
    def read(cls, text: str) -> HostRule:
        """`host`, or `scheme://host:port`. Errors: ValueError."""
        if "://" not in text:
            return cls(host_of(text))
        url = URL(text)
        rest = url.raw_path_qs.removeprefix("/") + url.raw_fragment + (url.raw_user or "")
        if url.scheme not in ("http", "https") or rest:
            raise ValueError(text)
        return cls(host_of(url.raw_host or ""), url.scheme, url.port)


def host_of(text: str) -> str:
    """A host as hosts are compared: small letters, no dot at the end. Errors: ValueError."""
    host = text.strip().lower().removesuffix(".").strip("[]")
    if not host or not host.isascii() or any(char in host for char in "/@ ?#\\*"):
        raise ValueError(text)
    if ":" in host:
        host = str(network_of(host).network_address)
    return host
