"""Where the server listens."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from gnomon.model.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Where the REST server listens. Loopback only: there is no authentication yet."""

    host: str = "127.0.0.1"  # a loopback address
    port: int = 8321  # 0: any free port

    def __post_init__(self) -> None:
        if not is_loopback(self.host):
            raise ConfigurationError(
                "server.host",
                f"{self.host!r} is not a loopback address; the server has no authentication yet, "
                "so it listens on 127.0.0.1, ::1 or localhost only",
            )
        if not 0 <= self.port <= 65535:
            raise ConfigurationError("server.port", "must be between 0 and 65535")

    @property
    def url(self) -> str:
        """Where clients find it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


def is_loopback(host: str) -> bool:
    """Whether a name or address can only mean this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
