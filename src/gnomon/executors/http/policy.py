"""Where a call may go: the rules of the installation, asked before every step towards a receiver.

Before the name is resolved (`admit`), for all addresses it resolved to (`check`), and for the one
that was connected to (`check` again). Reasons are for operators; users hear one sentence.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from yarl import URL

from gnomon.executors.http.config import HostRule, HttpConfig, host_of
from gnomon.model.addresses import (
    address_of,
    is_forbidden,
    is_loopback,
    literal_of,
    network_of,
)

REFUSAL = "the address is not allowed"
# Names that cannot lead to the outside; not even asked for, for the question tells, too.
INNER_SUFFIXES = (
    "localhost", "local", "localdomain", "internal", "intranet", "lan", "corp", "home", "home.arpa",
    "private", "svc",
)  # fmt: skip
CACHE_MAX = 10_000


class NotAllowedError(Exception):
    """The call must not be made; the text is for the operator."""


class Policy:
    """The rules of `HttpConfig`."""

    def __init__(self, config: HttpConfig) -> None:
        self._config = config
        self._networks = tuple(network_of(text) for text in config.allow_networks)
        places = [HostRule.read(text) for text in config.allow_hosts]
        self._hosts = frozenset(place.host for place in places if place.scheme is None)
        self._origins = frozenset(
            (place.scheme, place.host, place.port) for place in places if place.scheme
        )
        self._host_ports = frozenset((host, port) for _, host, port in self._origins)
        self._only = frozenset(host_of(text) for text in config.only_hosts)
        self._admit_once = lru_cache(CACHE_MAX)(self._admit)  # what is refused is not remembered
        self._check_once = lru_cache(CACHE_MAX)(self._check)

    def admit(self, url: URL) -> None:
        """Scheme, host and port. Errors: NotAllowedError."""
        self._admit_once(url.scheme, url.raw_host or "", url.port)

    def _admit(self, scheme: str, raw: str, port: int | None) -> None:
        try:
            host, literal = host_of(raw), literal_of(raw)
        except ValueError:
            raise NotAllowedError("a number in place of a host is not a plain address") from None
        if self._only and host not in self._only:
            raise NotAllowedError("not in http.only_hosts")
        if (scheme, host, port) in self._origins or self.is_local(host):
            return
        if scheme != "https" and not (scheme == "http" and self._config.allow_http):
            raise NotAllowedError("http.allow_http is not set")
        if port not in self._config.ports:
            raise NotAllowedError(f"port {port} is not in http.ports")
        if host in self._hosts:
            return
        if literal is not None:
            if is_forbidden(literal, self._networks):
                raise NotAllowedError(f"{literal} is forbidden")
        elif not self._networks and is_inner(host):
            raise NotAllowedError("a name of an inner network")

    def is_named(self, raw: str, port: int) -> bool:
        """Whether the operator named this host: it is then looked up in all the ways there are."""
        host = host_of(raw)
        return host in self._hosts or (host, port) in self._host_ports or self.is_local(host)

    def check(self, raw: str, port: int, addresses: Iterable[str]) -> None:
        """All addresses of a host, or the one connected to. Errors: NotAllowedError, if any is
        forbidden: which of them would be taken is not ours to say."""
        for text in addresses:
            self._check_once(raw, port, text)

    def _check(self, raw: str, port: int, text: str) -> None:
        host = host_of(raw)
        if host in self._hosts or (host, port) in self._host_ports:
            return
        address = address_of(text)
        if self.is_local(host):
            if not is_loopback(address):
                raise NotAllowedError(f"{host} leads to {address}, away from this machine")
        elif is_forbidden(address, self._networks):
            raise NotAllowedError(f"{host} leads to {address}, which is forbidden")

    def is_local(self, host: str) -> bool:
        """Whether it is written as this machine, and this machine may be called."""
        if not self._config.allow_loopback:
            return False
        return host == "localhost" or is_loopback_literal(host)


def is_inner(host: str) -> bool:
    """Whether a name is of an inner network by its form: no dot, or a suffix kept for such."""
    return "." not in host or host.endswith(tuple(f".{suffix}" for suffix in INNER_SUFFIXES))


def is_loopback_literal(host: str) -> bool:
    """Whether a host is written as a loopback address."""
    try:
        literal = literal_of(host)
    except ValueError:
        return False
    return literal is not None and is_loopback(literal)
