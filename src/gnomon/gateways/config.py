"""Where the server listens."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal
from urllib.parse import urlsplit

from gnomon.model.errors import ConfigurationError
from gnomon.model.redaction import Redaction

COLORS = ("grey", "red", "orange", "green", "blue", "purple")
OTHERS_MAX = 50
NAME_CHARS_MAX = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Where the server listens, and who may call. Without authentication: this machine only."""

    host: str = "127.0.0.1"  # a loopback address, unless a token is needed
    port: int = 8321  # 0: any free port
    grpc_port: int | None = None  # None: no gRPC; 8322 is the usual one; 0: any free port
    # `token`: every call needs one; `auto`: as soon as a token was created
    auth: Literal["auto", "token"] = "auto"
    tls_cert: str | None = None  # a PEM file with the certificate and its chain
    tls_key: str | None = None  # a PEM file with its key
    # plain HTTP off loopback, where a proxy in front of the server speaks TLS
    allow_plain: bool = False
    grpc_tls_cert: str | None = None  # for gRPC; else `tls_cert`
    grpc_tls_key: str | None = None  # for gRPC; else `tls_key`
    grpc_tls_client_ca: str | None = None  # gRPC callers must have a certificate of this authority
    # paths whose values only the scope `admin` sees: `args.password`, `headers.authorization`,
    # `body.card.*`, `parameters.0`, `document.email`, `state.token`, `task.input`
    redact: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.auth not in ("auto", "token"):
            raise ConfigurationError("server.auth", f"must be auto or token, not {self.auth!r}")
        _check_pair("server.tls_cert", self.tls_cert, self.tls_key)
        _check_pair("server.grpc_tls_cert", self.grpc_tls_cert, self.grpc_tls_key)
        if self.grpc_tls_client_ca is not None and self.grpc_tls is None:
            raise ConfigurationError("server.grpc_tls_client_ca", "needs grpc_tls_cert and _key")
        if not is_loopback(self.host):
            self._check_open()
        if not 0 <= self.port <= 65535:
            raise ConfigurationError("server.port", "must be between 0 and 65535")
        if self.grpc_port is not None and not 0 <= self.grpc_port <= 65535:
            raise ConfigurationError("server.grpc_port", "must be between 0 and 65535")
        Redaction(self.redact)

    def _check_open(self) -> None:
        """Others can reach it: then they must say who they are, and nobody may listen in."""
        if self.auth != "token":
            raise ConfigurationError(
                "server.host",
                f"{self.host!r} is not a loopback address; with no authentication the server "
                'listens on 127.0.0.1, ::1 or localhost only: set server.auth = "token"',
            )
        is_plain = self.tls_cert is None or (self.grpc_port is not None and self.grpc_tls is None)
        if is_plain and not self.allow_plain:
            raise ConfigurationError(
                "server.tls_cert",
                f"is needed on {self.host!r}: tokens must not travel in clear text; "
                "behind a proxy that speaks TLS, set server.allow_plain = true",
            )

    @property
    def grpc_tls(self) -> tuple[str, str] | None:
        """Certificate and key of gRPC, if it speaks TLS."""
        for cert, key in ((self.grpc_tls_cert, self.grpc_tls_key), (self.tls_cert, self.tls_key)):
            if cert is not None and key is not None:
                return cert, key
        return None

    @property
    def url(self) -> str:
        """Where clients find it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.tls_cert is None else 'https'}://{host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleConfig:
    """How the console tells this installation from others, and where those are."""

    name: str = ""  # shown beside the brand on every page: production
    color: Literal["grey", "red", "orange", "green", "blue", "purple"] = "grey"  # of the name
    # other installations by name, and the addresses of their consoles
    others: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        if self.color not in COLORS:
            raise ConfigurationError("console.color", f"must be one of {', '.join(COLORS)}")
        if len(self.others) > OTHERS_MAX:
            raise ConfigurationError("console.others", f"are more than {OTHERS_MAX}")
        for name in (self.name, *self.others):
            if len(name) > NAME_CHARS_MAX or not name.isprintable():
                problem = f"a name is at most {NAME_CHARS_MAX} printable characters, not {name!r}"
                raise ConfigurationError("console.name", problem)
        for name, url in self.others.items():
            _check_console_url(f"console.others.{name}", url)


def _check_console_url(path: str, url: str) -> None:
    """Only what a link of ours may lead to. Errors: ConfigurationError."""
    try:
        parts = urlsplit(url)
        is_plain = not (parts.username or parts.password or parts.query or parts.fragment)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and is_plain
    except ValueError:
        is_good = False
    if not is_good or not url.isascii() or not url.isprintable() or " " in url:
        raise ConfigurationError(
            path,
            "must be the address of a console such as https://gnomon.example.org/, and no more",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConfig:
    """Where metrics can be scraped, besides `/metrics` of the server."""

    listen: str | None = None  # HOST:PORT, `127.0.0.1:9321`; port 0: any free one
    token_file: str | None = None  # holds the token that a scraper must send
    open: bool = False  # off loopback without a token, on a network that is yours alone

    def __post_init__(self) -> None:
        if self.listen is None:
            return
        host, _ = self.address
        if not is_loopback(host) and self.token_file is None and not self.open:
            raise ConfigurationError(
                "metrics.listen",
                f"{host!r} is not a loopback address: name a metrics.token_file, or set "
                "metrics.open = true (--metrics-open) if the network is yours alone",
            )

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        assert self.listen is not None
        host, _, port = self.listen.rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65535:
            raise ConfigurationError(
                "metrics.listen", f"write HOST:PORT, 127.0.0.1:9321, not {self.listen!r}"
            )
        return host.strip("[]"), int(port)


def _check_pair(path: str, cert: str | None, key: str | None) -> None:
    if (cert is None) != (key is None):
        raise ConfigurationError(path, "certificate and key go together")


def is_loopback(host: str) -> bool:
    """Whether a name or address can only mean this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
