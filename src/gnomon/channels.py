"""gRPC channels to services that others keep: where they are, whom to trust, how patient to be.

One call is one call: retries and hedging of the channel are off, for nobody would have counted
them, and so are proxies and settings that a name server could hand out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import grpc

from gnomon import __version__
from gnomon.model.errors import ConfigurationError
from gnomon.model.secret import Secret

PUSHBACK_KEY = "grpc-retry-pushback-ms"  # heeded by clients that retry: gRPC's proposal A6

_ADDRESS = re.compile(r"([A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):([0-9]{1,5})", re.ASCII)
_AUTHORITY = re.compile(r"[A-Za-z0-9._:\[\]-]{1,253}", re.ASCII)
_TOO_LARGE = "larger than max"  # gRPC's own words, in every version so far
_OPTIONS = (
    ("grpc.enable_retries", 0),
    ("grpc.service_config_disable_resolution", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.primary_user_agent", f"gnomon/{__version__}"),
    # Between two tries to connect, calls fail at once. The library's own pause grows to 2 minutes;
    # whoever calls decides how patient we are.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Above five minutes: common servers hang up on who pings more often than that during a call.
    ("grpc.keepalive_time_ms", 330_000),
    ("grpc.keepalive_timeout_ms", 20_000),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A service of somebody else's."""

    name: str
    address: str  # host:port, [IPv6]:port
    tls: bool = True  # without it everybody on the way reads and writes along
    ca_file: str | None = None  # the machine's authorities by default
    certificate_file: str | None = None  # who we are, if the service wants to know
    key_file: str | None = None
    authority: str | None = None  # the name in its certificate, if it is not the address'
    token: Secret | None = None  # sent as `authorization: Bearer …`

    def __post_init__(self) -> None:
        address = _ADDRESS.fullmatch(self.address)
        if address is None or not 1 <= int(address[2]) <= 65535:
            self.refuse("address", "must be host:port or [IPv6]:port")
        if self.authority is not None and not _AUTHORITY.fullmatch(self.authority):
            self.refuse("authority", "must be a host name, with a port or without")
        if not self.tls and any((self.ca_file, self.certificate_file, self.key_file)):
            self.refuse("tls", "must be true when files for TLS are given")
        if (self.certificate_file is None) != (self.key_file is None):
            self.refuse("key_file", "must come with a certificate_file, and the other way round")
        if self.token is not None and not re.fullmatch(r"[!-~]{1,4096}", self.token.reveal()):
            self.refuse("token", "must be visible ASCII")

    @property
    def path(self) -> str:
        """How the settings name it."""
        return f"targets.{self.name}"

    def refuse(self, option: str, problem: str) -> NoReturn:
        """Errors: ConfigurationError."""
        raise ConfigurationError(f"{self.path}.{option}", problem)

    def credentials(self) -> grpc.ChannelCredentials | None:
        """Certificates are always verified; None when the service is not spoken to with TLS."""
        if not self.tls:
            return None
        return grpc.ssl_channel_credentials(
            root_certificates=self._read("ca_file"),
            private_key=self._read("key_file"),
            certificate_chain=self._read("certificate_file"),
        )

    def _read(self, option: str) -> bytes | None:
        name: str | None = getattr(self, option)
        try:
            return None if name is None else Path(name).read_bytes()
        except OSError as exc:
            self.refuse(option, f"cannot be read: {exc.strerror}")


def open_channel(
    endpoint: Endpoint, credentials: grpc.ChannelCredentials | None, *, answer_bytes_max: int
) -> grpc.aio.Channel:
    """A channel, inside the running event loop; it connects with the first call."""
    options: list[tuple[str, Any]] = [
        *_OPTIONS,
        ("grpc.max_receive_message_length", answer_bytes_max),
    ]
    if endpoint.authority is not None:
        options.append(("grpc.default_authority", endpoint.authority))
    address = f"dns:///{endpoint.address}"  # no other scheme, whatever the host is called
    if credentials is None:
        return grpc.aio.insecure_channel(address, options=options)
    return grpc.aio.secure_channel(address, credentials, options=options)


def is_too_large(exc: grpc.aio.AioRpcError) -> bool:
    """Whether the service answered more than we take; it would do so again."""
    return exc.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE in (exc.details() or "")


def pushback_of(exc: grpc.aio.AioRpcError) -> timedelta | None:
    """How long the service wants to be left alone."""
    for name, value in exc.trailing_metadata() or ():
        if name == PUSHBACK_KEY and isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value):
            return timedelta(milliseconds=int(value))
    return None
